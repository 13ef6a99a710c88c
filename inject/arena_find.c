/* SPDX-License-Identifier: MIT */
/*
 * arena_find.c - which processes have which arenas, seen from their maps.
 *
 * Reads only. Names and headers are outside input: a mapping that calls itself
 * ours is reported, but its header counts only when every field is right.
 */
#include "inject/arena.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/arena_map.h"
#include "inject/arena_unmap.h"
#include "inject/journal_format.h"
#include "inject/maps.h"
#include "inject/pid_space.h"
#include "inject/proc.h"
#include "inject/proc_open.h"
#include "inject/tasks.h"

/* Files that are looked at for halves; more of them in one process are an enemy's. */
enum { HALVES_MOST = 64 };

enum { PAGE = 4096, PAGES_AT_ONCE = 512 };

/* Bytes of private memory in which headers are looked for. */
static const taddr_t SEARCHED_MOST = (taddr_t)8 << 30;

#define MEMFD_PATH "/memfd:dinst (deleted)"

static const size_t PRIVATE_LEAST = (size_t)1 << 20;

/* ------------------------------------------------------ sharers of an arena */

/* What shows the start of the file, to write, is a mutator. */
static bool is_mutators(const struct maps_entry *entry)
{
	return !(arena_rights(entry) & PROT_EXEC) && !entry->offset;
}

bool arena_is_half(const struct maps_entry *entry, taddr_t code, size_t code_size, taddr_t data,
		   size_t data_size)
{
	return !is_mutators(entry) &&
	       (entry->lo - code < code_size || entry->lo - data < data_size);
}

/*
 * One half is enough: a process may have been forked, by another thread, when only
 * one was mapped.
 */
bool arena_is_in(const struct maps *m, const struct arena *a)
{
	if (a->mode != ARENA_SHARED)
		return false;
	for (size_t i = 0; i < m->count; i++) {
		const struct maps_entry *entry = &m->entries[i];

		if (entry->inode == a->inode && entry->device == a->device &&
		    arena_is_half(entry, a->code, a->code_size, a->data, a->data_size))
			return true;
	}
	return false;
}

/* 1: it has the arena; 0; or why it cannot be told: DINST_GONE too. */
static int look_into(pid_t pid, const struct arena *a, struct dinst_error *e)
{
	struct maps m;
	bool shows;
	int status = maps_read(pid, &m, e);

	if (status)
		return status;
	shows = arena_is_in(&m, a);
	maps_release(&m);
	return shows;
}

int arena_look_for(pid_t pid, const struct arena *a, struct dinst_error *e)
{
	struct dinst_error why = {0};
	const int has = a->mode == ARENA_SHARED ? look_into(pid, a, &why) : 0;

	if (has == DINST_GONE)
		return 0;
	return has < 0 ? dinst_fail(e, has, "%s", why.text) : has;
}

/* Of all processes, while some that may have made others have gone meanwhile (proc_looks). */
enum { LISTINGS = 3, LISTINGS_MOST = 64 };

/* Adds who has the arena and has not been looked at. *gone: some that may come of `target` had ended by then. */
static int list_sharers(const struct arena *a, pid_t target, struct proc_looks *looks,
			struct proc_ids *sharers, bool *gone)
{
	struct dinst_error ignored = {0};
	int has;
	pid_t pid;

	if (proc_looks_begin(looks))
		return DINST_NO_MEMORY;
	*gone = false;
	while ((pid = proc_looks_next(looks)) > 0) {
		has = pid == target ? 0 : look_into(pid, a, &ignored);
		*gone |= has == DINST_GONE && proc_may_descend(pid, target);
		if (has > 0 && proc_ids_add(sharers, pid))
			return DINST_NO_MEMORY;
		if (has < 0 && has != DINST_NOT_PERMITTED && has != DINST_GONE)
			return has;
	}
	return pid == -ENOMEM ? DINST_NO_MEMORY : pid ? DINST_BUSY : 0;
}

static int find_sharers(const struct arena *a, pid_t target, unsigned listings, pid_t **out,
			size_t *count, bool *gone)
{
	struct proc_looks looks = {0};
	struct proc_ids sharers = {0};
	int status = 0;

	*out = NULL;
	*count = 0;
	*gone = a->mode == ARENA_SHARED;
	for (unsigned n = 0; status >= 0 && *gone && n < listings; n++)
		status = list_sharers(a, target, &looks, &sharers, gone);
	proc_looks_release(&looks);
	if (status < 0) {
		proc_ids_release(&sharers);
		return status;
	}
	*out = sharers.ids;
	*count = sharers.count;
	return DINST_OK;
}

int arena_sharers(const struct arena *a, pid_t target, pid_t **out, size_t *count)
{
	bool gone;

	return find_sharers(a, target, LISTINGS, out, count, &gone);
}

int arena_all_sharers(const struct arena *a, pid_t target, pid_t **out, size_t *count)
{
	bool gone;
	const int status = find_sharers(a, target, LISTINGS_MOST, out, count, &gone);

	if (status < 0 || !gone)
		return status;
	free(*out);
	*out = NULL;
	*count = 0;
	return DINST_BUSY;
}

/* --------------------------------------------------- what was left behind */

bool arena_is_named(const struct maps_entry *entry)
{
	return entry->shared && entry->inode && !strcmp(entry->name, MEMFD_PATH);
}

/* The record of that memfd: an old one, a new one, or NULL if there is no more room. */
static struct arena_found *record_of(struct arena_found *found, size_t *count, size_t max,
				     const struct maps_entry *entry)
{
	for (size_t i = 0; i < *count; i++)
		if (found[i].inode == entry->inode && found[i].device == entry->device)
			return &found[i];
	if (*count == max)
		return NULL;
	found[*count] = (struct arena_found){
		.device = entry->device,
		.inode = entry->inode,
		.mode = ARENA_SHARED,
	};
	return &found[(*count)++];
}

/* Adds a mapping to a half; one that does not follow on the rest is left to itself. */
static void extend(taddr_t *address, size_t *size, const struct maps_entry *entry)
{
	if (!*size)
		*address = entry->lo;
	if (*address + *size == entry->lo)
		*size += entry->hi - entry->lo;
}

/* The private part, if the header says where it is and it is there. */
static void find_threads(const struct target *t, const struct maps *m,
			 const struct journal_header *h, struct arena_found *found)
{
	const taddr_t at = h->threads;
	const size_t size = h->threads_size;

	if (!size || h->threads_check != ~(h->threads + h->threads_size) || at % 4096 ||
	    size % 4096 || !arena_is_threads(t, m, at, size, true))
		return;
	found->threads = at;
	found->threads_size = size;
}

/* Takes over what the header says, if the mappings agree with it. */
static void believe(const struct target *t, const struct maps *m, const struct journal_header *h,
		    struct arena_found *found)
{
	struct arena_found header;

	if (!journal_check_header(h, found->code, found->code_size, &header) ||
	    header.mode != ARENA_SHARED || header.data != found->data ||
	    header.data_size != found->data_size)
		return;
	header.device = found->device;
	header.inode = found->inode;
	find_threads(t, m, h, &header);
	*found = header;
}

/*
 * An arena whose header is not valid was never used: its maker died before. Its
 * first bytes are zero, or what arena_create() and journal_create() begin with.
 * Somebody else's memfd may have the same name: it is not ours to unmap.
 */
static bool may_be_unfinished(const struct arena_found *found, const struct journal_header *h)
{
	uint64_t probe = ARENA_PROBE ^ found->inode, first;

	memcpy(&first, h, sizeof(first));
	return !first || first == probe || !memcmp(&first, JOURNAL_MAGIC, sizeof(first));
}

/* It was finished (the checksum comes last), and is not as we would have left it. */
static bool is_strange(const struct arena_found *found, const struct journal_header *h)
{
	return !found->header_valid && found->code_size &&
	       !memcmp(h->magic, JOURNAL_MAGIC, sizeof(h->magic)) && h->checksum;
}

/* True if memory of the target can be read now: what it runs. */
static bool can_read(const struct target *t, const struct maps *m)
{
	const int code = PROT_READ | PROT_EXEC;
	uint8_t byte;

	for (size_t i = 0; i < m->count; i++)
		if (m->entries[i].inode && !m->entries[i].shared &&
		    (m->entries[i].protection & code) == code)
			return target_read_some(t, m->entries[i].lo, &byte, 1) == 1;
	return true;
}

/* True if the file ends before that address: it had not been given its size yet. Or nobody may ask. */
static bool is_beyond_end(const struct target *t, const struct maps *m, taddr_t at)
{
	const struct maps_entry *entry = maps_find(m, at);
	struct stat file;
	char path[96];

	if (!entry)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", (int)target_memory_tid(t),
		 (unsigned long long)entry->lo, (unsigned long long)entry->hi);
	return proc_stat_file(path, &file) ||
	       (uint64_t)file.st_size <= entry->offset + (at - entry->lo);
}

/*
 * What the file begins with, in one look: of a finished one nobody is to find that it is not there. 1; 0: there is
 * nothing yet; DINST_BUSY, DINST_GONE.
 */
static int read_header(const struct target *t, const struct maps *m,
		       const struct arena_found *found, struct journal_header *h,
		       struct dinst_error *e)
{
	const taddr_t at = found->code_size ? found->code : found->data;
	const size_t size = found->code_size ? sizeof(*h) : sizeof(uint64_t);

	memset(h, 0, sizeof(*h));
	if (target_read_some(t, at, h, size) == size)
		return 1;
	memset(h, 0, sizeof(*h));
	if (target_has_to_end(t))
		return dinst_fail(e, DINST_GONE, "process %d (%s) has ended", (int)target_pid(t),
				  target_name(t));
	if (is_beyond_end(t, m, at) && can_read(t, m))
		return 0;
	return dinst_fail(
		e, DINST_BUSY,
		"what an earlier session has left in process %d (%s) cannot be read now; try again later",
		(int)target_pid(t), target_name(t));
}

/* The halves that are mapped, whatever is in them. */
static void find_halves(const struct maps *m, struct arena_found *found, size_t *count, size_t max)
{
	struct arena_found *record;

	for (size_t i = 0; i < m->count; i++) {
		const struct maps_entry *entry = &m->entries[i];

		/* A mutator maps the whole file to write to it: that is no arena in a target. */
		if (!arena_is_named(entry) || is_mutators(entry))
			continue;
		record = record_of(found, count, max, entry);
		/* Those that are known get both of their halves: one that seems to have one only is taken out. */
		if (!record)
			continue;
		if (arena_rights(entry) & PROT_EXEC)
			extend(&record->code, &record->code_size, entry);
		else
			extend(&record->data, &record->data_size, entry);
	}
}

static int find_shared(const struct target *t, const struct maps *m, struct arena_found *found,
		       size_t *count, size_t max, struct dinst_error *e)
{
	struct journal_header h;
	int status = 0;

	find_halves(m, found, count, max);
	for (size_t i = *count; i-- > 0 && status >= 0;) {
		status = read_header(t, m, &found[i], &h, e);
		if (status > 0 && found[i].code_size)
			believe(t, m, &h, &found[i]);
		found[i].strange = is_strange(&found[i], &h);
		if (!found[i].header_valid && !may_be_unfinished(&found[i], &h)) {
			memmove(&found[i], &found[i + 1], (*count - i - 1) * sizeof(*found));
			--*count;
		}
	}
	return status < 0 ? status : 0;
}

/* True if [lo, hi) lies in one private anonymous mapping with that protection. */
static bool is_anonymous(const struct maps *m, taddr_t lo, taddr_t hi, int protection)
{
	const struct maps_entry *entry = maps_find(m, lo);

	return entry && entry->hi >= hi && !entry->inode && !entry->shared && !entry->name[0] &&
	       arena_rights(entry) == protection;
}

static bool read_private(const struct target *t, const struct maps *m, taddr_t at, taddr_t end,
			 struct arena_found *found, bool *unread)
{
	struct arena_found header;
	struct journal_header h;

	if (end - at < PRIVATE_LEAST)
		return false;
	if (target_read_some(t, at, &h, sizeof(h)) != sizeof(h)) {
		*unread = true;
		return false;
	}
	if (h.code_size > end - at || !journal_check_header(&h, at, h.code_size, &header) ||
	    header.mode != ARENA_PRIVATE ||
	    !is_anonymous(m, header.data, header.data + header.data_size, PROT_READ | PROT_WRITE))
		return false;
	find_threads(t, m, &h, &header);
	*found = header;
	return true;
}

/* The numbers of pages from `at` on, at most `count`, that may exist: what was never written has no header. */
static size_t existing_pages(int pagemap, taddr_t at, size_t count, taddr_t *pages)
{
	uint64_t entries[PAGES_AT_ONCE];
	const size_t size = count * sizeof(*entries);
	const bool known = pagemap >= 0 &&
			   pread(pagemap, entries, size, (off_t)(at / PAGE * sizeof(*entries))) ==
				   (ssize_t)size;
	size_t used = 0;

	for (size_t i = 0; i < count; i++)
		if (!known || maps_is_copy(entries[i]))
			pages[used++] = at + i * PAGE;
	return used;
}

/* The first address in [at, end) at which a header may begin, or `end`. */
static taddr_t next_header(const struct target *t, int pagemap, taddr_t at, taddr_t end)
{
	char magics[PAGES_AT_ONCE][sizeof(JOURNAL_MAGIC) - 1];
	struct target_range ranges[PAGES_AT_ONCE];
	taddr_t pages[PAGES_AT_ONCE];
	struct dinst_error ignored = {0};

	for (size_t count; at < end; at += count * PAGE) {
		size_t used;

		count = (end - at) / PAGE < PAGES_AT_ONCE ? (end - at) / PAGE : PAGES_AT_ONCE;
		used = existing_pages(pagemap, at, count, pages);
		for (size_t i = 0; i < used; i++)
			ranges[i] = (struct target_range){
				.address = pages[i], .size = sizeof(magics[i]), .to = magics[i]};
		/* The program may unmap some of it meanwhile. */
		if (used && target_read_many(t, ranges, used, &ignored))
			for (size_t i = 0; i < used; i++)
				if (target_read_some(t, pages[i], magics[i], sizeof(magics[i])) !=
				    sizeof(magics[i]))
					magics[i][0] = '\0';
		for (size_t i = 0; i < used; i++)
			if (!memcmp(magics[i], JOURNAL_MAGIC, sizeof(magics[i])))
				return pages[i];
	}
	return end;
}

/*
 * A private arena is known by its header alone. Where several touch, or other memory of that kind does, they
 * are one mapping: any of its pages may be a header. An enemy's may be endless. DINST_BUSY where nothing can be read
 * now.
 */
static int find_private(const struct target *t, const struct maps *m, struct arena_found *found,
			size_t *count, size_t max, struct dinst_error *e)
{
	bool unread = false;
	const int pagemap = maps_open_pagemap(target_memory_tid(t));
	taddr_t left = SEARCHED_MOST;

	for (size_t i = 0; i < m->count && *count < max; i++) {
		const taddr_t hi = m->entries[i].hi, lo = m->entries[i].lo;
		const taddr_t end = hi - lo < left ? hi : lo + left;

		if (hi - lo < PRIVATE_LEAST || !is_anonymous(m, lo, hi, PROT_READ | PROT_EXEC))
			continue;
		left -= end - lo;
		for (taddr_t at = lo; at < end && *count < max;
		     at = next_header(t, pagemap, at, end)) {
			if (read_private(t, m, at, hi, &found[*count], &unread))
				at += found[(*count)++].code_size;
			else
				at += PAGE;
		}
	}
	if (pagemap >= 0)
		close(pagemap);
	if (!unread || can_read(t, m))
		return 0;
	return dinst_fail(e, target_has_to_end(t) ? DINST_GONE : DINST_BUSY,
			  "the memory of process %d (%s) cannot be read now; try again later",
			  (int)target_pid(t), target_name(t));
}

static bool is_owner(const struct arena_found *found, pid_t pid)
{
	struct proc_stat stat;

	return pid != getpid() && !proc_stat_read(pid, &stat) &&
	       stat.start_time == found->owner_start && !strchr("ZXx", stat.state);
}

/* The one that has its pid in a namespace within ours, where it has another one. */
static int find_owner_within(const struct arena_found *found, pid_t *owner, struct dinst_error *e)
{
	struct proc_looks looks = {0};
	pid_t pid;

	if (proc_looks_begin(&looks))
		return dinst_fail(e, DINST_BUSY, "cannot list all processes; try again later");
	while ((pid = proc_looks_next(&looks)) > 0)
		if (task_own_id(pid, pid) == found->owner && is_owner(found, pid) &&
		    pid_space(pid) == found->owner_space)
			*owner = pid;
	proc_looks_release(&looks);
	return pid ? dinst_fail(e, DINST_BUSY, "cannot list all processes; try again later") : 0;
}

int arena_owner(const struct arena_found *found, pid_t pid, pid_t *owner, struct dinst_error *e)
{
	*owner = 0;
	if (found->owner <= 0)
		return 0;
	if (found->owner_space && found->owner_space != pid_space_own())
		return pid_space_is_seen(found->owner_space, pid)
			       ? find_owner_within(found, owner, e)
			       : dinst_fail(
					 e, DINST_BUSY,
					 "what is in process %d was inserted from outside of the "
					 "container in which this dinst runs%s%s, and whether that one is "
					 "still at work cannot be seen from in here: detach there, or run "
					 "dinst repair there",
					 (int)pid, found->session[0] ? ", by session " : "",
					 found->session);
	if (is_owner(found, found->owner))
		*owner = found->owner;
	return 0;
}

int arena_find(const struct target *t, struct arena_found *found, size_t max, struct dinst_error *e)
{
	size_t count = 0;
	struct maps m;
	int result;

	result = maps_read(target_pid(t), &m, e);
	if (result)
		return result;
	result = find_shared(t, &m, found, &count, max, e);
	if (!result)
		result = find_private(t, &m, found, &count, max, e);
	maps_release(&m);
	return result < 0 ? result : (int)count;
}

/* 1: they are read; 0: it has ended, or they are kept from us; or why nobody can look now. */
static int read_maps(pid_t pid, struct maps *m, struct dinst_error *e)
{
	struct dinst_error why = {0};
	const int status = maps_read(pid, m, &why);

	if (!status || status == DINST_GONE || status == DINST_NOT_PERMITTED)
		return !status;
	return dinst_fail(e, DINST_BUSY, "%s; try again later", why.text);
}

int arena_may_be_in(pid_t pid, struct dinst_error *e)
{
	struct maps m;
	bool may = false;
	const int status = read_maps(pid, &m, e);

	if (status <= 0)
		return status;
	for (size_t i = 0; i < m.count && !may; i++) {
		const struct maps_entry *entry = &m.entries[i];

		may = arena_is_named(entry) ? (entry->protection & PROT_EXEC) || entry->offset
					    : entry->hi - entry->lo >= PRIVATE_LEAST &&
						      is_anonymous(&m, entry->lo, entry->hi,
								   PROT_READ | PROT_EXEC);
	}
	maps_release(&m);
	return may;
}

int arena_has_half(pid_t pid, struct dinst_error *e)
{
	struct arena_found seen[HALVES_MOST];
	size_t count = 0;
	bool half = false;
	struct maps m;
	const int status = read_maps(pid, &m, e);

	if (status <= 0)
		return status;
	find_halves(&m, seen, &count, HALVES_MOST);
	for (size_t i = 0; i < count; i++)
		half = half || !seen[i].code_size != !seen[i].data_size;
	maps_release(&m);
	return half;
}
