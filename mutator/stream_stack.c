/* SPDX-License-Identifier: MIT */
/*
 * stream_stack.c - stacks that threads of the target have copied into records: which calls are
 * in them. They are walked when the record comes out of its ring, a moment after it was
 * written: code that was unmapped since ends the walk. What a copy does not hold is never read
 * from the target, which runs: the walk ends there, and says so.
 */
#include <string.h>

#include "mutator/stream_private.h"

/* How old the picture of mappings may be, and how old it must be where it lacks something. */
static const uint64_t FRESH_NS = 1000000000;
static const uint64_t AGAIN_NS = 100000000;

static bool is_fresh(const struct stream *st, uint64_t now)
{
	return st->walk && st->walk_changes == st->session->module_changes &&
	       now - st->walk_ns < FRESH_NS;
}

/* A target that has ended has no mappings any more: then those that it had are better. */
static void look_again(struct stream *st, uint64_t now)
{
	struct dinst_error ignored = {0};
	struct stack_walk *walk;

	st->walk_ns = now;
	st->walk_changes = st->session->module_changes;
	if (stack_walk_begin_copies(st->session->target, site_home, st->session, &walk, &ignored))
		return;
	stack_walk_end(st->walk);
	st->walk = walk;
}

struct collecting {
	struct stream_frames *to;
	size_t count, most;
	bool more;
};

static bool collect(void *arg, const struct stack_frame *frame)
{
	struct collecting *c = arg;

	c->more = c->count == c->most;
	if (c->more)
		return false;
	c->to->frames[c->count++] = (frame->home & ~(STREAM_INTERRUPTED | STREAM_GUESSED)) |
				    (frame->returns ? 0 : STREAM_INTERRUPTED) |
				    (frame->guessed ? STREAM_GUESSED : 0);
	return true;
}

/* True if it was walked as far as it can be; else there is code that is not known yet. */
static bool walk(struct stream *st, const struct stack_copy *copy, struct collecting *c)
{
	bool unmapped = false;

	c->count = 0;
	c->more = false;
	c->to->complete = stack_walk_copy(st->walk, copy, collect, c, &unmapped) && !c->more;
	return !unmapped || c->more;
}

void stream_walk(struct stream *st, const struct stream_field *f, uint8_t *record, uint8_t *to)
{
	const uint64_t now = clock_ns(), room = f->size - sizeof(struct stream_stack);
	struct stream_frames *frames = (void *)(to + f->offset);
	struct collecting c = {.to = frames, .most = f->frames};
	struct stream_stack stack;
	struct stack_copy copy;

	memset(frames, 0, stream_field_told(f));
	memcpy(&stack, record + f->offset, sizeof(stack));
	copy = (struct stack_copy){
		.pc = stack.caller,
		.sp = stack.sp + arch_call_pushes,
		.lo = stack.sp,
		.bytes = record + f->offset + sizeof(stack),
		.size = (stack.length < room ? stack.length : room) & ~7ull,
	};
	memcpy(copy.preserved, stack.preserved, sizeof(copy.preserved));
	if (!is_fresh(st, now))
		look_again(st, now);
	if (st->walk && !walk(st, &copy, &c) && now - st->walk_ns > AGAIN_NS) {
		look_again(st, now);
		walk(st, &copy, &c);
	}
	frames->length = sizeof(frames->complete) + c.count * sizeof(frames->frames[0]);
}
