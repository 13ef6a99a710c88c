/* SPDX-License-Identifier: MIT */
/*
 * request_family.c - processes that were forked from the target run through the
 * same bodies, but have only what was there when they were forked: an arena or
 * the per-thread state that came later is not mapped there. A body that would
 * lead such a process there is never turned to: the request is refused.
 *
 * Processes that are forked from now on have all that the target has, so what
 * is found here stays true.
 *
 * In the strict mode of seccomp the processor's clock cannot be read (kernel/seccomp.c: disable_TSC()):
 * code that does would end a thread that is in it, the target's or a child's, and is refused.
 */
#include <stdlib.h>

#include "inject/proc.h"
#include "mutator/request.h"
#include "mutator/stream.h"
#include "mutator/threads.h"
#include "mutator/variable.h"

/* Which places code in each place leads to. */
struct needs {
	const struct session *session;
	const struct place **places;
	unsigned count;
	bool *leads; /* count rows, one a place, of count */
	bool *threads;
	bool *clock; /* code there reads the processor's clock */
	const struct place *
		*undos; /* by function: of the routine that the request gives it, or NULL */
};

static bool *leads(const struct needs *n, unsigned of, unsigned to)
{
	return &n->leads[(size_t)of * n->count + to];
}

static int index_of(const struct needs *n, const struct place *p)
{
	for (unsigned i = 0; i < n->count; i++)
		if (n->places[i] == p)
			return (int)i;
	return -1;
}

/* The number is an address in some arena's state of threads. */
static bool is_in_threads(const struct needs *n, uint64_t number)
{
	for (unsigned i = 0; i < n->count; i++)
		if (number - n->places[i]->arena->threads < n->places[i]->arena->threads_size)
			return true;
	return false;
}

static bool uses_threads(const struct needs *n, const struct snippet *snippet)
{
	const struct arch_program *p = snippet->code ? &snippet->code->program : NULL;

	if (snippet->pair)
		return true;
	for (unsigned k = 0; p && k < p->count; k++)
		if (p->ops[k].kind == ARCH_OP_RECORD || p->ops[k].kind == ARCH_OP_ENTER ||
		    p->ops[k].kind == ARCH_OP_LEAVE || p->ops[k].kind == ARCH_OP_CLOCK ||
		    is_in_threads(n, p->ops[k].number))
			return true;
	return snippet->kind == SNIPPET_ENTER || snippet->kind == SNIPPET_LEAVE;
}

static bool reads_clock(const struct snippet *snippet)
{
	const struct arch_program *p = snippet->code ? &snippet->code->program : NULL;

	for (unsigned k = 0; p && k < p->count; k++)
		if (p->ops[k].kind == ARCH_OP_CLOCK || p->ops[k].kind == ARCH_OP_RING_OPEN)
			return true;
	return snippet->start;
}

/* The place of the rings, where code of the snippet records events; else NULL. */
static const struct place *rings_of(const struct needs *n, const struct snippet *snippet)
{
	const struct arch_program *p = snippet->code ? &snippet->code->program : NULL;
	const struct arena *rings = stream_arena(n->session);
	bool records = false;

	for (unsigned k = 0; p && k < p->count; k++)
		records |= p->ops[k].kind == ARCH_OP_RING_OPEN;
	for (unsigned i = 0; records && i < n->count; i++)
		if (n->places[i]->arena == rings)
			return n->places[i];
	return NULL;
}

static void note_lead(struct needs *n, int of, const struct place *to)
{
	const int what = to ? index_of(n, to) : -1;

	if (what >= 0 && what != of)
		*leads(n, (unsigned)of, (unsigned)what) = true;
}

static void look_at_piece(struct needs *n, int of, const struct snippet *snippet)
{
	const struct snippet_code *code = snippet->code;

	n->threads[of] |= uses_threads(n, snippet);
	n->clock[of] |= reads_clock(snippet);
	for (size_t k = 0; code && k < code->variable_count; k++)
		note_lead(n, of, code->variables[k]->word ? code->variables[k]->word_place : NULL);
	note_lead(n, of, rings_of(n, snippet));
	note_lead(n, of, n->undos[snippet->pair]);
}

static void list_undos(struct needs *n, const struct instance *i)
{
	for (size_t k = 0; k < i->undo_count; k++)
		n->undos[i->undos[k].pair] = i->undos[k].place;
}

static void look_at_held(struct needs *n, const struct session *s)
{
	for (const struct site *site = s->held; site; site = site->next_held) {
		const int of = index_of(n, site->place);

		for (unsigned k = 0; of >= 0 && k < site->held->count; k++)
			look_at_piece(n, of, &site->held->pieces[k].snippet);
	}
	for (unsigned i = 0; i < n->count; i++)
		for (unsigned k = 0; k < n->count; k++)
			if (n->threads[i] && n->places[k]->arena->threads && i != k)
				*leads(n, i, k) = true;
}

/* 0 where it has ended meanwhile, or executed another program: it does not run through that place any more. */
static int refuse(const struct needs *n, unsigned of, pid_t pid, struct dinst_error *e)
{
	const struct session *s = n->session;

	if (!arena_look_for(pid, n->places[of]->arena, NULL))
		return 0;
	return dinst_fail(e, DINST_REFUSED,
			  "process %d was forked from %d and runs through what is inserted there, "
			  "but came before what this request needs: try again when it has ended, "
			  "or before anything else is inserted",
			  (int)pid, (int)s->pid);
}

/* It may have what is needed, or not: nobody may look. */
static int refuse_unseen(const struct needs *n, unsigned of, pid_t pid,
			 const struct dinst_error *why, struct dinst_error *e)
{
	if (arena_look_for(pid, n->places[of]->arena, NULL) == 0)
		return 0;
	return dinst_fail(e, DINST_REFUSED,
			  "process %d was forked from %d and runs through what is inserted there, "
			  "and whether it has what this request needs cannot be told: %s",
			  (int)pid, (int)n->session->pid, why->text);
}

/* The per-thread state begins with a number that nobody else writes. */
static int check_threads(const struct needs *n, unsigned of, pid_t pid, struct dinst_error *e)
{
	struct dinst_error why = {0};
	struct target *child;
	bool has = true;

	if (target_open(pid, &child, &why) < 0)
		return refuse_unseen(n, of, pid, &why, e);
	for (unsigned i = 0; i < n->count && has; i++) {
		const taddr_t at = n->places[i]->arena->threads;
		uint64_t magic = 0;

		if (at)
			has = target_read_some(child, at, &magic, sizeof(magic)) == sizeof(magic) &&
			      magic == (ARENA_THREADS_MAGIC ^ at);
	}
	target_close(child);
	return has ? 0 : refuse(n, of, pid, e);
}

/* The mode is a thread's own. Whoever enters it later is not foreseen. */
static int check_clock(pid_t pid, struct dinst_error *e)
{
	struct proc_ids tids = {0};
	struct proc_status status;
	int result = 0, error = proc_unless_gone(proc_tasks(pid, &tids));

	for (size_t i = 0; i < tids.count && !result && !error; i++) {
		error = proc_status_read(tids.ids[i], &status);
		if (!error && status.seccomp == PROC_SECCOMP_STRICT)
			result = dinst_fail(
				e, DINST_REFUSED,
				"thread %d (%s) of process %d is in the strict mode of seccomp, where "
				"the processor's clock cannot be read: this request would end it; "
				"counters can be inserted",
				(int)tids.ids[i], status.name, (int)pid);
		error = proc_unless_gone(error);
	}
	proc_ids_release(&tids);
	/* Nobody can look: there may be one. */
	if (error)
		result = dinst_fail_errno(
			e, DINST_BUSY, -error,
			"cannot see whether a thread of process %d is in the strict mode of seccomp, "
			"where the processor's clock cannot be read; try again later",
			(int)pid);
	return result;
}

bool request_may_read_clock(struct request *r, struct dinst_error *e)
{
	if (!r->clock_looked && check_clock(r->session->pid, e) < 0)
		return false;
	r->clock_looked = true;
	return true;
}

/* All processes that run through the code of place number `of`. */
static int check_place(struct request *r, const struct needs *n, unsigned of, struct dinst_error *e)
{
	const struct session *s = r->session;
	bool any = n->threads[of];
	pid_t *pids = NULL;
	size_t count = 0;
	int status;

	for (unsigned k = 0; k < n->count; k++)
		any |= *leads(n, of, k);
	if ((!any && !n->clock[of]) || n->places[of]->arena->mode == ARENA_PRIVATE)
		return 0;
	/* That stop finds those that we may not look at, and is refused. */
	r->in_stop |= any;
	status = arena_all_sharers(n->places[of]->arena, s->pid, &pids, &count);
	if (status < 0)
		return dinst_fail(e, status, "cannot find all processes forked from %d%s",
				  (int)s->pid, status == DINST_BUSY ? "; try again later" : "");
	for (size_t i = 0; i < count && status >= 0; i++) {
		for (unsigned k = 0; k < n->count && status >= 0; k++)
			if (*leads(n, of, k) &&
			    arena_look_for(pids[i], n->places[k]->arena, NULL) <= 0)
				status = refuse(n, of, pids[i], e);
		/* First what says most: a process in that mode may not be looked at, either. */
		if (status >= 0 && n->clock[of])
			status = check_clock(pids[i], e);
		if (status >= 0 && n->threads[of])
			status = check_threads(n, of, pids[i], e);
	}
	free(pids);
	return status;
}

static void free_needs(struct needs *n)
{
	free(n->places);
	free(n->leads);
	free(n->threads);
	free(n->clock);
	free(n->undos);
}

static bool list_places(struct needs *n, const struct session *s)
{
	size_t count = 0;

	n->session = s;
	n->undos = calloc(PAIR_ID_MASK + 1, sizeof(*n->undos));

	for (const struct place *p = s->places; p; p = p->next)
		count++;
	n->places = calloc(count + 1, sizeof(*n->places));
	n->leads = calloc(count * count + 1, sizeof(*n->leads));
	n->threads = calloc(count + 1, sizeof(*n->threads));
	n->clock = calloc(count + 1, sizeof(*n->clock));
	if (!n->places || !n->leads || !n->threads || !n->clock || !n->undos)
		return false;
	for (const struct place *p = s->places; p; p = p->next)
		n->places[n->count++] = p;
	return true;
}

int request_check_family(struct request *r, struct dinst_error *e)
{
	struct needs n = {0};
	int status = 0;

	if (!r->session->held)
		return 0;
	if (!list_places(&n, r->session)) {
		free_needs(&n);
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	for (size_t k = 0; k < r->count; k++)
		list_undos(&n, r->instances[k]);
	for (const struct instance *i = r->hidden; i; i = i->next)
		list_undos(&n, i);
	if (r->begun)
		list_undos(&n, r->begun);
	look_at_held(&n, r->session);
	for (unsigned of = 0; of < n.count && status >= 0; of++)
		status = check_place(r, &n, of, e);
	free_needs(&n);
	return status;
}
