/* SPDX-License-Identifier: MIT */
/*
 * journal.c - writing and reading an arena's journal.
 *
 * Owns which slots are free; the target's copy is written, never read back.
 * Readers get everything through the checks in journal_check.c. Never writes
 * an entry's state before the rest of the entry.
 */
#include "inject/journal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "inject/fault.h"
#include "inject/journal_format.h"
#include "inject/maps.h"
#include "inject/patch.h"
#include "inject/pid_space.h"
#include "inject/proc.h"
#include "inject/segments.h"

/* Where memory has to be made beforehand, it is for so many slots at once. */
enum { MADE_AT_ONCE = 1024 * sizeof(struct journal_slot) };

struct journal {
	const struct arena *arena;
	struct journal_header *header; /* in our mapping of the arena */
	struct journal_slot *slots;
	uint32_t checksum; /* the header's, kept out of the target's reach */
	uint32_t *free;	   /* a stack of slots that were used and are not now */
	size_t free_count, free_room;
	uint8_t *taken; /* by slot */
	size_t capacity, high;
	size_t made; /* bytes from the arena's beginning that arena_make_pages() has made */
	bool was_full;
};

size_t journal_size(const struct arena *a)
{
	size_t slots = journal_capacity(a->code_size) * sizeof(struct journal_slot);

	return JOURNAL_HEADER_SIZE + (slots + 4095) / 4096 * 4096;
}

/* With its complement, so that what is not one is told from it. */
static uint64_t encode_hint(size_t number)
{
	return (uint64_t)(uint32_t)number | (uint64_t) ~(uint32_t)number << 32;
}

void journal_note_floor(struct arena *a, size_t offset)
{
	struct journal_header *h = (struct journal_header *)(void *)a->code_map;

	fault_point();
	__atomic_store_n(&h->floor, encode_hint(offset / 4096), __ATOMIC_SEQ_CST);
}

int journal_create(struct arena *a, const char *session, struct journal **out,
		   struct dinst_error *e)
{
	struct journal_header *h = (struct journal_header *)(void *)a->code_map;
	struct journal *j = calloc(1, sizeof(*j));
	struct proc_stat own;

	if (!j)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the journal's book-keeping");
	j->capacity = journal_capacity(a->code_size);
	j->taken = calloc(j->capacity, 1);
	if (!j->taken) {
		free(j);
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for the journal's book-keeping");
	}
	if (arena_make_pages(a, 0, JOURNAL_HEADER_SIZE, e)) {
		journal_destroy(j);
		return DINST_NO_MEMORY;
	}
	j->made = JOURNAL_HEADER_SIZE;
	j->arena = a;
	j->header = h;
	j->slots = (struct journal_slot *)(void *)(a->code_map + JOURNAL_HEADER_SIZE);
	memset(h, 0, sizeof(*h));
	h->version = JOURNAL_VERSION;
	h->header_size = JOURNAL_HEADER_SIZE;
	h->slot_size = sizeof(struct journal_slot);
	h->capacity = (uint32_t)j->capacity;
	for (size_t i = 0; i + 1 < sizeof(h->session) && session[i]; i++)
		h->session[i] = session[i] > 0x20 && session[i] < 0x7f ? session[i] : '?';
	h->code = a->code;
	h->code_size = a->code_size;
	h->data = a->data;
	h->data_size = a->data_size;
	h->mode = a->mode;
	h->cpus = a->cpus;
	h->cpu_shift = a->cpu_shift;
	h->low_data = a->low_data;
	h->high = encode_hint(0);
	if (!proc_stat_read(getpid(), &own)) {
		h->owner = (uint64_t)getpid();
		h->owner_start = own.start_time;
		h->owner_space = pid_space_own();
	}
	fault_point();
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(h->magic, JOURNAL_MAGIC, sizeof(h->magic));
	h->checksum = journal_header_checksum(h);
	j->checksum = h->checksum;
	*out = j;
	return DINST_OK;
}

void journal_destroy(struct journal *j)
{
	if (!j)
		return;
	free(j->free);
	free(j->taken);
	free(j);
}

bool journal_was_full(struct journal *j)
{
	const bool was = j->was_full;

	j->was_full = false;
	return was;
}

/* Memory for the next slot that was never used. */
static int make_slot(struct journal *j, struct dinst_error *e)
{
	size_t size = journal_size(j->arena) - j->made;

	if (JOURNAL_HEADER_SIZE + (j->high + 1) * sizeof(*j->slots) <= j->made)
		return DINST_OK;
	if (size > MADE_AT_ONCE)
		size = MADE_AT_ONCE;
	if (arena_make_pages(j->arena, j->made, size, e))
		return DINST_NO_MEMORY;
	j->made += size;
	return DINST_OK;
}

static int take_slot(struct journal *j, size_t *index, struct dinst_error *e)
{
	if (j->free_count) {
		*index = j->free[--j->free_count];
		return DINST_OK;
	}
	if (j->high == j->capacity) {
		j->was_full = true;
		return dinst_fail(e, DINST_NO_MEMORY, "the journal is full: %zu patches",
				  j->capacity);
	}
	/* Room for every slot that may be given back, so that journal_remove cannot fail. */
	if (j->high == j->free_room) {
		size_t room = j->free_room ? j->free_room * 2 : 256;
		uint32_t *grown = realloc(j->free, room * sizeof(*grown));

		if (!grown)
			return dinst_fail(e, DINST_NO_MEMORY,
					  "no memory for the journal's book-keeping");
		j->free = grown;
		j->free_room = room;
	}
	if (make_slot(j, e))
		return DINST_NO_MEMORY;
	*index = j->high++;
	__atomic_store_n(&j->header->high, encode_hint(j->high), __ATOMIC_RELEASE);
	return DINST_OK;
}

int journal_add(struct journal *j, const struct journal_entry *entry, unsigned *index,
		struct dinst_error *e)
{
	struct journal_slot *slot;
	size_t number = 0;
	int result;

	if (!entry->length || entry->length > ARCH_PATCH_MAX)
		return dinst_fail(e, DINST_FAILED, "a patch of %u bytes cannot be journalled",
				  (unsigned)entry->length);
	result = take_slot(j, &number, e);
	if (result)
		return result;
	assert(!j->taken[number]);
	slot = &j->slots[number];
	fault_point();
	/* The state is not LIVE: a reader takes no notice of what is written here. */
	slot->address = entry->address;
	memset(slot->original, 0, sizeof(slot->original));
	memset(slot->patched, 0, sizeof(slot->patched));
	memcpy(slot->original, entry->original, entry->length);
	memcpy(slot->patched, entry->patched, entry->length);
	slot->length = entry->length;
	memset(slot->unused, 0, sizeof(slot->unused));
	slot->checksum = journal_slot_checksum(slot, j->checksum);
	fault_point();
	__atomic_store_n(&slot->state, JOURNAL_LIVE, __ATOMIC_RELEASE);
	j->taken[number] = 1;
	*index = (unsigned)number;
	return DINST_OK;
}

void journal_remove(struct journal *j, unsigned index)
{
	assert(index < j->high && j->taken[index]);
	fault_point();
	__atomic_store_n(&j->slots[index].state, 0, __ATOMIC_RELEASE);
	/* The next user's fields must not be seen under this entry's state. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	j->taken[index] = 0;
	j->free[j->free_count++] = index;
}

/* ---------------------------------------------------------------- reading */

enum { JOURNAL_SAME_MAX = 8 };

/* What is known of a mapping, as flags. */
enum { LOOKED_AT = 1, IS_CODE = 2, HAS_COPIES = 4 };

/*
 * Executable memory of a file, or what a program has put in its place: whatever is there then, it
 * is a hook perhaps, of somebody who puts back what he has found.
 */
static bool is_code(const struct target *t, const struct maps *m, const struct maps_entry *at,
		    uint8_t *known)
{
	if ((at->protection & PROT_EXEC) && at->inode)
		return true;
	if (at->shared || !strncmp(at->name, "[v", 2))
		return false;
	if (!(*known & LOOKED_AT))
		*known |= LOOKED_AT | (segments_are_code(t, m, at) ? IS_CODE : 0);
	return *known & IS_CODE;
}

/* True if all of the entry's bytes are. `known`: by mapping. */
static bool is_text(const struct target *t, const struct maps *m, uint8_t *known, taddr_t address,
		    size_t length)
{
	taddr_t end = address + length;

	if (end < address)
		return false;
	while (address < end) {
		const struct maps_entry *at = maps_find(m, address);

		if (!at || !is_code(t, m, at, &known[at - m->entries]))
			return false;
		address = at->hi;
	}
	return true;
}

/*
 * A program may put its text into other memory, or take its rights from it for a
 * while, where its file is not seen beside it: what we wrote there is there still, and leads to us. Anything may
 * lie in such memory, a byte or two as we wrote them by chance: they are believed where more is. What of a file
 * cannot be read may be text again later: it is not known to be clean.
 */
enum copied { COPIED_NOT, COPIED, COPIED_UNKNOWN };

static enum copied is_copied(const struct target *t, const struct maps *m,
			     const struct journal_entry *entry)
{
	const struct maps_entry *at = maps_find(m, entry->address);
	uint8_t now[ARCH_PATCH_MAX];

	if (!at || at->shared || !strncmp(at->name, "[v", 2) ||
	    entry->length > at->hi - entry->address)
		return COPIED_NOT;
	if (target_read_some(t, entry->address, now, entry->length) != entry->length)
		return at->inode ? COPIED_UNKNOWN : COPIED_NOT;
	return memcmp(now, entry->patched, entry->length) ? COPIED_NOT : COPIED;
}

static bool overlaps(const struct journal_entry *entry, taddr_t start, size_t size)
{
	return entry->address < start + size && entry->address + entry->length > start;
}

/* Reads the header again and compares it with what arena_find saw. */
static int read_header(const struct target *t, const struct arena_found *found,
		       struct journal_header *h, struct dinst_error *e)
{
	struct arena_found now;
	int result;

	result = target_read(t, found->code, h, sizeof(*h), e);
	if (result)
		return result;
	if (!journal_check_header(h, found->code, found->code_size, &now))
		return dinst_fail(e, DINST_BAD_FILE, "the arena at %#llx has no valid journal",
				  (unsigned long long)found->code);
	return DINST_OK;
}

int journal_by_address(const void *x, const void *y)
{
	const struct journal_entry *a = *(const struct journal_entry *const *)x;
	const struct journal_entry *b = *(const struct journal_entry *const *)y;

	if (a->address != b->address)
		return a->address < b->address ? -1 : 1;
	return a < b ? -1 : a > b;
}

static bool is_kept(const struct journal_entry *const *kept, size_t count,
		    const struct journal_entry *entry)
{
	for (size_t i = 0; i < count; i++)
		if (kept[i]->length == entry->length &&
		    !memcmp(kept[i]->original, entry->original, entry->length) &&
		    !memcmp(kept[i]->patched, entry->patched, entry->length))
			return true;
	return false;
}

/* Entries by address, and what the files have where there are too many of them. */
struct repeated {
	const struct target *target;
	const struct maps *maps;
	struct journal_entry **sorted;
	size_t count;
	struct patch_files *files;
};

static size_t end_of_same(const struct repeated *r, size_t first)
{
	size_t end = first + 1;

	while (end < r->count && r->sorted[end]->address == r->sorted[first]->address)
		end++;
	return end;
}

/* Without memory they are as good as none. */
static void open_files(struct repeated *r)
{
	taddr_t *places = calloc(r->count / JOURNAL_SAME_MAX + 1, sizeof(*places));
	size_t count = 0, end;

	for (size_t i = 0; places && i < r->count; i = end) {
		end = end_of_same(r, i);
		if (end - i > JOURNAL_SAME_MAX)
			places[count++] = r->sorted[i]->address;
	}
	if (count)
		r->files = patch_files_open(r->target, places, count);
	free(places);
}

/* How many bytes the file has there, where a patch may be. */
static size_t read_file(const struct repeated *r, taddr_t address, uint8_t *file)
{
	size_t size = ARCH_PATCH_MAX;

	while (size && !patch_files_read(r->files, r->maps, address, file, size))
		size--;
	return size;
}

enum { OF_FILE, IS_THERE, IS_OTHER };

/*
 * Of entries that share one address those that are not too many: what is there first, and of that what the
 * file had (it may have been built anew many times, under the same jump), then others, and none twice: what
 * was loaded often must not crowd out what is there now. The order of what is kept stays, and so do addresses.
 */
static void keep_some(const struct repeated *r, struct journal_entry *const *same, size_t count)
{
	const struct journal_entry *kept[JOURNAL_SAME_MAX];
	uint8_t now[ARCH_PATCH_MAX], file[ARCH_PATCH_MAX];
	const size_t got = target_read_some(r->target, same[0]->address, now, sizeof(now));
	const size_t filed = read_file(r, same[0]->address, file);
	size_t kept_count = 0;

	for (int round = OF_FILE; round <= IS_OTHER; round++)
		for (size_t i = 0; i < count; i++) {
			const size_t length = same[i]->length;
			int kind = length <= got && !memcmp(now, same[i]->patched, length)
					   ? IS_THERE
					   : IS_OTHER;

			if (kind == IS_THERE && length <= filed &&
			    !memcmp(file, same[i]->original, length))
				kind = OF_FILE;
			/* What has gone has no bytes, which are there. */
			if (kind != round || !length)
				continue;
			if (kept_count < JOURNAL_SAME_MAX && !is_kept(kept, kept_count, same[i]))
				kept[kept_count++] = same[i];
			else
				same[i]->length = 0;
		}
}

/*
 * A window has one entry, or two or three while it is led elsewhere, and one for each time that its module was
 * loaded there. More of them for one address may be an enemy's: who goes through all that share one
 * would never end.
 */
static bool drop_repeated(const struct target *t, const struct maps *m,
			  struct journal_entry *entries, size_t *count)
{
	struct repeated r = {.target = t, .maps = m, .count = *count};
	size_t kept = 0, end;

	r.sorted = calloc(*count + 1, sizeof(struct journal_entry *));
	if (!r.sorted)
		return false;
	for (size_t i = 0; i < *count; i++)
		r.sorted[i] = &entries[i];
	qsort(r.sorted, *count, sizeof(struct journal_entry *), journal_by_address);
	open_files(&r);
	for (size_t i = 0; i < *count; i = end) {
		end = end_of_same(&r, i);
		if (end - i > JOURNAL_SAME_MAX)
			keep_some(&r, r.sorted + i, end - i);
	}
	for (size_t i = 0; i < *count; i++)
		if (entries[i].length)
			entries[kept++] = entries[i];
	*count = kept;
	patch_files_close(r.files);
	free(r.sorted);
	return true;
}

/* What is in text, and what is in copies of it. False without memory. */
static bool keep_text(const struct target *t, const struct maps *m, struct journal_entry *entries,
		      size_t *count)
{
	uint8_t *known = calloc(m->count + 1, sizeof(*known));
	size_t texts = 0, copies = 0, kept;

	if (!known)
		return false;
	for (size_t i = 0; i < *count; i++) {
		const struct journal_entry entry = entries[i];
		const bool text = is_text(t, m, known, entry.address, entry.length);
		const enum copied copied = text ? COPIED_NOT : is_copied(t, m, &entry);

		if (text || copied == COPIED_UNKNOWN) {
			/* Copies gather behind the texts. */
			entries[texts + copies] = entries[texts];
			entries[texts++] = entry;
		} else if (copied == COPIED) {
			entries[texts + copies++] = entry;
			if (entry.length >= JOURNAL_NO_CHANCE)
				known[maps_index(m, entry.address)] |= HAS_COPIES;
		}
	}
	kept = texts;
	for (size_t i = texts; i < texts + copies; i++)
		if (known[maps_index(m, entries[i].address)] & HAS_COPIES)
			entries[kept++] = entries[i];
	*count = kept;
	free(known);
	return true;
}

int journal_read(const struct target *t, const struct arena_found *found,
		 struct journal_entry **out, size_t *count, struct dinst_error *e)
{
	struct journal_entry *entries = NULL;
	struct journal_slot *slots = NULL;
	struct journal_header h;
	struct maps m = {0};
	size_t high, used = 0;
	int result;

	result = read_header(t, found, &h, e);
	if (result)
		return result;
	high = journal_high(&h);
	slots = calloc(high + 1, sizeof(*slots));
	entries = calloc(high + 1, sizeof(*entries));
	if (!slots || !entries) {
		result = dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu journal entries", high);
		goto out;
	}
	/* Of an arena that was cut off there may be less: what is not there is no entry. */
	if (high &&
	    !target_read_some(t, found->code + JOURNAL_HEADER_SIZE, slots, high * sizeof(*slots)) &&
	    !target_alive(t))
		result = dinst_fail(e, DINST_GONE, "the target has ended");
	if (!result)
		result = maps_read(target_pid(t), &m, e);
	if (result)
		goto out;
	for (size_t i = 0; i < high; i++) {
		struct journal_entry *entry = &entries[used];

		if (journal_check_slot(&slots[i], h.checksum, entry) &&
		    !overlaps(entry, found->code, found->code_size))
			used++;
	}
	if (!keep_text(t, &m, entries, &used) || !drop_repeated(t, &m, entries, &used)) {
		result = dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu journal entries", used);
		goto out;
	}
	*out = entries;
	*count = used;
	entries = NULL;
out:
	maps_release(&m);
	free(entries);
	free(slots);
	return result;
}
