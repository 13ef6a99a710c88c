/* SPDX-License-Identifier: MIT */
/*
 * site.c - base trampolines and the mini trampolines chained from them.
 *
 * Everything here writes into an arena while the target runs: a base
 * trampoline before any window leads to it, a mini before any slot leads to
 * it, and a slot by one aligned 32-bit store. The windows themselves are never
 * touched here.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "inject/fault.h"
#include "mutator/core.h"

enum { SITE_BUCKETS_MIN = 1024 };

/* ------------------------------------------------------------ hash table */

static size_t bucket_of(const struct session *s, taddr_t key)
{
	return (key * 0x9e3779b97f4a7c15ull >> 20) & (s->site_buckets - 1);
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

void site_drop_gone(struct session *s)
{
	for (size_t b = 0; b < s->site_buckets; b++) {
		struct site **p = &s->site_hash[b], *site;

		while ((site = *p)) {
			if (!site->module->gone) {
				p = &site->next_hash;
				continue;
			}
			*p = site->next_hash;
			s->site_count--;
			site->dropped = true;
		}
	}
}

bool site_is_in_place(const struct session *s, const struct site *site)
{
	const struct patch *p = &site->patches[site->patch_count - 1];
	uint8_t now[ARCH_PATCH_MAX];

	return site->state != SITE_PATCHED ||
	       target_read_some(s->target, p->address, now, p->length) != p->length ||
	       memcmp(now, p->before, p->length) != 0;
}

/* ------------------------------------------------------ base trampoline */

static size_t count_slots(const struct function_plan *plan, unsigned window)
{
	size_t count = 0;

	for (size_t i = 0; i < plan->point_count; i++)
		count += plan->points[i].window == (int32_t)window;
	return count;
}

/* The slots that the plan's points ask for in window w, in the order of running. */
static void collect_slots(struct site *site, const struct function_plan *plan, unsigned window)
{
	static const enum point_kind order[] = {POINT_ENTRY, POINT_CALL, POINT_EXIT};

	for (unsigned insn = 0; insn < site->window.insn_count; insn++)
		for (unsigned k = 0; k < sizeof(order) / sizeof(order[0]); k++)
			for (size_t i = 0; i < plan->point_count; i++) {
				const struct point *p = &plan->points[i];

				if (p->window != (int32_t)window || p->insn != insn ||
				    p->kind != order[k])
					continue;
				site->slots[site->slot_count++] = (struct slot){
					.insn = (uint8_t)insn, .kind = p->kind, .live = p->live};
			}
}

/* Instruction i of the window, given as in the file, as it stands in the target. */
static int insn_in_target(const struct site *site, const struct arch_insn *in_file,
			  struct arch_insn *insn)
{
	return arch_decode(in_file->bytes, in_file->length, in_file->address + site->module->bias,
			   insn);
}

static void emit_last(const struct site *site, const struct arch_insn *insn, struct arch_buf *out)
{
	bool call = insn->flow == ARCH_FLOW_CALL || insn->flow == ARCH_FLOW_CALL_INDIRECT;

	if (site->window.kind == ARCH_PATCH_JUMP || site->window.kind == ARCH_PATCH_SHORT_JUMP) {
		arch_relocate(insn, out);
		if (arch_falls_through(insn))
			arch_emit_jump(out, insn->address + insn->length);
	} else if (call) {
		arch_emit_call_tail(insn, out);
	} else {
		arch_emit_jump(out, insn->target);
	}
}

/* Emits the whole base trampoline; fills slots and offsets. */
static int emit_base(struct site *site, const struct arch_insn *insns, struct arch_buf *out)
{
	unsigned next_slot = 0;
	struct site_offsets end;

	for (unsigned i = 0; i < site->window.insn_count; i++) {
		struct arch_insn insn;
		int status = insn_in_target(site, &insns[i], &insn);

		if (status != ARCH_OK)
			return status;
		site->offsets[i].slots = (uint16_t)out->used;
		while (next_slot < site->slot_count && site->slots[next_slot].insn == i) {
			struct slot *slot = &site->slots[next_slot++];

			slot->displacement = out->pc + arch_emit_slot(out, 0);
			slot->resume = arch_here(out);
		}
		site->offsets[i].copy = (uint16_t)out->used;
		if (i + 1 < site->window.insn_count)
			arch_relocate(&insn, out);
		else
			emit_last(site, &insn, out);
	}
	end = (struct site_offsets){(uint16_t)out->used, (uint16_t)out->used};
	site->offsets[site->window.insn_count] = end;
	return out->status;
}

/* Every instruction may have a slot of each kind. */
enum { BASE_BYTES_MAX = WINDOW_INSNS_MAX * (ARCH_RELOCATED_MAX + 3 * 8) + 64 };

/* Allocates and writes the base trampoline. Emitted twice: for the size, then in place. */
static int write_base(struct site *site, const struct arch_insn *insns, struct dinst_error *e)
{
	uint8_t scratch[BASE_BYTES_MAX];
	struct arch_buf out = {.bytes = scratch, .size = sizeof(scratch)};
	struct heap *heap = site->place->heap;
	int status;

	/* Displacements have one size whatever the distance: any address in the arena will do. */
	out.pc = site->place->arena->code + journal_size(site->place->arena);
	status = emit_base(site, insns, &out);
	if (status != ARCH_OK)
		return dinst_fail(e, DINST_REFUSED, "cannot relocate the window at %#llx: %s",
				  (unsigned long long)site->key.start,
				  status == ARCH_OUT_OF_RANGE ? "a displacement does not reach"
							      : "an instruction must not move");
	/* Slots are padded to an alignment that depends on the address: room for all of them. */
	site->base_size = out.used + 4 * (size_t)site->slot_count;
	status = heap_alloc_code(heap, site->base_size, &site->base, e);
	if (status < 0)
		return status;
	out = (struct arch_buf){.bytes = heap_map(heap, site->base, site->base_size),
				.size = site->base_size,
				.pc = site->base};
	status = emit_base(site, insns, &out);
	if (status != ARCH_OK) {
		heap_free_code(heap, site->base);
		return dinst_fail(e, DINST_REFUSED, "cannot relocate the window at %#llx (%d)",
				  (unsigned long long)site->key.start, status);
	}
	return 0;
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
	memcpy(after, before, length);
	status = arch_patch(kind, insn, address, to, after, length, &first, &count);
	if (status != ARCH_OK || !count)
		return dinst_fail(e, DINST_REFUSED, "the trampoline is out of reach of %#llx",
				  (unsigned long long)address);
	patch->address = address + first;
	patch->length = (uint8_t)count;
	memcpy(patch->before, before + first, count);
	memcpy(patch->after, after + first, count);
	return 0;
}

static int make_patches(struct site *site, const struct arch_insn *insns, struct dinst_error *e)
{
	const struct window *w = &site->window;
	struct arch_insn insn;
	taddr_t to = site->base;
	int status;

	if (insn_in_target(site, &insns[0], &insn) != ARCH_OK)
		return dinst_fail(e, DINST_REFUSED, "cannot decode %#llx",
				  (unsigned long long)site->key.start);
	if (w->kind == ARCH_PATCH_SHORT_JUMP) {
		/* The hole first: the short jump must never lead to padding. */
		status = make_patch(site, ARCH_PATCH_JUMP, NULL, w->hole, w->hole_length,
				    site->base, &site->patches[site->patch_count], e);
		if (status < 0)
			return status;
		site->patch_count++;
		to = w->hole + site->module->bias;
	}
	status = make_patch(site, w->kind, &insn, w->start, (size_t)w->length + w->padding, to,
			    &site->patches[site->patch_count], e);
	if (status < 0)
		return status;
	site->patch_count++;
	return 0;
}

/* Written down before anything can be patched; the last line of a site's life takes it back. */
static int write_journal(struct site *site, struct dinst_error *e)
{
	for (unsigned k = 0; k < site->patch_count; k++) {
		const struct patch *p = &site->patches[k];
		struct journal_entry entry = {.address = p->address, .length = p->length};
		int status;

		memcpy(entry.original, p->before, p->length);
		memcpy(entry.patched, p->after, p->length);
		status = journal_add(site->place->journal, &entry, &site->journal[k], e);
		if (status < 0) {
			while (k--)
				journal_remove(site->place->journal, site->journal[k]);
			return status;
		}
	}
	return 0;
}

int site_make(struct session *s, struct module *m, struct place *p,
	      const struct function_plan *plan, unsigned window, struct site **out,
	      struct dinst_error *e)
{
	const struct window *w = &plan->windows[window];
	struct arch_insn insns[WINDOW_INSNS_MAX];
	struct site *site = site_find(s, w->start + m->bias);
	int status;

	if (site) {
		*out = site;
		return 0;
	}
	status = hash_grow(s, e);
	if (status < 0)
		return status;
	if (window_instructions(m->image, w, insns) != w->insn_count)
		return dinst_fail(e, DINST_BAD_FILE, "%s: its code has changed under us", m->name);
	site = calloc(1, sizeof(*site) + count_slots(plan, window) * sizeof(struct slot));
	if (!site)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	site->offsets = calloc((size_t)w->insn_count + 1, sizeof(*site->offsets));
	if (!site->offsets) {
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
		goto free_site;
	}
	site->module = m;
	site->function = plan->function;
	site->place = p;
	site->window = *w;
	site->key.start = w->start + m->bias;
	collect_slots(site, plan, window);
	status = write_base(site, insns, e);
	if (status < 0)
		goto free_site;
	status = make_patches(site, insns, e);
	if (status >= 0)
		status = write_journal(site, e);
	if (status < 0)
		goto free_base;
	site->next_hash = s->site_hash[bucket_of(s, site->key.start)];
	s->site_hash[bucket_of(s, site->key.start)] = site;
	s->site_count++;
	*out = site;
	return 0;

free_base:
	heap_free_code(p->heap, site->base);
free_site:
	free(site->offsets);
	free(site);
	return status;
}

void site_free(struct session *s, struct site *site)
{
	assert(!site->links);
	if (site->state != SITE_DRAINING)
		site_forget(s, site);
	for (unsigned k = 0; k < site->patch_count; k++)
		journal_remove(site->place->journal, site->journal[k]);
	heap_free_code(site->place->heap, site->base);
	if (site->gate)
		heap_free_code(site->place->heap, site->gate);
	free(site->offsets);
	free(site);
}

/* ---------------------------------------------------------------- links */

/* A store to a private arena that has to wait; false if there is no memory for it. */
static bool store_later(struct place *p, taddr_t displacement, uint32_t value)
{
	if (p->store_count == p->store_room) {
		size_t room = p->store_room ? p->store_room * 2 : 64;
		struct slot_store *stores = realloc(p->stores, room * sizeof(*stores));

		if (!stores)
			return false;
		p->stores = stores;
		p->store_room = room;
	}
	p->stores[p->store_count++] =
		(struct slot_store){.displacement = displacement, .value = value};
	return true;
}

void site_store_slot(struct place *p, taddr_t displacement, taddr_t target)
{
	uint32_t *where = heap_map(p->heap, displacement, sizeof(*where));
	uint32_t value;
	int status = arch_slot_value(displacement, target, &value);

	/* Both lie in one arena: it always reaches. */
	assert(status == ARCH_OK && where && !(displacement & 3));
	if (p->arena->mode == ARENA_PRIVATE && store_later(p, displacement, value))
		return;
	fault_point();
	__atomic_store_n(where, value, __ATOMIC_RELEASE);
}

static struct slot *slot_for(struct site *site, enum point_kind kind, unsigned insn)
{
	for (unsigned i = 0; i < site->slot_count; i++)
		if (site->slots[i].kind == kind && site->slots[i].insn == insn)
			return &site->slots[i];
	return NULL;
}

static int write_mini(const struct session *s, struct link *link, taddr_t counter,
		      struct dinst_error *e)
{
	struct site *site = link->site;
	struct heap *heap = site->place->heap;
	struct arch_counter spec = {0};
	struct arch_buf out = {.bytes = heap_map(heap, link->cell, ARCH_CELL_SIZE),
			       .size = ARCH_CELL_SIZE,
			       .pc = link->cell};

	place_counter_spec(s, site->place, counter, &spec);
	spec.live = link->slot->live;
	/* Only at a function's entry has the caller's call just overwritten what lies below. */
	spec.red_zone = link->slot->kind != POINT_ENTRY || link->slot->insn != 0;
	arch_emit_counter_cell(&out, &spec, link->slot->resume, &link->shape);
	if (out.status != ARCH_OK)
		return dinst_fail(e, DINST_FAILED, "cannot write a counter at %#llx (%d)",
				  (unsigned long long)link->cell, out.status);
	return 0;
}

int site_link(struct session *s, struct site *site, const struct point *p,
	      const struct snippet *snippet, struct instance *instance, struct dinst_error *e)
{
	bool possible = p->place == PLACE_BEFORE && snippet->kind == SNIPPET_COUNT;
	struct slot *slot = possible ? slot_for(site, p->kind, p->insn) : NULL;
	taddr_t counter = snippet->counter;
	struct link *link, *last;
	int status;

	if (!slot)
		return dinst_fail(e, DINST_REFUSED, "no slot for a point of the window at %#llx",
				  (unsigned long long)site->key.start);
	link = calloc(1, sizeof(*link));
	if (!link)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	link->site = site;
	link->slot = slot;
	link->instance = instance;
	link->part = p->part != 0;
	link->counter = counter;
	status = heap_alloc_cell(site->place->heap, &link->cell, e);
	if (status < 0)
		goto free_link;
	status = write_mini(s, link, counter, e);
	if (status < 0)
		goto free_cell;
	for (last = slot->first; last && last->next; last = last->next)
		;
	if (last) {
		last->next = link;
		site_store_slot(site->place, last->cell + last->shape.slot,
				link->cell + link->shape.entry);
	} else {
		slot->first = link;
		site_store_slot(site->place, slot->displacement, link->cell + link->shape.entry);
	}
	heap_ref_counter(site->place->heap, counter);
	site->links++;
	link->next_instance = instance->links;
	instance->links = link;
	instance->link_count++;
	return 0;

free_cell:
	heap_free_cell(site->place->heap, link->cell);
free_link:
	free(link);
	return status;
}

void site_unlink(struct link *link)
{
	struct slot *slot = link->slot;
	struct link **p = &slot->first, *previous = NULL;
	taddr_t successor = link->next ? link->next->cell + link->next->shape.entry : slot->resume;

	while (*p != link) {
		previous = *p;
		p = &previous->next;
	}
	site_store_slot(link->site->place,
			previous ? previous->cell + previous->shape.slot : slot->displacement,
			successor);
	*p = link->next;
	link->next = NULL;
	link->site->links--;
}

void link_free(struct link *link)
{
	heap_free_cell(link->site->place->heap, link->cell);
	heap_unref_counter(link->site->place->heap, link->counter);
	free(link);
}

/* ----------------------------------------------------- program counters */

bool site_copy_of(const struct site *site, taddr_t pc, taddr_t *to)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];
	size_t count = window_instructions(site->module->image, &site->window, insns);

	for (size_t i = 0; i < count; i++)
		if (insns[i].address + site->module->bias == pc) {
			*to = site->base + site->offsets[i].slots;
			return true;
		}
	return false;
}

static taddr_t original_of(const struct site *site, unsigned insn)
{
	struct arch_insn insns[WINDOW_INSNS_MAX];

	if (window_instructions(site->module->image, &site->window, insns) <= insn)
		return site->key.start;
	return insns[insn].address + site->module->bias;
}

/* The original of a pc in the base trampoline, where nothing has been half done. */
static bool home_in_base(const struct site *site, taddr_t pc, taddr_t *original, size_t *pushed)
{
	uint64_t offset = pc - site->base;

	for (unsigned i = 0; i < site->window.insn_count; i++) {
		if (offset < site->offsets[i].slots || offset > site->offsets[i].copy)
			continue;
		*original = original_of(site, i);
		*pushed = 0;
		return true;
	}
	return false;
}

static bool home_in_link(const struct link *link, taddr_t pc, taddr_t *original, size_t *pushed)
{
	const struct site *site = link->site;
	const uint8_t *cell = heap_map(site->place->heap, link->cell, ARCH_CELL_SIZE);

	*original = original_of(site, link->slot->insn);
	*pushed = arch_cell_pushed(cell, pc - link->cell);
	return true;
}

bool site_home(void *session, taddr_t pc, taddr_t *original, size_t *pushed)
{
	const struct session *s = session;

	if (!place_at(s, pc))
		return false;
	for (size_t b = 0; b < s->site_buckets; b++)
		for (const struct site *site = s->site_hash[b]; site; site = site->next_hash) {
			if (pc >= site->base && pc < site->base + site->base_size)
				return home_in_base(site, pc, original, pushed);
			for (unsigned i = 0; i < site->slot_count; i++)
				for (const struct link *l = site->slots[i].first; l; l = l->next)
					if (pc >= l->cell && pc < l->cell + ARCH_CELL_SIZE)
						return home_in_link(l, pc, original, pushed);
		}
	for (const struct queue_item *q = s->queue; q; q = q->next) {
		if (q->link && pc >= q->link->cell && pc < q->link->cell + ARCH_CELL_SIZE)
			return home_in_link(q->link, pc, original, pushed);
		if (q->site && pc >= q->site->base && pc < q->site->base + q->site->base_size)
			return home_in_base(q->site, pc, original, pushed);
	}
	return false;
}
