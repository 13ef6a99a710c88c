/* SPDX-License-Identifier: MIT */
/*
 * family.c - the target and the processes forked from it that share its arenas.
 *
 * A forked child runs through the same trampolines, so nothing may be freed
 * while any process of the family can be inside. The family is every process
 * whose maps show an arena's device and inode. It can only grow by fork, so
 * once every known member is stopped looks at the processes that were born
 * since reach the fixed point, when nobody who may have forked another one has
 * gone during the last of them (proc_looks). What takes long is done before: all
 * that are found while the target runs are opened then.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mutator/core.h"
#include "mutator/parks.h"

/* A member that is not stopped yet. */
struct waiting {
	pid_t pid;
	struct target *member; /* opened while nobody stood still; NULL: not yet */
	uint64_t incarnation;  /* in which it was one; 0: not known */
};

struct family {
	struct session *session;
	struct proc_looks looked_at; /* processes that are known to be members or not */
	int births_fd;
	bool unsure;	    /* the last listing may have missed somebody */
	unsigned listings;  /* while the target stood */
	uint64_t listed_ns; /* when the first of them began */
	long births;	    /* up to which those that /proc does not list were looked for */
	struct waiting *waiting;
	size_t waiting_count, waiting_room;
	struct proc_ids
		sharers,  /* stopped, in the memory of one whose thread group is another one */
		suspects; /* no members, and may have been some while the target stood */
	struct stop **stops;
	size_t stop_count, stop_room;
	struct stop_report report;
	family_ready ready; /* NULL: nobody asks */
	family_work work;
	void *arg;
	unsigned member_deadline_us;
	unsigned ending_looks; /* at those that may have been killed: others stand meanwhile */
	bool member_busy;      /* one of them did not stop in time */
	bool worked;	       /* work() was called for somebody: its answer is final */
};

enum { PRIVATE_LOOK = 64 }; /* bytes of the journal's header */
enum { TRIES = 6, MEMBER_DEADLINE_US = 20 * 1000, FIRST_PAUSE_US = 5 * 1000 };
enum { LISTINGS = 8 }; /* of all processes in one stop, whatever time they take */
enum { ENDING_LOOKS = 20, ENDING_PAUSE_US = 250 };

static int note_pid(struct proc_ids *list, pid_t pid, struct dinst_error *e)
{
	return proc_ids_add(list, pid) ? dinst_fail(e, DINST_NO_MEMORY, "out of memory") : 0;
}

static int add_waiting(struct family *f, pid_t pid, struct dinst_error *e)
{
	if (f->waiting_count == f->waiting_room) {
		size_t room = f->waiting_room ? f->waiting_room * 2 : 16;
		struct waiting *waiting = realloc(f->waiting, room * sizeof(*waiting));

		if (!waiting)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		f->waiting = waiting;
		f->waiting_room = room;
	}
	f->waiting[f->waiting_count++] = (struct waiting){.pid = pid};
	return 0;
}

/* Itself, or as a task of another thread group in the same memory, with those it shares it with. */
static bool stopped_already(const struct family *f, pid_t pid)
{
	if (proc_ids_have(&f->sharers, pid))
		return true;
	for (size_t i = 0; i < f->stop_count; i++)
		if (target_pid(stop_target(f->stops[i])) == pid)
			return true;
	return false;
}

static int note_sharers(struct family *f, struct stop *stop, struct dinst_error *e)
{
	int status = 0;

	for (size_t i = 0; i < stop_thread_count(stop) && status >= 0; i++)
		if (stop_thread(stop, i)->foreign)
			status = note_pid(&f->sharers, stop_thread(stop, i)->tid, e);
	return status;
}

/* The maps of all processes are read: once for all arenas. */
int family_shares(const struct session *s, pid_t pid, struct dinst_error *e)
{
	bool shows = false, any = false;
	struct maps m;
	int status;

	for (const struct place *p = s->places; p; p = p->next)
		any = any || p->arena->mode == ARENA_SHARED;
	if (!any)
		return 0;
	status = maps_read(pid, &m, e);
	if (status < 0)
		return status;
	for (const struct place *p = s->places; p && !shows; p = p->next)
		shows = arena_is_in(&m, p->arena);
	maps_release(&m);
	return shows;
}

static int refuse_hidden(const struct session *s, pid_t pid, struct dinst_error *e)
{
	return dinst_fail(
		e, DINST_NOT_PERMITTED,
		"process %d was forked from %d, it seems, and may not be looked at: what it "
		"may run through stays; run dinst as root, or try again when it has ended",
		(int)pid, (int)s->pid);
}

/*
 * 1, 0, or why it cannot be told. What we may not look at may be a member: then nothing may be freed.
 * What we cannot look at for a reason of our own (no descriptor, no memory) may be one, too.
 */
static int is_member(const struct session *s, pid_t pid, struct dinst_error *e)
{
	struct dinst_error why = {0};
	const int shares = family_shares(s, pid, &why);

	if (shares >= 0 || shares == DINST_GONE)
		return shares > 0;
	if (shares != DINST_NOT_PERMITTED)
		return dinst_fail(e, DINST_BUSY, "%s; try again later", why.text);
	return hidden_may_share(s->unseen, pid, s->target) ? refuse_hidden(s, pid, e) : 0;
}

/* Of one that is no member (any more): true if a member may have made it, or one of whom that is true. */
static bool may_have_been(const struct family *f, pid_t pid)
{
	const bool others = f->stop_count && !target_alive(f->session->target);
	struct proc_stat stat;

	return proc_stat_read(pid, &stat) || stopped_already(f, stat.parent) ||
	       proc_ids_have(&f->suspects, stat.parent) ||
	       proc_may_descend(pid,
				others ? target_pid(stop_target(f->stops[0])) : f->session->pid);
}

/* Those that /proc does not list: the first time all, then whoever was born since. */
static int look_for_unlisted(struct family *f, struct dinst_error *e)
{
	const struct session *s = f->session;
	struct proc_ids unlisted = {0};
	bool shared = false;
	int status = 0;

	for (const struct place *p = s->places; p; p = p->next)
		shared = shared || p->arena->mode == ARENA_SHARED;
	if (!shared)
		return 0;
	if (hidden_unlisted(s->unseen, s->target, &f->births, &unlisted))
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	else if (unlisted.count)
		status = refuse_hidden(s, unlisted.ids[0], e);
	proc_ids_release(&unlisted);
	return status;
}

/* Who may have been a member, and is none, may have forked one that the listing has not told. */
static int look_at_new(struct family *f, pid_t pid, struct dinst_error *e)
{
	const int member = is_member(f->session, pid, e);

	if (member > 0)
		return stopped_already(f, pid) ? 0 : add_waiting(f, pid, e);
	if (member < 0 || !f->listings || !may_have_been(f, pid))
		return member;
	f->unsure = true;
	return note_pid(&f->suspects, pid, e);
}

/*
 * Looks at every process that has not been looked at yet; members go to `waiting`. `unsure` says that while all
 * known ones stand, another look may find more.
 */
static int look_for_members(struct family *f, struct dinst_error *e)
{
	const pid_t target = target_own_pid(f->session->target);
	const long births = proc_births(f->births_fd);
	int status = proc_looks_begin(&f->looked_at) ? DINST_FAILED : 0;
	pid_t pid;

	if (status)
		return dinst_fail(e, status, "cannot list /proc");
	f->unsure = false;
	while (status >= 0 && (pid = proc_looks_next(&f->looked_at))) {
		if (pid == -ENOMEM)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		if (pid < 0)
			return dinst_fail_errno(e, DINST_BUSY, -pid, "cannot list all processes");
		if (pid != target)
			status = look_at_new(f, pid, e);
	}
	/* The numbers have begun anew: a child may have a lower one than its parent. */
	f->unsure = f->unsure || proc_births(f->births_fd) < births;
	return status < 0 ? status : look_for_unlisted(f, e);
}

static int stop_the_rest(struct family *f, struct dinst_error *e);

static int open_member(struct session *s, pid_t pid, enum target_origin origin, struct target **out,
		       struct dinst_error *e)
{
	int status;

	if (s->member_count == s->member_room) {
		size_t room = s->member_room ? s->member_room * 2 : 16;
		struct target **members = realloc(s->members, room * sizeof(struct target *));

		if (!members)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		s->members = members;
		s->member_room = room;
	}
	status = target_open_known(pid, origin, out, e);
	if (status >= 0 && s->unknown_code && origin == TARGET_FORKED)
		parks_learn(s, *out);
	if (status >= 0 && target_parks(s->target))
		target_set_parks(*out);
	if (status >= 0)
		s->members[s->member_count++] = *out;
	return status;
}

/*
 * While all run: what takes long of stopping them is done before, and nobody is opened in the stop but
 * those who were born since. Who has ended or executed another program by now is left to is_still_member().
 */
static int open_waiting(struct family *f, struct dinst_error *e)
{
	struct dinst_error why;
	int status = 0;

	for (size_t i = 0; i < f->waiting_count && status >= 0; i++) {
		struct waiting *w = &f->waiting[i];

		dinst_error_clear(&why);
		status = open_member(f->session, w->pid, TARGET_FORKED, &w->member, &why);
		if (status < 0) {
			if (status != DINST_NO_PROCESS && status != DINST_GONE &&
			    is_member(f->session, w->pid, &(struct dinst_error){0}))
				return dinst_fail(e, status, "%s", why.text);
			status = 0;
			continue;
		}
		w->incarnation = target_incarnation(w->member);
		/* In this incarnation, and no earlier one. */
		status = is_member(f->session, w->pid, e);
		if (!status)
			w->incarnation = 0;
	}
	return status < 0 ? status : 0;
}

/*
 * As is_member(), just before it is stopped: it may have ended, another process may have its pid (it
 * is to be opened then), or it has executed another program. Maps of a large program are long: they are
 * not read where it is seen to be what it was.
 */
static int is_still_member(struct family *f, struct waiting *w, struct dinst_error *e)
{
	if (stopped_already(f, w->pid))
		return 0;
	if (w->member && !target_alive(w->member))
		w->member = NULL;
	if (w->member && w->incarnation && target_incarnation(w->member) == w->incarnation)
		return 1;
	return is_member(f->session, w->pid, e);
}

void family_release(struct session *s)
{
	while (s->member_count) {
		struct target *member = s->members[--s->member_count];

		if (!late_calls_keep(s, member))
			target_close(member);
	}
	free(s->members);
	s->members = NULL;
	s->member_room = 0;
}

/* It executed another program while it was being stopped: that has nothing of ours. */
static bool has_executed(const struct family *f, pid_t pid)
{
	struct dinst_error ignored = {0};

	return !f->worked && !is_member(f->session, pid, &ignored);
}

/* Who was killed is no tracee of ours any more at once, and has ended only some time later. */
static bool has_to_end(struct family *f, const struct target *member)
{
	for (; !target_has_to_end(member); f->ending_looks++) {
		if (f->ending_looks == ENDING_LOOKS)
			return false;
		usleep(ENDING_PAUSE_US);
	}
	return true;
}

static int with_one_more(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct family *f = arg;
	const size_t sharers = f->sharers.count;
	int status;

	if (f->stop_count == f->stop_room) {
		size_t room = f->stop_room ? f->stop_room * 2 : 16;
		struct stop **stops = realloc(f->stops, room * sizeof(struct stop *));

		if (!stops)
			return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		f->stops = stops;
		f->stop_room = room;
	}
	f->stops[f->stop_count++] = stop;
	status = note_sharers(f, stop, e);
	if (status >= 0)
		status = stop_the_rest(f, e);
	if (status >= 0 && !f->worked && f->ready)
		status = f->ready(f->stops, f->stop_count, f->arg, e);
	f->stop_count--;
	f->sharers.count = sharers;
	if (status < 0)
		return status;
	/* All are stopped, or were until their own turn: only this thread may touch this one. */
	f->worked = true;
	return f->work(stop, f->arg, e);
}

/*
 * Everybody known is stopped: looks until somebody else is found, or there is nobody for sure. The others are kept
 * waiting meanwhile: DINST_BUSY where that has no end.
 */
static int look_for_all(struct family *f, struct dinst_error *e)
{
	struct timespec now = {0};
	uint64_t ns;
	int status;

	do {
		clock_gettime(CLOCK_MONOTONIC, &now);
		ns = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
		if (!f->listings++)
			f->listed_ns = ns;
		f->member_busy |= f->listings > LISTINGS &&
				  ns - f->listed_ns > f->member_deadline_us * 1000ull;
		if (f->member_busy)
			return dinst_fail(
				e, DINST_BUSY,
				"what descends from process %d is born and ends faster than it can be "
				"looked at; try again later",
				(int)f->session->pid);
		status = look_for_members(f, e);
	} while (status >= 0 && !f->waiting_count && f->unsure);
	return status;
}

/* Everybody known is stopped: look who was born, stop them one inside the other, then work. */
static int stop_the_rest(struct family *f, struct dinst_error *e)
{
	/* The others are kept waiting meanwhile: no second try here, but of all (family_stop). */
	const struct stop_options once = {.tries = 1, .deadline_us = f->member_deadline_us};
	struct stop_report report = {0};
	struct waiting w;
	int status = 0;
	bool gone;

	while (!status) {
		status = f->waiting_count ? 0 : look_for_all(f, e);
		if (status < 0 || !f->waiting_count)
			return status;
		w = f->waiting[--f->waiting_count];
		status = is_still_member(f, &w, e);
		if (!status)
			status = note_pid(&f->suspects, w.pid, e);
		if (status < 0)
			return status;
	}
	status = w.member ? 0 : open_member(f->session, w.pid, TARGET_BORN, &w.member, e);
	if (status == DINST_NO_PROCESS || status == DINST_GONE) {
		dinst_error_clear(e);
		status = is_member(f->session, w.pid, e);
		if (!status)
			status = note_pid(&f->suspects, w.pid, e);
		if (!status)
			return stop_the_rest(f, e);
		f->member_busy = true;
		if (status < 0)
			return status;
		return dinst_fail(e, DINST_BUSY,
				  "process %d, which descends from process %d, cannot be looked at "
				  "just now; try again later",
				  (int)w.pid, (int)f->session->pid);
	}
	if (status < 0)
		return status;
	status = target_stop(w.member, &once, with_one_more, f, &report, e);
	if (report.stop_ns > f->report.stop_ns)
		f->report.stop_ns = report.stop_ns;
	f->report.threads += report.threads;
	f->member_busy |= status == DINST_BUSY;
	gone = status == DINST_GONE && (has_executed(f, w.pid) || has_to_end(f, w.member));
	if (gone) {
		/* It ended before it was stopped, or was killed while it was: one member less. */
		dinst_error_clear(e);
		status = note_pid(&f->suspects, w.pid, e);
		return status < 0 ? status : stop_the_rest(f, e);
	}
	return status;
}

/*
 * Of a program that seems to be another one: an exec leaves no arena. Where addresses are
 * not random a program can make us believe in one (target_incarnation()). 1, 0, or why it cannot be
 * told.
 */
static int is_what_it_was(const struct session *s, struct dinst_error *e)
{
	uint8_t now[PRIVATE_LOOK];
	int status = 0;

	for (const struct place *p = s->places; p && !status; p = p->next) {
		status = arena_look_for(s->pid, p->arena, e);
		/* Nobody else has a private one; what is at its place may be anything by now. */
		if (!status && p->arena->mode == ARENA_PRIVATE && !p->unmapped)
			status = target_read_some(s->target, p->arena->code, now, sizeof(now)) ==
					 sizeof(now) &&
				 !memcmp(now, p->arena->code_sent, sizeof(now));
	}
	return status;
}

/* The target itself is stopped: it counts only if it is still the same program. */
static int with_target(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct family *f = arg;
	struct session *s = f->session;
	const uint64_t incarnation = target_incarnation(stop_target(stop));
	const bool other = target_incarnations_compare(incarnation, s->incarnation) &&
			   target_incarnation_is_sure(s->target);
	int same = incarnation == s->incarnation ? 1 : is_what_it_was(s, e);

	if (same == DINST_NOT_PERMITTED && other) {
		dinst_error_clear(e);
		same = 0;
	}
	if (same < 0)
		return same;
	if (same)
		return with_one_more(stop, f, e);
	/* Another program only if that is known: what cannot be looked at may be full of patches. */
	if (!target_incarnations_compare(incarnation, s->incarnation))
		return dinst_fail(
			e, DINST_BUSY,
			"whether process %d (%s) is still the same program cannot be told "
			"just now; try again later",
			(int)s->pid, s->name);
	s->state = SESSION_EXECED;
	return stop_the_rest(f, e);
}

/* One try. */
static int stop_all(struct family *f, struct stop_report *own, struct dinst_error *e)
{
	struct session *s = f->session;
	int status;

	family_release(s);
	proc_looks_forget(&f->looked_at);
	f->waiting_count = f->sharers.count = f->suspects.count = 0;
	f->listings = 0;
	f->births = -1;
	/* The costly look at everybody happens while the target runs. */
	status = look_for_members(f, e);
	if (status >= 0 && s->unknown_code)
		parks_learn(s, s->target);
	if (status >= 0)
		status = open_waiting(f, e);
	s->unknown_code = s->unknown_code && status < 0;
	if (status < 0)
		return status;
	if (target_alive(s->target) && s->state == SESSION_EXECED)
		status = is_what_it_was(s, e);
	/* What was another program for sure may keep itself from us. */
	if (status == DINST_NOT_PERMITTED && target_incarnation_is_sure(s->target)) {
		dinst_error_clear(e);
		status = 0;
	}
	if (status < 0)
		return status;
	if (target_alive(s->target) && (s->state != SESSION_EXECED || status > 0))
		return target_stop(s->target, NULL, with_target, f, own, e);
	return stop_the_rest(f, e);
}

int family_stop_all(struct session *s, family_ready ready, family_work work, void *arg,
		    struct stop_report *report, struct dinst_error *e)
{
	struct family f = {.session = s,
			   .ready = ready,
			   .work = work,
			   .arg = arg,
			   .births_fd = proc_births_open(),
			   .member_deadline_us = MEMBER_DEADLINE_US};
	struct stop_report own = {0};
	unsigned pause = FIRST_PAUSE_US;
	uint64_t stood;
	int status = stop_all(&f, &own, e);

	/* A child that was just forked may not have had a CPU yet. */
	for (unsigned i = 1; f.member_busy && !f.worked && i < TRIES; i++) {
		if (own.stop_ns > f.report.stop_ns)
			f.report.stop_ns = own.stop_ns;
		f.member_busy = false;
		/* As in target_stop(): what stood still runs for longer than it stood. */
		stood = 2 * own.stop_ns / 1000;
		usleep(stood > pause ? (useconds_t)stood : pause);
		pause *= 2;
		f.member_deadline_us *= 2;
		dinst_error_clear(e);
		status = stop_all(&f, &own, e);
	}
	if (own.stop_ns > f.report.stop_ns)
		f.report.stop_ns = own.stop_ns;
	f.report.threads += own.threads;
	f.report.tries = own.tries;
	if (report)
		*report = f.report;
	proc_looks_release(&f.looked_at);
	if (f.births_fd >= 0)
		close(f.births_fd);
	free(f.waiting);
	proc_ids_release(&f.sharers);
	proc_ids_release(&f.suspects);
	free(f.stops);
	return status;
}

int family_stop(struct session *s, family_work work, void *arg, struct stop_report *report,
		struct dinst_error *e)
{
	return family_stop_all(s, NULL, work, arg, report, e);
}
