/* SPDX-License-Identifier: MIT */
/*
 * freemap.c - what planning remembers about one image: see freemap.h. It never
 * decides on windows; it only says whose bytes are whose.
 */
#include "mutator/freemap.h"

#include "mutator/freemap_odd.h"
#include "mutator/freemap_tables.h"

#include <stdlib.h>
#include <string.h>

enum {
	SWEEPS = 32,
	ZEROES_MAX = 64, /* the largest alignment of a function that anybody uses */
};

struct freemap {
	struct image *img;
	const struct image_function *functions;
	size_t count;
	uint32_t *fragments; /* cold fragments, by parent, then by address */
	size_t fragment_count;
	uint32_t swept[SWEEPS]; /* the function of each sweep: close together, to be searched */
	struct sweep sweeps[SWEEPS];
	uint64_t clock;
	void *extra;
	void (*release)(void *extra);
	struct vaddr_list targets;   /* of all jump tables, sorted */
	struct vaddr_list bases;     /* where tables may begin, sorted */
	uint8_t *verdicts;	     /* enum verdict of each function, made on first use */
	uint8_t *jumps;		     /* enum jumps, as well */
	struct vaddr_list constants; /* in the code, sorted, made on first use */
	bool has_constants;
};

static void freemap_free(void *extra)
{
	struct freemap *map = extra;

	if (!map)
		return;
	for (unsigned i = 0; i < SWEEPS; i++)
		free(map->sweeps[i].insns);
	free(map->fragments);
	if (map->extra)
		map->release(map->extra);
	free(map->targets.items);
	free(map->bases.items);
	free(map->constants.items);
	free(map->verdicts);
	free(map->jumps);
	free(map);
}

static int by_parent(const void *a, const void *b, void *arg)
{
	const struct image_function *functions = arg;
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	if (functions[x].parent != functions[y].parent)
		return functions[x].parent < functions[y].parent ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* A fragment without a known parent belongs to nobody: nothing is planned in it. */
static bool is_fragment(const struct freemap *map, uint32_t i)
{
	return map->functions[i].flags & FUNCTION_COLD && map->functions[i].parent != i &&
	       map->functions[i].parent < map->count;
}

static int find_fragments(struct freemap *map, struct dinst_error *e)
{
	size_t n = 0;

	for (uint32_t i = 0; i < map->count; i++)
		n += is_fragment(map, i);
	map->fragments = calloc(n ? n : 1, sizeof(*map->fragments));
	if (!map->fragments)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu cold fragments", n);
	for (uint32_t i = 0; i < map->count; i++)
		if (is_fragment(map, i))
			map->fragments[map->fragment_count++] = i;
	qsort_r(map->fragments, n, sizeof(*map->fragments), by_parent,
		(void *)(uintptr_t)map->functions);
	return 0;
}

int freemap_of(struct image *img, struct freemap **out, struct dinst_error *e)
{
	struct freemap *map = image_extra(img);
	int r;

	if (map) {
		*out = map;
		return 0;
	}
	r = image_references(img, e);
	if (r < 0)
		return r;
	map = calloc(1, sizeof(*map));
	if (!map)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for planning");
	map->img = img;
	map->count = image_functions(img, &map->functions);
	r = find_fragments(map, e);
	if (r == 0)
		r = image_table_targets(img, &map->targets, &map->bases, e);
	if (r < 0) {
		freemap_free(map);
		return r;
	}
	for (unsigned i = 0; i < SWEEPS; i++)
		map->swept[i] = UINT32_MAX;
	image_set_extra(img, map, freemap_free);
	*out = map;
	return 0;
}

size_t freemap_fragments(const struct freemap *map, uint32_t index, const uint32_t **fragments)
{
	size_t lo = 0, hi = map->fragment_count, end;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (map->functions[map->fragments[mid]].parent < index)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (end = lo; end < map->fragment_count; end++)
		if (map->functions[map->fragments[end]].parent != index)
			break;
	*fragments = map->fragments + lo;
	return end - lo;
}

/* Index of the first item that is v or more. */
static size_t list_from(const struct vaddr_list *list, vaddr_t v)
{
	size_t lo = 0, hi = list->count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (list->items[mid] < v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

size_t freemap_table_targets(const struct freemap *map, vaddr_t lo, vaddr_t hi,
			     const vaddr_t **targets)
{
	size_t first = list_from(&map->targets, lo);

	*targets = map->targets.items ? map->targets.items + first : NULL;
	return list_from(&map->targets, hi) - first;
}

bool freemap_is_base(const struct freemap *map, vaddr_t v)
{
	size_t i = list_from(&map->bases, v);

	return i < map->bases.count && map->bases.items[i] == v;
}

bool freemap_is_used(struct freemap *map, vaddr_t lo, vaddr_t hi)
{
	size_t i;
	unsigned refs;

	if (!map->has_constants && image_constants(map->img, &map->constants) < 0) {
		free(map->constants.items);
		map->constants = (struct vaddr_list){0};
		return true;
	}
	map->has_constants = true;
	i = list_from(&map->constants, lo);
	if (i < map->constants.count && map->constants.items[i] < hi)
		return true;
	/* A name alone is not: the end of a function may have one. */
	for (vaddr_t v = lo; image_references_next(map->img, &v, hi, &refs); v++)
		if (refs & ~(unsigned)REFERENCE_SYMBOL)
			return true;
	return false;
}

struct image_range freemap_primary(const struct freemap *map, uint32_t index)
{
	const struct image_function *fn = &map->functions[index];
	struct image_range r = {fn->address, fn->address};
	size_t size = 0;

	if (!image_code(map->img, fn->address, &size))
		return r;
	r.hi = r.lo + (fn->size < size ? fn->size : size);
	if (index + 1 < map->count && r.hi > map->functions[index + 1].address)
		r.hi = map->functions[index + 1].address;
	return r;
}

long freemap_before(const struct freemap *map, vaddr_t v)
{
	size_t lo = 0, hi = map->count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (map->functions[mid].address <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return (long)lo - 1;
}

long freemap_starting_at(const struct freemap *map, vaddr_t v)
{
	long i = freemap_before(map, v);

	return i >= 0 && map->functions[i].address == v ? i : -1;
}

struct image *freemap_image(const struct freemap *map)
{
	return map->img;
}

uint8_t *freemap_verdict(struct freemap *map, uint32_t index)
{
	if (!map->verdicts)
		map->verdicts = calloc(map->count, sizeof(*map->verdicts));
	return map->verdicts ? &map->verdicts[index] : NULL;
}

uint8_t *freemap_jumps(struct freemap *map, uint32_t index)
{
	if (!map->jumps)
		map->jumps = calloc(map->count, sizeof(*map->jumps));
	return map->jumps ? &map->jumps[index] : NULL;
}

static int sweep_grow(struct sweep *s, struct dinst_error *e)
{
	size_t room = s->room ? s->room * 2 : 256;
	void *more = reallocarray(s->insns, room, sizeof(*s->insns));

	if (!more)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu instructions", room);
	s->insns = more;
	s->room = room;
	return 0;
}

static int sweep_fill(struct freemap *map, struct sweep *s, uint32_t index, struct dinst_error *e)
{
	struct image_range r = freemap_primary(map, index);
	size_t size = 0;
	const uint8_t *bytes = image_code(map->img, r.lo, &size);

	map->swept[s - map->sweeps] = UINT32_MAX;
	s->count = 0;
	s->lo = s->end = r.lo;
	s->hi = r.hi;
	while (bytes && s->end < s->hi) {
		int status = s->count == s->room ? sweep_grow(s, e) : 0;

		if (status < 0)
			return status;
		/* Straight to its place: all code goes through here. */
		if (arch_decode(bytes + (s->end - s->lo), s->hi - s->end, s->end,
				&s->insns[s->count]) != ARCH_OK)
			break;
		s->end += s->insns[s->count++].length;
	}
	map->swept[s - map->sweeps] = index;
	return 0;
}

size_t freemap_first(const struct sweep *s, vaddr_t v)
{
	size_t lo = 0, hi = s->count;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->insns[mid].address + s->insns[mid].length <= v)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

int freemap_sweep(struct freemap *map, uint32_t index, const struct sweep **out,
		  struct dinst_error *e)
{
	struct sweep *oldest = &map->sweeps[0];
	int r;

	for (unsigned i = 0; i < SWEEPS; i++) {
		if (map->swept[i] != index)
			continue;
		map->sweeps[i].used = ++map->clock;
		*out = &map->sweeps[i];
		return 0;
	}
	for (unsigned i = 1; i < SWEEPS; i++)
		if (map->sweeps[i].used < oldest->used)
			oldest = &map->sweeps[i];
	r = sweep_fill(map, oldest, index, e);
	if (r < 0)
		return r;
	oldest->used = ++map->clock;
	*out = oldest;
	return 0;
}

/*
 * True if [lo, hi) is so short a run of zeroes right before a function that it
 * can only be there to align it, and nothing refers to it. Other zeroes may be
 * a constant.
 */
static bool zero_padding(const struct freemap *map, const uint8_t *bytes, vaddr_t lo, vaddr_t hi)
{
	if (freemap_starting_at(map, hi) < 0 || hi - lo >= ZEROES_MAX)
		return false;
	for (vaddr_t v = lo; v < hi; v++)
		if (bytes[v - lo] != 0 || image_references_at(map->img, v))
			return false;
	return true;
}

/* True if [lo, hi) is nothing but padding. */
static bool all_padding(const struct freemap *map, vaddr_t lo, vaddr_t hi)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(map->img, lo, &size);
	vaddr_t v = lo;

	if (!bytes || size < hi - lo)
		return false;
	while (v < hi) {
		struct arch_insn insn;

		if (bytes[v - lo] == 0)
			return zero_padding(map, bytes + (v - lo), v, hi);
		if (arch_decode(bytes + (v - lo), hi - v, v, &insn) != ARCH_OK ||
		    !(insn.flags & ARCH_INSN_PADDING))
			return false;
		v += insn.length;
	}
	return true;
}

/* Asked of every branch to a place in `into`; true: that is enough. */
struct branch_search {
	struct image_range into;
	bool (*found)(void *arg, vaddr_t target, bool sure);
	void *arg;
};

static bool answers(const struct branch_search *b, const struct arch_insn *insn)
{
	return (insn->flow == ARCH_FLOW_JUMP || insn->flow == ARCH_FLOW_BRANCH) &&
	       insn->target >= b->into.lo && insn->target < b->into.hi &&
	       b->found(b->arg, insn->target, true);
}

/* What may be read in more than one way: an instruction at any offset of [from, to). */
static bool any_offset_answers(const struct freemap *map, vaddr_t from, vaddr_t to,
			       const struct branch_search *b)
{
	size_t left = 0;
	const uint8_t *bytes = NULL;

	for (vaddr_t at = from; at < to; at++) {
		struct arch_insn insn;

		if (!left)
			bytes = image_code(map->img, at, &left);
		if (!bytes || !left)
			continue;
		if (arch_decode(bytes, left, at, &insn) == ARCH_OK && answers(b, &insn))
			return true;
		bytes++;
		left--;
	}
	return false;
}

/* What has not been decoded of a sweep may branch anywhere. */
static bool unknown_answers(const struct freemap *map, const struct sweep *s, vaddr_t lo,
			    vaddr_t hi, const struct branch_search *b)
{
	const vaddr_t from = s->end > lo ? s->end : lo, to = s->hi < hi ? s->hi : hi;

	return from < to && any_offset_answers(map, from, to, b);
}

static bool is_into(const void *arg, vaddr_t v)
{
	const struct image_range *into = arg;

	return v >= into->lo && v < into->hi;
}

/* What is read in another way. */
static bool odd_answers(const struct freemap *map, uint32_t index, const struct sweep *s,
			struct image_range part, const struct branch_search *b)
{
	struct odd_reading odd;

	freemap_read_odd(map, index, s, part, &(struct odd_wish){is_into, &b->into}, &odd);
	for (size_t i = 0; i < odd.branch_count; i++)
		if (b->found(b->arg, odd.branches[i].to, !odd.branches[i].root))
			return true;
	return odd.too_many && any_offset_answers(map, part.lo > s->lo ? part.lo : s->lo,
						  part.hi < s->hi ? part.hi : s->hi, b);
}

int freemap_branches_into(struct freemap *map, struct image_range into,
			  bool (*found)(void *arg, vaddr_t target, bool sure), void *arg,
			  struct dinst_error *e)
{
	const struct branch_search b = {into, found, arg};
	vaddr_t reach = (vaddr_t)arch_short_jump_reach + ARCH_INSN_MAX;
	vaddr_t lo = into.lo > reach ? into.lo - reach : 0, hi = into.hi - 1 + reach;
	long k = freemap_before(map, lo);

	for (k = k < 0 ? 0 : k; (size_t)k < map->count && map->functions[k].address < hi; k++) {
		const struct sweep *s;
		int r = freemap_sweep(map, (uint32_t)k, &s, e);

		if (r < 0)
			return r;
		for (size_t i = freemap_first(s, lo); i < s->count && s->insns[i].address < hi; i++)
			if (answers(&b, &s->insns[i]))
				return 1;
		if (unknown_answers(map, s, lo, hi, &b) ||
		    odd_answers(map, (uint32_t)k, s, (struct image_range){lo, hi}, &b))
			return 1;
	}
	return 0;
}

static bool any(void *arg, vaddr_t target, bool sure)
{
	(void)arg;
	(void)target;
	(void)sure;
	return true;
}

/* The same of code that is no function's, which nobody has swept: each offset between them is tried. */
static bool nameless_branch_into(const struct freemap *map, vaddr_t lo, vaddr_t hi)
{
	const struct branch_search b = {{lo, hi}, any, NULL};
	vaddr_t reach = (vaddr_t)arch_short_jump_reach + ARCH_INSN_MAX;
	vaddr_t from = lo > reach ? lo - reach : 0, to = hi - 1 + reach;

	for (long k = freemap_before(map, from); from < to; k++) {
		vaddr_t end = k < 0 ? 0 : freemap_primary(map, (uint32_t)k).hi;
		vaddr_t next = (size_t)(k + 1) < map->count ? map->functions[k + 1].address : to;

		from = end > from ? end : from;
		next = next < to ? next : to;
		if (from < next && any_offset_answers(map, from, next, &b))
			return true;
		from = next > from ? next : from;
	}
	return false;
}

bool freemap_is_come_to(struct freemap *map, vaddr_t lo, vaddr_t hi)
{
	const vaddr_t *targets;

	return freemap_is_used(map, lo, hi) || freemap_table_targets(map, lo, hi, &targets) ||
	       nameless_branch_into(map, lo, hi) ||
	       freemap_branches_into(map, (struct image_range){lo, hi}, any, NULL, NULL) != 0;
}

/* What freemap_runs_off() asks, where it is read in another way. */
static bool odd_runs_off(const struct freemap *map, uint32_t index, const struct sweep *s)
{
	const struct image_range end = {s->hi, s->hi + 1};
	struct odd_reading odd;

	freemap_read_odd(map, index, s, (struct image_range){s->hi, s->hi},
			 &(struct odd_wish){is_into, &end}, &odd);
	for (size_t i = 0; i < odd.branch_count; i++)
		if (odd.branches[i].over)
			return true;
	return odd.too_many;
}

/*
 * True if control may run off the end of function `index` into what is behind
 * it: hand-written code falls through nops into the next function (memcpy_chk
 * of glibc), or somebody else branches to them.
 */
bool freemap_runs_off(struct freemap *map, uint32_t index)
{
	const struct sweep *s;
	struct arch_insn insn;
	vaddr_t end, hi;
	size_t last;

	if (freemap_sweep(map, index, &s, NULL) < 0 || s->end < s->hi ||
	    odd_runs_off(map, index, s))
		return true;
	for (last = s->count; last > 0; last--)
		if (!(s->insns[last - 1].flags & ARCH_INSN_PADDING))
			break;
	if (!last)
		return true;
	insn = s->insns[last - 1]; /* the sweep may go */
	end = insn.address + insn.length;
	hi = s->hi;
	switch (insn.flow) {
	case ARCH_FLOW_JUMP:
	case ARCH_FLOW_JUMP_INDIRECT:
	case ARCH_FLOW_RETURN:
	case ARCH_FLOW_STOP:
		break;
	default:
		if (!freemap_never_returns(map, &insn))
			return true;
	}
	return end < hi && freemap_is_come_to(map, end, hi);
}

bool freemap_gap(struct freemap *map, vaddr_t v, struct image_range *gap)
{
	const struct image_range *text;
	size_t texts = image_text(map->img, &text);
	long before = freemap_before(map, v);

	for (size_t i = 0; i < texts; i++) {
		if (v < text[i].lo || v >= text[i].hi)
			continue;
		*gap = text[i];
		if (before >= 0) {
			struct image_range r = freemap_primary(map, (uint32_t)before);

			if (v < r.hi)
				return false;
			if (r.hi > gap->lo)
				gap->lo = r.hi;
		}
		if ((size_t)(before + 1) < map->count &&
		    map->functions[before + 1].address <= gap->hi)
			gap->hi = map->functions[before + 1].address;
		/* The far end of a function in which others lie is code, not space. */
		if (image_function_at(map->img, gap->lo) >= 0)
			return false;
		if (before >= 0 && freemap_runs_off(map, (uint32_t)before))
			return false;
		return all_padding(map, gap->lo, gap->hi);
	}
	return false;
}

void *freemap_extra(const struct freemap *map)
{
	return map->extra;
}

void freemap_set_extra(struct freemap *map, void *extra, void (*release)(void *extra))
{
	map->extra = extra;
	map->release = release;
}
