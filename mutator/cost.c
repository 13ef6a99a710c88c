/* SPDX-License-Identifier: MIT */
/*
 * cost.c - switching off what must not go on. Looked at once a second; values
 * of what is switched off stay.
 *
 * Limits: what instances cost is what their code is predicted to take each
 * time, times how often it was reached, and for clocks of threads a system call behind
 * each switch. System calls: code that makes some was
 * allowed to when it came; a program may take that right from itself later. From
 * there to our look at it lies up to a second, in which threads_filters.c keeps our
 * code from calling.
 */
#include <errno.h>
#include <stdlib.h>

#include "inject/proc.h"
#include "inject/tasks.h"
#include "mutator/request.h"
#include "mutator/values.h"

static const uint64_t PERIOD_NS = UINT64_C(1000000000);
/* Code that makes system calls is left as it is for so long where nobody can look. */
static const uint64_t UNSEEN_MOST_NS = UINT64_C(5000000000);

double instance_predicted_ns(const struct instance *i, uint64_t hits, uint64_t switches)
{
	const struct instance *source = instance_source(i);
	const uint64_t calls = switches < hits ? switches : hits;

	return ((double)hits * (double)source->cost_ps +
		(double)calls * (double)source->switch_ps) /
	       1000;
}

/* Percent of one CPU since the last look; negative: too early to say. */
static double percent_of(struct instance *i)
{
	const uint64_t now = clock_ns(), since = i->seen_ns ? i->seen_ns : i->since_ns;
	uint64_t hits, switches;
	double cost;

	if (now - since < PERIOD_NS || !instance_hits(i, &hits))
		return -1;
	switches = i->switch_ps ? session_switches(i->session, false) : 0;
	cost = instance_predicted_ns(i, hits - i->seen_hits, switches - i->seen_switches);
	i->seen_ns = now;
	i->seen_hits = hits;
	i->seen_switches = switches;
	return cost * 100 / (double)(now - since);
}

bool instance_makes_calls(const struct instance *i)
{
	if (i->system_calls)
		return true;
	for (size_t n = 0; n < i->flag_count; n++)
		if (i->flags[n]->system_calls)
			return true;
	return false;
}

/* Of something hidden: a flag, or a hook. */
static bool is_calling(const struct instance *i)
{
	for (const struct link *l = i->links; l; l = l->next_instance)
		if (l->snippet.code && l->snippet.code->system_calls)
			return true;
	return false;
}

bool session_makes_calls(const struct session *s)
{
	for (const struct instance *i = s->instances; i; i = i->next)
		if (!i->stopped && !i->source && instance_makes_calls(i))
			return true;
	/* A hook reads the clock whatever it is there for. */
	for (const struct instance *i = s->hidden; i; i = i->next)
		if (!i->stopped && is_calling(i))
			return true;
	return false;
}

/* Filters can only be added: another number is another answer, perhaps. False if nobody can look now. */
static bool count_filters(const pid_t *tids, size_t count, uint64_t *filters, uint64_t *most)
{
	*filters = *most = 0;
	for (size_t n = 0; n < count; n++) {
		struct proc_status status;
		const int error = proc_status_read(tids[n], &status);

		if (proc_is_lack(error))
			return false;
		if (error || status.seccomp <= 0)
			continue;
		*filters += 1 + status.filters;
		if (1 + status.filters > *most)
			*most = 1 + status.filters;
	}
	return tids != NULL;
}

/* A child that may not be looked at may run our code, too. */
static bool may_run_our_code(const struct session *s, pid_t child)
{
	for (const struct place *p = s->places; p; p = p->next)
		if (hidden_may_have(s->unseen, child, s->target, p->arena))
			return true;
	return false;
}

/*
 * A forked child that runs our code, and has taken on a filter of its own. What that says of our
 * calls is not asked: the next child may be killed by it before anybody can.
 */
static bool has_filtered_child(const struct session *s, const pid_t *tids, size_t count,
			       uint64_t most, bool *unseen)
{
	struct proc_ids children = {0};
	bool found = false;

	for (size_t n = 0; n < count; n++) {
		const int error = proc_children(s->pid, tids[n], &children);

		*unseen |= proc_is_lack(error) || error == -EAGAIN;
	}
	for (size_t n = 0; n < children.count && !found; n++) {
		struct proc_status status;
		const int error = proc_status_read(children.ids[n], &status);

		*unseen |= proc_is_lack(error);
		if (error || status.seccomp <= 0 || 1 + status.filters <= most)
			continue;
		found = may_run_our_code(s, children.ids[n]);
	}
	proc_ids_release(&children);
	return found;
}

/* False if the target, or a child of it, has come to forbid what code of ours does. */
static bool may_go_on_calling(struct session *s)
{
	struct dinst_error ignored = {0};
	const uint64_t now = clock_ns();
	bool filtered, unseen;
	uint64_t filters, most;
	size_t count;
	pid_t *tids;

	if (now - s->filters_ns < PERIOD_NS)
		return true;
	tids = task_list(s->pid, &count);
	unseen = !count_filters(tids, count, &filters, &most);
	filtered = has_filtered_child(s, tids, count, most, &unseen);
	free(tids);
	if (filtered || threads_filters_begun(s))
		return false;
	/* Asked again the next time; not seen for long, there may be one as well as not. */
	if (unseen && target_alive(s->target)) {
		if (!s->filters_ns)
			s->filters_ns = now - PERIOD_NS;
		return now - s->filters_ns < UNSEEN_MOST_NS;
	}
	s->filters_ns = now;
	s->filters_most = most;
	if (filters == s->filters_seen)
		return true;
	if (threads_may_still_call(s, &ignored) <= 0)
		return false;
	s->filters_seen = filters;
	return true;
}

/* Private arenas: what was switched off runs on until that has been sent; of a program that is no more, nothing is. */
static bool has_to_send(const struct session *s)
{
	return (s->state == SESSION_RUNNING || s->state == SESSION_HELD) && place_has_unsent(s);
}

bool session_needs_poll(const struct session *s)
{
	if (has_to_send(s))
		return true;
	for (const struct instance *i = s->instances; i; i = i->next)
		if (!i->stopped && !i->source && i->limit > 0)
			return true;
	return session_makes_calls(s);
}

static void switch_off(struct session *s, struct instance *i)
{
	i->stopped = true;
	removal_unlink(s, i);
	values_stand_still(i);
	/* Nobody sees who enters and leaves from here on: whoever asks again has to look at the stacks. */
	instance_unpair(s, i);
}

/* Instances, flags and hooks: what makes calls before it is known what for. */
static void stop_calls(struct session *s,
		       void (*told)(void *arg, const struct instance *i, double percent), void *arg)
{
	if (!session_makes_calls(s) || may_go_on_calling(s))
		return;
	for (struct instance *i = s->instances; i; i = i->next) {
		struct instance *source = instance_source(i);

		if (i->stopped || !instance_makes_calls(source))
			continue;
		if (!source->stopped)
			switch_off(s, source);
		/* Whoever shares it is told, too: the one that it was made for may be gone. */
		i->stopped = i->forbidden = true;
		if (told)
			told(arg, i, -1);
	}
	for (struct instance *i = s->hidden; i; i = i->next)
		if (!i->stopped && is_calling(i))
			switch_off(s, i);
}

void session_poll(struct session *s,
		  void (*told)(void *arg, const struct instance *i, double percent), void *arg)
{
	struct flush_result flush;

	stop_calls(s, told, arg);
	for (struct instance *i = s->instances; i; i = i->next) {
		double percent;

		if (i->limit <= 0 || i->stopped || i->waiting || i->source)
			continue;
		percent = percent_of(i);
		if (percent <= i->limit)
			continue;
		switch_off(s, i);
		if (told)
			told(arg, i, percent);
	}
	if (has_to_send(s))
		removal_settle(s, &flush);
}
