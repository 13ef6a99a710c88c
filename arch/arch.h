/* SPDX-License-Identifier: MIT */
/*
 * arch.h - the whole contract between dinst and one processor architecture.
 *
 * Everything above arch/ is free of opcodes and register names: it sees target
 * addresses, instructions as values, buffers into which code is emitted, and
 * register sets as bit masks. One folder per architecture implements this
 * header with plain functions; the Makefile picks the folder, so a function
 * that is missing is a link error.
 *
 * arch/ is pure: bytes in, bytes out. No I/O, no ptrace, no logging, no allocation that a
 * caller would have to give back. All functions are safe to call from several threads.
 *
 * What a stopped thread of the target is has a file of its own, arch/thread.h.
 *
 * Calling sequence of the usual journey of an instruction:
 *   1. arch_decode() turns bytes of the target into struct arch_insn, fast
 *      enough for whole modules; what only few are asked for is computed from
 *      that when it is asked: arch_effects(), arch_memory_operands();
 *   2. arch_live_before() says which registers and flags are dead there;
 *   3. arch_emit_*() and arch_relocate() write a trampoline into an arch_buf;
 *   4. arch_patch_*() produce the few bytes that lead from the target's own
 *      code to that trampoline.
 *
 * Errors: functions that can fail return 0 or a negative enum arch_status.
 * Emitters never fail one by one: the buffer's `status` is sticky and is
 * looked at once, at the end.
 */
#ifndef DINST_ARCH_ARCH_H
#define DINST_ARCH_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <state.h> /* arch/ARCH/state.h, chosen by the include path */

/* An address in the target. Never a pointer of ours. */
typedef uint64_t taddr_t;

/* A set of registers and flags; the bits belong to the architecture. */
typedef uint64_t arch_regset;

enum arch_status {
	ARCH_OK = 0,
	ARCH_TRUNCATED = -1,	/* the bytes end inside the instruction */
	ARCH_UNKNOWN = -2,	/* not an instruction that we are sure of */
	ARCH_NO_ROOM = -3,	/* the buffer is full */
	ARCH_OUT_OF_RANGE = -4, /* a displacement does not reach */
	ARCH_REFUSED = -5,	/* this instruction must not be relocated */
};

enum {
	ARCH_INSN_MAX = 16,	 /* longest instruction, bytes */
	ARCH_PATCH_MAX = 16,	 /* longest run of bytes a patch writes */
	ARCH_RELOCATED_MAX = 48, /* most bytes one relocated instruction takes */
	ARCH_OPERAND_NAME_MAX = 96,
};

/* What an instruction does to the flow of control. */
enum arch_flow {
	ARCH_FLOW_NEXT, /* falls through */
	ARCH_FLOW_CALL, /* direct call; target is valid */
	ARCH_FLOW_CALL_INDIRECT,
	ARCH_FLOW_JUMP, /* direct unconditional jump; target is valid */
	ARCH_FLOW_JUMP_INDIRECT,
	ARCH_FLOW_BRANCH, /* direct conditional jump; target is valid */
	ARCH_FLOW_RETURN,
	ARCH_FLOW_SYSCALL, /* enters the kernel; falls through */
	ARCH_FLOW_STOP,	   /* never falls through: trap, halt, undefined */
};

enum arch_insn_flag {
	ARCH_INSN_PC_RELATIVE = 1 << 0,	   /* has a pc-relative data operand: data_ref */
	ARCH_INSN_ADDRESS_OF = 1 << 1,	   /* ... and only computes that address (lea) */
	ARCH_INSN_NOP = 1 << 2,		   /* does nothing, any length */
	ARCH_INSN_PADDING = 1 << 3,	   /* fills gaps between functions: nops, int3 */
	ARCH_INSN_LANDING_PAD = 1 << 4,	   /* must stay where it is (endbr64) */
	ARCH_INSN_NO_MOVE = 1 << 5,	   /* arch_relocate() refuses it */
	ARCH_INSN_LOCKED = 1 << 6,	   /* carries a lock prefix */
	ARCH_INSN_MEMORY = 1 << 7,	   /* reads or writes memory: may fault */
	ARCH_INSN_INDEXED_JUMP = 1 << 8,   /* indirect jump through a scaled table operand */
	ARCH_INSN_NO_TRACK = 1 << 9,	   /* notrack jump: a jump table by construction */
	ARCH_INSN_STACK_OPERAND = 1 << 10, /* memory by the stack pointer, a push, a pop */
	ARCH_INSN_FRAME = 1 << 11,	   /* tears down a frame (pop, leave, add to sp) */
	ARCH_INSN_DIVIDES = 1 << 12,	   /* faults where the result does not fit */
	/* A load after which memory is reserved (load-exclusive), and what ends that: the store, or giving
	 * it up. Nothing of ours may run between the two: the store would fail, each time anew. */
	ARCH_INSN_EXCLUSIVE_LOAD = 1 << 13,
	ARCH_INSN_EXCLUSIVE_END = 1 << 14,
	ARCH_INSN_PREFIX =
		1 << 15, /* one with the instruction behind it, which must not move either */
};

/* One decoded instruction. A plain value. */
struct arch_insn {
	taddr_t address;
	taddr_t target;	  /* direct control flow: where it goes, else 0 */
	taddr_t data_ref; /* pc-relative or absolute table operand, else 0 */
	uint16_t flags;	  /* enum arch_insn_flag */
	uint8_t flow;	  /* enum arch_flow */
	uint8_t length;	  /* bytes */
	uint8_t bytes[ARCH_INSN_MAX];
};

static inline bool arch_is_call(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_CALL_INDIRECT;
}

/* True if control does not go on behind it, whoever is called. */
static inline bool arch_ends_line(const struct arch_insn *insn)
{
	return insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_JUMP_INDIRECT ||
	       insn->flow == ARCH_FLOW_RETURN || insn->flow == ARCH_FLOW_STOP;
}

/*
 * A place to put code: `bytes` is where we write it, `pc` where bytes[0] will
 * be when it runs. `status` is the first error, sticky.
 */
struct arch_buf {
	uint8_t *bytes;
	size_t size;
	size_t used;
	taddr_t pc;
	int status;
	struct arch_trace *trace; /* NULL: nobody asks */
};

/*
 * What a stack walk must know of emitted code: from `offset` in the buffer on,
 * up to the next mark, the code has moved the stack pointer down by `pushed`
 * bytes. Marks are in ascending order; `count` goes on where there is no room.
 */
struct arch_mark {
	uint32_t offset;
	uint32_t pushed;
};

struct arch_trace {
	struct arch_mark *marks;
	size_t count, room;
};

/* Bytes pushed at `offset` of a traced buffer. */
static inline size_t arch_pushed_at(const struct arch_trace *t, size_t offset)
{
	size_t pushed = 0;

	for (size_t i = 0; i < t->count && i < t->room && t->marks[i].offset <= offset; i++)
		pushed = t->marks[i].pushed;
	return pushed;
}

/* For emitters: what is emitted from here on runs with `pushed` bytes on the stack. */
static inline void arch_note_pushed(struct arch_buf *b, size_t pushed)
{
	struct arch_trace *t = b->trace;

	if (t && t->count < t->room)
		t->marks[t->count] =
			(struct arch_mark){.offset = (uint32_t)b->used, .pushed = (uint32_t)pushed};
	if (t)
		t->count++;
}

/* The address at which the next emitted byte will run. */
static inline taddr_t arch_here(const struct arch_buf *b)
{
	return b->pc + b->used;
}

/* ------------------------------------------------------------ decoding */

/*
 * Decodes one instruction that runs at `address` from at most `size` bytes.
 * Returns ARCH_OK and fills *insn, or ARCH_TRUNCATED / ARCH_UNKNOWN. An
 * instruction that the decoder cannot be sure of is ARCH_UNKNOWN.
 */
int arch_decode(const uint8_t *bytes, size_t size, taddr_t address, struct arch_insn *insn);

/*
 * Registers and flags: *reads are those whose old value may matter, *writes those that are wholly
 * overwritten whatever the values are. What may be kept in part or on a condition (16 bits, cmov) is
 * in neither. `insn` as arch_decode() filled it; computed anew by each call.
 */
void arch_effects(const struct arch_insn *insn, arch_regset *reads, arch_regset *writes);

/* The general registers that it may change: those that it overwrites, and those of which that is not sure. */
arch_regset arch_changes(const struct arch_insn *insn);
/*
 * True if on a condition it makes a register, all of it, a copy of another one, *from, or of memory
 * (*from is 0), and else leaves it as it is. arch_changes() names the register.
 */
bool arch_may_copy(const struct arch_insn *insn, arch_regset *from);
/* True if it changes none of the registers in which functions return results, vectors included. When in doubt it does. */
bool arch_keeps_results(const struct arch_insn *insn);

/*
 * Writes the assembler text of the instruction into `text` (at most `size`
 * bytes with the zero). For people: `dinst points -v` and test failures.
 */
void arch_format(const struct arch_insn *insn, char *text, size_t size);

/*
 * For the bounds of jump tables. arch_compares(): true if the instruction does
 * nothing but compare a register, or memory (*reg is 0), with a constant;
 * *limit is the constant as an unsigned number of the operand's width.
 * arch_condition(): what a conditional branch asks of two unsigned numbers
 * that were compared, the register's (or memory's) first.
 */
enum arch_condition {
	ARCH_CONDITION_OTHER, /* not a branch, or another question */
	ARCH_CONDITION_ABOVE,
	ARCH_CONDITION_ABOVE_EQUAL,
	ARCH_CONDITION_BELOW,
	ARCH_CONDITION_BELOW_EQUAL,
	ARCH_CONDITION_EQUAL,
	ARCH_CONDITION_NOT_EQUAL,
};
bool arch_compares(const struct arch_insn *insn, arch_regset *reg, uint64_t *limit);
enum arch_condition arch_condition(const struct arch_insn *insn);

/*
 * True if the instruction makes a register `factor` times what the one register that it reads held,
 * perhaps itself, and writes nothing else but flags: a shift, a multiplication by a constant, a sum
 * of one register with itself, a copy. All of 32 or 64 bits, what does not fit is lost.
 * arch_effects() names the registers.
 */
bool arch_multiplies(const struct arch_insn *insn, uint64_t *factor);
/*
 * True if the instruction makes a register the sum of two registers, or of itself and memory, and of
 * nothing else: neither is multiplied. On aarch64 one may be extended and shifted.
 */
bool arch_adds(const struct arch_insn *insn);
/*
 * True if the instruction makes a register of the one register that it reads, perhaps itself, and of
 * constants: of `held` it makes *made. A copy, a sum with a constant; on x86-64 also a difference, and
 * the bits of both. All of 32 or 64 bits, what does not fit is lost.
 */
bool arch_makes(const struct arch_insn *insn, uint64_t held, uint64_t *made);
/* True if it makes a register the lower part of another one, or of itself, extended by zeros or by the sign. */
bool arch_extends(const struct arch_insn *insn);
/* True if it makes a whole register 0 and does nothing else, flags apart. */
bool arch_clears(const struct arch_insn *insn);

/*
 * One access to memory. Its address is, of the register values just before the
 * instruction,
 *
 *	offset + base + (index extended, << shift) + thread pointer
 *
 * where the thread pointer takes part if thread_relative says so. Where the pieces do not tell the
 * address (a vector of addresses, a bit string, 32-bit addresses, %gs), computable is false and they
 * mean nothing.
 *
 * size is 0 where it depends on values or there are many places: repeated string instructions (the
 * address is that of the first element; there may be none), state saved by xsave, gathers. Elements
 * that a mask leaves out count.
 */
enum { ARCH_MEMORY_MAX = 2, ARCH_NO_REGISTER = 0xff };

struct arch_memory {
	uint32_t size; /* bytes */
	bool load, store;
	bool computable;
	bool thread_relative;
	uint8_t base, index; /* bit numbers of an arch_regset, or ARCH_NO_REGISTER */
	uint8_t shift;
	uint8_t extend; /* the architecture's own: how the index is extended */
	int64_t offset; /* where there is no register: the whole address */
};

/*
 * Lists what the instruction loads and stores, explicit operands and what push, pop, call, return
 * and string instructions do by themselves, loads first. Returns how many there are. Prefetches, lea
 * and nops have none.
 */
unsigned arch_memory_operands(const struct arch_insn *insn,
			      struct arch_memory memory[ARCH_MEMORY_MAX]);

/*
 * Looks at every offset of `bytes` (not only at instruction heads) for things that would be a direct
 * branch, a call or the computation of a code address, and calls `found` with the target of each: a
 * cheap superset of "who jumps where" over a whole section. Targets outside [lo, hi) are not reported.
 */
void arch_scan_references(const uint8_t *bytes, size_t size, taddr_t address, taddr_t lo,
			  taddr_t hi, void (*found)(void *arg, taddr_t from, taddr_t target),
			  void *arg);

/*
 * The registers and flags that may still be needed just before insns[at], proved only by the
 * instructions given (sorted by address, contiguous pieces of one function; branches are followed
 * inside the array, anything that leaves it counts as "everything live"). Never assumes a convention.
 */
arch_regset arch_live_before(const struct arch_insn *insns, size_t count, size_t at);

/* Everything: the answer for a place about which nothing is known. */
extern const arch_regset arch_all_live;

/* What nobody looks at where a function begins, unless its code does: no argument is in there. */
extern const arch_regset arch_entry_scratch;

/* The stack pointer: every instruction that leaves a function counts as reading it. */
extern const arch_regset arch_always_live;

/*
 * What a call leaves as it was, and what a function finds there is its caller's. Where a load or a division raises an exception
 * (-fnon-call-exceptions, Ada), its landing pad finds them as they were then, whatever follows the load.
 */
extern const arch_regset arch_callee_saved;

/* ------------------------------------------- relocation and emission */

/*
 * Emits `insn` so that it does at arch_here(out) what it did at its own
 * address. A call leaves the original return address (insn->address + insn->length)
 * on the stack, and control comes back to the target's own code, not to the copy; an
 * address of ours stands there only while the program counter is in the copy. Fails
 * (sticky) with ARCH_REFUSED or ARCH_OUT_OF_RANGE.
 */
void arch_relocate(const struct arch_insn *insn, struct arch_buf *out);

/*
 * Emits the direct conditional branch or jump `insn` with another target: it
 * goes to `taken` exactly where the original would go to insn->target, and on
 * to what follows in `out` otherwise (a jump: never). The condition's own
 * effects (loop counts down) happen once, as they did. Fails (sticky) with
 * ARCH_REFUSED for anything else, xbegin included, or ARCH_OUT_OF_RANGE.
 */
void arch_relocate_branch(const struct arch_insn *insn, taddr_t taken, struct arch_buf *out);

/* True if control can run past the relocated copy of insn (it is not a jump,
 * a return, a stop, nor a call: those go on in the target's own code). */
bool arch_falls_through(const struct arch_insn *insn);

/* Emits an unconditional jump to `target`. Needs no register, no flag, no stack. */
void arch_emit_jump(struct arch_buf *out, taddr_t target);

/*
 * Emits the far half of a patched call site: for a direct call that has been
 * retargeted or overwritten in place by a call to us, a jump to what it called
 * (the return address is on the stack already). Operands based on the stack
 * pointer are adjusted.
 */
void arch_emit_call_tail(const struct arch_insn *call, struct arch_buf *out);

/*
 * Emits a gate: stores 1 to the 32-bit word at `arrived`, waits until the word at `go` is not 0 or
 * the word at `budget` has been counted down to 0 by one a turn (some ten nanoseconds), then goes to
 * `next`. Clobbers the flags: for a program's entry point, where the psABI leaves them undefined.
 */
enum { ARCH_GATE_MAX = 64 };
void arch_emit_gate(struct arch_buf *out, taddr_t arrived, taddr_t go, taddr_t budget,
		    taddr_t next);

/*
 * Fills memory that nobody may run through with code in which a thread stays, wherever it comes in
 * (but for the last byte): it spins, harms nothing, can be found. No trap, which the program would see.
 */
void arch_fill_poison(uint8_t *bytes, size_t size);

/*
 * A switch: an aligned word of ARCH_SWITCH_SIZE bytes that holds either nothing
 * to do, and control falls into what follows it, or a jump. One aligned 64-bit
 * store turns it under running threads. (x86-64: a no-op of eight bytes or a
 * near jump; each is fetched whole or not at all.)
 */
enum { ARCH_SWITCH_SIZE = 8 };

/* Pads, then emits a switch that falls through. Returns its offset in `out`. */
size_t arch_emit_switch(struct arch_buf *out);

/* The word that makes the switch at `switch_pc` lead to `target`, or fall through where
 * that is 0. *value is set on ARCH_OK only; else ARCH_OUT_OF_RANGE. */
int arch_switch_value(taddr_t switch_pc, taddr_t target, uint64_t *value);

/*
 * False where a switch must not be turned under running threads: in an emulator that fetches
 * instructions byte by byte while another of its processors stores (QEMU's TCG, which
 * gives its name in CPUID leaf 40000000h). A thread there was seen to execute half a no-op and half a jump.
 */
bool arch_switches_are_whole(void);

/* ----------------------------------------------------- frames of snippets */

/*
 * A frame surrounds the snippets that run at one place: it finds or makes the
 * registers that they need and puts back what may be needed afterwards.
 *
 *   1. `live` and `red_zone` are set, the rest is 0;
 *   2. each snippet raises the needs (arch_count_needs() and its like);
 *   3. arch_frame_open(), the snippets one after the other, arch_frame_close().
 *
 * Nothing is saved that is dead, or that is not changed.
 */
enum arch_need {
	ARCH_NEED_FLAGS = 1 << 0, /* changes flags */
	ARCH_NEED_TEST = 1 << 1,  /* reg[0] is one that can be tested without flags */
	ARCH_NEED_STACK = 1 << 2, /* changes memory below the stack pointer itself */
};

enum { ARCH_SCRATCH_MAX = 9, ARCH_SLOTS_MAX = 200 };

struct arch_frame {
	arch_regset live;  /* what must be preserved (arch_live_before) */
	bool red_zone;	   /* bytes below the stack pointer may be live */
	uint8_t before;	   /* bytes of stack that the way here has taken: a call's */
	uint8_t needs;	   /* enum arch_need */
	uint8_t scratch;   /* general registers wanted, at most ARCH_SCRATCH_MAX */
	uint8_t slots;	   /* words on the stack wanted, for values that have no register */
	arch_regset reads; /* registers whose contents at the place are wanted, dead or not: never
			      scratch, and kept somewhere if they are among `fixed` */
	arch_regset fixed; /* registers that operations must have by name: never scratch either */

	/* Set by arch_frame_open(). */
	uint8_t reg[ARCH_SCRATCH_MAX]; /* the registers to use, numbers of the architecture */
	uint16_t pushed;	       /* bytes of stack between open and close */
	uint64_t saves;		       /* the architecture's own */
};

void arch_frame_open(struct arch_buf *out, struct arch_frame *frame);
void arch_frame_close(struct arch_buf *out, const struct arch_frame *frame);

/*
 * Emits code that computes the address of an access into the one register that
 * is the only bit of `destination`. To run just before the instruction (or its
 * copy): base and index must still hold what the instruction will see, and
 * `pushed` says by how many bytes the stack pointer is lower than it will be
 * then. Writes no other register, no flag and no memory; reads none but the
 * thread's own block. Fails (sticky) with ARCH_REFUSED where the access is not
 * computable, or `destination` is the index, or the base of a thread-relative
 * access, or the stack pointer; else any register will do, the base included.
 * With a thread-relative access it takes the thread pointer from where the
 * psABI's TLS keeps it (x86-64: %fs:0), which code without that TLS lacks.
 */
enum { ARCH_ADDRESS_MAX = 32 }; /* most bytes it takes */
void arch_emit_effective_address(struct arch_buf *out, const struct arch_memory *memory,
				 arch_regset destination, size_t pushed);

/*
 * Stores that address into the 64-bit word at `word`, in a frame that nobody
 * else uses (others' snippets may have changed base and index): raise its needs
 * first. `pushed`: what the stack pointer is lower by besides the frame's own.
 */
void arch_record_needs(struct arch_frame *frame);
void arch_emit_record_address(const struct arch_memory *memory, taddr_t word, size_t pushed,
			      const struct arch_frame *frame, struct arch_buf *out);

/* ------------------------------------------------------------ counters */

/*
 * A counter is one 64-bit slot in a block per possible CPU:
 *
 *     counter_address + (cpu << cpu_shift)       cpu = 0 .. cpus-1
 *     counter_address + (cpus << cpu_shift)      the locked slot
 *
 * ARCH_COUNT_PER_CPU increments the current CPU's slot in a restartable sequence (rseq,
 * include/uapi/linux/rseq.h), falling back to the locked slot where the thread has no CPU id; it
 * needs counter_address + all blocks and the table of CPUs below 2 GiB. ARCH_COUNT_LOCKED
 * increments the locked slot atomically, and uses no thread pointer.
 */
enum arch_count_mode { ARCH_COUNT_PER_CPU, ARCH_COUNT_LOCKED };

struct arch_counter {
	enum arch_count_mode mode;
	taddr_t counter_address; /* slot of CPU 0 */
	unsigned cpu_shift;	 /* log2 of the bytes of one CPU's block */
	unsigned cpus;		 /* possible CPUs */
	int64_t rseq_offset;	 /* struct rseq relative to the thread pointer */
	uint32_t rseq_signature; /* as the target's threads registered it */
	bool clears;		 /* rseq_cs is 0 again behind the sequence */
	/*
	 * A table for sequences that must not touch the flags: the word for CPU n,
	 * at cpu_table + 8 * n, is (n << cpu_shift) + 1; those for -1 and -2, which
	 * mean that there is no CPU id (include/uapi/linux/rseq.h), are 0, and so are
	 * those from `cpus` on, as far as there are any.
	 */
	taddr_t cpu_table;
};

/* Raises what `frame` provides to what arch_emit_count() needs. */
void arch_count_needs(const struct arch_counter *spec, struct arch_frame *frame);

/*
 * Emits one increment inside an open frame. What is seldom or never executed,
 * and the rseq_cs descriptor, goes to `cold` (ARCH_COUNT_COLD bytes at most,
 * aligned to ARCH_COUNT_ALIGN by itself): the abort handler and the locked path.
 *
 * Unless it `clears`, rseq_cs may go on pointing to the descriptor long after the sequence, and the
 * kernel kills who has one that leads to something else. So before `cold` is given back or written anew,
 * each must be cleared while its thread is stopped; one whose pc is in it keeps it from being freed.
 */
enum { ARCH_COUNT_COLD = 96, ARCH_COUNT_HOT = 96, ARCH_COUNT_ALIGN = 32 };
void arch_emit_count(const struct arch_counter *spec, const struct arch_frame *frame,
		     struct arch_buf *out, struct arch_buf *cold);

/* ------------------------------------------------------------- patches */

/* The ways in which the target's own bytes lead to a trampoline. */
enum arch_patch_kind {
	ARCH_PATCH_JUMP,       /* a near jump over the window's first bytes */
	ARCH_PATCH_SHORT_JUMP, /* a short jump to a hole that holds a near jump */
	ARCH_PATCH_RETARGET,   /* the displacement of the branch or call itself */
	ARCH_PATCH_CALL,       /* an indirect call overwritten by a near call of the same length */
};

/* Sizes and reach, for those who look for windows and holes. */
extern const size_t arch_jump_size;	    /* bytes of a near jump: 5 */
extern const size_t arch_short_jump_size;   /* 2 */
extern const int64_t arch_jump_reach;	    /* bytes either way, from the end of the jump */
extern const int64_t arch_short_jump_reach; /* the shorter of the two directions */
extern const size_t arch_call_pushes;	    /* bytes of stack that a call takes: 8 */
/*
 * A near jump that has one byte too little room before a direct call may have the call's first
 * byte for its last: then it leads so far below the call, least and most. 0: there are none.
 */
extern const taddr_t arch_shared_jump_least, arch_shared_jump_most;

/*
 * True if `insn` can be patched in itself as `kind` (RETARGET: direct calls,
 * jumps and conditional jumps with a 32-bit displacement; CALL: indirect calls
 * at least as long as a near call, which the prefixes allowed by the
 * architecture bring to the same length).
 */
bool arch_patchable(const struct arch_insn *insn, enum arch_patch_kind kind);

/*
 * Writes into `bytes` the new contents of `length` bytes at `address`:
 * JUMP and SHORT_JUMP: a jump to `to`, the rest of the length unchanged (the
 * caller passes the old bytes in `bytes`). RETARGET and CALL: `insn` made to
 * lead to `to`. *first and *count receive the range that differs and must be
 * written. Returns ARCH_OK or ARCH_OUT_OF_RANGE.
 */
int arch_patch(enum arch_patch_kind kind, const struct arch_insn *insn, taddr_t address, taddr_t to,
	       uint8_t *bytes, size_t length, size_t *first, size_t *count);

/* Length of the breakpoint of a debugger or uprobe that the code begins with; 0: none. */
size_t arch_breakpoint(const uint8_t *code, size_t size);

/* ELF machine number (EM_X86_64) and the name of the architecture. */
extern const uint16_t arch_elf_machine;
extern const char *const arch_name;

#endif
