/* SPDX-License-Identifier: MIT */
/*
 * site.c - the windows in use: their table, their bases, what is to be patched.
 *
 * A site is made while the target runs: its base is written into an arena, and
 * what its window's bytes will be goes into the journal. The windows themselves
 * are never touched here.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/body.h"

enum {
	SITE_BUCKETS_MIN = 1024,
	BUCKET_BYTES =
		64, /* sites that begin in the same of these are in one bucket: first_in_the_way() */
};

/* ------------------------------------------------------------ hash table */

static size_t bucket_of(const struct session *s, taddr_t key)
{
	return (key / BUCKET_BYTES * 0x9e3779b97f4a7c15ull >> 20) & (s->site_buckets - 1);
}

static int hash_grow(struct session *s, struct dinst_error *e)
{
	size_t old_buckets = s->site_buckets;
	size_t buckets = old_buckets ? old_buckets * 2 : SITE_BUCKETS_MIN;
	struct site **old = s->site_hash;
	struct site **table;

	if (s->site_count < old_buckets)
		return 0;
	table = calloc(buckets, sizeof(*table));
	if (!table)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for %zu sites", buckets);
	s->site_hash = table;
	s->site_buckets = buckets;
	for (size_t i = 0; i < old_buckets; i++) {
		struct site *next;

		for (struct site *site = old[i]; site; site = next) {
			size_t b = bucket_of(s, site->key.start);

			next = site->next_hash;
			site->next_hash = table[b];
			table[b] = site;
		}
	}
	free(old);
	return 0;
}

struct site *site_find(const struct session *s, taddr_t window_start)
{
	if (!s->site_buckets)
		return NULL;
	for (struct site *site = s->site_hash[bucket_of(s, window_start)]; site;
	     site = site->next_hash)
		if (site->key.start == window_start)
			return site;
	return NULL;
}

static struct site *first_from(const struct session *s, size_t bucket)
{
	for (; bucket < s->site_buckets; bucket++)
		if (s->site_hash[bucket])
			return s->site_hash[bucket];
	return s->dropped;
}

struct site *site_next(const struct session *s, const struct site *site)
{
	if (!site)
		return first_from(s, 0);
	if (site->next_hash || site->dropped)
		return site->next_hash;
	return first_from(s, bucket_of(s, site->key.start) + 1);
}

void site_forget(struct session *s, struct site *site)
{
	struct site **p = &s->site_hash[bucket_of(s, site->key.start)];

	if (site->dropped)
		return;
	while (*p && *p != site)
		p = &(*p)->next_hash;
	if (!*p)
		return;
	*p = site->next_hash;
	s->site_count--;
}

static void put_to_dropped(struct session *s, struct site *site)
{
	site->dropped = true;
	site->before = &s->dropped;
	site->next_hash = s->dropped;
	if (s->dropped)
		s->dropped->before = &site->next_hash;
	s->dropped = site;
}

static void forget_dropped(struct site *site)
{
	*site->before = site->next_hash;
	if (site->next_hash)
		site->next_hash->before = site->before;
}

void site_drop_gone(struct session *s)
{
	for (size_t b = 0; b < s->site_buckets; b++) {
		struct site **p = &s->site_hash[b], *site;

		while ((site = *p)) {
			if (!site->module->gone) {
				p = &site->next_hash;
				continue;
			}
			if (site->links)
				site->module->news = MODULE_IS_UNLOADED;
			*p = site->next_hash;
			s->site_count--;
			put_to_dropped(s, site);
		}
	}
}

bool site_is_come_back_to(const struct site *site)
{
	return site->state == SITE_DRAINING && site->keeps_call && !site->unreached;
}

bool site_is_in_place(const struct session *s, const struct site *site)
{
	const struct patch *p;
	uint8_t now[ARCH_PATCH_MAX];

	if (site->state != SITE_PATCHED)
		return true;
	p = &site->patches[site->patch_count - 1];
	return target_read_some(s->target, p->address, now, p->length) != p->length ||
	       memcmp(now, p->before, p->length) != 0;
}

void site_revert(struct session *s, struct site *site)
{
	site->state = SITE_PLANNED;
	site->touched = true;
	site->left_to = 0;
	s->maybe_pending = true;
}

/* -------------------------------------------------------------- patches */

/* The file's bytes of [vaddr, vaddr + length). */
static int file_bytes(const struct site *site, vaddr_t vaddr, size_t length, uint8_t *to,
		      struct dinst_error *e)
{
	size_t available;
	const uint8_t *bytes = image_code(site->module->image, vaddr, &available);

	if (!bytes || available < length)
		return dinst_fail(e, DINST_BAD_FILE, "%s: no code at offset %#llx",
				  site->module->name, (unsigned long long)vaddr);
	memcpy(to, bytes, length);
	return 0;
}

static int make_patch(const struct site *site, enum arch_patch_kind kind,
		      const struct arch_insn *insn, vaddr_t vaddr, size_t length, taddr_t to,
		      struct patch *patch, struct dinst_error *e)
{
	uint8_t before[ARCH_PATCH_MAX], after[ARCH_PATCH_MAX];
	taddr_t address = vaddr + site->module->bias;
	size_t first = 0, count = 0;
	int status;

	if (length > ARCH_PATCH_MAX)
		length = ARCH_PATCH_MAX;
	status = file_bytes(site, vaddr, length, before, e);
	if (status < 0)
		return status;
	if (vaddr == site->window.start)
		memcpy(before, site->original,
		       length < site->window.length ? length : site->window.length);
	memcpy(after, before, length);
	status = arch_patch(kind, insn, address, to, after, length, &first, &count);
	if (status != ARCH_OK || !count)
		return dinst_fail(e, DINST_REFUSED, "the trampoline is out of reach of %#llx",
				  (unsigned long long)address);
	*patch = (struct patch){.address = address + first, .length = (uint8_t)count};
	memcpy(patch->before, before + first, count);
	memcpy(patch->after, after + first, count);
	return 0;
}

/* Fills in patches[] and how many. */
static int make_patches(const struct site *site, taddr_t to, struct patch *patches, unsigned *count,
			struct dinst_error *e)
{
	const struct window *w = &site->window;
	struct arch_insn insns[WINDOW_INSNS_MAX];
	int status;

	*count = 0;
	if (!w->insn_count || site_instructions(site, insns) != w->insn_count)
		return dinst_fail(e, DINST_REFUSED, "cannot decode %#llx",
				  (unsigned long long)site->key.start);
	if (w->kind == ARCH_PATCH_SHORT_JUMP) {
		/* The hole first: the short jump must never lead to padding. */
		status = make_patch(site, ARCH_PATCH_JUMP, NULL, w->hole, w->hole_length, to,
				    &patches[(*count)++], e);
		if (status < 0)
			return status;
		to = w->hole + site->module->bias;
	}
	status = make_patch(site, w->kind, &insns[0], w->start, (size_t)w->length + w->padding, to,
			    &patches[*count], e);
	if (status >= 0 && site->keeps_call &&
	    patches[*count].address + patches[*count].length > insns[w->insn_count - 1].address)
		return dinst_fail(e, DINST_REFUSED, "the jump at %#llx is over the call behind it",
				  (unsigned long long)site->key.start);
	(*count)++;
	return status;
}

/* Written down before anything can be patched; the last line of a site's life takes it back. */
static int write_journal(const struct site *site, const struct patch *patches, unsigned count,
			 unsigned *lines, struct dinst_error *e)
{
	for (unsigned k = 0; k < count; k++) {
		const struct patch *p = &patches[k];
		struct journal_entry entry = {.address = p->address, .length = p->length};
		int status;

		memcpy(entry.original, p->before, p->length);
		memcpy(entry.patched, p->after, p->length);
		status = journal_add(site->place->journal, &entry, &lines[k], e);
		if (status < 0) {
			while (k--)
				journal_remove(site->place->journal, lines[k]);
			return status;
		}
	}
	return 0;
}

int site_lead_to(struct site *site, taddr_t to, struct dinst_error *e)
{
	struct patch patches[2];
	unsigned lines[2], count;
	int status = make_patches(site, to, patches, &count, e);

	if (status >= 0)
		status = write_journal(site, patches, count, lines, e);
	if (status < 0)
		return status;
	for (unsigned k = 0; k < site->patch_count; k++)
		journal_remove(site->place->journal, site->journal[k]);
	for (unsigned k = 0; k < count; k++) {
		site->patches[k] = patches[k];
		site->journal[k] = lines[k];
	}
	site->patch_count = count;
	return 0;
}

/* The same bytes change, all in one page: one write does it, whole or not at all. */
static bool is_same_place(const struct patch *a, const struct patch *b)
{
	enum { PAGE = 4096 };

	return a->address == b->address && a->length == b->length &&
	       a->address / PAGE == (a->address + a->length - 1) / PAGE;
}

/* Only the near jump differs: of a short one, that is the one in the hole. */
static bool make_move(const struct site *site, const struct patch *patches, unsigned count,
		      struct site_move *move)
{
	const struct patch *old = &site->patches[0];

	if (count != site->patch_count || !is_same_place(&patches[0], old))
		return false;
	for (unsigned k = 1; k < count; k++)
		if (!is_same_place(&patches[k], &site->patches[k]) ||
		    memcmp(patches[k].after, site->patches[k].after, patches[k].length) != 0)
			return false;
	move->patch = patches[0];
	memcpy(move->patch.before, old->after, old->length);
	return true;
}

int site_move_to(struct site *site, taddr_t to, struct site_move *move, struct dinst_error *e)
{
	struct patch patches[2];
	unsigned lines[2], count;
	int status = make_patches(site, to, patches, &count, e);

	if (status >= 0 && !make_move(site, patches, count, move))
		status = dinst_fail(e, DINST_REFUSED, "the jump at %#llx cannot be turned",
				    (unsigned long long)site->key.start);
	if (status >= 0)
		status = write_journal(site, patches, count, lines, e);
	if (status < 0)
		return status;
	move->site = site;
	move->patch_count = count;
	for (unsigned k = 0; k < count; k++) {
		move->journal[k] = site->journal[k];
		site->patches[k] = patches[k];
		site->journal[k] = lines[k];
	}
	return 0;
}

/* ------------------------------------------------------------- making one */

size_t site_instructions(const struct site *site, struct arch_insn *insns)
{
	const struct window *w = &site->window;
	size_t count = 0, at = 0;

	for (; count < w->insn_count && at < w->length; at += insns[count++].length)
		if (arch_decode(site->original + at, w->length - at, site->key.start + at,
				&insns[count]) != ARCH_OK)
			return 0;
	/* The plan was made of other bytes. */
	return at == w->length ? count : 0;
}

/* Something else of the plan is to be written into the window's tail. */
static bool is_host(const struct function_plan *plan, unsigned window)
{
	for (size_t i = 0; i < plan->window_count; i++)
		if (plan->windows[i].host == (int32_t)window)
			return true;
	return false;
}

/* The site of a window that has none; `host`: in whose tail its near jump goes, or NULL. */
static int make_one(struct session *s, struct module *m, struct place *p,
		    const struct function_plan *plan, unsigned window, struct site *host,
		    struct site **out, struct dinst_error *e)
{
	const struct window *w = &plan->windows[window];
	struct site *site;
	int status = hash_grow(s, e);

	if (status < 0)
		return status;
	site = calloc(1, sizeof(*site));
	if (!site)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	site->module = m;
	site->function = plan->function;
	site->place = p;
	site->window = *w;
	site->key.start = w->start + m->bias;
	if (w->length <= sizeof(site->original))
		status = file_bytes(site, w->start, w->length, site->original, e);
	else
		status = dinst_fail(e, DINST_REFUSED, "the window at %#llx is too long",
				    (unsigned long long)site->key.start);
	if (status < 0) {
		free(site);
		return status;
	}
	/* Where it comes to moving the call after all it must be allowed. */
	site->shares_call =
		!is_host(plan, window) && !s->shadow_stacks && code_can_share_call(site);
	site->keeps_call =
		site->shares_call || (!is_host(plan, window) && code_can_keep_call(site));
	if (s->shadow_stacks && code_moves_call(site))
		status = dinst_fail(e, DINST_REFUSED, "the call at the end of %#llx must not move",
				    (unsigned long long)site->key.start);
	else
		status = base_write(s, site, e);
	if (status < 0) {
		free(site);
		return status;
	}
	site->host = host;
	if (host)
		host->guests++;
	site->next_hash = s->site_hash[bucket_of(s, site->key.start)];
	s->site_hash[bucket_of(s, site->key.start)] = site;
	s->site_count++;
	*out = site;
	return 0;
}

static bool is_same_window(const struct window *a, const struct window *b)
{
	return a->length == b->length && a->padding == b->padding &&
	       a->insn_count == b->insn_count && a->kind == b->kind && a->hole == b->hole;
}

static bool meets(vaddr_t a, size_t a_size, vaddr_t b, size_t b_size)
{
	return a_size && b_size && a < b + b_size && b < a + a_size;
}

/* True if window w of m and the site have bytes in common, besides a hole in the tail of w's host. */
static bool is_in_the_way(const struct site *site, const struct module *m, const struct window *w,
			  const struct site *host)
{
	const struct window *other = &site->window;
	const size_t size = (size_t)w->length + w->padding;
	const size_t other_size = (size_t)other->length + other->padding;

	if (site->module != m)
		return false;
	if (meets(w->start, size, other->start, other_size) ||
	    meets(w->start, size, other->hole, other->hole_length) ||
	    meets(w->hole, w->hole_length, other->hole, other->hole_length))
		return true;
	if (site == host)
		return w->hole < other->start + arch_jump_size ||
		       w->hole + w->hole_length > other->start + other->length;
	return meets(w->hole, w->hole_length, other->start, other_size);
}

/*
 * Windows of plans never meet. Should two plans contradict each other all the same, one would
 * overwrite what the other has patched, or live code behind it.
 */
static const struct site *first_in_the_way(const struct session *s, const struct module *m,
					   const struct window *w, const struct site *host)
{
	/* How far from w's bytes a site begins that has one of them, if only in its hole. */
	const taddr_t reach =
		(taddr_t)arch_short_jump_reach + WINDOW_BYTES_MAX + ARCH_PATCH_MAX + ARCH_INSN_MAX;
	taddr_t lo = w->start, hi = w->start + w->length + w->padding;

	if (w->hole_length && w->hole < lo)
		lo = w->hole;
	if (w->hole_length && w->hole + w->hole_length > hi)
		hi = w->hole + w->hole_length;
	lo = (lo + m->bias - reach) / BUCKET_BYTES * BUCKET_BYTES;
	hi += m->bias + reach;
	for (; s->site_buckets && lo < hi; lo += BUCKET_BYTES)
		for (const struct site *site = s->site_hash[bucket_of(s, lo)]; site;
		     site = site->next_hash)
			if (is_in_the_way(site, m, w, host))
				return site;
	return NULL;
}

static int refuse_met(const struct site *site, const struct module *m, const struct window *w,
		      struct dinst_error *e)
{
	return dinst_fail(e, DINST_REFUSED,
			  "%s: the window at %#llx has bytes of that at %#llx, which is in use: "
			  "remove what is inserted there first",
			  m->name, (unsigned long long)(w->start + m->bias),
			  (unsigned long long)site->key.start);
}

static int check_way(const struct session *s, const struct module *m, const struct window *w,
		     const struct site *host, struct dinst_error *e)
{
	const struct site *site = first_in_the_way(s, m, w, host);

	return site ? refuse_met(site, m, w, e) : 0;
}

int site_make(struct session *s, struct module *m, struct place *p,
	      const struct function_plan *plan, unsigned window, struct site **out,
	      struct dinst_error *e)
{
	const struct window *w = &plan->windows[window];
	struct site *site = site_find(s, w->start + m->bias), *host = NULL;
	int status = 0;

	if (site && !is_same_window(&site->window, w))
		return refuse_met(site, m, w, e);
	if (site) {
		*out = site;
		return 0;
	}
	if (m->shared)
		return dinst_fail(e, DINST_REFUSED, "%s: its code is mapped shared by now",
				  m->name);
	if (w->host >= 0)
		status = site_make(s, m, p, plan, (unsigned)w->host, &host, e);
	/* It was made for another function, whose plan knows nothing of guests. */
	if (status >= 0 && host && host->keeps_call)
		return dinst_fail(e, DINST_REFUSED, "the tail of the window at %#llx is in use",
				  (unsigned long long)host->key.start);
	if (status >= 0)
		status = check_way(s, m, w, host, e);
	if (status >= 0)
		status = make_one(s, m, p, plan, window, host, out, e);
	/* It may have been made for this one, and nothing else leads to it. */
	if (status < 0 && host && !host->guests)
		removal_retire(s, host);
	return status;
}

void site_free(struct session *s, struct site *site)
{
	assert(!site->links && !site->spent && (!site->body || site->body == site->head));
	assert(!site->guests && !site->move);
	if (site->host)
		site->host->guests--;
	if (site->dropped)
		forget_dropped(site);
	else if (site->state != SITE_DRAINING)
		site_forget(s, site);
	site_forget_change(site);
	site_forget_held(site);
	for (unsigned k = 0; k < site->patch_count; k++)
		journal_remove(site->place->journal, site->journal[k]);
	if (site->head)
		body_free(site->head);
	heap_free_code(site->place->heap, site->base);
	if (site->gate)
		heap_free_code(site->place->heap, site->gate);
	free(site);
}
