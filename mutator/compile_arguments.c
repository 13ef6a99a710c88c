/* SPDX-License-Identifier: MIT */
/*
 * compile_arguments.c - $arg and $return: where the psABI puts them, given their
 * types (arch/calling.h has the numbers). Without types everything is an
 * integer of 64 bits.
 */
#include <string.h>

#include "arch/calling.h"
#include "mutator/compile_private.h"

enum {
	ARGUMENT_NUMBER_MAX = 63,
	/* Bytes of arguments on the stack that are believed to be there because the debug information says so. */
	STACK_BELIEVED = 1 << 12,
};

/* Where the next argument goes. */
struct passing {
	unsigned integers, floats; /* registers used */
	uint64_t stack;		   /* bytes used */
};

enum passed {
	PASSED_INTEGER,
	PASSED_FLOAT,
	PASSED_WORDS,
	PASSED_ON_STACK,
	PASSED_BY_ADDRESS,
	PASSED_UNKNOWN
};

static enum passed passed_how(const struct type *t, bool is_float[2])
{
	is_float[0] = is_float[1] = false;
	switch (t->kind) {
	case TYPE_UNKNOWN:
	case TYPE_POINTER:
		return PASSED_INTEGER;
	case TYPE_INTEGER:
		/* Of no size: Rust's (), which is not passed at all. */
		return t->size && t->size <= 8 ? PASSED_INTEGER : PASSED_UNKNOWN;
	case TYPE_FLOAT:
		return PASSED_FLOAT;
	case TYPE_BY_REFERENCE:
		return PASSED_BY_ADDRESS;
	case TYPE_STRUCT:
		if (t->size > arch_calling.largest_in_registers)
			return arch_calling.large_by_address ? PASSED_BY_ADDRESS : PASSED_ON_STACK;
		if (!t->size || !type_words(t, is_float))
			return PASSED_UNKNOWN;
		if (!arch_calling.by_words && (is_float[0] || is_float[1]))
			return PASSED_UNKNOWN;
		return PASSED_WORDS;
	default:
		return PASSED_UNKNOWN;
	}
}

/* False: there may be a gap in front of it. */
static bool on_stack(struct passing *p, const struct type *t, uint64_t first, struct operand *out)
{
	const uint64_t size = t->kind == TYPE_STRUCT ? ((uint64_t)t->size + 7) / 8 * 8 : 8;

	if (t->is_aligned && p->stack)
		return false;
	*out = (struct operand){
		.kind = OPERAND_MEMORY, .on_stack = true, .offset = first + p->stack, .type = *t};
	p->stack += size;
	return true;
}

static unsigned take_register(struct compiler *c, struct passing *p, bool is_float, bool wanted)
{
	const unsigned number = is_float ? p->floats++ : p->integers++;

	if (!wanted || !c)
		return 0;
	return compile_get(c, is_float ? ARCH_OP_FLOAT_ARGUMENT : ARCH_OP_ARGUMENT, number);
}

static bool fit(const struct passing *p, unsigned words, const bool is_float[2])
{
	unsigned floats = 0;

	for (unsigned i = 0; i < words; i++)
		floats += is_float[i];
	return p->floats + floats <= arch_calling.float_arguments &&
	       p->integers + (words - floats) <= arch_calling.integer_arguments;
}

/*
 * Goes past one argument; what it is is stored where it is the one that is wanted. Without a
 * compiler it is only asked whether that is known.
 */
static bool pass(struct compiler *c, struct passing *p, const struct type *t, uint64_t first,
		 bool wanted, struct operand *out)
{
	bool is_float[2];
	const enum passed how = passed_how(t, is_float);
	const unsigned words = how == PASSED_WORDS ? (t->size + 7) / 8 : 1;
	unsigned address;

	if (how == PASSED_UNKNOWN)
		return false;
	if (how == PASSED_FLOAT)
		is_float[0] = true;
	if (how == PASSED_ON_STACK || !fit(p, words, is_float)) {
		if (words == 2 && arch_calling.no_return_to_registers)
			p->integers = arch_calling.integer_arguments;
		return on_stack(p, t, first, out) && !(how == PASSED_BY_ADDRESS && wanted);
	}
	if (how == PASSED_BY_ADDRESS) {
		address = take_register(c, p, false, wanted);
		*out = (struct operand){.kind = OPERAND_MEMORY, .value = address, .type = *t};
		out->type.kind = TYPE_STRUCT;
		return true;
	}
	*out = (struct operand){.kind = OPERAND_WORDS, .type = *t};
	for (unsigned i = 0; i < words; i++)
		out->words[i] = take_register(c, p, is_float[i], wanted);
	if (t->kind == TYPE_UNKNOWN)
		*out = operand_value(out->words[0]);
	return true;
}

/* ------------------------------------------------------------ whose arguments */

static bool starts_at(const struct image *img, long index, vaddr_t address)
{
	const struct image_function *functions;

	image_functions(img, &functions);
	return functions[index].address == address;
}

/* The function that is called at all of the placement's calls, if it is one and is known. */
static bool callee_of(const struct compiler *c, struct function_ref *callee)
{
	const struct mdl_placement *at = c->q->placement;
	const struct function_plan *plan;
	struct image *img = at->function.module->image;
	vaddr_t address = 0;
	long index;

	plan = c->q->session
		       ? session_known_plan(c->q->session, at->function.module, at->function.index)
		       : NULL;
	if (!plan)
		return false;
	for (size_t i = 0; i < plan->point_count; i++) {
		const struct point *p = &plan->points[i];
		bool ours = !at->addresses;

		if (p->kind != POINT_CALL || p->part)
			continue;
		for (size_t j = 0; j < at->address_count && !ours; j++)
			ours = at->addresses[j] == p->address;
		if (!ours)
			continue;
		if (!p->callee || (address && p->callee != address))
			return false;
		address = p->callee;
	}
	index = address ? image_function_at(img, address) : -1;
	/* What a call into the middle of one passes nobody tells. */
	if (index < 0 || !starts_at(img, index, address))
		return false;
	*callee = (struct function_ref){at->function.module, (uint32_t)index};
	return true;
}

/* The compiler says so, in the name or in the debug information. */
static bool fail_changed(struct compiler *c, const struct mdl_expr *x)
{
	compile_fail(c, &x->place, DINST_REFUSED,
		     "the compiler has changed how this function is called: its arguments are "
		     "not where they should be");
	return false;
}

bool compile_is_changed(const struct function_ref *f)
{
	const struct image_function *functions;
	const char *name;

	image_functions(f->module->image, &functions);
	name = functions[f->index].name;
	return strstr(name, ".isra.") || strstr(name, ".constprop.") || strstr(name, ".part.");
}

static bool ask_types(struct compiler *c, const struct mdl_expr *x)
{
	struct function_ref f = c->q->placement->function;
	const enum point_kind kind = c->q->placement->kind;

	if (c->types_asked)
		return true;
	c->types_asked = true;
	c->depends = true;
	if ((kind == POINT_EXIT && c->q->tail_exit) || !f.module || !f.module->image)
		return true;
	if (kind == POINT_CALL || kind == POINT_AFTER) {
		if (!callee_of(c, &f))
			return true;
	}
	if (image_is_go(f.module->image)) {
		compile_fail(c, &x->place, DINST_REFUSED,
			     "Go passes arguments in a way of its own, which is not known here");
		return false;
	}
	if (compile_is_changed(&f))
		return fail_changed(c, x);
	types_of_function(f.module->image, f.index, &c->types);
	return !c->types.is_changed || fail_changed(c, x);
}

/* Stack arguments: bytes from the stack pointer at the point. */
static bool first_on_stack(struct compiler *c, const struct mdl_expr *x, uint64_t *first)
{
	switch (c->q->placement->kind) {
	case POINT_ENTRY:
		*first = arch_calling.stack_at_entry;
		return true;
	case POINT_CALL:
		*first = arch_calling.stack_at_call;
		return true;
	case POINT_EXIT:
		/* A jump to another function passes it arguments like a call. */
		if (c->q->tail_exit) {
			*first = arch_calling.stack_at_entry;
			return true;
		}
		compile_fail(c, &x->place, DINST_REFUSED,
			     "where a function returns, its arguments are not there any more");
		return false;
	default:
		compile_fail(
			c, &x->place, DINST_USAGE,
			"$arg is known at a function's entry and before calls, and only there");
		return false;
	}
}

static bool is_in_memory(const struct type *t)
{
	bool is_float[2];
	const enum passed how = passed_how(t, is_float);

	return t->kind == TYPE_STRUCT ? how == PASSED_ON_STACK || how == PASSED_BY_ADDRESS
				      : t->kind == TYPE_BY_REFERENCE;
}

/*
 * Arrays (Rust returns them), and what is wider than two registers and no struct: vectors, which go
 * into one or into memory as the compiler was told, numbers of any width.
 */
static bool may_be_in_memory(const struct type *t)
{
	return t->kind == TYPE_UNSURE || t->kind == TYPE_ARRAY ||
	       (t->size > arch_calling.largest_in_registers &&
		(t->kind == TYPE_OTHER || t->kind == TYPE_INTEGER));
}

/*
 * Where arguments begin. False: a struct that is packed, or of a language with rules of its own, may be
 * returned where the first of them says. One of a single byte never is.
 */
static bool begin(const struct type_function *types, struct passing *p)
{
	const struct type *t = &types->result;
	bool is_float[2];

	*p = (struct passing){0};
	if (!types->known || !arch_calling.result_address_is_first)
		return true;
	if (is_in_memory(t))
		p->integers = 1;
	if (may_be_in_memory(t))
		return false;
	return t->kind != TYPE_STRUCT || t->size == 1 || passed_how(t, is_float) != PASSED_UNKNOWN;
}

bool compile_knows_argument(const struct type_function *types, size_t n)
{
	struct operand ignored;
	struct passing p;

	if (types->is_changed || !begin(types, &p) || n >= types->argument_count)
		return false;
	for (size_t i = 0; i <= n; i++)
		if (!pass(NULL, &p, &types->arguments[i], 0, i == n, &ignored))
			return false;
	return true;
}

bool compile_knows_result(const struct type_function *types)
{
	bool is_float[2];

	return !types->is_changed && passed_how(&types->result, is_float) != PASSED_UNKNOWN;
}

void compile_argument(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	static const struct type unknown;
	const struct type *t;
	struct passing p;
	uint64_t first;

	if (x->number < 0 || x->number > ARGUMENT_NUMBER_MAX) {
		compile_fail(c, &x->place, DINST_USAGE, "$arg[0] to $arg[%d], not $arg[%lld]",
			     ARGUMENT_NUMBER_MAX, (long long)x->number);
		return;
	}
	if (!first_on_stack(c, x, &first) || !ask_types(c, x))
		return;
	if (c->types.known && !c->types.variadic && (size_t)x->number >= c->types.argument_count) {
		compile_fail(c, &x->place, DINST_REFUSED, "this function has %zu argument%s",
			     c->types.argument_count, c->types.argument_count == 1 ? "" : "s");
		return;
	}
	if (!begin(&c->types, &p)) {
		compile_fail(c, &x->place, DINST_REFUSED,
			     "how this function gives back its result is not known, so neither is "
			     "where its arguments are");
		return;
	}
	for (int64_t i = 0; i <= x->number; i++) {
		t = c->types.known && (size_t)i < c->types.argument_count ? &c->types.arguments[i]
									  : &unknown;
		if (pass(c, &p, t, first, i == x->number, out)) {
			/*
			 * Nobody has declared it, or it is larger than what is ever passed: it may be
			 * behind the stack.
			 */
			if (i == x->number && (t == &unknown || p.stack > STACK_BELIEVED))
				compile_read_with_care(c, out);
			continue;
		}
		compile_fail(
			c, &x->place, DINST_REFUSED,
			i == x->number
				? "this argument is of a type that cannot be read"
				: "this argument follows one of a type whose place is not known");
		return;
	}
}

void compile_return(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	const enum point_kind kind = c->q->placement->kind;
	unsigned integers = 0, floats = 0;
	bool is_float[2];
	enum passed how;

	if (kind != POINT_EXIT && kind != POINT_AFTER) {
		compile_fail(
			c, &x->place, DINST_USAGE,
			"$return is known where a function returns and after calls, and only there");
		return;
	}
	if (kind == POINT_EXIT && c->q->tail_exit) {
		compile_fail(c, &x->place, DINST_REFUSED,
			     "this exit is a jump to another function: there is no result yet");
		return;
	}
	if (!ask_types(c, x))
		return;
	how = passed_how(&c->types.result, is_float);
	if (c->types.result.kind == TYPE_VOID || how == PASSED_UNKNOWN) {
		compile_fail(c, &x->place, DINST_REFUSED,
			     c->types.result.kind == TYPE_VOID
				     ? "this function returns nothing"
				     : "its result is of a type that cannot be read");
		return;
	}
	if (is_in_memory(&c->types.result)) {
		if (!arch_calling.result_address_is_first) {
			compile_fail(c, &x->place, DINST_REFUSED,
				     "where its result is, is not known any more");
			return;
		}
		*out = (struct operand){.kind = OPERAND_MEMORY,
					.value = compile_get(c, ARCH_OP_RESULT, 0),
					.type = c->types.result};
		out->type.kind = TYPE_STRUCT;
		return;
	}
	if (c->types.result.kind == TYPE_UNKNOWN) {
		*out = operand_value(compile_get(c, ARCH_OP_RESULT, 0));
		return;
	}
	is_float[0] |= how == PASSED_FLOAT;
	*out = (struct operand){.kind = OPERAND_WORDS, .type = c->types.result};
	for (unsigned i = 0; i < (how == PASSED_WORDS ? (c->types.result.size + 7) / 8 : 1); i++)
		out->words[i] = compile_get(c, is_float[i] ? ARCH_OP_FLOAT_RESULT : ARCH_OP_RESULT,
					    is_float[i] ? floats++ : integers++);
}
