/* SPDX-License-Identifier: MIT */
/*
 * leftovers_twins.c - entries of a journal for one and the same place. A module that was unloaded leaves
 * its own until the next flush, and what is loaded there later may be another one: built anew.
 * What is there tells whose it is, and where that is the same, as short jumps may be, the file tells what
 * was there before. And where nothing but the file's is there, nothing of ours is: what has come to the
 * place of a module that is no more may be as we wrote it there, or in a page with newer windows.
 */
#include <stdlib.h>
#include <string.h>

#include "inject/maps.h"
#include "mutator/leftovers.h"

struct twins {
	const struct target *target;
	struct journal_entry **sorted; /* by address */
	taddr_t *asked;		       /* places where only the file tells */
	size_t asked_count;
};

static bool is_there(const struct target *t, const struct journal_entry *entry)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(t, entry->address, now, entry->length) == entry->length &&
	       !memcmp(now, entry->patched, entry->length);
}

/* Those that are not there go where another one is. The first that is, or NULL. */
static struct journal_entry *keep_what_is_there(const struct twins *w, struct journal_entry **same,
						size_t count)
{
	struct journal_entry *first = NULL;

	for (size_t i = 0; i < count && !first; i++)
		if (is_there(w->target, same[i]))
			first = same[i];
	for (size_t i = 0; i < count && first; i++)
		if (same[i] != first && !is_there(w->target, same[i]))
			same[i]->length = 0;
	return first;
}

/* Looks at those of one place; notes it where they do not agree on what was there. */
static void look_at(struct twins *w, struct journal_entry **same, size_t count)
{
	const struct journal_entry *first = count > 1 ? keep_what_is_there(w, same, count) : NULL;

	for (size_t i = 0; i < count && first; i++)
		if (same[i]->length &&
		    (same[i]->length != first->length ||
		     memcmp(same[i]->original, first->original, first->length) != 0)) {
			w->asked[w->asked_count++] = first->address;
			return;
		}
}

static bool is_of_file(const struct patch_files *files, const struct maps *m,
		       const struct journal_entry *entry)
{
	uint8_t file[ARCH_PATCH_MAX];

	return patch_files_read(files, m, entry->address, file, entry->length) &&
	       !memcmp(file, entry->original, entry->length);
}

/* What was there nobody can tell: it stays as it is (leftovers_drop_twins()). */
static void leave_all(struct journal_entry **same, size_t count)
{
	for (size_t i = 0; i < count; i++)
		memcpy(same[i]->original, same[i]->patched, same[i]->length);
}

/* Where one of them has what the file has, the others go; where none has, all stay. */
static void ask_file(const struct patch_files *files, const struct maps *m,
		     struct journal_entry **same, size_t count)
{
	bool any = false;

	for (size_t i = 0; i < count && !any; i++)
		any = same[i]->length && is_of_file(files, m, same[i]);
	for (size_t i = 0; i < count && any; i++)
		if (same[i]->length && !is_of_file(files, m, same[i]))
			same[i]->length = 0;
	if (!any)
		leave_all(same, count);
}

static size_t end_of_same(const struct twins *w, size_t first, size_t count)
{
	size_t end = first + 1;

	while (end < count && w->sorted[end]->address == w->sorted[first]->address)
		end++;
	return end;
}

static void ask_files(const struct twins *w, size_t count)
{
	struct patch_files *files = NULL;
	struct maps m = {0};
	size_t end, asked = 0;

	if (!w->asked_count)
		return;
	if (!maps_read(target_pid(w->target), &m, NULL))
		files = patch_files_open(w->target, w->asked, w->asked_count);
	for (size_t i = 0; i < count && asked < w->asked_count; i = end) {
		end = end_of_same(w, i, count);
		if (w->sorted[i]->address != w->asked[asked])
			continue;
		ask_file(files, &m, w->sorted + i, end - i);
		asked++;
	}
	patch_files_close(files);
	maps_release(&m);
}

void leftovers_drop_twins(const struct target *t, struct journal_entry *entries, size_t *count)
{
	struct twins w = {.target = t};
	size_t kept = 0, end;

	w.sorted = calloc(*count + 1, sizeof(struct journal_entry *));
	w.asked = calloc(*count + 1, sizeof(*w.asked));
	for (size_t i = 0; w.sorted && i < *count; i++)
		w.sorted[i] = &entries[i];
	if (w.sorted && w.asked) {
		qsort(w.sorted, *count, sizeof(struct journal_entry *), journal_by_address);
		for (size_t i = 0; i < *count; i = end) {
			end = end_of_same(&w, i, *count);
			look_at(&w, w.sorted + i, end - i);
		}
		ask_files(&w, *count);
	}
	for (size_t i = 0; i < *count; i++)
		if (entries[i].length)
			entries[kept++] = entries[i];
	*count = kept;
	free(w.sorted);
	free(w.asked);
}

/* ------------------------------------------------------- what a file shows */

static int by_number(const void *x, const void *y)
{
	const taddr_t a = *(const taddr_t *)x, b = *(const taddr_t *)y;

	return a < b ? -1 : a > b;
}

taddr_t *leftovers_near(const struct target *t, const struct journal_entry *entries, size_t *count)
{
	taddr_t *near = calloc(*count + 1, sizeof(*near));
	size_t used = 0;

	for (size_t i = 0; near && i < *count; i++)
		if (entries[i].length >= JOURNAL_NO_CHANCE && is_there(t, &entries[i]))
			near[used++] = entries[i].address;
	if (used)
		qsort(near, used, sizeof(*near), by_number);
	*count = used;
	return near;
}

bool leftovers_is_led(const struct target *t, const struct journal_entry *entry,
		      const taddr_t *near, size_t count)
{
	uint8_t bytes[ARCH_PATCH_MAX];
	const size_t size = arch_short_jump_size;
	struct arch_insn insn;

	/* Its end may be what was there before (arch_patch()). */
	return entry->length <= size && target_read_some(t, entry->address, bytes, size) == size &&
	       !memcmp(bytes, entry->patched, entry->length) &&
	       arch_decode(bytes, size, entry->address, &insn) == ARCH_OK &&
	       insn.flow == ARCH_FLOW_JUMP && insn.length == size && count &&
	       bsearch(&insn.target, near, count, sizeof(*near), by_number);
}

/* Neither restored nor surely ours: the file tells. */
static bool is_in_doubt(const struct target *t, const struct journal_entry *entry)
{
	uint8_t now[ARCH_PATCH_MAX];

	return target_read_some(t, entry->address, now, entry->length) == entry->length &&
	       memcmp(now, entry->original, entry->length) != 0 &&
	       (entry->length < JOURNAL_NO_CHANCE ||
		memcmp(now, entry->patched, entry->length) != 0);
}

static bool shows_file(const struct target *t, const struct patch_files *files,
		       const struct maps *m, const struct journal_entry *entry)
{
	uint8_t now[ARCH_PATCH_MAX], file[ARCH_PATCH_MAX];

	return target_read_some(t, entry->address, now, entry->length) == entry->length &&
	       patch_files_read(files, m, entry->address, file, entry->length) &&
	       !memcmp(now, file, entry->length);
}

bool leftovers_is_chance(const struct target *t, int pagemap, const struct journal_entry *j)
{
	uint8_t now[ARCH_PATCH_MAX];

	return j->length < JOURNAL_NO_CHANCE &&
	       target_read_some(t, j->address, now, j->length) == j->length &&
	       !memcmp(now, j->patched, j->length) &&
	       maps_is_untouched(pagemap, j->address, j->length);
}

void leftovers_drop_clean(const struct target *t, struct journal_entry *entries, size_t *count)
{
	taddr_t *asked = calloc(*count + 1, sizeof(*asked));
	size_t asked_count = 0, kept = 0, near_count = *count;
	taddr_t *near = leftovers_near(t, entries, &near_count);
	struct patch_files *files;
	struct maps m;

	for (size_t i = 0; asked && near && i < *count; i++)
		if (is_in_doubt(t, &entries[i]))
			asked[asked_count++] = entries[i].address;
	if (!asked_count || maps_read(target_pid(t), &m, NULL)) {
		free(asked);
		free(near);
		return;
	}
	files = patch_files_open(t, asked, asked_count);
	for (size_t i = 0; i < *count; i++)
		if (!is_in_doubt(t, &entries[i]) ||
		    leftovers_is_led(t, &entries[i], near, near_count) ||
		    !shows_file(t, files, &m, &entries[i]))
			entries[kept++] = entries[i];
	*count = kept;
	patch_files_close(files);
	maps_release(&m);
	free(asked);
	free(near);
}

/* ------------------------------------------------------------ other arenas */

/* What an entry would bring back, and the file has not. */
struct doubts {
	const struct target *target;
	struct patch_files *files;
	struct maps m;
	struct journal_entry **at; /* by address */
	size_t count;
};

/* They are there, and the file has something else than what was there before, or cannot be read. */
static void find_doubts(struct doubts *d, struct journal_entry *entries, size_t count)
{
	uint8_t file[ARCH_PATCH_MAX];

	for (size_t i = 0; i < count; i++)
		if (entries[i].length < JOURNAL_NO_CHANCE && is_there(d->target, &entries[i]) &&
		    (!patch_files_read(d->files, &d->m, entries[i].address, file,
				       entries[i].length) ||
		     memcmp(file, entries[i].original, entries[i].length) != 0))
			d->at[d->count++] = &entries[i];
	if (d->count)
		qsort(d->at, d->count, sizeof(struct journal_entry *), journal_by_address);
}

/* True if the other one is there, too, and brings back what the file has in all of its place and of `own`. */
static bool brings_file_back(const struct doubts *d, const struct journal_entry *other,
			     const struct journal_entry *own)
{
	uint8_t file[ARCH_PATCH_MAX], then[ARCH_PATCH_MAX];
	const size_t size = own->length > other->length ? own->length : other->length;

	if (!is_there(d->target, other) ||
	    target_read_some(d->target, own->address, then, size) != size ||
	    !patch_files_read(d->files, &d->m, own->address, file, size))
		return false;
	memcpy(then, other->original, other->length);
	return !memcmp(then, file, size);
}

/* The other one is there, too, and would bring back something else, and so does not `own` what the file has. */
static bool contradicts(const struct doubts *d, const struct journal_entry *other,
			const struct journal_entry *own)
{
	uint8_t file[ARCH_PATCH_MAX];
	const bool is_files = patch_files_read(d->files, &d->m, own->address, file, own->length) &&
			      !memcmp(file, own->original, own->length);

	return !is_files && is_there(d->target, other) &&
	       (other->length != own->length ||
		memcmp(other->original, own->original, own->length) != 0);
}

/* The other one knows what was there. `own` stays a patch of this arena: its near jump may be this one's. */
static void take_files(const struct doubts *d, struct journal_entry *own)
{
	uint8_t file[ARCH_PATCH_MAX];

	if (patch_files_read(d->files, &d->m, own->address, file, own->length))
		memcpy(own->original, file, own->length);
}

static void ask_other(const struct doubts *d, const struct journal_entry *other)
{
	size_t lo = 0, hi = d->count;

	while (lo < hi) {
		const size_t middle = lo + (hi - lo) / 2;

		if (d->at[middle]->address < other->address)
			lo = middle + 1;
		else
			hi = middle;
	}
	for (; lo < d->count && d->at[lo]->address == other->address; lo++)
		if (brings_file_back(d, other, d->at[lo]))
			take_files(d, d->at[lo]);
		else if (contradicts(d, other, d->at[lo]))
			leave_all(&d->at[lo], 1);
}

static void ask_others(const struct doubts *d, const struct process *p, size_t n, uint64_t deadline)
{
	for (size_t i = 0; d->count && i < p->count; i++) {
		struct dinst_error ignored = {0};
		struct journal_entry *entries;
		size_t count;

		if (i == n || !p->found[i].header_valid)
			continue;
		/* A journal may be as long as an enemy likes. */
		if (clock_ns() / 1000 >= deadline) {
			leave_all(d->at, d->count);
			return;
		}
		if (journal_read(d->target, &p->found[i], &entries, &count, &ignored) < 0)
			continue;
		for (size_t k = 0; k < count; k++)
			ask_other(d, &entries[k]);
		free(entries);
	}
}

void leftovers_ask_others(const struct process *p, size_t n, uint64_t deadline,
			  struct journal_entry *entries, size_t count)
{
	taddr_t *asked = calloc(count + 1, sizeof(*asked));
	struct doubts d = {.target = p->target};
	size_t asked_count = 0;

	d.at = calloc(count + 1, sizeof(struct journal_entry *));
	for (size_t i = 0; asked && i < count; i++)
		if (entries[i].length < JOURNAL_NO_CHANCE)
			asked[asked_count++] = entries[i].address;
	if (d.at && asked_count && p->count > 1 && !maps_read(target_pid(p->target), &d.m, NULL)) {
		d.files = patch_files_open(p->target, asked, asked_count);
		find_doubts(&d, entries, count);
		ask_others(&d, p, n, deadline);
		patch_files_close(d.files);
		maps_release(&d.m);
	}
	free(d.at);
	free(asked);
}
