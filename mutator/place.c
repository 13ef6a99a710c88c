/* SPDX-License-Identifier: MIT */
/*
 * place.c - which arena serves which module, and making one when it is needed.
 *
 * Attaching alone makes none: a target that is only looked at is not touched.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/arena_place.h"
#include "inject/fault.h"
#include "inject/proc.h"
#include "mutator/core.h"

enum {
	ARENA_TRIES = 20,
	ARENA_PAUSE_US = 3000,
	STATIC_TLS_MOST = 1 << 16, /* bytes; of all that is seen a few thousand are used */
	ARENA_STOOD_NS =
		200000000, /* in all tries; each of one in a storm of signals takes 0.1 s */
	LEFT_MAX = 8,	   /* each an arena at worst, and a descriptor */
};

bool place_is_alike(const struct place *a, const struct place *b)
{
	return a->arena->cpus == b->arena->cpus && a->arena->cpu_shift == b->arena->cpu_shift &&
	       a->arena->low_data == b->arena->low_data;
}

struct place *place_at(const struct session *s, taddr_t address)
{
	for (struct place *p = s->places; p; p = p->next)
		if (address >= p->arena->code && address < p->arena->code + p->arena->code_size)
			return p;
	return NULL;
}

/*
 * Where each thread has it at the same distance, it is in the C library's block or in static TLS
 * (psABI, "Thread-Local Storage"), right beside the thread pointer. One thread alone agrees with
 * itself wherever its own is: in memory that it has allocated, those to come have something else.
 */
static bool is_thread_local(int64_t offset)
{
	return offset >= -STATIC_TLS_MOST && offset <= STATIC_TLS_MOST;
}

void place_look_at_rseq(struct session *s, struct stop *stop)
{
	bool usable = true, seen = false;

	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);
		int64_t offset;

		if (t->kernel_worker || t->foreign)
			continue;
		offset = (int64_t)(t->rseq - arch_thread_pointer(&t->regs));
		if (!t->rseq ||
		    (seen &&
		     (offset != s->rseq_offset || t->rseq_signature != s->rseq_signature)) ||
		    !is_thread_local(offset))
			usable = false;
		s->rseq_offset = offset;
		s->rseq_signature = t->rseq_signature;
		seen = true;
	}
	/* Once a thread without rseq was seen, another like it may come at any time. */
	s->rseq_usable = usable && seen && (!s->rseq_known || s->rseq_usable);
	s->rseq_known = true;
}

struct make_place {
	struct session *session;
	taddr_t lo, hi;
	size_t text;	     /* of all modules that it may serve */
	const char *private; /* why the arena is to be private, or NULL */
	struct arena *arena;
	struct journal *journal; /* NULL: it is made later */
	struct proc_ids sharers;
};

/*
 * A private arena is known by its header alone: were we to die before it is there, and it may be long until
 * there is code to be sent, nobody would find the arena. What fails here is tried again, and told, later.
 */
static void make_known(struct stop *stop, struct make_place *m)
{
	struct dinst_error ignored = {0};

	if (m->arena->mode == ARENA_PRIVATE &&
	    !journal_create(m->arena, m->session->name, &m->journal, &ignored))
		arena_sync(stop, m->arena, &ignored);
}

static int make_arena(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct make_place *m = arg;
	int status;

	if (target_incarnation(stop_target(stop)) != m->session->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)m->session->pid);
	status = stop_check_sharers(stop, &m->sharers, e);
	if (status < 0)
		return status;
	place_look_at_rseq(m->session, stop);
	status = m->private ? arena_create_private(stop, m->lo, m->hi, m->text, m->private,
						   &m->arena, e)
			    : arena_create(stop, m->lo, m->hi, m->text, &m->arena, e);
	if (status >= 0)
		make_known(stop, m);
	return status;
}

void place_free(struct place *p, bool keep_arena)
{
	if (p->heap)
		heap_destroy(p->heap);
	if (p->journal)
		journal_destroy(p->journal);
	if (p->arena && keep_arena)
		arena_release(p->arena);
	free(p->stores);
	free(p);
}

void place_check_threads(const struct session *s, struct stop *stop)
{
	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		const struct stop_thread *t = stop_thread(stop, i);
		const taddr_t pc = arch_pc(&t->regs);
		const struct place *p = t->kernel_worker ? NULL : place_at(s, pc);

		if (!p || !heap_is_poison(p->heap, pc))
			continue;
		/* A fault of ours that only a test can meet: whoever runs it must see it. */
		fprintf(stderr, "dinst-mutator: thread %d of %d runs in freed code, at %#llx\n",
			(int)t->tid, (int)target_pid(stop_target(stop)), (unsigned long long)pc);
		assert(!"a thread runs in freed code");
	}
}

/* ------------------------------------------------ taken out by somebody else */

enum { HEADER_LOOK = 128 }; /* bytes: who made it, and where */

static bool shows_ours(const struct session *s, const struct place *p)
{
	const uint8_t *ours =
		p->arena->mode == ARENA_SHARED ? p->arena->code_map : p->arena->code_sent;
	uint8_t now[HEADER_LOOK];

	return target_read_some(s->target, p->arena->code, now, sizeof(now)) == sizeof(now) &&
	       !memcmp(now, ours, sizeof(now));
}

/* What does not show ours may be there all the same, and cannot be read just now. 1, 0, or why it cannot be told. */
static int is_there(const struct session *s, const struct place *p, struct dinst_error *e)
{
	struct maps m;
	uint8_t byte;
	bool mapped;
	int status;

	if (p->arena->mode == ARENA_SHARED)
		return arena_look_for(s->pid, p->arena, e);
	status = maps_read(s->pid, &m, e);
	if (status < 0)
		return status;
	mapped = maps_find(&m, p->arena->code);
	maps_release(&m);
	if (!mapped || target_read_some(s->target, p->arena->code, &byte, 1) == 1)
		return 0;
	return dinst_fail(
		e, DINST_BUSY,
		"whether what was inserted is still in process %d (%s) cannot be seen just now; try again later",
		(int)s->pid, s->name);
}

/*
 * A dinst in another container, which sees neither us nor our claim, or the program itself.
 */
int place_check(struct session *s, struct dinst_error *e)
{
	for (struct place *p = s->places; p; p = p->next) {
		int status = 0;

		if (p->unmapped || shows_ours(s, p))
			continue;
		status = is_there(s, p, e);
		if (status < 0)
			return status;
		/* It has ended, or executed another program, and that is told. */
		if (!target_alive(s->target) || target_incarnation(s->target) != s->incarnation)
			return 0;
		if (!status) {
			p->unmapped = true;
			s->state = SESSION_TAKEN;
		}
	}
	if (s->state != SESSION_TAKEN)
		return 0;
	return dinst_fail(
		e, DINST_GONE,
		"what was inserted in process %d (%s) has been taken out by somebody else, as by a "
		"dinst inside of its container: values are those until then; detach and attach again",
		(int)s->pid, s->name);
}

/* ------------------------------------------------------- private arenas */

/* False if there is no memory for it. */
static bool store_later(struct place *p, taddr_t address, uint64_t value)
{
	if (p->store_count == p->store_room) {
		size_t room = p->store_room ? p->store_room * 2 : 64;
		struct late_store *stores = realloc(p->stores, room * sizeof(*stores));

		if (!stores)
			return false;
		p->stores = stores;
		p->store_room = room;
	}
	p->stores[p->store_count++] = (struct late_store){.address = address, .value = value};
	return true;
}

void place_store(struct place *p, taddr_t address, uint64_t value)
{
	uint64_t *where = heap_map(p->heap, address, sizeof(*where));

	assert(where);
	if (p->arena->mode == ARENA_PRIVATE && store_later(p, address, value))
		return;
	fault_point();
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
}

/* All that anything may lead to is in the target before anything does, in whichever arena: we may die in between. */
int place_sync(struct stop *stop, struct session *s, struct dinst_error *e)
{
	int status = 0;

	for (struct place *p = s->places; p && status >= 0; p = p->next)
		if (!p->unmapped)
			status = arena_sync(stop, p->arena, e);
	for (struct place *p = s->places; p && status >= 0; p = p->next) {
		if (p->unmapped || !p->store_count)
			continue;
		for (size_t i = 0; i < p->store_count; i++)
			memcpy(heap_map(p->heap, p->stores[i].address, sizeof(uint64_t)),
			       &p->stores[i].value, sizeof(uint64_t));
		p->store_count = 0;
		status = arena_sync(stop, p->arena, e);
	}
	return status;
}

bool place_has_unsent(const struct session *s)
{
	for (const struct place *p = s->places; p; p = p->next)
		if (p->store_count && !p->unmapped)
			return true;
	return false;
}

static int sync_work(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct session *s = arg;

	if (target_incarnation(stop_target(stop)) != s->incarnation)
		return dinst_fail(e, DINST_GONE, "process %d has executed another program",
				  (int)s->pid);
	return place_sync(stop, s, e);
}

int place_send(struct session *s, uint64_t *stop_ns, struct dinst_error *e)
{
	struct stop_report report = {0};
	int status;

	if (!place_has_unsent(s))
		return 0;
	status = target_stop(s->target, NULL, sync_work, s, &report, e);
	session_note_stop(s, &report, stop_ns);
	return status;
}

/* --------------------------------------------------------------- making */

/* An arena that was just made and nobody uses: give it back to the target. */
static int unmake_arena(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct make_place *m = arg;

	return arena_unmap(stop, m->arena, e);
}

/* What is left by tries that were given up is taken out at detach, and must not become more and more. */
static int may_make(struct session *s, struct dinst_error *e)
{
	const unsigned left = target_left_calls(s->target);
	unsigned count = 0;
	int status;

	for (const struct place *p = s->places; p; p = p->next)
		count++;
	if (count >= ARENAS_MOST - LEFT_MAX)
		return dinst_fail(
			e, DINST_NO_MEMORY,
			"process %d (%s) has %u arenas of ours, which is as many as there may be, and what is asked for has room in none: remove something first",
			(int)s->pid, target_name(s->target), count);
	if (left >= LEFT_MAX)
		return dinst_fail(
			e, DINST_BUSY,
			"process %d (%s) has kept us from making room for code %u times, and something may "
			"have been left in it each time: detach, which takes that out, and attach again",
			(int)s->pid, target_name(s->target), left);
	status = session_wanted(s, e);
	/* Who is there before the first of them has none. */
	return status < 0 || s->unseen ? status : hidden_note(&s->unseen, e);
}

/* It may be that none of its threads can make our system calls just now. */
static int make_in_stops(struct session *s, struct make_place *make, uint64_t *stop_ns,
			 struct dinst_error *e)
{
	const unsigned left = target_left_calls(s->target);
	struct stop_report report = {0};
	uint64_t stood = 0;
	int status;

	rseq_is_inherited(); /* is found out while the target runs */
	status = target_find_sharers(s->target, &make->sharers, e);
	for (int turn = 0; status >= 0 && turn < ARENA_TRIES; turn++) {
		status = target_stop(s->target, NULL, make_arena, make, &report, e);
		session_note_stop(s, &report, stop_ns);
		stood += report.stop_ns;
		/* Nor is somebody held up again and again who gets signals without a break. */
		if (status != DINST_BUSY || !report.threads || turn + 1 == ARENA_TRIES ||
		    stood > ARENA_STOOD_NS || target_left_calls(s->target) != left)
			break;
		dinst_error_clear(e);
		usleep(ARENA_PAUSE_US);
		status = 0;
	}
	proc_ids_release(&make->sharers);
	return status;
}

static bool has_place(const struct session *s, enum arena_mode mode)
{
	for (const struct place *p = s->places; p; p = p->next)
		if (p->arena->mode == mode && !p->unmapped)
			return true;
	return false;
}

/* Code in a shared arena is changed under running threads, in children too (site_turn()). */
static const char *why_private(const struct session *s)
{
	if (s->private_arenas)
		return "a private arena was asked for";
	if (has_place(s, ARENA_PRIVATE))
		return "what is there already is private, too";
	return arch_switches_are_whole()
		       ? NULL
		       : "the processor is emulated, and may execute half of a changed jump";
}

/*
 * All of one kind. A child that was forked with a shared one is of the family, and is led to whatever is new: of
 * a private one it would have what was there when it was forked.
 */
static int check_kind(const struct session *s, const struct arena *a, struct dinst_error *e)
{
	if (a->mode == ARENA_SHARED || !has_place(s, ARENA_SHARED))
		return 0;
	return dinst_fail(
		e, DINST_BUSY,
		"process %d (%s) cannot share memory with its children just now (%s), as it does "
		"where something is inserted already: try again later, or remove that first by "
		"detaching",
		(int)s->pid, target_name(s->target), a->note);
}

/*
 * Bytes of the modules that come to lie in the same arena, whoever was asked for first: what is put at a place
 * in code stays in one, and may become much more.
 */
static size_t text_around(const struct session *s, const struct module *m)
{
	size_t text = 0;

	for (size_t i = 0; i < module_count(s->modules); i++) {
		const struct module *other = module_get(s->modules, i);

		if (!other->gone &&
		    (other->lo > m->lo ? other->hi - m->lo : m->hi - other->lo) < ARENA_REACH)
			text += other->hi - other->lo;
	}
	return text;
}

int place_for(struct session *s, struct module *m, struct place **out, uint64_t *stop_ns,
	      struct dinst_error *e)
{
	struct make_place make = {.session = s, .lo = m->lo, .hi = m->hi};
	struct dinst_error ignored = {0};
	struct place *p;
	int status;

	*out = NULL;
	/* The oldest one that has room: memory that was used once stays, and there should be little of it. */
	for (p = s->places; p; p = p->next)
		if (!p->full && !p->crowded && !p->unmapped && m->lo >= p->arena->reach_lo &&
		    m->hi <= p->arena->reach_hi)
			*out = p;
	if (*out)
		return 0;
	status = may_make(s, e);
	if (status < 0)
		return status;
	/* Not for each point: in a virtual machine each CPUID is some 20 us of its hypervisor's. */
	make.private = why_private(s);
	make.text = text_around(s, m);
	p = calloc(1, sizeof(*p));
	if (!p)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = make_in_stops(s, &make, stop_ns, e);
	if (status < 0)
		goto free_place;
	p->arena = make.arena;
	p->journal = make.journal;
	status = check_kind(s, p->arena, e);
	if (status < 0)
		goto unmake;
	status = p->journal ? 0 : journal_create(p->arena, s->name, &p->journal, e);
	if (status < 0)
		goto unmake;
	status = heap_create(p->arena, &p->heap, e);
	if (status < 0)
		goto unmake;
	if (getenv("DINST_POISON"))
		heap_poison_freed(p->heap);
	heap_count_in(p->heap, &s->heaps);
	p->next = s->places;
	s->places = p;
	*out = p;
	return 0;

unmake:
	/* A child that was forked in the meantime has it, too. */
	target_stop(s->target, NULL, unmake_arena, &make, NULL, &ignored);
	target_note_left(s->target);
free_place:
	place_free(p, true);
	return status;
}
