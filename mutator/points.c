/* SPDX-License-Identifier: MIT */
/*
 * points.c - plan_function(): from a function to its points and windows. Puts
 * the parts of planning together and owns none of the rules.
 */
#include "mutator/points.h"

#include "mutator/plan.h"

#include <stdlib.h>
#include <string.h>

/* Instructions around a slot that are looked at to prove registers dead. */
enum { LIVE_BEFORE = 32, LIVE_BEHIND = 64 };

const char *point_kind_name(enum point_kind kind)
{
	static const char *const names[] = {
		[POINT_ENTRY] = "entry",
		[POINT_EXIT] = "exit",
		[POINT_CALL] = "call",
		[POINT_AFTER] = "after",
		[POINT_BLOCK] = "block",
		[POINT_EDGE] = "edge",
		[POINT_LOOP_ENTRY] = "loop-entry",
		[POINT_LOOP_ROUND] = "loop-round",
		[POINT_LOOP_EXIT] = "loop-exit",
		[POINT_INSTRUCTION] = "instruction",
		[POINT_LOAD] = "load",
		[POINT_STORE] = "store",
	};

	return (size_t)kind < sizeof(names) / sizeof(*names) ? names[kind] : "unknown";
}

const char *tactic_name(enum tactic tactic)
{
	static const char *const names[] = {
		[TACTIC_NONE] = "none",
		[TACTIC_RETARGET] = "retarget",
		[TACTIC_CALL] = "call",
		[TACTIC_JUMP] = "jump",
		[TACTIC_SELF] = "self",
		[TACTIC_PREVIOUS] = "previous",
		[TACTIC_ACROSS] = "across",
		[TACTIC_PADDING] = "padding",
		[TACTIC_BOTH] = "previous+padding",
		[TACTIC_SHORT] = "short",
		[TACTIC_EVICTED] = "evicted",
		[TACTIC_EDGES] = "edges",
		[TACTIC_BYPASS] = "bypass",
		[TACTIC_MERGED] = "merged",
	};

	return (size_t)tactic < sizeof(names) / sizeof(*names) ? names[tactic] : "unknown";
}

static const struct {
	const char *name, *text;
} refusals[] = {
	[REFUSAL_NONE] = {"none", "not refused"},
	[REFUSAL_UNDECODED] = {"undecoded", "an instruction there is not known for sure"},
	[REFUSAL_UNRESOLVED] = {"unresolved",
				"the function has an indirect jump whose targets are not known"},
	[REFUSAL_BRANCH_TARGET] = {"branch-target",
				   "something jumps or returns into every window that would do"},
	[REFUSAL_NO_ROOM] = {"no-room", "too short, and no padding or hole in reach"},
	[REFUSAL_PAGE] = {"page", "the window would lie across two pages"},
	[REFUSAL_UNMOVABLE] = {"unmovable", "an instruction there must not be relocated"},
	[REFUSAL_RSEQ] = {"rseq", "it is part of a restartable or cancellable sequence"},
	[REFUSAL_STUB] = {"stub", "a linker stub, signal return or loader hook"},
	[REFUSAL_LOOP_ENTRY] = {"loop-entry", "the function loops back to its first instruction"},
	[REFUSAL_TAKEN] = {"taken", "its bytes are needed for another point"},
	[REFUSAL_IFUNC] = {"ifunc", "the name stands for a resolver, not for the code"},
	[REFUSAL_FOREIGN] = {"foreign",
			     "the bytes in memory are not the file's: another tool's patch"},
	[REFUSAL_UNMAPPED] = {"unmapped", "the module is no longer mapped"},
};

const char *refusal_name(enum refusal refusal)
{
	return (size_t)refusal < sizeof(refusals) / sizeof(*refusals) && refusals[refusal].name
		       ? refusals[refusal].name
		       : "unknown";
}

const char *refusal_text(enum refusal refusal)
{
	return (size_t)refusal < sizeof(refusals) / sizeof(*refusals) && refusals[refusal].text
		       ? refusals[refusal].text
		       : "unknown reason";
}

/* ------------------------------------------------------------ the result */

static enum tactic describe(const struct planning *plan, const struct draft *d,
			    const struct window *w, const struct point *p)
{
	switch (w->kind) {
	case ARCH_PATCH_RETARGET:
		return TACTIC_RETARGET;
	case ARCH_PATCH_CALL:
		return TACTIC_CALL;
	case ARCH_PATCH_SHORT_JUMP:
		return TACTIC_SHORT;
	default:
		break;
	}
	if (p->insn == 0) {
		if (w->padding)
			return TACTIC_PADDING;
		return p->kind == POINT_ENTRY ? TACTIC_JUMP : TACTIC_SELF;
	}
	if (w->padding)
		return TACTIC_BOTH;
	for (unsigned i = 0; i < p->insn; i++)
		if (plan->flow.insns.items[d->first + i].flow == ARCH_FLOW_BRANCH)
			return TACTIC_ACROSS;
	return TACTIC_PREVIOUS;
}

/*
 * Liveness is proved from the instructions near the point only: what lies
 * further away is taken to need everything, which is safe, and quick in
 * functions of ten thousand instructions.
 */
static arch_regset live_at(const struct flow *f, size_t at)
{
	const struct arch_insn *insns = f->insns.items;
	size_t lo = at, hi = at + 1;

	while (lo > 0 && at - lo < LIVE_BEFORE &&
	       insns[lo - 1].address + insns[lo - 1].length == insns[lo].address)
		lo--;
	while (hi < f->insns.count && hi - at < LIVE_BEHIND &&
	       insns[hi - 1].address + insns[hi - 1].length == insns[hi].address)
		hi++;
	return arch_live_before(insns + lo, hi - lo, at - lo);
}

static void fill_window(const struct planning *p, const struct draft *d, struct window *w)
{
	w->start = p->flow.insns.items[d->first].address;
	w->length = (uint8_t)d->length;
	w->padding = (uint8_t)d->padding;
	w->insn_count = (uint8_t)d->count;
	w->kind = d->kind;
	w->hole = d->hole;
	w->hole_length = d->hole ? (uint8_t)arch_jump_size : 0;
}

size_t window_instructions(const struct image *img, const struct window *w, struct arch_insn *insns)
{
	size_t size = 0, at = 0;
	const uint8_t *bytes = image_code(img, w->start, &size);

	for (size_t i = 0; bytes && i < w->insn_count; i++) {
		if (arch_decode(bytes + at, size - at, w->start + at, &insns[i]) != ARCH_OK)
			return 0;
		at += insns[i].length;
	}
	return bytes ? w->insn_count : 0;
}

static bool is_in_use(const struct draft *d)
{
	return d->count && d->merged_into < 0;
}

/*
 * The windows in use, by start. place_of[i] receives what has become of draft i.
 * The owners of the instructions are the order by address.
 */
static void fill_windows(const struct planning *p, struct function_plan *plan, int32_t *place_of)
{
	int32_t previous = 0;

	for (size_t i = 0; i < p->flow.insns.count; i++) {
		int32_t owner = p->windows.owner[i];

		if (!owner || owner == previous)
			continue;
		previous = owner;
		place_of[owner - 1] = (int32_t)plan->window_count;
		fill_window(p, &p->windows.items[owner - 1], &plan->windows[plan->window_count]);
		plan->window_count++;
	}
}

static void fill_points(const struct planning *p, struct function_plan *plan,
			const int32_t *place_of, bool *served)
{
	for (size_t i = 0; i < p->count; i++) {
		const struct wish *wish = &p->wishes[i];
		struct point *point = &plan->points[plan->point_count++];
		int32_t at = windows_final(&p->windows, wish->window);
		const struct window *w;

		*point = wish->point;
		point->window = -1;
		point->live = arch_all_live;
		if (at < 0)
			continue;
		point->window = place_of[at];
		point->refusal = REFUSAL_NONE;
		point->insn = (uint8_t)((size_t)wish->insn - p->windows.items[at].first);
		w = &plan->windows[point->window];
		point->live = live_at(&p->flow, (size_t)wish->insn);
		point->tactic = served[point->window]
					? TACTIC_MERGED
					: describe(p, &p->windows.items[at], w, point);
		served[point->window] = true;
	}
}

static int fill_plan(const struct planning *p, struct function_plan *plan, struct dinst_error *e)
{
	size_t windows = 0;
	int32_t *place_of = calloc(p->windows.count + 1, sizeof(*place_of));
	bool *served = calloc(p->windows.count + 1, sizeof(*served));
	int r = 0;

	for (size_t i = 0; i < p->windows.count; i++)
		windows += is_in_use(&p->windows.items[i]);
	plan->points = calloc(p->count + 1, sizeof(*plan->points));
	plan->windows = calloc(windows + 1, sizeof(*plan->windows));
	if (place_of && served && plan->points && plan->windows) {
		fill_windows(p, plan, place_of);
		fill_points(p, plan, place_of, served);
	} else {
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu points", p->count);
	}
	free(served);
	free(place_of);
	return r;
}

/* --------------------------------------------------------------- planning */

static int plan_points(struct planning *p, const struct image_function *fn,
		       struct function_plan *plan, struct dinst_error *e)
{
	int r = windows_init(&p->windows, &p->flow, e);

	if (r == 0)
		r = plan_collect(p, fn, e);
	if (r < 0)
		return r;
	if (fn->flags & FUNCTION_STUB)
		plan_refuse(p, REFUSAL_STUB);
	else if (fn->flags & FUNCTION_IFUNC)
		plan_refuse(p, REFUSAL_IFUNC);
	else
		r = plan_place(p, e);
	return r < 0 ? r : fill_plan(p, plan, e);
}

static void free_memory(struct function_plan *plan)
{
	if (!plan)
		return;
	free(plan->points);
	free(plan->windows);
	free(plan);
}

int plan_function(struct image *img, uint32_t function, struct function_plan **out,
		  struct dinst_error *e)
{
	const struct image_function *functions;
	struct planning p = {0};
	struct function_plan *plan;
	struct freemap *map;
	int r;

	if (function >= image_functions(img, &functions))
		return dinst_fail(e, DINST_FAILED, "no function number %u", function);
	r = freemap_of(img, &map, e);
	if (r < 0)
		return r;
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a plan");
	plan->function = function;
	/* A fragment's points are in the plan of its function. */
	if (!(functions[function].flags & FUNCTION_COLD)) {
		r = flow_build(&p.flow, img, map, function, e);
		if (r == 0)
			r = plan_points(&p, &functions[function], plan, e);
	}
	windows_release(&p.windows, r == 0);
	flow_release(&p.flow);
	free(p.wishes);
	if (r < 0)
		free_memory(plan);
	else
		*out = plan;
	return r;
}

void plan_free(struct image *img, struct function_plan *plan)
{
	struct freemap *map = NULL;

	if (plan && freemap_of(img, &map, NULL) == 0)
		for (size_t i = 0; i < plan->window_count; i++)
			if (plan->windows[i].hole)
				freemap_give(map, plan->windows[i].hole);
	free_memory(plan);
}
