/* SPDX-License-Identifier: MIT */
/*
 * frame.c - what surrounds the snippets of one place: finds dead registers for
 * them, saves what is live, and puts it back. Never saves what is dead or not
 * changed, and steps over the red zone only where something is pushed.
 *
 *	lea -128(%rsp),%rsp     where the red zone may be live
 *	push of each scratch register that is live
 *	push %rax               which carries the flags, or mov to a dead register
 *	lahf; seto %al
 *	... the snippets ...
 *	add $127,%al; sahf      and so on, in the opposite order
 *
 * rcx, which can be tested without flags, is moved to a dead register rather
 * than pushed; so is rax where it carries the flags.
 */
#include "arch/x86_64/x86.h"

enum { RED_ZONE = 128 };

/* frame->saves: the lowest bits say which scratch registers are pushed. */
enum frame_save {
	SAVE_SCRATCH = 1 << 0, /* ... to 1 << 3 */
	SAVE_RED_ZONE = 1 << 4,
	SAVE_RAX = 1 << 5,	/* pushes rax, which carries the flags */
	SAVE_FLAGS = 1 << 6,	/* lahf ... sahf */
	SAVE_OVERFLOW = 1 << 7, /* seto ... add */
	MOVE_RCX = 1 << 8,	/* rcx is kept in a dead register: bits 9 to 12 */
	MOVE_RAX = 1 << 13,	/* rax likewise: in the scratch register behind the last */
	MOVE_RCX_TO = 9,
};

/* Those with short encodings first; callee-saved ones last. Never rsp; not r12, whose ModRM
 * form as a base is a byte longer. */
static const uint8_t order[] = {RAX, RCX, RDX, RSI, RDI, R11, R10, R9, R8, RBX, RBP, R13, R14, R15};

enum { ORDER = sizeof(order) };

/* The first register of `order` that is not in `used`; prefers dead ones. */
static unsigned take(arch_regset live, arch_regset *used, bool *dead)
{
	unsigned found = R11;

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
	*used |= SET(found);
	return found;
}

/* A dead register that nothing else uses, for something live; false if there is none. */
static bool take_dead(arch_regset live, arch_regset *used, unsigned *reg)
{
	for (size_t i = 0; i < ORDER; i++)
		if (!((*used | live) & SET(order[i]))) {
			*reg = order[i];
			*used |= SET(order[i]);
			return true;
		}
	return false;
}

static void save_flags(struct arch_frame *f, arch_regset *used)
{
	if (!(f->needs & ARCH_NEED_FLAGS) || !(f->live & SET_FLAGS))
		return;
	f->saves |= SAVE_FLAGS;
	if (f->live & FLAG_OF)
		f->saves |= SAVE_OVERFLOW;
	*used |= SET(RAX);
}

/* Chooses registers and ways of saving. */
static void plan(struct arch_frame *f)
{
	arch_regset used = 0;
	unsigned n = 0, spare;
	bool dead;

	f->saves = f->pushed = 0;
	if (f->needs & ARCH_NEED_FLAGS)
		f->needs &= ~ARCH_NEED_TEST;
	save_flags(f, &used);
	if (f->needs & ARCH_NEED_TEST) {
		f->reg[n++] = RCX;
		used |= SET(RCX);
	}
	for (; n < f->scratch && n < ARCH_SCRATCH_MAX; n++) {
		f->reg[n] = (uint8_t)take(f->live, &used, &dead);
		if (!dead)
			f->saves |= SAVE_SCRATCH << n;
	}
	if ((f->needs & ARCH_NEED_TEST) && (f->live & SET(RCX))) {
		if (take_dead(f->live, &used, &spare))
			f->saves |= MOVE_RCX | spare << MOVE_RCX_TO;
		else
			f->saves |= SAVE_SCRATCH;
	}
	if ((f->saves & SAVE_FLAGS) && (f->live & SET(RAX))) {
		if (n < ARCH_SCRATCH_MAX && take_dead(f->live, &used, &spare)) {
			f->reg[n] = (uint8_t)spare;
			f->saves |= MOVE_RAX;
		} else {
			f->saves |= SAVE_RAX;
		}
	}
	/* From here on scratch counts what is there. */
	f->scratch = (uint8_t)n;
	if (f->red_zone &&
	    ((f->saves & (SAVE_SCRATCH * 15 | SAVE_RAX)) || (f->needs & ARCH_NEED_STACK)))
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

void arch_frame_open(struct arch_buf *out, struct arch_frame *f)
{
	static const uint8_t step_over[] = {0x48, 0x8d, 0x64, 0x24, 0x80}; /* lea -128(%rsp),%rsp */
	static const uint8_t seto[] = {0x0f, 0x90, 0xc0};

	plan(f);
	if (f->saves & SAVE_RED_ZONE) {
		x86_emit(out, step_over, sizeof(step_over));
		f->pushed = RED_ZONE;
		arch_note_pushed(out, f->pushed);
	}
	for (unsigned i = 0; i < f->scratch; i++)
		if (f->saves & SAVE_SCRATCH << i)
			push(out, f, f->reg[i]);
	if (f->saves & SAVE_RAX)
		push(out, f, RAX);
	if (f->saves & MOVE_RCX)
		emit_move(out, f->saves >> MOVE_RCX_TO & 15, RCX);
	if (f->saves & MOVE_RAX)
		emit_move(out, f->reg[f->scratch], RAX);
	if (f->saves & SAVE_FLAGS)
		x86_emit8(out, 0x9f);
	if (f->saves & SAVE_OVERFLOW)
		x86_emit(out, seto, sizeof(seto));
}

static void pop(struct arch_buf *out, unsigned reg, size_t *pushed)
{
	emit_push_pop(out, 0x58, reg);
	*pushed -= 8;
	arch_note_pushed(out, *pushed);
}

void arch_frame_close(struct arch_buf *out, const struct arch_frame *f)
{
	static const uint8_t step_back[] = {0x48, 0x8d, 0xa4, 0x24, RED_ZONE, 0, 0, 0};
	static const uint8_t overflow[] = {0x04, 0x7f}; /* add $127,%al: OF if al is 1 */
	size_t pushed = f->pushed;

	if (f->saves & SAVE_OVERFLOW)
		x86_emit(out, overflow, sizeof(overflow));
	if (f->saves & SAVE_FLAGS)
		x86_emit8(out, 0x9e);
	if (f->saves & MOVE_RAX)
		emit_move(out, RAX, f->reg[f->scratch]);
	if (f->saves & MOVE_RCX)
		emit_move(out, RCX, f->saves >> MOVE_RCX_TO & 15);
	if (f->saves & SAVE_RAX)
		pop(out, RAX, &pushed);
	for (unsigned i = f->scratch; i-- > 0;)
		if (f->saves & SAVE_SCRATCH << i)
			pop(out, f->reg[i], &pushed);
	if (f->saves & SAVE_RED_ZONE) {
		x86_emit(out, step_back, sizeof(step_back));
		arch_note_pushed(out, 0);
	}
}
