/* SPDX-License-Identifier: MIT */
/*
 * stack_walk.c - walking the copied stacks by the target's unwind tables.
 *
 * libunwind does the DWARF; what it reads comes from the copies, and constant
 * memory (unwind tables) from the target, which runs meanwhile. A walk counts
 * as complete only if every step was made by a table and the last one said
 * that there is no caller: libunwind's guesses by frame pointers do not count,
 * nor, where memory is to be freed, a zero on the stack, to which a table that is wrong may lead.
 *
 * Where a frame's program counter is in our own code, which no table
 * describes, the walk starts afresh at the place in the target's own code that
 * stands for it (`home`), with what we have pushed taken off the stack.
 *
 * The tables are the target's, who may have written anything there: what they
 * make libunwind read and keep is bounded for each step, and what the processor
 * refuses (INT64_MIN / -1 in an expression, a register number that libunwind
 * takes for an index) ends the walk, not us.
 */
#include <libunwind.h>

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "inject/stack_walk.h"

enum {
	FRAMES_MAX = 200000,
	ACCESSES_MAX = 1 << 25, /* by one walker: a second or so; every byte of a table counts */
	STEP_MAX = 1 << 16,	/* by one step: a state that is remembered takes one, and 1 KiB */
};

/* Exported by libunwind and declared in none of its headers. */
extern int UNW_OBJ(dwarf_search_unwind_table)(unw_addr_space_t as, unw_word_t ip,
					      unw_dyn_info_t *di, unw_proc_info_t *pi,
					      int need_unwind_info, void *arg);

/* --------------------------------------------------- libunwind's accessors */

static int find_proc_info(unw_addr_space_t space, unw_word_t ip, unw_proc_info_t *info, int need,
			  void *arg)
{
	struct stack_walk *w = arg;
	const struct unwind_table *table = unwind_find(&w->memory, ip);
	unw_dyn_info_t di;
	int result;

	if (!table) {
		w->guessed = true;
		return -UNW_ENOINFO;
	}
	memset(&di, 0, sizeof(di));
	di.format = UNW_INFO_FORMAT_REMOTE_TABLE;
	di.start_ip = table->lo;
	di.end_ip = table->hi;
	di.u.rti.segbase = table->header;
	di.u.rti.table_data = table->table;
	di.u.rti.table_len = table->entries * 8 / sizeof(unw_word_t);
	result = UNW_OBJ(dwarf_search_unwind_table)(space, ip, &di, info, need, arg);
	if (result < 0)
		w->guessed = true;
	return result;
}

/* libunwind gives back by itself what a table look-up allocated. */
static void put_unwind_info(unw_addr_space_t space, unw_proc_info_t *info, void *arg)
{
	(void)space;
	(void)info;
	(void)arg;
}

static int get_dyn_info_list_addr(unw_addr_space_t space, unw_word_t *address, void *arg)
{
	(void)space;
	(void)address;
	(void)arg;
	return -UNW_ENOINFO;
}

static int access_mem(unw_addr_space_t space, unw_word_t address, unw_word_t *value, int write,
		      void *arg)
{
	struct stack_walk *w = arg;
	const uint8_t *bytes;

	(void)space;
	if (write || w->accesses >= ACCESSES_MAX || w->accesses >= w->step_end)
		return -UNW_EINVAL;
	w->accesses++;
	w->last_access = address;
	bytes = snapshot_bytes(w->shot, address, sizeof(*value));
	if (bytes) {
		memcpy(value, bytes, sizeof(*value));
		return 0;
	}
	if (w->copied && address + sizeof(*value) > w->own_lo && address < w->own_hi)
		return -UNW_EINVAL;
	return unwind_read(&w->memory, address, value, sizeof(*value)) ? 0 : -UNW_EINVAL;
}

static int access_reg(unw_addr_space_t space, unw_regnum_t number, unw_word_t *value, int write,
		      void *arg)
{
	struct stack_walk *w = arg;

	(void)space;
	if (write || number < 0 || (unsigned)number >= w->register_count ||
	    !(w->known >> number & 1))
		return -UNW_EBADREG;
	*value = w->registers[number];
	return 0;
}

static int access_fpreg(unw_addr_space_t space, unw_regnum_t number, unw_fpreg_t *value, int write,
			void *arg)
{
	(void)space;
	(void)number;
	(void)value;
	(void)write;
	(void)arg;
	return -UNW_EBADREG;
}

static int resume(unw_addr_space_t space, unw_cursor_t *cursor, void *arg)
{
	(void)space;
	(void)cursor;
	(void)arg;
	return -UNW_EINVAL;
}

static int get_proc_name(unw_addr_space_t space, unw_word_t address, char *name, size_t size,
			 unw_word_t *offset, void *arg)
{
	(void)space;
	(void)address;
	(void)name;
	(void)size;
	(void)offset;
	(void)arg;
	return -UNW_ENOINFO;
}

bool stack_walker_init(struct stack_walk *w, const struct snapshot *shot, stack_home home,
		       void *arg)
{
	unw_accessors_t accessors = {
		.find_proc_info = find_proc_info,
		.put_unwind_info = put_unwind_info,
		.get_dyn_info_list_addr = get_dyn_info_list_addr,
		.access_mem = access_mem,
		.access_reg = access_reg,
		.access_fpreg = access_fpreg,
		.resume = resume,
		.get_proc_name = get_proc_name,
	};

	memset(w, 0, sizeof(*w));
	w->known = UINT64_MAX;
	w->shot = shot;
	w->home = home;
	w->home_arg = arg;
	if (!unwind_memory_init(&w->memory, shot->target, &shot->maps))
		return false;
	w->space = unw_create_addr_space(&accessors, 0);
	if (!w->space) {
		unwind_memory_release(&w->memory);
		return false;
	}
	unw_set_caching_policy(w->space, UNW_CACHE_GLOBAL);
	return true;
}

void stack_walker_release(struct stack_walk *w)
{
	unw_destroy_addr_space(w->space);
	unwind_memory_release(&w->memory);
}

/* ------------------------------------------------------------------ a step */

/* Where a step of this thread goes on that did what it must not. */
static _Thread_local sigjmp_buf *way_out;

enum { FAULTS = 3 };
static const int faults[FAULTS] = {SIGFPE, SIGSEGV, SIGBUS};
static struct sigaction others[FAULTS]; /* whose faults these are outside of steps */

static void at_fault(int sig, siginfo_t *info, void *context)
{
	size_t at = 0;

	if (way_out)
		siglongjmp(*way_out, 1);
	while (at + 1 < FAULTS && faults[at] != sig)
		at++;
	if (others[at].sa_flags & SA_SIGINFO)
		others[at].sa_sigaction(sig, info, context);
	else if (others[at].sa_handler != SIG_DFL && others[at].sa_handler != SIG_IGN)
		others[at].sa_handler(sig);
	else
		signal(sig, SIG_DFL); /* it is made again, and ends us */
}

/* At each walk: others may have come in between (image_map.c). */
static void install(sigset_t *set)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	struct sigaction own, now;

	memset(&own, 0, sizeof(own));
	own.sa_sigaction = at_fault;
	own.sa_flags = SA_SIGINFO | SA_NODEFER;
	sigemptyset(&own.sa_mask);
	sigemptyset(set);
	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < FAULTS; i++) {
		sigaddset(set, faults[i]);
		if (sigaction(faults[i], NULL, &now) || now.sa_sigaction == at_fault)
			continue;
		others[i] = now;
		sigaction(faults[i], &own, NULL);
	}
	pthread_mutex_unlock(&lock);
}

/* As unw_step(). libunwind holds no lock where it goes by what tables say of registers. */
static int step(struct stack_walk *w, unw_cursor_t *cursor)
{
	sigjmp_buf here;
	int result;

	w->step_end = w->accesses + STEP_MAX;
	w->last_access = 0;
	if (!sigsetjmp(here, 0)) {
		way_out = &here;
		result = unw_step(cursor);
	} else {
		result = -UNW_EBADFRAME;
	}
	way_out = NULL;
	return result;
}

/* -------------------------------------------------------------------- walk */

/*
 * The frame in w->registers; if it is in our own code they become those of the
 * frame that stands for it.
 */
static struct stack_frame go_home(struct stack_walk *w)
{
	struct stack_frame frame = {.pc = w->registers[UNW_REG_IP]};
	size_t pushed = 0;

	frame.is_inside = w->home && w->home(w->home_arg, frame.pc, &frame.home, &pushed);
	if (frame.is_inside) {
		w->registers[UNW_REG_IP] = frame.home;
		w->registers[UNW_REG_SP] += pushed;
	} else {
		/* Where it returns to; by its registers it is in the call. */
		frame.pc += w->behind;
		frame.home = frame.pc;
		frame.returns = w->behind;
	}
	frame.guessed = w->by_pointer;
	w->behind = w->by_pointer = false;
	frame.sp = w->registers[UNW_REG_SP];
	return frame;
}

/* Takes over the cursor's frame, to start there again. */
static bool save_frame(struct stack_walk *w, unw_cursor_t *cursor)
{
	unw_word_t value;

	for (unsigned i = 0; i < w->register_count; i++)
		if (!unw_get_reg(cursor, (unw_regnum_t)i, &value))
			w->registers[i] = value;
		else
			w->known &= ~(1ull << i);
	return !unw_get_reg(cursor, UNW_REG_IP, &value) && value == w->registers[UNW_REG_IP];
}

bool stack_walk_is_sigreturn(struct stack_walk *w, taddr_t pc)
{
	uint8_t code[ARCH_SIGRETURN_CODE];

	return unwind_read(&w->memory, pc, code, sizeof(code)) &&
	       arch_is_sigreturn(code, sizeof(code));
}

/* True if a handler returns to the frame: its caller was interrupted. */
static bool is_signal_frame(struct stack_walk *w, unw_cursor_t *cursor)
{
	unw_word_t ip;

	/* unw_is_signal_frame() tells it one frame later. */
	return !unw_get_reg(cursor, UNW_REG_IP, &ip) && stack_walk_is_sigreturn(w, ip);
}

/* What a step by the frame pointer must know. */
struct by_pointer {
	unw_word_t sp, fp;
	bool known;
};

static struct by_pointer pointer_of(const struct stack_walk *w, unw_cursor_t *cursor)
{
	struct by_pointer p = {0};
	unsigned number;

	p.known = w->copied && arch_preserved(0, &number) &&
		  !unw_get_reg(cursor, UNW_REG_SP, &p.sp) &&
		  !unw_get_reg(cursor, (unw_regnum_t)number, &p.fp);
	return p;
}

/*
 * True if a table has said that nobody called the frame. Where it says where that is, that is
 * read last, and libunwind ends at a zero, and where the frame pointer is said to be lost. Zero
 * is what threads and fibers may begin with, but on a stack it may be anything.
 */
static bool is_start(const struct stack_walk *w)
{
	const struct maps_entry *entry;
	const uint8_t *bytes;
	uint64_t caller;

	if (!w->last_access)
		return true;
	bytes = snapshot_bytes(w->shot, w->last_access, sizeof(caller));
	if (bytes) {
		memcpy(&caller, bytes, sizeof(caller));
		return !caller && !w->wary;
	}
	entry = maps_find(&w->shot->maps, w->last_access);
	return entry && !(entry->protection & PROT_WRITE);
}

static bool is_code(const struct stack_walk *w, taddr_t address)
{
	const struct maps_entry *entry = maps_find(&w->shot->maps, address);

	return entry && (entry->protection & PROT_EXEC);
}

/*
 * From a frame whose code nobody describes: the word at the frame pointer is the caller's, and
 * the one behind it where it returns to. The caller's other registers are not known.
 */
static bool follow_pointer(struct stack_walk *w, const struct by_pointer *p)
{
	const uint8_t *bytes;
	uint64_t pair[2];
	unsigned number;

	if (!p->known || p->fp % sizeof(pair[0]) || p->fp < p->sp)
		return false;
	bytes = snapshot_bytes(w->shot, p->fp, sizeof(pair));
	if (!bytes || !arch_preserved(0, &number))
		return false;
	memcpy(pair, bytes, sizeof(pair));
	if (!is_code(w, pair[1]) || !is_code(w, pair[1] - 1))
		return false;
	w->registers[number] = pair[0];
	w->registers[UNW_REG_IP] = pair[1] - 1;
	w->registers[UNW_REG_SP] = p->fp + sizeof(pair);
	w->known = 1ull << number | 1ull << UNW_REG_IP | 1ull << UNW_REG_SP;
	w->behind = w->by_pointer = true;
	return true;
}

/*
 * From the frame in w->registers outwards. Returns 1 if the walk must go on
 * from a frame in our own code, which is in w->registers then, 0 at the end of
 * the thread's stack, -1 where it is lost or was told to end.
 */
static int walk_piece(struct stack_walk *w, size_t *frames, frame_seen seen, void *arg)
{
	struct stack_frame frame = go_home(w);
	unw_cursor_t cursor;
	unw_word_t ip, sp;
	size_t pushed;
	taddr_t again;
	int result;

	w->step_end = w->accesses + STEP_MAX;
	if (!seen(arg, &frame) || unw_init_remote(&cursor, w->space, w))
		return -1;
	while (++*frames < FRAMES_MAX) {
		const struct by_pointer pointer = pointer_of(w, &cursor);

		w->guessed = false;
		frame.returns = !is_signal_frame(w, &cursor);
		result = step(w, &cursor);
		if (w->guessed)
			return follow_pointer(w, &pointer) ? 1 : -1;
		if (result < 0)
			return -1;
		if (result == 0 || unw_get_reg(&cursor, UNW_REG_IP, &ip) || ip == 0)
			return (result == 0 || ip == 0) && is_start(w) ? 0 : -1;
		/* A signal handler interrupted our own code. */
		if (w->home && w->home(w->home_arg, ip, &again, &pushed))
			return save_frame(w, &cursor) ? 1 : -1;
		if (unw_get_reg(&cursor, UNW_REG_SP, &sp))
			return -1;
		frame.pc = frame.home = ip;
		frame.sp = sp;
		frame.is_inside = frame.guessed = false;
		if (!seen(arg, &frame))
			return -1;
	}
	return -1;
}

bool stack_walk_registers(struct stack_walk *w, frame_seen seen, void *arg)
{
	sigset_t let_through, before;
	size_t frames = 0;
	int result;

	/* Tracer threads block all signals, and one of these that is blocked is fatal. */
	install(&let_through);
	pthread_sigmask(SIG_UNBLOCK, &let_through, &before);
	do
		result = walk_piece(w, &frames, seen, arg);
	while (result > 0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return result == 0;
}

bool stack_walk_shot(struct stack_walk *w, const struct stack_shot *thread, frame_seen seen,
		     void *arg)
{
	w->known = UINT64_MAX;
	w->register_count = 0;
	while (w->register_count < STACK_REGISTERS &&
	       arch_dwarf_register(&thread->regs, w->register_count,
				   &w->registers[w->register_count]))
		w->register_count++;
	return stack_walk_registers(w, seen, arg);
}

/* ------------------------------------------------------------------ public */

struct collecting {
	taddr_t *pcs;
	size_t used, max;
};

static bool collect_frame(void *arg, const struct stack_frame *frame)
{
	struct collecting *c = arg;

	if (c->used == c->max)
		return false;
	c->pcs[c->used++] = frame->home;
	return true;
}

size_t snapshot_backtrace(const struct snapshot *shot, pid_t tid, stack_home home, void *arg,
			  taddr_t *pcs, size_t max, bool *complete)
{
	struct collecting c = {pcs, 0, max};
	struct stack_walk w;

	*complete = false;
	if (!stack_walker_init(&w, shot, home, arg))
		return 0;
	for (size_t i = 0; i < shot->thread_count; i++)
		if (shot->threads[i].tid == tid)
			*complete = stack_walk_shot(&w, &shot->threads[i], collect_frame, &c);
	stack_walker_release(&w);
	return c.used;
}

int stack_walk_begin(const struct snapshot *shot, stack_home home, void *arg,
		     struct stack_walk **out, struct dinst_error *e)
{
	struct stack_walk *w = malloc(sizeof(*w));

	if (!w || !stack_walker_init(w, shot, home, arg)) {
		free(w);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a walk of the stacks");
	}
	*out = w;
	return DINST_OK;
}

void stack_walk_end(struct stack_walk *walk)
{
	if (walk) {
		stack_walker_release(walk);
		snapshot_free(walk->own);
	}
	free(walk);
}

bool stack_walk_thread(struct stack_walk *walk, pid_t tid, frame_seen seen, void *arg)
{
	bool complete = false;

	for (size_t i = 0; i < walk->shot->thread_count; i++)
		if (walk->shot->threads[i].tid == tid)
			complete = stack_walk_shot(walk, &walk->shot->threads[i], seen, arg);
	return complete;
}
