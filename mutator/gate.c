/* SPDX-License-Identifier: MIT */
/*
 * gate.c - starting a program whose shared objects are wanted before it runs.
 *
 * A program that was caught at its exec has no libraries yet. If a focus waits
 * for one, its entry point gets a gate: a trampoline that says that it was
 * reached and waits, for a bounded time, to be opened. By then the loader has
 * mapped everything, and what waits is inserted before main() or _start run.
 */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "mutator/core.h"

enum {
	GATE_BUDGET = 1000 * 1000 * 1000, /* turns: the gate opens itself after some ten seconds */
	GATE_POLL_US = 200,
	GATE_WAIT_MS = 10 * 1000, /* for the loader */
};

struct gate {
	struct session *session;
	struct site *site;
	taddr_t code;
	taddr_t arrived, go, budget; /* counters used as words: zero, and ours to write */
};

static uint32_t *word(const struct gate *g, taddr_t address)
{
	return heap_map(g->site->place->heap, address, sizeof(uint32_t));
}

/* The window at the program's entry point; DINST_REFUSED if there is none. */
static int find_entry(struct gate *g, struct dinst_error *e)
{
	struct session *s = g->session;
	const struct function_plan *plan;
	struct module *m = NULL;
	struct place *p;
	vaddr_t entry;
	long function;
	int status;

	for (size_t i = 0; i < module_count(s->modules); i++)
		if (module_get(s->modules, i)->main)
			m = module_get(s->modules, i);
	if (!m || !m->image)
		return dinst_fail(e, DINST_REFUSED, "the program's file cannot be read");
	entry = image_entry(m->image);
	function = image_function_at(m->image, entry);
	if (function < 0)
		return dinst_fail(e, DINST_REFUSED, "no function at the entry point");
	status = session_plan(s, m, (uint32_t)function, &plan, e);
	if (status < 0)
		return status;
	if (!plan->point_count || plan->points[0].kind != POINT_ENTRY ||
	    plan->points[0].window < 0 || plan->points[0].address != entry ||
	    plan->windows[plan->points[0].window].host >= 0)
		return dinst_fail(e, DINST_REFUSED, "the entry point cannot be instrumented");
	status = place_for(s, m, &p, NULL, e);
	if (status < 0)
		return status;
	/* Its words would be the target's alone: nobody here would see that it has arrived. */
	if (p->arena->mode == ARENA_PRIVATE)
		return dinst_fail(e, DINST_REFUSED, "the arena is private");
	status = site_make(s, m, p, plan, (unsigned)plan->points[0].window, &g->site, e);
	/* It may have no snippet, and then no head yet. */
	if (status >= 0 && !g->site->head)
		status = site_update(s, g->site, e);
	return status;
}

/* Where the site's switch leads without the gate. */
static taddr_t behind_gate(const struct site *site)
{
	if (!site->body)
		return site->base;
	return site->body->code + (site->body == site->head ? ARCH_SWITCH_SIZE : 0);
}

static int make_gate(struct gate *g, struct dinst_error *e)
{
	struct heap *heap = g->site->place->heap;
	struct arch_buf out = {.size = ARCH_GATE_MAX};
	int status = heap_alloc_counter(heap, &g->arrived, e);

	if (status >= 0)
		status = heap_alloc_counter(heap, &g->go, e);
	if (status >= 0)
		status = heap_alloc_counter(heap, &g->budget, e);
	if (status >= 0)
		status = heap_alloc_code(heap, ARCH_GATE_MAX, &g->code, e);
	if (status < 0)
		return status;
	g->site->gate = g->code;
	*word(g, g->budget) = GATE_BUDGET;
	out.bytes = heap_map(heap, g->code, ARCH_GATE_MAX);
	out.pc = g->code;
	arch_emit_gate(&out, g->arrived, g->go, g->budget, behind_gate(g->site));
	if (out.status != ARCH_OK)
		return dinst_fail(e, DINST_REFUSED, "the gate does not reach its words");
	g->site->gated = true;
	site_turn(g->site);
	return 0;
}

static void wait_for_arrival(const struct gate *g)
{
	const struct timespec pause = {.tv_nsec = GATE_POLL_US * 1000L};

	for (unsigned us = 0; us < GATE_WAIT_MS * 1000; us += GATE_POLL_US) {
		if (__atomic_load_n(word(g, g->arrived), __ATOMIC_ACQUIRE) ||
		    !target_alive(g->session->target))
			return;
		nanosleep(&pause, NULL);
	}
}

/*
 * Opens the gate and turns the switch past it. Its code goes with the site,
 * when no thread is in either; its words stay until the session ends.
 */
static void open_gate(struct gate *g)
{
	struct site *site = g->site;

	__atomic_store_n(word(g, g->go), 1, __ATOMIC_RELEASE);
	site->gated = false;
	site_turn(site);
	removal_retire(g->session, site);
}

static int look_at_threads(struct stop *stop, void *arg, struct dinst_error *e)
{
	(void)e;
	place_look_at_rseq(arg, stop);
	return 0;
}

/* Before the loader ran there was no rseq: what is inserted from now on may use it. */
static void look_again(struct session *s)
{
	struct dinst_error ignored = {0};

	s->rseq_known = false;
	target_stop(s->target, NULL, look_at_threads, s, NULL, &ignored);
}

static bool something_waits(const struct session *s)
{
	for (const struct instance *i = s->instances; i; i = i->next)
		if (i->waiting)
			return true;
	return false;
}

int gate_release(struct session *s, struct dinst_error *e)
{
	struct gate g = {.session = s};
	struct dinst_error none = {0};
	struct batch_result result;
	bool foreign = false;
	int status = DINST_REFUSED;

	if (something_waits(s)) {
		status = find_entry(&g, &none);
		if (status >= 0)
			status = make_gate(&g, &none);
		if (status >= 0 && g.site->state == SITE_PLANNED)
			status = batch_apply(s, &g.site, 1, &foreign, &result, &none);
		if (status >= 0 && g.site->state != SITE_PATCHED)
			status = DINST_REFUSED;
	}
	s->state = SESSION_RUNNING;
	if (status < 0) {
		/* The window may lead there all the same. */
		if (g.site && g.site->gated)
			open_gate(&g);
		else if (g.site)
			removal_retire(s, g.site);
		return target_release(s->target, e);
	}
	status = target_release(s->target, e);
	if (status >= 0) {
		wait_for_arrival(&g);
		look_again(s);
		request_retry_pending(s);
	}
	open_gate(&g);
	return status;
}
