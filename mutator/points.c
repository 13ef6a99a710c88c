/* SPDX-License-Identifier: MIT */
/*
 * points.c - plan_function(): from a function to its points and windows. Puts
 * the parts of planning together and owns none of the rules.
 */
#include "mutator/points.h"

#include "mutator/cache_plans.h"
#include "mutator/plan.h"
#include "mutator/settle.h"

#include <stdlib.h>
#include <string.h>

/* Instructions around a slot that are looked at to prove registers dead. */
enum { LIVE_BEFORE = 32, LIVE_BEHIND = 64, LIVE_ELSEWHERE = 24 };

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
	[REFUSAL_UNRESOLVED] =
		{"unresolved",
		 "an indirect jump whose targets are not known, or code that is not in the file, may lead "
		 "anywhere in the function"},
	[REFUSAL_BRANCH_TARGET] = {"branch-target",
				   "something jumps or returns into every window that would do"},
	[REFUSAL_NO_ROOM] = {"no-room", "too short, and no padding or hole in reach"},
	[REFUSAL_PAGE] = {"page", "the window would lie across two pages"},
	[REFUSAL_UNMOVABLE] = {"unmovable", "an instruction there must not be relocated"},
	[REFUSAL_RSEQ] =
		{"rseq",
		 "it is part of a restartable or cancellable sequence, stands between a load-exclusive "
		 "and its store or behind a prefix, or is of what the program writes itself (XRay) or "
		 "lists in a section of its own (static keys, probes)"},
	[REFUSAL_STUB] = {"stub", "a linker stub, signal return or loader hook"},
	[REFUSAL_LOOP_ENTRY] = {"loop-entry", "the function loops back to its first instruction"},
	[REFUSAL_TAKEN] = {"taken", "its bytes are needed for another point"},
	[REFUSAL_IFUNC] =
		{"ifunc",
		 "the name stands for a resolver; give the name of what it chooses (funcs lists it)"},
	[REFUSAL_FOREIGN] =
		{"foreign",
		 "the bytes in memory are not the file's: another tool's patch, or the module was unloaded meanwhile"},
	[REFUSAL_UNMAPPED] = {"unmapped", "the module is no longer mapped"},
	[REFUSAL_SHADOW_STACK] = {"shadow-stack",
				  "a call would have to move, and the target has shadow stacks"},
	[REFUSAL_STACK] = {"stack", "what is inserted would take more stack than a function of Go "
				    "or OCaml may have left there"},
	[REFUSAL_UNWRITABLE] =
		{"unwritable",
		 "the kernel writes nothing there for a tracer, as some (6.1 and 6.12) do not to reserved huge pages"},
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
		return w->host < 0 ? TACTIC_SHORT : TACTIC_EVICTED;
	default:
		break;
	}
	if (p->insn == 0) {
		if (w->padding)
			return TACTIC_PADDING;
		return p->kind == POINT_ENTRY || w->insn_count > 1 ? TACTIC_JUMP : TACTIC_SELF;
	}
	if (w->padding)
		return TACTIC_BOTH;
	for (unsigned i = 0; i < p->insn; i++)
		if (plan->flow.insns.items[d->first + i].flow == ARCH_FLOW_BRANCH)
			return TACTIC_ACROSS;
	return TACTIC_PREVIOUS;
}

/*
 * What the program writes there one day, where a handler goes on from there, and what somebody
 * else's probe looks at, is not in the file: whatever is undecided there is live.
 */
static bool is_meddled(const struct flow *f, size_t at)
{
	return f->compared && flow_marks(f, f->insns.items[at].address) & MARK_RSEQ;
}

static arch_regset live_before(const struct flow *f, size_t at)
{
	const struct arch_insn *insns = f->insns.items;
	size_t lo = at, hi = at + 1;

	while (lo > 0 && at - lo < LIVE_BEFORE && !is_meddled(f, lo - 1) &&
	       insns[lo - 1].address + insns[lo - 1].length == insns[lo].address)
		lo--;
	while (hi < f->insns.count && hi - at < LIVE_BEHIND && !is_meddled(f, hi) &&
	       insns[hi - 1].address + insns[hi - 1].length == insns[hi].address)
		hi++;
	return arch_live_before(insns + lo, hi - lo, at - lo);
}

/*
 * Where control goes on at the beginning of another function, by its code. What may be
 * an argument is live there whatever that does: it may be inserted code that looks at it.
 */
static arch_regset live_elsewhere(const struct flow *f, vaddr_t v)
{
	struct arch_insn insns[LIVE_ELSEWHERE];
	size_t size = 0, at = 0, count = 0;
	const uint8_t *code = image_code(f->img, v, &size);

	while (code && count < LIVE_ELSEWHERE && at < size &&
	       !(image_references_at(f->img, v + at) & REFERENCE_RSEQ) &&
	       arch_decode(code + at, size - at, v + at, &insns[count]) == ARCH_OK)
		at += insns[count++].length;
	return arch_live_before(insns, count, 0) | ~arch_entry_scratch;
}

/*
 * The same before the first instruction that goes there, and back over those that lead
 * straight to it. A call is followed as a jump is: nothing is known of its return.
 */
static arch_regset live_through(const struct flow *f, size_t at)
{
	const struct arch_insn *insns = f->insns.items;
	size_t end = at;
	arch_regset live, reads, writes;

	while (end - at < LIVE_BEFORE && end + 1 < f->insns.count &&
	       insns[end].flow == ARCH_FLOW_NEXT && !is_meddled(f, end + 1) &&
	       insns[end].address + insns[end].length == insns[end + 1].address)
		end++;
	/* Before the call itself it would cost most, of all points, and win least. */
	if ((insns[end].flow != ARCH_FLOW_CALL || end == at) &&
	    (insns[end].flow != ARCH_FLOW_JUMP || flow_insn_at(f, insns[end].target) >= 0))
		return arch_all_live;
	live = live_elsewhere(f, insns[end].target);
	while (end-- > at) {
		arch_effects(&insns[end], &reads, &writes);
		live = (live & ~writes) | reads;
	}
	/* What has to be as it was where an instruction in between raises an exception is read nowhere. */
	return live | arch_always_live | arch_callee_saved;
}

arch_regset plan_live(const struct flow *f, size_t at, enum point_place place)
{
	const struct arch_insn *insn = &f->insns.items[at];
	long to = (long)at;
	vaddr_t v = insn->address;

	if (place == PLACE_TAKEN)
		v = insn->target;
	else if (place == PLACE_FALLS)
		v = insn->address + insn->length;
	if (place != PLACE_BEFORE)
		to = flow_insn_at(f, v);
	if (to < 0)
		return (live_elsewhere(f, v) | arch_always_live) & arch_all_live;
	return live_before(f, (size_t)to) & live_through(f, (size_t)to);
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

/* A plan in the making: where each of planning's windows has gone, and who has one. */
struct filling {
	const struct planning *p;
	struct function_plan *plan;
	int32_t *place_of;
	bool *served; /* by index into the plan's windows */
};

static void fill_point(struct filling *f, const struct wish *wish, bool on_ways)
{
	struct point *point = &f->plan->points[f->plan->point_count++];
	int32_t at = windows_final(&f->p->windows, wish->window);
	const struct draft *d;

	*point = wish->point;
	point->window = -1;
	point->live = arch_all_live;
	if (at < 0)
		return;
	d = &f->p->windows.items[at];
	point->window = f->place_of[at];
	point->refusal = REFUSAL_NONE;
	point->insn = (uint8_t)((size_t)wish->insn - d->first);
	point->live = plan_live(&f->p->flow, (size_t)wish->insn, wish->point.place);
	if (on_ways)
		point->tactic = point->kind == POINT_ENTRY ? TACTIC_BYPASS : TACTIC_EDGES;
	else if (f->served[point->window])
		point->tactic = TACTIC_MERGED;
	else
		point->tactic = describe(f->p, d, &f->plan->windows[point->window], point);
	f->served[point->window] = true;
}

static void fill_points(struct filling *f)
{
	const struct wish *wishes = f->p->wishes;

	for (size_t i = 0; i < f->p->count; i++) {
		if (wishes[i].point.part)
			continue;
		fill_point(f, &wishes[i], wishes[i].on_ways);
		for (int32_t k = wishes[i].next; k >= 0; k = wishes[k].next)
			fill_point(f, &wishes[k], true);
	}
}

static int fill_plan(const struct planning *p, struct function_plan *plan, struct dinst_error *e)
{
	size_t windows = windows_in_use(&p->windows);
	struct filling f = {.p = p, .plan = plan};
	int r = 0;

	f.place_of = calloc(p->windows.count + 1, sizeof(*f.place_of));
	f.served = calloc(windows + 1, sizeof(*f.served));
	plan->points = calloc(p->count + 1, sizeof(*plan->points));
	plan->windows = calloc(windows + 1, sizeof(*plan->windows));
	if (!f.place_of || !f.served || !plan->points || !plan->windows)
		r = dinst_fail(e, DINST_NO_MEMORY, "no memory for %zu points", p->count);
	if (r == 0)
		r = windows_emit(&p->windows, plan->windows, f.place_of, e);
	if (r == 0) {
		plan->window_count = windows;
		fill_points(&f);
	}
	free(f.served);
	free(f.place_of);
	return r;
}

/* --------------------------------------------------------------- planning */

int planning_make(struct planning *p, struct image *img, struct freemap *map, uint32_t function,
		  struct dinst_error *e)
{
	const struct image_function *fn;
	int r;

	*p = (struct planning){0};
	image_functions(img, &fn);
	fn += function;
	r = flow_build(&p->flow, img, map, function, e);
	if (r == 0)
		r = windows_init(&p->windows, &p->flow, e);
	if (r == 0)
		r = plan_collect(p, fn, e);
	if (r < 0)
		goto fail;
	if (fn->flags & FUNCTION_STUB)
		plan_refuse(p, REFUSAL_STUB);
	else if (fn->flags & FUNCTION_IFUNC)
		plan_refuse(p, REFUSAL_IFUNC);
	else
		r = plan_place(p, e);
	if (r == 0)
		return 0;
fail:
	planning_release(p);
	return r;
}

void planning_release(struct planning *p)
{
	windows_release(&p->windows);
	flow_release(&p->flow);
	free(p->wishes);
	*p = (struct planning){0};
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
	if (plan_cache_get(img, function, out))
		return 0;
	r = freemap_of(img, &map, e);
	if (r < 0)
		return r;
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a plan");
	plan->function = function;
	/* A fragment's points are in the plan of its function. */
	if (!(functions[function].flags & FUNCTION_COLD)) {
		r = planning_make(&p, img, map, function, e);
		if (r == 0 && plan_is_needy(&p))
			r = settle_needs(&p, e);
		if (r == 0)
			r = fill_plan(&p, plan, e);
		planning_release(&p);
	}
	if (r < 0) {
		plan_free(img, plan);
		return r;
	}
	plan_cache_put(img, plan);
	*out = plan;
	return 0;
}

void plan_free(struct image *img, struct function_plan *plan)
{
	(void)img;
	if (!plan)
		return;
	free(plan->points);
	free(plan->windows);
	free(plan);
}
