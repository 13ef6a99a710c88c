/* SPDX-License-Identifier: MIT */
/*
 * evaluate_resources.c - what a focus names besides code: threads, processes,
 * open files, objects that synchronize. Reads /proc; numbers are those that the
 * target itself would see.
 */
#include <dirent.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/proc.h"
#include "inject/proc_open.h"
#include "inject/tasks.h"
#include "mutator/evaluate_private.h"
#include "mutator/types.h"

enum { KNOWN_MAX = 16384, NAMES_TOLD = 12 };

/* One object that there is. */
struct object {
	int64_t number; /* as the target sees it */
	long outside;	/* as we do */
	char name[256];
};

/* What a resource's last part names. */
struct wanted {
	const char *text, *word; /* the resource, its last part */
	bool by_number;
	int64_t number;
	bool sockets; /* only those */
};

struct objects {
	struct object *items; /* those that are wanted, or all */
	size_t count, room;
	const struct wanted *wanted;
	bool all;
	struct object others[NAMES_TOLD + 1]; /* some that are not, for a message */
	size_t other_count;
};

static bool whole_number(const char *text, int64_t *n)
{
	char *end;

	errno = 0;
	*n = strtoll(text, &end, 0);
	if (errno == ERANGE && !strncmp(text, "0x", 2)) {
		errno = 0;
		*n = (int64_t)strtoull(text, &end, 0);
	}
	return *text && !*end && !errno;
}

/* By both of its numbers, or by its name. */
static bool is_wanted(const struct object *o, const struct wanted *w)
{
	char rooted[300];

	if (w->by_number)
		return o->number == w->number || o->outside == w->number;
	/* The slash before a path may be left out. */
	snprintf(rooted, sizeof(rooted), "/%s", w->word);
	return !fnmatch(w->word, o->name, 0) || !strcmp(w->word, o->name) ||
	       (o->name[0] == '/' && !fnmatch(rooted, o->name, 0));
}

static int add_object(struct objects *o, int64_t number, long outside, const char *name,
		      struct dinst_error *e)
{
	struct object object = {.number = number, .outside = outside};

	snprintf(object.name, sizeof(object.name), "%s", name);
	if (o->wanted->sockets && strncmp(name, "socket:", strlen("socket:")))
		return 0;
	if (!o->all && !is_wanted(&object, o->wanted)) {
		if (o->other_count < NAMES_TOLD + 1)
			o->others[o->other_count++] = object;
		return 0;
	}
	if (o->count == KNOWN_MAX)
		return dinst_fail(e, DINST_REFUSED,
				  "%.120s: more than %d match; name fewer of them, or * for one "
				  "vector of all",
				  o->wanted->text, KNOWN_MAX);
	if (o->count == o->room) {
		size_t room = o->room ? o->room * 2 : 32;
		void *more = reallocarray(o->items, room, sizeof(*o->items));

		if (!more)
			return no_memory(e);
		o->items = more;
		o->room = room;
	}
	o->items[o->count++] = object;
	return 0;
}

/* ------------------------------------------------------------ what there is */

static void read_comm(pid_t pid, pid_t tid, char *name, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)pid, (int)tid);
	if (proc_read(path, name, size) <= 0)
		name[0] = 0;
	name[strcspn(name, "\n")] = 0;
}

static int list_threads(struct evaluation *v, struct objects *o)
{
	const pid_t pid = target_pid(v->s->target);
	size_t count;
	pid_t *tids = task_list(pid, &count);
	int status = 0;

	for (size_t i = 0; i < count && status >= 0; i++) {
		pid_t own = task_own_id(pid, tids[i]);
		char name[64];

		read_comm(pid, tids[i], name, sizeof(name));
		if (own)
			status = add_object(o, own, tids[i], name, v->e);
	}
	free(tids);
	return status;
}

static pid_t parent_of(pid_t pid)
{
	char path[64], text[2048], *line;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	if (proc_read(path, text, sizeof(text)) <= 0)
		return 0;
	line = strstr(text, "\nPPid:");
	return line ? (pid_t)strtol(line + strlen("\nPPid:"), NULL, 10) : 0;
}

static bool descends_from(pid_t pid, const struct proc_ids *ancestors)
{
	for (unsigned depth = 0; pid > 0 && depth < 64; depth++) {
		for (size_t i = 0; i < ancestors->count; i++)
			if (pid == ancestors->ids[i])
				return true;
		pid = parent_of(pid);
	}
	return false;
}

static int list_all(struct evaluation *v, struct proc_ids *all)
{
	struct dirent *entry;
	DIR *proc = opendir("/proc");
	int status = 0, error = 0;

	if (!proc)
		return dinst_fail_errno(v->e, DINST_FAILED, errno, "cannot list /proc");
	while (!status && (entry = proc_next(proc, &error))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

		if (pid > 0 && pid != getpid())
			status = proc_ids_add(all, pid);
	}
	closedir(proc);
	if (status)
		return no_memory(v->e);
	return error ? dinst_fail_errno(v->e, DINST_BUSY, -error, "cannot list /proc") : 0;
}

/* Who runs through what is inserted: whose parent has ended is somebody else's child by now. */
static int list_sharers(struct evaluation *v, const struct proc_ids *all, struct proc_ids *sharers)
{
	const pid_t target = target_pid(v->s->target);

	for (size_t i = 0; i < all->count; i++) {
		struct dinst_error why = {0};
		int shares = all->ids[i] == target ? 1 : family_shares(v->s, all->ids[i], &why);

		/* Of whoever may not be looked at, the stop tells whether it may be one. */
		if (shares < 0 && shares != DINST_NOT_PERMITTED && shares != DINST_GONE)
			return dinst_fail(v->e, DINST_BUSY, "%s; try again later", why.text);
		if (shares > 0 && proc_ids_add(sharers, all->ids[i]))
			return no_memory(v->e);
	}
	return 0;
}

/* The target and who shares its arenas, and what descends from them: of these its family is made. */
static int list_processes(struct evaluation *v, struct objects *o)
{
	struct proc_ids all = {0}, sharers = {0};
	int status = list_all(v, &all);

	if (status >= 0)
		status = list_sharers(v, &all, &sharers);
	for (size_t i = 0; i < all.count && status >= 0; i++) {
		const pid_t pid = all.ids[i];
		char name[64];
		pid_t own;

		if (!descends_from(pid, &sharers))
			continue;
		own = task_own_id(pid, pid);
		read_comm(pid, pid, name, sizeof(name));
		if (own)
			status = add_object(o, own, pid, name, v->e);
	}
	proc_ids_release(&sharers);
	proc_ids_release(&all);
	return status;
}

static int list_files(struct evaluation *v, struct objects *o)
{
	char path[64], link[256 + 64], to[256];
	struct dirent *entry;
	int status = 0, error = 0;
	DIR *fds;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)target_memory_tid(v->s->target));
	fds = proc_opendir(path);
	if (!fds)
		return dinst_fail_errno(v->e, DINST_FAILED, errno, "cannot list %s", path);
	while (status >= 0 && (entry = proc_next(fds, &error))) {
		ssize_t n;

		if (entry->d_name[0] == '.')
			continue;
		snprintf(link, sizeof(link), "%s/%s", path, entry->d_name);
		n = proc_readlink(link, to, sizeof(to) - 1);
		if (n <= 0)
			continue;
		to[n] = 0;
		status = add_object(o, strtol(entry->d_name, NULL, 10), 0, to, v->e);
	}
	closedir(fds);
	return error ? dinst_fail_errno(v->e, DINST_BUSY, -error, "cannot list %s", path) : status;
}

/* ---------------------------------------------------------------- matching */

static const char *last_part(const struct focus_resource *r)
{
	return r->resource.parts[r->resource.part_count - 1];
}

static int none_matches(struct evaluation *v, const struct focus_resource *r,
			const struct objects *o, const char *what)
{
	const struct object *there = o->all ? o->items : o->others;
	const size_t count = o->all ? o->count : o->other_count;
	char known[DINST_ERROR_TEXT / 2] = "";
	size_t used = 0, told = 0;

	for (size_t i = 0; i < count && told < NAMES_TOLD; i++, told++) {
		char one[400];

		snprintf(one, sizeof(one), "%s%lld (%.80s)", told ? ", " : "",
			 (long long)there[i].number, there[i].name);
		if (used + strlen(one) + 1 > sizeof(known))
			break;
		used += (size_t)snprintf(known + used, sizeof(known) - used, "%s", one);
	}
	return dinst_fail(v->e, DINST_USAGE, "%.120s: %s has no such %s; there are %s%s", r->text,
			  target_name(v->s->target), what, told ? known : "none",
			  told < count ? ", ..." : "");
}

static int set_keys(struct evaluation *v, struct focus_resource *r, const struct objects *o)
{
	uint64_t *keys = mdl_alloc(v->memory, o->count, sizeof(*keys), v->e);

	for (size_t i = 0; keys && i < o->count; i++)
		keys[i] = (uint64_t)o->items[i].number;
	r->value = (struct value){.kind = VALUE_ANY};
	r->keys = keys;
	r->key_count = o->count;
	return keys ? 0 : DINST_NO_MEMORY;
}

static void set_number(struct focus_resource *r, int64_t number)
{
	r->value = (struct value){.kind = VALUE_NUMBER, .number = number};
}

/* With `each`: one resource for each object. */
static int each_object(struct evaluation *v, const struct focus_resource *r,
		       const struct objects *o, struct focus_resource **out, size_t *count)
{
	struct focus_resource *list = mdl_alloc(v->memory, o->count, sizeof(*list), v->e);

	for (size_t i = 0; list && i < o->count; i++) {
		const char *part =
			mdl_print(v->memory, v->e, "%lld", (long long)o->items[i].number);

		list[i] = *r;
		list[i].resource.parts[r->resource.part_count - 1] = part;
		list[i].text =
			part ? mdl_print(v->memory, v->e, "/%s%s%s/%s", r->resource.hierarchy,
					 r->resource.part_count > 1 ? "/" : "",
					 r->resource.part_count > 1 ? r->resource.parts[0] : "",
					 part)
			     : NULL;
		if (!list[i].text)
			return DINST_NO_MEMORY;
		set_number(&list[i], o->items[i].number);
	}
	*out = list;
	*count = o->count;
	return list ? 0 : DINST_NO_MEMORY;
}

/*
 * Code knows a process by the id that it has itself: the first of each pid namespace has the same one.
 * Who is named by the id that it has for us must be the only one; all others are named together.
 */
static int merge_twins(struct evaluation *v, const struct focus_resource *r,
		       const struct objects *all, struct objects *kept)
{
	const size_t count = kept->count;
	int64_t number;
	const bool named = whole_number(last_part(r), &number);

	kept->count = 0;
	for (size_t i = 0; i < count; i++) {
		const struct object *o = &kept->items[i];
		bool again = false;

		for (size_t k = 0; k < kept->count; k++)
			again |= kept->items[k].number == o->number;
		for (size_t k = 0; named && o->number != number && k < all->count; k++)
			if (all->items[k].number == o->number && &all->items[k] != o)
				return dinst_fail(
					v->e, DINST_REFUSED,
					"%.120s: process %ld calls itself %lld in its pid namespace, as "
					"process %ld does in another one, and code cannot tell them "
					"apart: /Machine/%lld is both",
					r->text, o->outside, (long long)o->number,
					all->items[k].outside, (long long)o->number);
		if (!again)
			kept->items[kept->count++] = *o;
	}
	return 0;
}

/* In a pid namespace one may have the number itself that another one has for us. */
static int refuse_either(struct evaluation *v, const struct focus_resource *r,
			 const struct objects *kept, const char *what)
{
	const struct object *inside = NULL, *outside = NULL;

	for (size_t i = 0; i < kept->count; i++)
		if (kept->items[i].number == kept->wanted->number)
			inside = &kept->items[i];
		else
			outside = &kept->items[i];
	if (!kept->wanted->by_number || !inside || !outside)
		return 0;
	return dinst_fail(
		v->e, DINST_REFUSED,
		"%.120s may be %s %ld, which calls itself %lld in its pid namespace, or %s "
		"%ld, which calls itself %lld there: name either by its other number",
		r->text, what, inside->outside, (long long)inside->number, what, outside->outside,
		(long long)outside->number);
}

/* A thread, a process or a file may have that name, too. */
static bool is_of_sockets(const struct mdl_resource *r)
{
	return !strcmp(r->hierarchy, "File") && r->part_count > 1 && !strcmp(r->parts[0], "Socket");
}

/* Keeps what the word names; a number that names one is taken as it is. */
static int keep_wanted(struct evaluation *v, const struct focus_resource *r, struct objects *o,
		       const char *what)
{
	struct objects all = *o;
	size_t kept = 0;

	for (size_t i = 0; i < all.count; i++)
		if (is_wanted(&o->items[i], o->wanted)) {
			struct object found = o->items[i];

			o->items[i] = o->items[kept];
			o->items[kept++] = found;
		}
	o->count = kept;
	if (!kept)
		return none_matches(v, r, &all, what);
	if (refuse_either(v, r, o, what) < 0)
		return DINST_REFUSED;
	return o->all ? merge_twins(v, r, &all, o) : 0;
}

static int find_objects(struct evaluation *v, struct focus_resource *r, bool each,
			int (*list)(struct evaluation *v, struct objects *o), const char *what,
			struct focus_resource **out, size_t *count)
{
	const char *word = last_part(r);
	struct wanted wanted = {
		.text = r->text, .word = word, .sockets = is_of_sockets(&r->resource)};
	/* Of processes those that have the number of one that is wanted are looked at, too. */
	struct objects o = {.wanted = &wanted, .all = list == list_processes};
	int status;

	*out = r;
	*count = 1;
	if (!strcmp(word, "*") && !each) {
		r->value = (struct value){.kind = VALUE_ANY};
		return 0;
	}
	wanted.by_number = whole_number(word, &wanted.number);
	status = list(v, &o);
	if (status >= 0)
		status = keep_wanted(v, r, &o, what);
	if (status >= 0 && each && is_pattern(word))
		status = each_object(v, r, &o, out, count);
	else if (status >= 0 && o.count == 1)
		set_number(r, o.items[0].number);
	else if (status >= 0)
		status = set_keys(v, r, &o);
	free(o.items);
	return status;
}

/* A descriptor need not be open now; a path tells which ones are meant. */
static int find_file(struct evaluation *v, struct focus_resource *r, bool each,
		     struct focus_resource **out, size_t *count)
{
	int64_t number;

	if (whole_number(last_part(r), &number) && number >= 0) {
		set_number(r, number);
		*out = r;
		*count = 1;
		return 0;
	}
	return find_objects(v, r, each, list_files, "open file", out, count);
}

/* ----------------------------------------------------------------- objects */

/* An object by address, by the name of a variable of the target, or any. */
static int find_object(struct evaluation *v, struct focus_resource *r, bool each,
		       struct focus_resource **out, size_t *count)
{
	const char *word = last_part(r);
	struct data_symbol symbol;
	int64_t number;

	*out = r;
	*count = 1;
	if (r->resource.part_count == 1 && !strcmp(r->resource.hierarchy, "SyncObject")) {
		if (is_pattern(word))
			return dinst_fail(v->e, DINST_USAGE,
					  "%.120s: name a kind of object: Mutex, RwLock, CondVar, "
					  "Semaphore, Barrier",
					  r->text);
		r->value = (struct value){.kind = VALUE_TEXT, .text = word};
		return 0;
	}
	if (is_pattern(word) && (each || strcmp(word, "*")))
		return dinst_fail(v->e, DINST_USAGE,
				  "%.120s: these objects are not known before they are used; "
				  "/* counts each of them in one vector",
				  r->text);
	if (is_pattern(word))
		r->value = (struct value){.kind = VALUE_ANY};
	else if (whole_number(word, &number))
		set_number(r, number);
	else if (strcmp(r->resource.hierarchy, "SyncObject"))
		r->value = (struct value){.kind = VALUE_TEXT, .text = word};
	else if (data_symbol_find(v->s->modules, word, &symbol, v->e) < 0)
		return v->e->code;
	else
		set_number(r, (int64_t)symbol.address);
	return 0;
}

int resource_find(struct evaluation *v, struct focus_resource *r, bool each,
		  struct focus_resource **out, size_t *count)
{
	if (!strcmp(r->resource.hierarchy, "Process"))
		return find_objects(v, r, each, list_threads, "thread", out, count);
	if (!strcmp(r->resource.hierarchy, "Machine"))
		return find_objects(v, r, each, list_processes, "process", out, count);
	if (!strcmp(r->resource.hierarchy, "File"))
		return find_file(v, r, each, out, count);
	return find_object(v, r, each, out, count);
}
