/* SPDX-License-Identifier: MIT */
/*
 * stack_parked.c - program counters that are on no thread's stack. A program
 * that switches between tasks of its own from signal handlers keeps interrupted
 * ones in frames on stacks from its heap, or in copies there. Nothing tells where,
 * so all of its private memory is searched for what the kernel saves for a
 * handler: a program counter in code, flags, segments; whether or not anybody may write to it just now; and what is
 * shared and no file, as a mapping that children are to share: a stack lies there as well as anywhere. That this process
 * has no pages of what is shared says nothing: it may have been forked, or have given them back. So that is read as the
 * file that the kernel keeps for it, which makes no pages. Where it is too much, or cannot be read, anything may be parked.
 *
 * Done only for targets of which somebody has said that they may do so: it takes
 * some milliseconds for every 10 MiB, in the stop.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/control.h"
#include "inject/files.h"
#include "inject/mounts.h"
#include "inject/proc.h"
#include "inject/proc_open.h"
#include "inject/stack_snapshot.h"

enum {
	PAGE = 4096,
	WORD = 8,
	PIECE_PAGES = 256,	/* looked at together */
	SHARED_PAGES = 16,	/* ... of what is shared, from the first on that there is */
	PAGES_MOST = 64 << 8,	/* 64 MiB: what is more takes too long in a stop */
	LOOKED_MOST = 16 << 20, /* 64 GiB of addresses, some 0.15 s */
	TEXT = 4096,
	PATH_ROOM = 96,
	WORDS_MOST = 1 << 22,
	ARENAS_MOST = 64,
	LOCKED_FILE_MOST = 256 << 20, /* bytes; the data of a program is less */
	RESERVED_LEAST = 1 << 30, /* bytes that nobody may reach, in one: more than a stack has */
};

struct words {
	taddr_t *words;
	size_t count, room;
};

struct search {
	struct snapshot *shot;
	struct stack_span *code; /* executable mappings, sorted, merged */
	size_t code_count;
	size_t pages, most, looked; /* pages that are searched, at most so many */
	int pagemap;
	struct arena_found arenas[ARENAS_MOST]; /* memory of ours, which names code of ours */
	size_t arena_count;
	struct words saved; /* by the kernel for a handler */
	struct words other; /* all others that lead into our code */
	bool in_ours;	    /* one that was interrupted in our code */
	char *mounts;	    /* mounts_read(), once it was needed */
	bool lack;	    /* of descriptors or memory of ours */
	uint64_t entries[PIECE_PAGES];
	uint8_t bytes[PIECE_PAGES * PAGE];
};

static bool find_code(struct search *s)
{
	const struct maps *maps = &s->shot->maps;

	s->code = calloc(maps->count + 1, sizeof(*s->code));
	for (size_t i = 0; s->code && i < maps->count; i++) {
		const struct maps_entry *m = &maps->entries[i];
		struct stack_span *last = s->code_count ? &s->code[s->code_count - 1] : NULL;

		if (!(m->protection & PROT_EXEC))
			continue;
		if (last && last->hi == m->lo)
			last->hi = m->hi;
		else
			s->code[s->code_count++] = (struct stack_span){.lo = m->lo, .hi = m->hi};
	}
	return s->code_count > 0;
}

static bool is_code(const struct search *s, taddr_t word)
{
	size_t lo = 0, hi = s->code_count;

	while (lo < hi) {
		size_t middle = (lo + hi) / 2;

		if (word < s->code[middle].lo)
			hi = middle;
		else if (word >= s->code[middle].hi)
			lo = middle + 1;
		else
			return true;
	}
	return false;
}

static bool add(struct words *w, taddr_t word)
{
	if (w->count == w->room) {
		size_t room = w->room ? w->room * 2 : 4096;
		taddr_t *more = room > WORDS_MOST ? NULL : realloc(w->words, room * WORD);

		if (!more)
			return false;
		w->words = more;
		w->room = room;
	}
	w->words[w->count++] = word;
	return true;
}

/* In an arena, where code ever was. */
static bool is_our_code(const struct search *s, taddr_t word)
{
	for (size_t i = 0; i < s->arena_count; i++) {
		const struct arena_found *a = &s->arenas[i];

		if (word - a->code >= a->code_floor && word - a->code < a->code_size)
			return true;
	}
	return false;
}

static bool add_saved(struct search *s, taddr_t word)
{
	s->in_ours = s->in_ours || is_our_code(s, word);
	return add(&s->saved, word);
}

/*
 * Bodies call routines: of a task that was interrupted in one of these the program counter does not lead
 * into the body, but a register does, or a word on its stack, which is anywhere. There are old ones of such in
 * all memory, so they count only where somebody was interrupted in code of ours.
 */
static bool take_words(struct search *s)
{
	bool whole = true;

	for (size_t i = 0; i < s->other.count && s->in_ours && whole; i++)
		whole = add(&s->saved, s->other.words[i]);
	s->shot->parked = s->saved.words;
	s->shot->parked_count = s->saved.count;
	free(s->other.words);
	return whole;
}

/* The `count` pages that were read. */
static bool search_bytes(struct search *s, size_t count)
{
	uint64_t words[ARCH_SAVED_WORDS];
	const taddr_t least = s->code[0].lo, width = s->code[s->code_count - 1].hi - least;

	for (size_t at = 0; at + sizeof(words) <= count * PAGE; at += WORD) {
		memcpy(words, s->bytes + at, sizeof(words));
		if (words[0] - least >= width || !is_code(s, words[0]))
			continue;
		if (arch_may_be_saved_pc(words) ? !add_saved(s, words[0])
		    : is_our_code(s, words[0])	? !add(&s->other, words[0])
						: false)
			return false;
	}
	/* What lies across the end of these pages: the words behind are not known. */
	for (size_t at = count * PAGE - (size_t)(ARCH_SAVED_WORDS - 1) * WORD; at < count * PAGE;
	     at += WORD) {
		memcpy(words, s->bytes + at, WORD);
		if (words[0] - least < width && is_code(s, words[0]) && !add_saved(s, words[0]))
			return false;
	}
	return true;
}

/* `count` pages that are all there. */
static bool search_pages(struct search *s, taddr_t lo, size_t count)
{
	s->pages += count;
	return s->pages <= s->most &&
	       target_read_some(s->shot->target, lo, s->bytes, count * PAGE) == count * PAGE &&
	       search_bytes(s, count);
}

/* What of ours lies at `at`, or begins behind it and before `hi`, first; at `hi` if there is nothing. */
static struct stack_span next_ours(const struct search *s, taddr_t at, taddr_t hi)
{
	struct stack_span next = {.lo = hi, .hi = hi};

	for (size_t i = 0; i < 2 * s->arena_count; i++) {
		const struct arena_found *a = &s->arenas[i / 2];
		const taddr_t lo = i % 2 ? a->data : a->threads;
		const taddr_t end = lo + (i % 2 ? a->data_size : a->threads_size);

		if (end > at && lo < next.lo && lo < end)
			next = (struct stack_span){.lo = lo < at ? at : lo,
						   .hi = end < hi ? end : hi};
	}
	return next;
}

/*
 * Memory that nobody may write to just now, and could before: collectors and libraries for tasks take the right
 * away for a while. What is code then is no stack, what the kernel has put there ([vvar]) is nobody's, and a file that is
 * so large is data.
 */
static bool may_be_locked(const struct maps_entry *m)
{
	const bool is_kernels = m->name[0] == '[' && strcmp(m->name, "[heap]") != 0 &&
				strncmp(m->name, "[stack", 6) != 0 &&
				strncmp(m->name, "[anon:", 6) != 0;

	return !m->shared && !is_stack_memory(m) && !(m->protection & PROT_EXEC) && !is_kernels &&
	       (!m->inode || m->hi - m->lo <= LOCKED_FILE_MOST);
}

/*
 * Before Linux 6.7 looking whether anything is there takes time for all of what is reserved only, of which there may be any
 * amount (pools of runtimes, address spaces of collectors).
 */
static bool is_reserved(const struct search *s, const struct maps_entry *m)
{
	return m->protection == PROT_NONE && m->hi - m->lo > RESERVED_LEAST &&
	       !maps_finds_pages(s->pagemap);
}

static void name_link(const struct search *s, const struct maps_entry *m, char *path, size_t size)
{
	snprintf(path, size, "/proc/%d/map_files/%llx-%llx",
		 (int)target_memory_tid(s->shot->target), (unsigned long long)m->lo,
		 (unsigned long long)m->hi);
}

/* True if it may be written to, now or later: the link to its file has the rights with which that was opened. */
static bool may_be_written(const struct search *s, const struct maps_entry *m)
{
	char path[PATH_ROOM];
	struct stat st;

	if (is_stack_memory(m))
		return true;
	name_link(s, m, path, sizeof(path));
	return !(m->protection & PROT_EXEC) && (proc_lstat_file(path, &st) || st.st_mode & S_IWUSR);
}

/* False for files: data, of which there may be any amount, and on which nobody stands. */
static bool may_have_stacks(const struct search *s, const struct maps_entry *m)
{
	if (m->shared)
		return maps_shares_memory(m) && may_be_written(s, m);
	return is_stack_memory(m) || (may_be_locked(m) && !is_reserved(s, m));
}

static bool find_arenas(struct search *s)
{
	struct dinst_error ignored = {0};
	int count = arena_find(s->shot->target, s->arenas, ARENAS_MOST, &ignored);

	s->arena_count = count > 0 ? (size_t)count : 0;
	return count >= 0;
}

/*
 * What of shared memory is in [lo, hi), where a descriptor leads to all of it. Of what is not there nothing is made, and
 * what is only mapped costs nothing, however much it is.
 */
static bool search_shared(struct search *s, const struct maps_entry *m, int fd, taddr_t lo,
			  taddr_t hi)
{
	const taddr_t base = m->lo - m->offset; /* where the file would begin */
	size_t count;

	for (; lo < hi; lo += (taddr_t)count * PAGE) {
		const off_t at = lseek(fd, (off_t)(lo - base), SEEK_DATA);
		ssize_t got;

		if (at < 0)
			return errno == ENXIO;
		lo = base + (taddr_t)at / PAGE * PAGE;
		if (lo >= hi)
			break;
		count = (hi - lo) / PAGE < SHARED_PAGES ? (hi - lo) / PAGE : SHARED_PAGES;
		s->pages += count;
		got = s->pages > s->most ? -1
					 : pread(fd, s->bytes, count * PAGE, (off_t)(lo - base));
		if (got < 0)
			return false;
		memset(s->bytes + got, 0, count * PAGE - (size_t)got);
		if (!search_bytes(s, count))
			return false;
	}
	return true;
}

/* The file of shared memory, which takes a privilege; -1: cannot be opened. Not what the target itself may serve. */
static int open_shared(struct search *s, const struct maps_entry *m)
{
	char path[PATH_ROOM];
	int fd;

	if (!s->mounts) {
		s->mounts = mounts_read(target_memory_tid(s->shot->target));
		s->lack |= !s->mounts && proc_is_lack(-errno);
	}
	if (!s->mounts || mounts_may_wait(s->mounts, m->device))
		return -1;
	name_link(s, m, path, sizeof(path));
	fd = file_open_regular(path);
	s->lack |= fd < 0 && proc_is_lack(-errno);
	return fd;
}

/* Pages that nobody has touched are not brought into being; of a file that is locked, only copies were ever written to. */
static bool is_there(const struct maps_entry *m, uint64_t entry)
{
	if (entry & MAPS_PAGEMAP_GUARD)
		return false;
	return may_be_locked(m) && m->inode ? maps_is_copy(entry) : entry & MAPS_PAGEMAP_THERE;
}

static bool search_between(struct search *s, const struct maps_entry *m, taddr_t lo, taddr_t hi)
{
	for (; lo < hi; lo += (taddr_t)PIECE_PAGES * PAGE) {
		size_t count, run = 0;

		/* Nothing is in most of what is reserved only, of which there may be any amount. */
		if (may_be_locked(m) && !m->inode)
			lo = maps_first_page(s->pagemap, lo, hi);
		count = (hi - lo) / PAGE < PIECE_PAGES ? (hi - lo) / PAGE : PIECE_PAGES;
		/* Where terabytes are mapped and empty (the shadow of sanitizers), looking takes seconds. */
		s->looked += count;
		if (s->looked > LOOKED_MOST)
			return false;
		if (pread(s->pagemap, s->entries, count * WORD, (off_t)(lo / PAGE * WORD)) !=
		    (ssize_t)(count * WORD))
			return false;
		for (size_t i = 0; i <= count; i++) {
			if (i < count && is_there(m, s->entries[i])) {
				run++;
				continue;
			}
			if ((run && !search_pages(s, lo + (i - run) * PAGE, run)) ||
			    (i < count && m->shared))
				return false;
			run = 0;
		}
	}
	return true;
}

/* But for memory of ours, with which the kernel may have joined the program's own. */
static bool search_mapping(struct search *s, const struct maps_entry *m)
{
	const int fd = m->shared ? open_shared(s, m) : -1;
	struct stack_span ours;
	bool whole = true;

	for (taddr_t at = m->lo; at < m->hi && whole; at = ours.hi) {
		ours = next_ours(s, at, m->hi);
		whole = fd < 0 ? search_between(s, m, at, ours.lo)
			       : search_shared(s, m, fd, at, ours.lo);
	}
	if (fd >= 0)
		close(fd);
	return whole;
}

/*
 * Twice as much as is looked at, all in all: some of it is not to be searched, hardly half. So nothing is
 * read in vain: 64 MiB of single pages, each a mapping of its own, take a tenth of a second.
 */
static bool is_too_much(const struct target *t, size_t most)
{
	char text[TEXT], *status;
	uint64_t bytes = 0;

	status = proc_status_text(target_pid(t), target_memory_tid(t), text, TEXT);
	if (status)
		bytes = proc_bytes(status, "\nRssAnon:") + proc_bytes(status, "\nVmSwap:");
	if (status != text)
		free(status);
	return bytes / PAGE > (uint64_t)most * 2;
}

bool snapshot_is_unsearched(const struct snapshot *shot)
{
	return shot->parked_unknown && !shot->doubted;
}

bool snapshot_is_never_searched(const struct snapshot *shot)
{
	return snapshot_is_unsearched(shot) && !shot->parked_lack;
}

void snapshot_doubt(struct snapshot *shot)
{
	shot->parked_unknown = shot->doubted = true;
}

size_t snapshot_searched(const struct snapshot *shot)
{
	return shot->searched;
}

void snapshot_find_parked(struct snapshot *shot)
{
	struct search *s = calloc(1, sizeof(*s));
	bool whole, lack = !s;

	if (s) {
		s->shot = shot;
		s->most = target_parks_room(shot->target, PAGES_MOST);
	}
	whole = s && !is_too_much(shot->target, s->most);
	if (!whole)
		goto out;
	s->pagemap = maps_open_pagemap(target_memory_tid(shot->target));
	lack = s->pagemap < 0 && proc_is_lack(-errno);
	whole = s->pagemap >= 0;
	if (whole)
		lack = !(whole = find_code(s) && find_arenas(s));
	for (size_t i = 0; whole && i < shot->maps.count; i++) {
		const struct maps_entry *m = &shot->maps.entries[i];

		if (may_have_stacks(s, m))
			whole = search_mapping(s, m);
	}
	if (s->pagemap >= 0)
		close(s->pagemap);
	if (!take_words(s))
		lack = !(whole = false);
	lack |= !whole && s->lack;
	shot->searched = s->pages < s->most ? s->pages : s->most;
	free(s->mounts);
	free(s->code);
out:
	free(s);
	shot->parked_unknown = !whole;
	shot->parked_lack = lack;
}
