/* SPDX-License-Identifier: MIT */
/*
 * remote_place.c - where a remote program may stand before there is an arena.
 *
 * The last page of a module's executable segment is mapped whole, but the
 * segment rarely fills it: what lies behind is zero and belongs to nobody (ELF
 * specification, "Program Loading"). A place is accepted only if the module's
 * program headers say so and its bytes are zero. A static program has no other
 * module than itself, which may just fill its last page; but the kernel maps its
 * own, the vdso, of whose pages each process gets its copy at the first write.
 * Never writes; see remote.c.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/files.h"
#include "inject/maps.h"
#include "inject/mounts.h"
#include "inject/proc_open.h"
#include "inject/remote_private.h"
#include "inject/segments.h"
#include "inject/stack.h"

enum { TAIL_ALIGN = 16 };

static taddr_t page_size(void)
{
	return (taddr_t)sysconf(_SC_PAGESIZE);
}

static bool is_vdso(const struct maps_entry *m)
{
	return !m->inode && !m->offset && !strcmp(m->name, "[vdso]");
}

static bool is_candidate(const struct maps_entry *m)
{
	if (is_vdso(m))
		return (m->protection & (PROT_READ | PROT_EXEC | PROT_WRITE)) ==
		       (PROT_READ | PROT_EXEC);
	return m->inode && !m->shared && m->name[0] == '/' &&
	       (m->protection & (PROT_READ | PROT_EXEC | PROT_WRITE)) == (PROT_READ | PROT_EXEC);
}

/* The unused end of the executable mapping i, by its module's program headers. */
static bool tail_of(const struct target *t, const struct maps *maps, size_t i,
		    struct remote_tail *tail)
{
	const struct maps_entry *m = &maps->entries[i];
	const struct maps_entry *start;
	taddr_t mask = page_size() - 1;
	const Elf64_Phdr *p;
	struct segments h;
	taddr_t bias, end;

	if (!is_candidate(m))
		return false;
	start = is_vdso(m) ? m : maps_file_start(maps, m);
	if (!start || !segments_read(t, start->lo, &h) || !segments_bias(&h, start->lo, &bias))
		return false;
	for (size_t k = 0; k < h.count; k++) {
		p = &h.entries[k];
		if (p->p_type != PT_LOAD)
			continue;
		end = bias + p->p_vaddr + p->p_filesz;
		/* Its sections come with it, since nothing of it is in a file. */
		if (is_vdso(m) && bias + h.file.e_shoff > end)
			end = bias + h.file.e_shoff + h.file.e_shnum * sizeof(Elf64_Shdr);
		if (!(p->p_flags & PF_X) || p->p_memsz != p->p_filesz || end <= m->lo ||
		    ((end + mask) & ~mask) != m->hi)
			continue;
		tail->address = (end + TAIL_ALIGN - 1) & ~(taddr_t)(TAIL_ALIGN - 1);
		tail->size = tail->address < m->hi ? m->hi - tail->address : 0;
		tail->offset = m->offset + (tail->address - m->lo);
		return tail->size > 0;
	}
	return false;
}

static bool is_zero(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (bytes[i])
			return false;
	return true;
}

bool remote_tail_is_zero(const struct stop *s, taddr_t address, size_t size)
{
	uint8_t bytes[4096];
	size_t part;

	for (size_t at = 0; at < size; at += part) {
		part = size - at < sizeof(bytes) ? size - at : sizeof(bytes);
		if (target_read(s->target, address + at, bytes, part, NULL) ||
		    !is_zero(bytes, part))
			return false;
	}
	return true;
}

/*
 * The file of the program, by where that begins (AT_ENTRY, getauxval(3)); 0 if it cannot be told. Nobody is
 * asked for the file: who provides it may be the target, which stands still.
 */
static uint64_t main_inode(const struct target *t, const struct maps *maps)
{
	const struct maps_entry *m = NULL;
	Elf64_auxv_t entry;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/auxv", (int)target_memory_tid(t));
	fd = proc_open(path, O_RDONLY);
	while (fd >= 0 && !m && read(fd, &entry, sizeof(entry)) == (ssize_t)sizeof(entry))
		if (entry.a_type == AT_ENTRY)
			m = maps_find(maps, entry.a_un.a_val);
	if (fd >= 0)
		close(fd);
	return m ? m->inode : 0;
}

/*
 * Where a tail is looked for, best first: a thread that is late, or whose mutator dies, is in it for a while,
 * and another one may unload the module meanwhile. The program's own never goes, and what was there when it
 * began lies above what was loaded later.
 */
enum home { HOME_MAIN, HOME_LIBRARY, HOME_VDSO, HOMES };

static enum home home_of(const struct maps_entry *m, uint64_t main)
{
	if (is_vdso(m))
		return HOME_VDSO;
	return main && m->inode == main ? HOME_MAIN : HOME_LIBRARY;
}

static void find_tail_in(struct stop *s, const struct maps *maps, enum home home, uint64_t main,
			 struct remote_tail *best)
{
	struct remote_tail tail;

	for (size_t i = maps->count; i-- > 0 && best->size < ARCH_REMOTE_MAX;)
		if (home_of(&maps->entries[i], main) == home &&
		    tail_of(s->target, maps, i, &tail) && tail.size > best->size &&
		    tail.size <= page_size() && remote_tail_is_zero(s, tail.address, tail.size))
			*best = tail;
}

int remote_find_tail(struct stop *s, struct remote_tail *best, struct dinst_error *e)
{
	const struct maps *maps;
	uint64_t main;
	int code = stop_maps(s, &maps, e);

	if (code)
		return code;
	main = main_inode(s->target, maps);
	best->size = 0;
	for (enum home home = HOME_MAIN; home < HOMES; home++)
		find_tail_in(s, maps, home, main, best);
	if (!best->size)
		code = dinst_fail(
			e, DINST_REFUSED,
			"process %d (%s) has no module with room behind its code for the first system calls",
			(int)s->target->pid, s->target->name);
	return code;
}

/* The kernel has one for all: as the target's was, ours is, where it is of that size. */
static bool read_own_vdso(const struct maps_entry *m, uint64_t offset, uint8_t *bytes, size_t size)
{
	struct maps ours;
	bool found = false;

	if (maps_read(getpid(), &ours, NULL))
		return false;
	for (size_t i = 0; !found && i < ours.count; i++) {
		const struct maps_entry *o = &ours.entries[i];

		found = is_vdso(o) && o->hi - o->lo == m->hi - m->lo &&
			offset + size <= o->hi - o->lo;
		if (found)
			memcpy(bytes, (const void *)(uintptr_t)(o->lo + offset), size);
	}
	maps_release(&ours);
	return found;
}

/*
 * The file that is mapped there, if nobody has to be waited for: where we may, also one that has been deleted; that of the
 * program itself always; else by its name, under which there may be anything by now, also what
 * waits for somebody at its other end. -1: none of that is it.
 */
static int open_file(const struct target *t, const struct maps_entry *m)
{
	const int tid = (int)target_memory_tid(t);
	char path[4096], *mounts = mounts_read(tid);
	const bool served = !mounts || mounts_may_wait(mounts, m->device);
	struct stat st;
	int fd = -1;

	free(mounts);
	if (served)
		return -1;
	for (int way = 0; way < 3 && fd < 0; way++) {
		if (way == 0)
			snprintf(path, sizeof(path), "/proc/%d/map_files/%llx-%llx", tid,
				 (unsigned long long)m->lo, (unsigned long long)m->hi);
		else if (way == 1)
			snprintf(path, sizeof(path), "/proc/%d/exe", tid);
		else
			snprintf(path, sizeof(path), "/proc/%d/root%s", tid, m->name);
		fd = file_open_regular(path);
		if (fd >= 0 && (fstat(fd, &st) || st.st_ino != m->inode)) {
			close(fd);
			fd = -1;
		}
	}
	return fd;
}

/* Bytes of the file that is mapped there; what is behind its end is zero. */
static bool read_file(const struct target *t, const struct maps_entry *m, uint64_t offset,
		      uint8_t *bytes, size_t size)
{
	ssize_t got;
	int fd;

	if (is_vdso(m))
		return read_own_vdso(m, offset, bytes, size);
	fd = open_file(t, m);
	if (fd < 0)
		return false;
	memset(bytes, 0, size);
	got = pread(fd, bytes, size, (off_t)offset);
	close(fd);
	return got >= 0;
}

/*
 * A thread that is in the tail, or comes back to it: a signal handler that runs on
 * top of an unfinished program has its pc in a signal frame. 0: nobody; where it cannot be told
 * whose stack it is, the process.
 */
static pid_t who_is_in(struct stop *s, const struct snapshot *shot, const struct remote_tail *tail)
{
	/* One past the end too: a call that restarts goes back from there. */
	struct stack_range range = {.lo = tail->address, .hi = tail->address + tail->size + 1};

	for (size_t i = 0; i < stop_thread_count(s); i++)
		if (arch_pc(&stop_thread(s, i)->regs) - range.lo < range.hi - range.lo)
			return stop_thread(s, i)->tid;
	if (!snapshot_scan(shot, &range, 1))
		return 0;
	for (size_t i = 0; i < stop_thread_count(s); i++)
		if (snapshot_touches(shot, stop_thread(s, i)->tid, &range, 1))
			return stop_thread(s, i)->tid;
	return target_pid(s->target);
}

/* What a program of ours leaves, whole or not at all; other tools may keep code there, too. */
static bool is_program(const uint8_t *bytes, size_t size)
{
	return arch_is_remote(bytes, size) &&
	       (size <= ARCH_REMOTE_MAX ||
		is_zero(bytes + ARCH_REMOTE_MAX, size - ARCH_REMOTE_MAX));
}

static bool may_be_copy(const struct target *t, taddr_t address)
{
	const int fd = maps_open_pagemap(target_memory_tid(t));
	const bool copy = maps_page_is_copy(fd, address) != 0;

	if (fd >= 0)
		close(fd);
	return copy;
}

enum rest {
	REST_NONE,    /* nothing of ours */
	REST_OURS,    /* zero in the file, and in memory it begins with a program of ours */
	REST_UNKNOWN, /* it begins so, and the file cannot be read */
};

/* Behind mapping i; `bytes` is for a page. */
static enum rest look_behind(const struct target *t, const struct maps *maps, size_t i,
			     struct remote_tail *tail, uint8_t *bytes)
{
	if (!tail_of(t, maps, i, tail) || tail->size > page_size() ||
	    target_read(t, tail->address, bytes, tail->size, NULL) ||
	    !is_program(bytes, tail->size))
		return REST_NONE;
	if (read_file(t, &maps->entries[i], tail->offset, bytes, tail->size))
		return is_zero(bytes, tail->size) ? REST_OURS : REST_NONE;
	/* What nobody has ever written to is the file. */
	return may_be_copy(t, tail->address) ? REST_UNKNOWN : REST_NONE;
}

static int clean_tails(struct stop *s, const struct snapshot *shot, const struct maps *maps,
		       uint8_t *bytes, struct remote_tails *tails, struct dinst_error *e)
{
	struct remote_tail tail;
	enum rest rest;
	int code = 0;
	pid_t inside;

	for (size_t i = 0; !code && i < maps->count; i++) {
		rest = look_behind(s->target, maps, i, &tail, bytes);
		if (rest == REST_NONE)
			continue;
		inside = who_is_in(s, shot, &tail);
		if (inside) {
			tails->inside = inside;
		} else if (rest == REST_UNKNOWN) {
			tails->unknown++;
		} else {
			memset(bytes, 0, tail.size);
			code = stop_write(s, tail.address, bytes, tail.size, e);
			tails->cleaned += !code;
		}
	}
	return code;
}

int remote_clean_tails(struct stop *s, struct remote_tails *tails, struct dinst_error *e)
{
	struct snapshot *shot = NULL;
	const struct maps *maps;
	uint8_t *bytes = malloc(page_size());
	int code = bytes ? stop_maps(s, &maps, e)
			 : dinst_fail(e, DINST_NO_MEMORY, "no memory for a page");

	*tails = (struct remote_tails){0};
	if (code)
		goto free_bytes;
	code = snapshot_take(s, &shot, e);
	if (!code)
		code = clean_tails(s, shot, maps, bytes, tails, e);
	snapshot_free(shot);
free_bytes:
	free(bytes);
	return code;
}

bool remote_tails_dirty(const struct target *t)
{
	struct remote_tail tail;
	struct maps maps;
	uint8_t *bytes = malloc(page_size());
	bool dirty = true; /* where nobody can look: whoever cleans them is told why */

	if (bytes && !maps_read(target_memory_tid(t), &maps, NULL)) {
		dirty = false;
		for (size_t i = 0; !dirty && i < maps.count; i++)
			dirty = look_behind(t, &maps, i, &tail, bytes) != REST_NONE;
		maps_release(&maps);
	}
	free(bytes);
	return dirty;
}
