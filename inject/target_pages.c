/* SPDX-License-Identifier: MIT */
/*
 * target_pages.c - which pages of the target are there, while it stands still.
 *
 * A page that is not may have to come from somebody, by userfaultfd(2). If that is a thread
 * of the target, it stands still, too: process_vm_readv() would wait for ever, and the target
 * with us. Reading and writing /proc/PID/mem, and PTRACE_POKEDATA, end with EIO there
 * (handle_userfault() in the kernel's fs/userfaultfd.c: without FAULT_FLAG_ALLOW_RETRY, which
 * access_remote_vm() never gives, nobody waits). So in a stop all that is not there is
 * read through that file. What is there, as nearly everything, is not.
 *
 * Nor are pages that processes have in common since a fork() read by process_vm_readv(): it pins them, and the kernel
 * then gives the one that is read a copy of its own first (gup_must_unshare() in mm/gup.c, since
 * Linux 5.19), which its control group may have no memory for. That file does not.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/maps.h"
#include "inject/proc_open.h"

enum { PAGE = 4096, BLOCK = 64 };

/* Documentation/admin-guide/mm/pagemap.rst */
static const uint64_t PRESENT = 1ull << 63;

/*
 * False where that thread has exited: it has no memory any more. Where only we have run out of
 * something (descriptors), nothing is known to be there.
 */
static bool open_pagemap(struct target *t)
{
	uint64_t entry;
	char path[64];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)target_memory_tid(t));
	t->hold.pagemap = proc_open(path, O_RDONLY);
	t->hold.denied = t->hold.pagemap < 0 && errno != EMFILE && errno != ENFILE &&
			 errno != ENOMEM && errno != ESRCH;
	if (t->hold.pagemap < 0)
		return errno != ESRCH;
	got = pread(t->hold.pagemap, &entry, sizeof(entry), 0);
	if (got == sizeof(entry))
		return true;
	t->hold.denied = got < 0;
	close(t->hold.pagemap);
	t->hold.pagemap = -1;
	return got < 0;
}

void target_hold(struct target *t)
{
	memset(&t->hold, 0, sizeof(t->hold));
	t->hold.held = true;
	if (!open_pagemap(t) && target_find_memory_tid(t))
		open_pagemap(t);
}

void target_unhold(struct target *t)
{
	if (t->hold.pagemap >= 0)
		close(t->hold.pagemap);
	t->hold.held = false;
}

void target_look_again(struct target *t)
{
	memset(t->hold.blocks, 0, sizeof(t->hold.blocks));
}

/* Which pages of a block are there, and nobody else's by fork(), as a mask. Known for the whole stop: then nothing takes them away. */
static uint64_t find_block(struct hold *h, taddr_t block)
{
	const size_t slot = (size_t)(block % HOLD_BLOCKS);
	uint64_t entries[BLOCK];
	ssize_t got;

	if (h->blocks[slot] == block + 1)
		return h->present[slot];
	got = pread(h->pagemap, entries, sizeof(entries), (off_t)(block * sizeof(entries)));
	h->blocks[slot] = block + 1;
	h->present[slot] = 0;
	for (ssize_t i = 0; i < got / (ssize_t)sizeof(entries[0]); i++)
		if (entries[i] & PRESENT && !maps_is_inherited(entries[i]))
			h->present[slot] |= 1ull << i;
	return h->present[slot];
}

bool target_at_hand(const struct target *t, taddr_t address, size_t size)
{
	struct hold *h = (struct hold *)&t->hold;
	const taddr_t first = address / PAGE, last = (address + size - 1) / PAGE;

	/* Where pagemap cannot be opened (CAP_SYS_PTRACE alone), the file of the memory cannot. */
	if (!size || h->denied)
		return true;
	if (!h->held)
		return false;
	for (taddr_t page = first; page <= last; page++)
		if (!(find_block(h, page / BLOCK) & 1ull << page % BLOCK))
			return false;
	return true;
}
