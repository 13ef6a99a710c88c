/* SPDX-License-Identifier: MIT */
/*
 * frame.c - what surrounds the snippets of one place: finds dead registers for
 * them, saves what is live, and puts it back. Never saves what is dead or not
 * changed, and steps over the red zone only where something is pushed.
 *
 *	lea -128(%rsp),%rsp     where the red zone may be live
 *	push of each scratch register that is live
 *	push of each register wanted by name, or mov to a dead register
 *	lahf; seto %al          and away with rax where it is wanted by name itself
 *	lea -8*slots(%rsp),%rsp
 *	... the snippets ...
 *	lea 8*slots(%rsp),%rsp
 *	add $127,%al; sahf      and so on, in the opposite order
 *
 * Wanted by name are rax, rcx and rdx, if at all: rax carries the flags, rcx can
 * be tested without them, and some instructions leave no choice.
 */
#include "arch/x86_64/x86.h"

enum { RED_ZONE = 128 };

/* frame->saves: the lowest bits say which scratch registers are pushed. */
enum frame_save {
	SAVE_SCRATCH = 1 << 0, /* ... to 1 << 8 */
	SAVE_SCRATCHES = (SAVE_SCRATCH << ARCH_SCRATCH_MAX) - 1,
	SAVE_RED_ZONE = 1 << 9,
	SAVE_FLAGS = 1 << 10,	 /* lahf ... sahf */
	SAVE_OVERFLOW = 1 << 11, /* seto ... add */

	/* Where something is kept: eight bits each, from bit 16 on; 0: where it was. */
	KEEP_SHIFT = 16,
	KEEP_BITS = 8,
	KEEP_MOVED = 0x10, /* in the register that the low four bits name */
	KEEP_PUSHED = 0x20,
};

/* What is kept: registers by their numbers, which are the same, and the flags. */
enum frame_kept { KEPT_RAX = RAX, KEPT_RCX = RCX, KEPT_RDX = RDX, KEPT_FLAGS, KEPT };

/*
 * Those with short encodings first; callee-saved ones last. Never rsp. Nor rbp: where it is dead
 * for the program it is not for a profiler that walks along frame pointers.
 */
static const uint8_t order[] = {RAX, RCX, RDX, RSI, RDI, R11, R10, R9, R8, RBX, R13, R14, R15};

enum { ORDER = sizeof(order) };

static unsigned kept(const struct arch_frame *f, unsigned what)
{
	return f->saves >> (KEEP_SHIFT + KEEP_BITS * what) & ((1 << KEEP_BITS) - 1);
}

/*
 * The first register of `order` that is not in `used`; prefers dead ones. r12,
 * whose ModRM form as a base is a byte longer and not known to all snippets, is
 * left for those of which programs want many; and rbp, which is put back, for
 * when there is nothing else.
 */
static unsigned take(arch_regset live, arch_regset *used, bool *dead)
{
	unsigned found = *used & SET(R12) ? RBP : R12;

	*dead = false;
	for (size_t i = 0; i < ORDER && !*dead; i++) {
		if (*used & SET(order[i]))
			continue;
		*dead = !(live & SET(order[i]));
		if (*dead)
			found = order[i];
	}
	/* All are in use: one that is cheap to push. */
	for (size_t i = 0; i < ORDER && !*dead; i++)
		if (!(*used & SET(order[i]))) {
			found = order[i];
			break;
		}
	if (found == R12)
		*dead = !(live & SET(R12));
	*used |= SET(found);
	return found;
}

/* Keeps something in a dead register that nothing else uses, or on the stack. */
static void keep(struct arch_frame *f, unsigned what, arch_regset *used)
{
	uint64_t where = KEEP_PUSHED;

	for (size_t i = 0; i < ORDER; i++)
		if (!((*used | f->live) & SET(order[i]))) {
			where = KEEP_MOVED | order[i];
			*used |= SET(order[i]);
			break;
		}
	f->saves |= where << (KEEP_SHIFT + KEEP_BITS * what);
}

/* The registers that are wanted by name, in `named`, and the flags if rax is. */
static void keep_named(struct arch_frame *f, arch_regset named, arch_regset *used)
{
	static const uint8_t names[] = {RCX, RAX, RDX};

	for (size_t i = 0; i < sizeof(names); i++)
		if (named & (f->live | f->reads) & SET(names[i]))
			keep(f, names[i], used);
	if ((f->saves & SAVE_FLAGS) && (f->fixed & SET(RAX)))
		keep(f, KEPT_FLAGS, used);
}

static bool pushes(const struct arch_frame *f)
{
	bool any = (f->saves & SAVE_SCRATCHES) || f->slots;

	for (unsigned what = 0; what < KEPT; what++)
		any = any || kept(f, what) == KEEP_PUSHED;
	return any;
}

/* Chooses registers and ways of saving. */
static void plan(struct arch_frame *f)
{
	arch_regset named, used;
	unsigned n = 0;
	bool dead;

	f->saves = f->pushed = 0;
	f->fixed &= SET(RAX) | SET(RCX) | SET(RDX);
	if (f->needs & ARCH_NEED_FLAGS)
		f->needs &= ~ARCH_NEED_TEST;
	named = f->fixed;
	if ((f->needs & ARCH_NEED_FLAGS) && (f->live & SET_FLAGS)) {
		f->saves |= f->live & FLAG_OF ? SAVE_FLAGS | SAVE_OVERFLOW : SAVE_FLAGS;
		named |= SET(RAX);
	}
	if (f->needs & ARCH_NEED_TEST) {
		f->reg[n++] = RCX;
		named |= SET(RCX);
		/* Whoever wants rcx by name does not count it among the scratch registers. */
		if (f->fixed & SET(RCX))
			f->scratch++;
	}
	used = named | f->reads;
	if (f->scratch > ARCH_SCRATCH_MAX)
		f->scratch = ARCH_SCRATCH_MAX;
	for (; n < f->scratch; n++) {
		f->reg[n] = (uint8_t)take(f->live, &used, &dead);
		if (!dead)
			f->saves |= (uint64_t)SAVE_SCRATCH << n;
	}
	/* From here on scratch counts what is there. */
	f->scratch = (uint8_t)n;
	keep_named(f, named, &used);
	if (f->red_zone && (pushes(f) || (f->needs & ARCH_NEED_STACK)))
		f->saves |= SAVE_RED_ZONE;
}

static void emit_push_pop(struct arch_buf *out, unsigned opcode, unsigned reg)
{
	if (reg >= 8)
		x86_emit8(out, 0x41);
	x86_emit8(out, opcode | (reg & 7));
}

static void emit_move(struct arch_buf *out, unsigned to, unsigned from)
{
	x86_emit8(out, 0x48 | (from >= 8 ? REX_R : 0) | (to >= 8 ? REX_B : 0));
	x86_emit8(out, 0x89);
	x86_emit8(out, 0xc0 | (from & 7) << 3 | (to & 7));
}

static void push(struct arch_buf *out, struct arch_frame *f, unsigned reg)
{
	emit_push_pop(out, 0x50, reg);
	f->pushed += 8;
	arch_note_pushed(out, f->pushed);
}

/* lea bytes(%rsp),%rsp with four bytes of displacement */
static void emit_step(struct arch_buf *out, int32_t bytes)
{
	static const uint8_t step[] = {0x48, 0x8d, 0xa4, 0x24};

	x86_emit(out, step, sizeof(step));
	x86_emit32(out, (uint32_t)bytes);
}

static void open_named(struct arch_buf *out, struct arch_frame *f)
{
	static const uint8_t names[] = {RAX, RCX, RDX};

	for (size_t i = 0; i < sizeof(names); i++)
		if (kept(f, names[i]) == KEEP_PUSHED)
			push(out, f, names[i]);
	for (size_t i = 0; i < sizeof(names); i++)
		if (kept(f, names[i]) & KEEP_MOVED)
			emit_move(out, kept(f, names[i]) & 15, names[i]);
}

void x86_emit_keep_flags(struct arch_buf *out, bool flags, bool overflow)
{
	static const uint8_t seto[] = {0x0f, 0x90, 0xc0};

	if (flags)
		x86_emit8(out, 0x9f);
	if (overflow)
		x86_emit(out, seto, sizeof(seto));
}

void x86_emit_restore_flags(struct arch_buf *out, bool flags, bool overflow)
{
	static const uint8_t add[] = {0x04, 0x7f}; /* add $127,%al: OF if al is 1 */

	if (overflow)
		x86_emit(out, add, sizeof(add));
	if (flags)
		x86_emit8(out, 0x9e);
}

void arch_frame_open(struct arch_buf *out, struct arch_frame *f)
{
	static const uint8_t step_over[] = {0x48, 0x8d, 0x64, 0x24, 0x80}; /* lea -128(%rsp),%rsp */

	plan(f);
	if (f->saves & SAVE_RED_ZONE) {
		x86_emit(out, step_over, sizeof(step_over));
		f->pushed = RED_ZONE;
		arch_note_pushed(out, f->pushed);
	}
	for (unsigned i = 0; i < f->scratch; i++)
		if (f->saves & (uint64_t)SAVE_SCRATCH << i)
			push(out, f, f->reg[i]);
	open_named(out, f);
	x86_emit_keep_flags(out, f->saves & SAVE_FLAGS, f->saves & SAVE_OVERFLOW);
	if (kept(f, KEPT_FLAGS) == KEEP_PUSHED)
		push(out, f, RAX);
	else if (kept(f, KEPT_FLAGS))
		emit_move(out, kept(f, KEPT_FLAGS) & 15, RAX);
	if (f->slots) {
		emit_step(out, -8 * f->slots);
		f->pushed += 8 * f->slots;
		arch_note_pushed(out, f->pushed);
	}
}

static void pop(struct arch_buf *out, unsigned reg, size_t *pushed)
{
	emit_push_pop(out, 0x58, reg);
	*pushed -= 8;
	arch_note_pushed(out, *pushed);
}

static void close_flags(struct arch_buf *out, const struct arch_frame *f, size_t *pushed)
{
	if (kept(f, KEPT_FLAGS) == KEEP_PUSHED)
		pop(out, RAX, pushed);
	else if (kept(f, KEPT_FLAGS))
		emit_move(out, RAX, kept(f, KEPT_FLAGS) & 15);
	x86_emit_restore_flags(out, f->saves & SAVE_FLAGS, f->saves & SAVE_OVERFLOW);
}

void arch_frame_close(struct arch_buf *out, const struct arch_frame *f)
{
	static const uint8_t names[] = {RDX, RCX, RAX};
	size_t pushed = f->pushed;

	if (f->slots) {
		emit_step(out, 8 * f->slots);
		pushed -= 8 * (size_t)f->slots;
		arch_note_pushed(out, pushed);
	}
	close_flags(out, f, &pushed);
	for (size_t i = 0; i < sizeof(names); i++)
		if (kept(f, names[i]) & KEEP_MOVED)
			emit_move(out, names[i], kept(f, names[i]) & 15);
	for (size_t i = 0; i < sizeof(names); i++)
		if (kept(f, names[i]) == KEEP_PUSHED)
			pop(out, names[i], &pushed);
	for (unsigned i = f->scratch; i-- > 0;)
		if (f->saves & (uint64_t)SAVE_SCRATCH << i)
			pop(out, f->reg[i], &pushed);
	if (f->saves & SAVE_RED_ZONE) {
		emit_step(out, RED_ZONE);
		arch_note_pushed(out, 0);
	}
}

/* Bytes that were pushed behind the scratch registers. */
static unsigned behind_scratches(const struct arch_frame *f)
{
	unsigned bytes = 8u * f->slots;

	for (unsigned what = 0; what < KEPT; what++)
		bytes += kept(f, what) == KEEP_PUSHED ? 8 : 0;
	return bytes;
}

/* Where a scratch register was pushed to; false: it was not, or is none. */
static bool find_scratch(const struct arch_frame *f, unsigned reg, unsigned *at)
{
	bool found = false;

	*at = behind_scratches(f);
	for (unsigned i = 0; i < f->scratch; i++) {
		const bool pushed = f->saves & (uint64_t)SAVE_SCRATCH << i;

		if (found && pushed)
			*at += 8;
		found = found || (pushed && f->reg[i] == reg);
	}
	return found;
}

bool x86_frame_find(const struct arch_frame *f, unsigned reg, unsigned *at)
{
	const unsigned where = reg < KEPT_FLAGS ? kept(f, reg) : 0;

	if (!where && find_scratch(f, reg, at))
		return false;
	*at = where & KEEP_MOVED ? where & 15 : reg;
	if (where != KEEP_PUSHED)
		return true;
	/* Below it: those pushed later, the flags, the slots. */
	*at = 8u * f->slots + (kept(f, KEPT_FLAGS) == KEEP_PUSHED ? 8 : 0);
	for (unsigned later = reg + 1; later < KEPT_FLAGS; later++)
		*at += kept(f, later) == KEEP_PUSHED ? 8 : 0;
	return false;
}
