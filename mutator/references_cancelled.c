/* SPDX-License-Identifier: MIT */
/*
 * references_cancelled.c - where a thread may be cancelled at any instruction. A C library that
 * does not compare the pc of a cancelled thread with labels (glibc before 2.41) lets the
 * signal that cancels come everywhere from shortly before a system call, where it calls a
 * function that permits that, until shortly behind it, where it calls one that forbids it again.
 * The stack is unwound from there: through inserted code, which no table describes, nobody
 * gets, and destructors are lost, and locks of FILEs stay held.
 *
 * Both functions have no names as a rule. `read` calls them around its second system call, the
 * one of a program with threads; who else does is found by whom it calls.
 */
#include "mutator/references_cancelled.h"

enum {
	RUNS_MOST = 8,	     /* straight lines of code between two calls: two, or three */
	INSNS_MOST = 64,     /* in each; a dozen */
	FOUND_MOST = 100000, /* a file that has more is hostile */
};

static bool decode(const struct image *img, vaddr_t v, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(img, v, &size);

	return bytes && arch_decode(bytes, size, v, insn) == ARCH_OK;
}

/* ------------------------------------------------------------- the two */

static void learn(const struct image *img, const struct image_function *read, struct cancelled *c)
{
	vaddr_t before = 0;
	unsigned calls = 0;
	struct arch_insn insn;

	for (vaddr_t v = read->address; v < read->address + read->size; v += insn.length) {
		if (!decode(img, v, &insn))
			return;
		calls += insn.flow == ARCH_FLOW_SYSCALL;
		if (insn.flow != ARCH_FLOW_CALL)
			continue;
		if (calls >= 2) {
			if (before && before != insn.target)
				*c = (struct cancelled){before, insn.target};
			return;
		}
		before = insn.target;
	}
}

struct found_read {
	const struct image *img;
	struct cancelled *c;
};

static void found_read(void *arg, uint32_t function)
{
	struct found_read *f = arg;

	if (!f->c->enable)
		learn(f->img, &f->img->functions[function], f->c);
}

int cancelled_learn(struct image *img, struct cancelled *c, struct dinst_error *e)
{
	static const char name[] = "read";
	struct found_read f = {img, c};

	*c = (struct cancelled){0};
	return lookup_exact(img, name, sizeof(name) - 1, found_read, &f, e);
}

/* -------------------------------------------------------------- the code */

struct search {
	const struct image *img;
	const struct cancelled *c;
	struct image_range *out; /* NULL: they are only counted */
	size_t count, room;
};

static void add(struct search *s, vaddr_t lo, vaddr_t hi)
{
	if (s->out && s->count < s->room)
		s->out[s->count] = (struct image_range){lo, hi};
	s->count++;
}

static void add_function(struct search *s, vaddr_t v)
{
	const long index = image_function_at(s->img, v);

	if (index >= 0)
		add(s, v, s->img->functions[index].address + s->img->functions[index].size);
}

/* Every way from the return of the one until the other has been called. */
static void follow(struct search *s, vaddr_t from)
{
	vaddr_t starts[RUNS_MOST] = {from};
	size_t count = 1;

	for (size_t i = 0; i < count; i++) {
		vaddr_t v = starts[i];
		bool ends = false;

		for (unsigned n = 0; n < INSNS_MOST && !ends; n++) {
			struct arch_insn insn;
			bool known = false;

			if (!decode(s->img, v, &insn))
				break;
			v += insn.length;
			ends = insn.flow == ARCH_FLOW_JUMP ||
			       insn.flow == ARCH_FLOW_JUMP_INDIRECT ||
			       insn.flow == ARCH_FLOW_RETURN || insn.flow == ARCH_FLOW_STOP ||
			       (insn.flow == ARCH_FLOW_CALL && insn.target == s->c->disable);
			if (insn.flow != ARCH_FLOW_JUMP && insn.flow != ARCH_FLOW_BRANCH)
				continue;
			for (size_t k = 0; k < count; k++)
				known |= starts[k] == insn.target;
			if (!known && count < RUNS_MOST)
				starts[count++] = insn.target;
		}
		if (v > starts[i])
			add(s, starts[i], v);
	}
}

static void found_branch(void *arg, taddr_t from, taddr_t target)
{
	struct search *s = arg;
	struct arch_insn insn;

	if (target == s->c->enable && s->count < FOUND_MOST && decode(s->img, from, &insn) &&
	    insn.flow == ARCH_FLOW_CALL && insn.target == target)
		follow(s, from + insn.length);
}

size_t cancelled_find(const struct image *img, const struct cancelled *c, struct image_range *out,
		      size_t room)
{
	struct search s = {.img = img, .c = c, .out = out, .room = room};

	if (!c->enable)
		return 0;
	add_function(&s, c->enable);
	add_function(&s, c->disable);
	for (size_t i = 0; i < img->text_count; i++) {
		size_t size;
		const uint8_t *bytes = image_code(img, img->text[i].lo, &size);

		/* Nothing else is asked for: whatever leads to the one function. */
		if (bytes)
			arch_scan_references(bytes, size, img->text[i].lo, c->enable, c->enable + 1,
					     found_branch, &s);
	}
	return s.count;
}
