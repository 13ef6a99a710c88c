/* SPDX-License-Identifier: MIT */
/*
 * flow_hits.c - tells branches from elsewhere from byte sequences that only
 * look like one (hits.h).
 *
 * A hit is chance if its first byte is inside an instruction that does something
 * else, if nothing can lead control to that byte, and if all that is certain:
 * the function around it is decoded from end to end, no reading of it overlaps
 * another one there, and all its indirect jumps are understood. While that is
 * found out, everything that comes into that function from elsewhere counts as
 * real, so that no answer depends on another one. What cannot be proved to be
 * chance is real.
 *
 * Where a hit computes an address the function may be entered elsewhere, too, if it is not known
 * where whoever computes it jumps to.
 */
#include "mutator/flow_private.h"
#include "mutator/hits.h"

#include "arch/scan.h"

/* What the instruction refers to, as the scans would report it. */
static bool leads_to(const struct flow *f, const struct arch_insn *insn, vaddr_t target)
{
	return insn->target == target ||
	       (insn->flags & ARCH_INSN_ADDRESS_OF && insn->data_ref == target) ||
	       (image_is_fixed(f->img) && arch_ends_in(insn, target));
}

/* True if the linear decode, which is complete, says something else than the branch that the hit would be. */
static bool is_doubtful(const struct flow *f, const struct sweep *s, const struct image_hit *hit)
{
	const size_t at = freemap_first(s, hit->from);

	return at < s->count && s->insns[at].address < hit->from &&
	       !leads_to(f, &s->insns[at], hit->target);
}

/* Settles what comes from `own`, and is open, as real: with a sweep, which may be incomplete, but for what is doubtful. */
static void settle_real(struct flow *f, struct image_range own, const struct sweep *s)
{
	const uint32_t *indices;
	size_t n = image_hits_from(f->img, own.lo, own.hi, &indices);

	for (size_t k = 0; k < n; k++)
		if (image_hit_state(f->img, indices[k]) == HIT_UNKNOWN &&
		    (!s || s->end < s->hi || !is_doubtful(f, s, image_hit(f->img, indices[k]))))
			image_hit_settle(f->img, indices[k], HIT_REAL);
}

static enum hit_state judge(const struct flow *g, const struct image_hit *hit)
{
	long insn = flow_covering(g, hit->from);

	if (insn < 0 || flow_insn_at(g, hit->from) >= 0)
		return HIT_REAL;
	if (flow_marks(g, hit->from) & (MARK_TARGET | MARK_CONFLICT | MARK_REFERRED))
		return HIT_REAL;
	return leads_to(g, &g->insns.items[insn], hit->target) ? HIT_REAL : HIT_CHANCE;
}

static uint32_t whole_function(const struct flow *f, uint32_t index)
{
	const struct image_function *functions;

	image_functions(f->img, &functions);
	return functions[index].flags & FUNCTION_COLD ? functions[index].parent : index;
}

/* The flow of function `index`, to find out about it; whether all its jumps are understood is remembered. */
static int build_source(struct flow *f, uint32_t index, struct flow *g, struct dinst_error *e)
{
	uint8_t *known = freemap_jumps(f->map, index);
	int r;

	if (!known)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for jumps of functions");
	r = flow_build_probe(g, f->img, f->map, index, e);
	if (r == 0)
		*known = g->unresolved ? JUMPS_ANYWHERE : JUMPS_KNOWN;
	return r;
}

/* Settles all hits that come from function `index`. */
static int settle_from(struct flow *f, uint32_t index, struct dinst_error *e)
{
	struct flow g;
	bool sure;
	int r = build_source(f, whole_function(f, index), &g, e);

	if (r < 0)
		return r;
	sure = !g.unresolved && !g.single_only && !g.led_into && g.linear;
	for (size_t i = 0; i < g.piece_count; i++) {
		const uint32_t *indices;
		size_t n = image_hits_from(f->img, g.pieces[i].lo, g.pieces[i].hi, &indices);

		for (size_t k = 0; k < n; k++) {
			const struct image_hit *hit = image_hit(f->img, indices[k]);

			if (image_hit_state(f->img, indices[k]) == HIT_UNKNOWN)
				image_hit_settle(f->img, indices[k],
						 sure ? judge(&g, hit) : HIT_REAL);
		}
	}
	flow_release(&g);
	return 0;
}

/*
 * With a hit, all that come from the same function are settled as far as that is decoded for it: no
 * function is decoded again for each.
 */
static int settle(struct flow *f, size_t index, struct dinst_error *e)
{
	const vaddr_t from = image_hit(f->img, index)->from;
	const long source = freemap_before(f->map, from);
	struct image_range own = {from, from};
	const struct sweep *s;
	int r;

	if (source >= 0)
		own = freemap_primary(f->map, (uint32_t)source);
	if (from >= own.hi || freemap_sweep(f->map, (uint32_t)source, &s, NULL) < 0) {
		image_hit_settle(f->img, index, HIT_REAL);
		return 0;
	}
	settle_real(f, own, s);
	if (image_hit_state(f->img, index) != HIT_UNKNOWN)
		return 0;
	r = settle_from(f, (uint32_t)source, e);
	/* What has not been settled with its function is not in its pieces. */
	if (r == 0)
		settle_real(f, own, NULL);
	return r;
}

int flow_is_led_to(struct flow *f, vaddr_t v, bool *real, struct dinst_error *e)
{
	size_t first, n = image_hits_into(f->img, v, v + 1, &first);
	int r = 0;

	*real = f->probe;
	for (size_t k = first; k < first + n && r == 0 && !*real; k++) {
		if (image_hit_state(f->img, k) == HIT_UNKNOWN)
			r = settle(f, k, e);
		*real = image_hit_state(f->img, k) != HIT_CHANCE;
	}
	return r;
}

static bool read_hit(const struct flow *f, const struct image_hit *hit, struct arch_insn *insn)
{
	size_t size = 0;
	const uint8_t *bytes = image_code(f->img, hit->from, &size);

	return bytes && arch_decode(bytes, size, hit->from, insn) == ARCH_OK;
}

bool flow_hit_branches(const struct flow *f, const struct image_hit *hit)
{
	struct arch_insn insn;

	return read_hit(f, hit, &insn) && insn.target == hit->target;
}

/* What the function itself does is found by decoding it; but not what it makes of an address (arch_scan_sums()). */
static bool is_decoded(const struct flow *f, const struct image_hit *hit)
{
	struct arch_insn insn;

	return flow_contains(f, hit->from) &&
	       (!read_hit(f, hit, &insn) || leads_to(f, &insn, hit->target));
}

/*
 * A constant of position-dependent code, or what is made of an address and constants: a number may look like
 * an address, and who looks at bytes of code has theirs. See is_chance().
 */
static bool is_constant(const struct flow *f, const struct image_hit *hit)
{
	struct arch_insn insn;

	return read_hit(f, hit, &insn) && insn.target != hit->target &&
	       !(insn.flags & ARCH_INSN_ADDRESS_OF && insn.data_ref == hit->target);
}

/* True if the linear decode has v in the middle of an instruction. */
static bool is_inside(const struct flow *f, vaddr_t v)
{
	long index = freemap_before(f->map, v);
	const struct sweep *s;
	size_t at;

	if (index < 0 || freemap_sweep(f->map, (uint32_t)index, &s, NULL) < 0)
		return false;
	at = freemap_first(s, v);
	return at < s->count && s->insns[at].address < v;
}

/*
 * Whether the hit is worth to be settled: that costs another flow. Constants are many,
 * and most of those that are chance are found to be by where they lead to: is_chance().
 */
static bool is_open(const struct flow *f, size_t index)
{
	const struct image_hit *hit = image_hit(f->img, index);

	return !f->probe && image_hit_state(f->img, index) == HIT_UNKNOWN &&
	       !(is_constant(f, hit) && is_inside(f, hit->target));
}

/* Of the function that is there and has that byte for its own; -1: none does. */
static long source_of(const struct flow *f, vaddr_t from)
{
	const long source = freemap_before(f->map, from);

	return source >= 0 && from < freemap_primary(f->map, (uint32_t)source).hi
		       ? (long)whole_function(f, (uint32_t)source)
		       : -1;
}

/* Whether what has the byte `from` jumps nobody knows where. Asked by no probe: no answer depends on another one. */
static int jumps_anywhere(struct flow *f, vaddr_t from, bool *anywhere, struct dinst_error *e)
{
	const long source = source_of(f, from);
	const uint8_t *known = source < 0 ? NULL : freemap_jumps(f->map, (uint32_t)source);
	struct flow g;
	int r;

	*anywhere = source < 0 || (known && *known == JUMPS_ANYWHERE);
	if (source < 0 || (known && *known != JUMPS_UNKNOWN))
		return 0;
	r = build_source(f, (uint32_t)source, &g, e);
	if (r < 0)
		return r;
	*anywhere = g.unresolved;
	flow_release(&g);
	return 0;
}

/* A number of position-dependent code: hardly one of those that look like an address here is the base of a jump. */
static bool is_number(const struct flow *f, const struct image_hit *hit)
{
	struct arch_insn insn;

	return image_is_fixed(f->img) && read_hit(f, hit, &insn) && is_constant(f, hit) &&
	       arch_ends_in(&insn, hit->target);
}

/*
 * Who computes an address in here (of an unrolled loop, say) may add something that nobody knows, and jump to
 * any other byte. What looks like one and leads into an instruction is chance: is_chance().
 */
static int led_into(struct flow *f, const struct image_hit *hit, struct dinst_error *e)
{
	bool anywhere = false;
	int r = 0;

	if ((f->led_into && (f->probe || f->unresolved)) || flow_hit_branches(f, hit) ||
	    flow_contains(f, hit->from) || is_number(f, hit) ||
	    (is_constant(f, hit) && is_inside(f, hit->target)))
		return 0;
	f->led_into = true;
	if (!f->probe)
		r = jumps_anywhere(f, hit->from, &anywhere, e);
	f->unresolved |= anywhere;
	return r;
}

int flow_hits(struct flow *f, struct dinst_error *e)
{
	for (size_t i = 0; i < f->piece_count; i++) {
		size_t first, n = image_hits_into(f->img, f->pieces[i].lo, f->pieces[i].hi, &first);

		for (size_t k = first; k < first + n; k++) {
			const struct image_hit *hit = image_hit(f->img, k);
			int r = 0;

			if (is_decoded(f, hit))
				continue;
			if (is_open(f, k))
				r = settle(f, k, e);
			if (r < 0)
				return r;
			/* While others are settled what is known by now must not count. */
			if (!f->probe && image_hit_state(f->img, k) == HIT_CHANCE)
				continue;
			flow_mark(f, hit->target,
				  MARK_TARGET | MARK_REFERRED |
					  (is_constant(f, hit) ? MARK_CONSTANT : MARK_FOREIGN));
			if (flow_hit_branches(f, hit))
				flow_mark(f, hit->target, MARK_SURE);
			r = led_into(f, hit, e);
			if (r < 0)
				return r;
		}
	}
	return 0;
}
