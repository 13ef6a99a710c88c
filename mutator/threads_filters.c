/* SPDX-License-Identifier: MIT */
/*
 * threads_filters.c - programs that put seccomp filters on themselves while code
 * in them makes system calls. Looking at them is too late for filters that kill,
 * so the C library's ways to such a filter are hooked: each counts one that is
 * begun, in memory of the process's own (struct pair_config), and from there on
 * nothing of ours makes a call in that process. A forked child inherits the count
 * and has its own from then on; one that shares the memory counts for all of it.
 * Who makes the system call by an instruction of its own is not seen.
 *
 * userfaultfd(2) is taken for one, too: a thread that provides pages and reads one that
 * is not there would wait for itself.
 */
#include <assert.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include "inject/proc.h"
#include "mutator/threads_private.h"

const char *const threads_filter_functions[] = {"prctl", "syscall", NULL};

enum { OPS = 40, WORD_NOT_THERE = 0 };

/* Labels and values of the programs. */
enum { END = 1, COUNT, BY_PRCTL };
enum { WORD = ARCH_VALUE_FIRST, NUMBER, VALUES = NUMBER };

static struct arch_op *put(struct arch_program *p, enum arch_op_kind kind)
{
	struct arch_op *op = &p->ops[p->count++];

	assert(p->count <= OPS);
	*op = (struct arch_op){.kind = (uint8_t)kind, .size = 8};
	return op;
}

/* To `label` where argument `n` (of 32 bits, or a word) is, or is not, that number. */
static void put_if(struct arch_program *p, unsigned n, bool wide, enum arch_test test,
		   int32_t number, uint16_t label)
{
	struct arch_op *op = put(p, ARCH_OP_ARGUMENT);

	op->number = n;
	op->result = WORD;
	op = put(p, ARCH_OP_EXTEND);
	op->a = WORD;
	op->result = NUMBER;
	op->size = wide ? 8 : 4;
	op = put(p, ARCH_OP_IF);
	op->a = NUMBER;
	op->condition = (uint8_t)test;
	op->immediate = number;
	op->label = label;
}

static void put_label(struct arch_program *p, enum arch_op_kind kind, uint16_t label)
{
	put(p, kind)->label = label;
}

/* prctl(option, mode, filter): from argument `first` on. A filter at 0 is none (prctl(2)). */
static void put_prctl(struct arch_program *p, unsigned first)
{
	put_if(p, first, false, ARCH_TEST_NE, PR_SET_SECCOMP, END);
	put_if(p, first + 1, true, ARCH_TEST_NE, SECCOMP_MODE_FILTER, COUNT);
	put_if(p, first + 2, true, ARCH_TEST_EQ, WORD_NOT_THERE, END);
}

/* syscall(SYS_seccomp, operation, flags, filter): seccomp(2). */
static void put_seccomp(struct arch_program *p)
{
	put_if(p, 0, false, ARCH_TEST_EQ, SYS_prctl, BY_PRCTL);
	put_if(p, 0, false, ARCH_TEST_EQ, SYS_userfaultfd, COUNT);
	put_if(p, 0, false, ARCH_TEST_NE, SYS_seccomp, END);
	put_if(p, 1, false, ARCH_TEST_EQ, SECCOMP_SET_MODE_STRICT, COUNT);
	put_if(p, 1, false, ARCH_TEST_NE, SECCOMP_SET_MODE_FILTER, END);
	put_if(p, 3, true, ARCH_TEST_EQ, WORD_NOT_THERE, END);
	put_label(p, ARCH_OP_JUMP, COUNT);
	put_label(p, ARCH_OP_LABEL, BY_PRCTL);
}

int threads_filter_program(struct session *s, size_t n, struct arch_program *program,
			   struct dinst_error *e)
{
	struct arch_program p = {.room = OPS, .values = VALUES, .labels = BY_PRCTL};
	const bool by_number = n == 1;
	struct arch_op *op;

	p.ops = calloc(OPS, sizeof(*p.ops));
	if (!p.ops)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (by_number)
		put_seccomp(&p);
	put_prctl(&p, by_number);
	put_label(&p, ARCH_OP_LABEL, COUNT);
	op = put(&p, ARCH_OP_ATOMIC_ADD);
	op->number = s->threads->area + offsetof(struct pair_config, filters_begun);
	op->immediate = 1;
	put_label(&p, ARCH_OP_LABEL, END);
	*program = p;
	return 0;
}

/* -------------------------------------------------------------- looking at them */

static bool read_counts(const struct session *s, uint64_t counts[2])
{
	const struct threads *t = s->threads;
	const size_t size = 2 * sizeof(uint64_t);

	_Static_assert(offsetof(struct pair_config, filters_seen) ==
			       offsetof(struct pair_config, filters_begun) + sizeof(uint64_t),
		       "the two lie side by side");
	return t && t->area &&
	       target_read_some(s->target, t->area + offsetof(struct pair_config, filters_begun),
				counts, size) == size;
}

bool threads_filters_begun(const struct session *s)
{
	uint64_t counts[2];

	return read_counts(s, counts) && counts[0] != counts[1];
}

/* False if it cannot be seen of each thread now: there may be more. */
static bool most_filters(struct stop *stop, uint64_t *most)
{
	*most = 0;
	for (size_t n = 0; n < stop_thread_count(stop); n++) {
		struct proc_status status;
		const int error = proc_status_read(stop_thread(stop, n)->tid, &status);

		if (proc_unless_gone(error))
			return false;
		if (!error && status.seccomp > 0 && 1 + status.filters > *most)
			*most = 1 + status.filters;
	}
	return true;
}

/*
 * A call that was done has put one filter more on one thread at least, and no thread got more
 * than one by each. So where some thread has as many more as calls were begun, none is left
 * that is about to be made. What failed leaves it as it is, for ever.
 */
bool threads_settle_filters(struct session *s, struct stop *stop)
{
	struct dinst_error ignored = {0};
	uint64_t counts[2], most;
	const bool seen = most_filters(stop, &most);

	if (!read_counts(s, counts) || counts[0] == counts[1]) {
		if (seen)
			s->filters_most = most;
		return true;
	}
	/* A timer that began without a clock must not end with one. */
	if (!seen || session_makes_calls(s) || most < s->filters_most ||
	    most - s->filters_most < counts[0] - counts[1])
		return false;
	if (stop_write(stop, s->threads->area + offsetof(struct pair_config, filters_seen),
		       &counts[0], sizeof(counts[0]), &ignored) < 0)
		return false;
	s->filters_most = most;
	return true;
}

void threads_forbid_calls(struct session *s, struct stop *stop)
{
	struct dinst_error ignored = {0};
	uint64_t counts[2];

	if (!session_makes_calls(s) || !read_counts(s, counts) || counts[0] != counts[1])
		return;
	counts[0]++;
	stop_write(stop, s->threads->area + offsetof(struct pair_config, filters_begun), &counts[0],
		   sizeof(counts[0]), &ignored);
}
