/* SPDX-License-Identifier: MIT */
/*
 * stack_copy.c - walking the begin of a stack that its thread has copied itself, at a function's
 * entry or where it returns, a moment ago. The caller's registers are those that calls
 * preserve, and known; all else of the stack is what the copy holds.
 */
#include <libunwind.h>

#include <stdlib.h>

#include "inject/stack_walk.h"

int stack_walk_begin_copies(const struct target *t, stack_home home, void *arg,
			    struct stack_walk **out, struct dinst_error *e)
{
	struct snapshot *own = calloc(1, sizeof(*own));
	struct stack_walk *w = malloc(sizeof(*w));
	int status;

	*out = NULL;
	if (own) {
		own->target = t;
		own->regions = calloc(1, sizeof(*own->regions));
	}
	if (!w || !own || !own->regions)
		status = dinst_fail(e, DINST_NO_MEMORY, "no memory for a walk of the stacks");
	else
		status = maps_read(target_pid(t), &own->maps, e);
	if (!status && !stack_walker_init(w, own, home, arg))
		status = dinst_fail(e, DINST_NO_MEMORY, "no memory for a walk of the stacks");
	if (status) {
		snapshot_free(own);
		free(w);
		return status;
	}
	w->own = own;
	w->copied = w->memory.no_shared = true;
	*out = w;
	return DINST_OK;
}

/* Whoever sees frames, and the last one that he saw. */
struct seeing {
	frame_seen seen;
	void *arg;
	taddr_t last;
};

static bool see(void *arg, const struct stack_frame *frame)
{
	struct seeing *s = arg;

	s->last = frame->home - frame->returns;
	return s->seen(s->arg, frame);
}

/* The registers where it returns to; in front of that, where the call is, unless the kernel called. */
static void set_registers(struct stack_walk *w, const struct stack_copy *copy)
{
	uint8_t code[ARCH_SIGRETURN_CODE];
	unsigned number;

	w->behind = !unwind_read(&w->memory, copy->pc, code, sizeof(code)) ||
		    !arch_is_sigreturn(code, sizeof(code));
	w->by_pointer = false;
	w->register_count = STACK_REGISTERS;
	w->registers[UNW_REG_IP] = copy->pc - w->behind;
	w->registers[UNW_REG_SP] = copy->sp;
	w->known = 1ull << UNW_REG_IP | 1ull << UNW_REG_SP;
	for (unsigned n = 0; n < ARCH_PRESERVED_MOST && arch_preserved(n, &number); n++) {
		w->registers[number] = copy->preserved[n];
		w->known |= 1ull << number;
	}
}

bool stack_walk_copy(struct stack_walk *walk, const struct stack_copy *copy, frame_seen seen,
		     void *arg, bool *unmapped)
{
	struct seeing s = {.seen = seen, .arg = arg};
	struct snapshot *own = walk->own;
	const struct maps_entry *stack = maps_find(&own->maps, copy->lo);
	bool complete;

	walk->own_lo = stack ? stack->lo : copy->lo;
	walk->own_hi = stack ? stack->hi : copy->lo + copy->size;
	walk->accesses = 0;
	own->region_count = copy->size && copy->lo % sizeof(uint64_t) == 0;
	own->regions[0] = (struct stack_region){
		.lo = copy->lo, .hi = copy->lo + copy->size, .bytes = copy->bytes};
	set_registers(walk, copy);
	complete = stack_walk_registers(walk, see, &s);
	/* The bytes are the caller's. */
	own->region_count = 0;
	*unmapped = !complete && !maps_find(&own->maps, s.last);
	return complete;
}
