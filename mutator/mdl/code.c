/* SPDX-License-Identifier: MIT */
/*
 * code.c - what becomes machine code.
 *
 * Everything in it is a number of 64 bits, but for timers and distributions,
 * which only their own functions take, and strings, which name something.
 */
#include <stdio.h>
#include <string.h>

#include "mutator/mdl/check.h"

/* What an expression of code gives. */
enum code_type { CODE_NUMBER, CODE_NOTHING, CODE_WRONG };

static enum code_type type_of(struct body *b, const struct mdl_expr *e, enum point_place place);

static void want_number(struct body *b, const struct mdl_expr *e, enum point_place place)
{
	if (type_of(b, e, place) == CODE_NOTHING)
		parser_error(b->p, &e->place, "'%.60s' gives no value", e->text ? e->text : "this");
}

static const char *place_name(enum point_place place)
{
	static const char *const names[] = {
		[AT_ENTRY] = "an entry", [AT_EXIT] = "an exit",
		[AT_CALL] = "a call",	 [AT_AFTER] = "what is behind a call",
		[AT_BLOCK] = "a block",	 [AT_GUARDED] = "what is guarded",
	};

	return names[place];
}

/* ------------------------------------------------------------------- names */

static enum code_type unknown_name(struct body *b, const struct mdl_expr *e)
{
	struct meant m = {.count = 0};
	char meant[MEANT_TEXT];

	meant_add_variables(&m, b);
	meant_add_scopes(&m, b);
	meant_text(&m, b->p, e->text, meant);
	if (list_find(b->p, e->text))
		parser_error(b->p, &e->place,
			     "'%.60s' is a list: it is known when the request is made, not in "
			     "code; foreach takes its elements",
			     e->text);
	else if (b->constraint && b->constraint->kind == MDL_FLAG)
		parser_error(b->p, &e->place,
			     "there is no '%.60s' here: this constraint's only variable is its "
			     "flag, '%.60s'%s",
			     e->text, b->variable, meant);
	else
		parser_error(b->p, &e->place, "there is no variable '%.60s'%s", e->text,
			     *meant ? meant : "; a metric's own are declared as 'counter NAME;'");
	return CODE_WRONG;
}

static enum code_type variable_value(struct body *b, const struct mdl_expr *e,
				     enum mdl_vartype type)
{
	switch (type) {
	case MDL_COUNTER:
		return CODE_NUMBER;
	case MDL_WALL_TIMER:
	case MDL_PROCESS_TIMER:
	case MDL_THREAD_TIMER:
		parser_error(b->p, &e->place,
			     "'%.60s' is a %s: it has no value in code; what stops it gives the "
			     "time that it ran",
			     e->text, mdl_vartype_name(type));
		return CODE_WRONG;
	case MDL_DISTRIBUTION:
		parser_error(b->p, &e->place,
			     "'%.60s' is a distribution: it has no value in code; "
			     "record(%.60s, VALUE) adds to it",
			     e->text, e->text);
		return CODE_WRONG;
	case MDL_STREAM:
		parser_error(
			b->p, &e->place,
			"'%.60s' is a stream: it has no value in code; record(%.60s, ...) adds "
			"an event to it",
			e->text, e->text);
		return CODE_WRONG;
	case MDL_VOID:
		parser_error(b->p, &e->place, "'%.60s' is void: there is no variable", e->text);
		return CODE_WRONG;
	}
	return CODE_WRONG;
}

static enum code_type type_of_name(struct body *b, const struct mdl_expr *e)
{
	const struct scope *s;
	enum mdl_vartype type;

	if (variable_find(b, e->text, &type))
		return variable_value(b, e, type);
	s = scope_find(b, e->text);
	if (!s)
		return unknown_name(b, e);
	if (s->type.kind == WHERE_NUMBER || s->type.kind == WHERE_ANY ||
	    s->type.kind == WHERE_PROCEDURE)
		return CODE_NUMBER;
	parser_error(b->p, &e->place, "'%.60s' is %s: it has no value in code", e->text,
		     where_name(s->type));
	return CODE_WRONG;
}

static enum code_type type_of_constraint(struct body *b, const struct mdl_expr *e)
{
	struct where_type type = where_type(b, e);

	if (type.kind == WHERE_NUMBER || type.kind == WHERE_ANY || type.kind == WHERE_PROCEDURE)
		return CODE_NUMBER;
	parser_error(b->p, &e->place, "this part of the path is %s: it has no value in code",
		     where_name(type));
	return CODE_WRONG;
}

/* A counter that may be changed. */
static void want_counter(struct body *b, const struct mdl_expr *e, const char *what)
{
	enum mdl_vartype type;

	if (e->kind != MDL_NAME) {
		parser_error(b->p, &e->place, "%s needs a variable: a counter of this metric",
			     what);
		return;
	}
	if (!variable_find(b, e->text, &type)) {
		if (scope_find(b, e->text))
			parser_error(b->p, &e->place,
				     "'%.60s' is a foreach variable: %s needs a counter", e->text,
				     what);
		else
			unknown_name(b, e);
		return;
	}
	if (type != MDL_COUNTER)
		parser_error(b->p, &e->place, "'%.60s' is a %s: %s needs a counter", e->text,
			     mdl_vartype_name(type), what);
}

/* ----------------------------------------------------------- what is where */

static enum code_type only_at(struct body *b, const struct mdl_expr *e, enum point_place place,
			      bool known, const char *where)
{
	if (known)
		return CODE_NUMBER;
	parser_error(b->p, &e->place, "%s is known %s only, and this is %s", e->text, where,
		     place_name(place));
	return CODE_WRONG;
}

/*
 * Exits may be jumps to another function, which have arguments; which of them
 * are, is known when they are compiled. So it is with guards.
 */
static enum code_type type_of_argument(struct body *b, const struct mdl_expr *e,
				       enum point_place place)
{
	if (e->number < 0) {
		parser_error(b->p, &e->place, "$arg needs a number: $arg[0] is the first argument");
		return CODE_WRONG;
	}
	return only_at(b, e, place, place != AT_AFTER && place != AT_BLOCK,
		       "at entries, calls and exits that jump");
}

static enum code_type where_only(struct body *b, const struct mdl_expr *e)
{
	if (e->kind == MDL_ATTRIBUTE)
		parser_error(b->p, &e->place,
			     "'.%.60s' is known when the request is made, not in code", e->text);
	else if (e->kind == MDL_INDEX)
		parser_error(b->p, &e->place,
			     "elements of lists are known when the request is made, not in code");
	else
		parser_error(b->p, &e->place, "%s is known when the request is made, not in code",
			     e->text);
	return CODE_WRONG;
}

/* Data of the target, which may have members and elements; compile.h knows its type. */
static bool is_data(const struct mdl_expr *e)
{
	while (e->kind == MDL_ATTRIBUTE || e->kind == MDL_INDEX)
		e = e->left;
	return e->kind == MDL_ARGUMENT || e->kind == MDL_RETURN ||
	       (e->kind == MDL_CALL && e->function == MDL_DO_READ_SYMBOL);
}

static enum code_type type_of_part(struct body *b, const struct mdl_expr *e, enum point_place place)
{
	if (!is_data(e))
		return where_only(b, e);
	if (e->kind == MDL_INDEX)
		want_number(b, e->right, place);
	return type_of(b, e->left, place);
}

/* ------------------------------------------------------------------- calls */

static bool count_args(struct body *b, const struct mdl_expr *e, size_t wanted, const char *usage)
{
	if (e->arg_count == wanted)
		return true;
	parser_error(b->p, &e->place, "%s takes %zu argument%s: %s", e->text, wanted,
		     wanted == 1 ? "" : "s", usage);
	return false;
}

static const struct timer {
	enum mdl_function start, stop;
	enum mdl_vartype type;
	const char *kind;
} timers[] = {
	{MDL_DO_START_WALL, MDL_DO_STOP_WALL, MDL_WALL_TIMER, "Wall"},
	{MDL_DO_START_PROCESS, MDL_DO_STOP_PROCESS, MDL_PROCESS_TIMER, "Process"},
	{MDL_DO_START_THREAD, MDL_DO_STOP_THREAD, MDL_THREAD_TIMER, "Thread"},
};

enum { TIMER_COUNT = sizeof(timers) / sizeof(timers[0]) };

static const struct timer *timer_of_type(enum mdl_vartype type)
{
	for (size_t i = 0; i < TIMER_COUNT; i++)
		if (timers[i].type == type)
			return &timers[i];
	return NULL;
}

static enum code_type type_of_timer_call(struct body *b, const struct mdl_expr *e)
{
	const struct timer *wanted = &timers[0], *given;
	const struct mdl_expr *arg;
	enum mdl_vartype type;
	bool starts;

	for (size_t i = 0; i < TIMER_COUNT; i++)
		if (timers[i].start == e->function || timers[i].stop == e->function)
			wanted = &timers[i];
	starts = wanted->start == e->function;
	if (!count_args(b, e, 1, "a timer"))
		return CODE_WRONG;
	arg = e->args[0];
	if (arg->kind != MDL_NAME) {
		parser_error(b->p, &arg->place, "%s needs the name of a timer", e->text);
	} else if (!variable_find(b, arg->text, &type)) {
		unknown_name(b, arg);
	} else if (type != wanted->type) {
		given = timer_of_type(type);
		parser_error(b->p, &arg->place, "'%.60s' is a %s, not a %s%s%s%s%s", arg->text,
			     mdl_vartype_name(type), mdl_vartype_name(wanted->type),
			     given ? "; did you mean " : "",
			     given ? (starts ? "start" : "stop") : "", given ? given->kind : "",
			     given ? "Timer?" : "");
	}
	return starts ? CODE_NOTHING : CODE_NUMBER;
}

/* ------------------------------------------------------------------ events */

/* How many bytes: a number that is known here, from 1 to `most`. */
static void want_bytes(struct body *b, const struct mdl_expr *e, const struct mdl_expr *bytes,
		       int64_t most)
{
	int64_t n;

	if (!constant_value(bytes, &n) || n < 1 || n > most)
		parser_error(b->p, &bytes->place, "%s takes 1 to %lld bytes, a number", e->text,
			     (long long)most);
}

static void want_stack(struct body *b, const struct mdl_expr *e, enum point_place place)
{
	int64_t n = 1;

	only_at(b, e, place, place == AT_ENTRY || place == AT_EXIT, "at entries and exits");
	if (e->arg_count > 1 || (e->arg_count && !constant_value(e->args[0], &n)) || n < 1 ||
	    n > MDL_STACK_MOST)
		parser_error(b->p, &e->place, "stack takes 1 to %d calls, a number",
			     MDL_STACK_MOST);
}

/* A field of an event: a number, memory, or the calls around it. */
static void want_field(struct body *b, const struct mdl_expr *e, enum point_place place)
{
	if (e->kind != MDL_CALL) {
		want_number(b, e, place);
	} else if (e->function == MDL_DO_STRING) {
		if (e->arg_count != 1 && e->arg_count != 2) {
			parser_error(b->p, &e->place,
				     "string takes an address, and how many bytes at most: "
				     "string($arg[0], 100)");
			return;
		}
		want_number(b, e->args[0], place);
		if (e->arg_count == 2)
			want_bytes(b, e, e->args[1], MDL_STRING_MOST);
	} else if (e->function == MDL_DO_BYTES) {
		if (!count_args(b, e, 2, "an address and how many bytes"))
			return;
		want_number(b, e->args[0], place);
		want_bytes(b, e, e->args[1], MDL_BYTES_MOST);
	} else if (e->function == MDL_DO_STACK) {
		want_stack(b, e, place);
	} else {
		want_number(b, e, place);
	}
}

static enum code_type type_of_event(struct body *b, const struct mdl_expr *e,
				    enum point_place place)
{
	if (e->arg_count > MDL_FIELDS_MOST + 1)
		parser_error(b->p, &e->args[MDL_FIELDS_MOST + 1]->place,
			     "an event has %d fields at most", MDL_FIELDS_MOST);
	for (size_t i = 1; i < e->arg_count; i++)
		want_field(b, e->args[i], place);
	return CODE_NOTHING;
}

static enum code_type field_outside(struct body *b, const struct mdl_expr *e)
{
	parser_error(b->p, &e->place,
		     "%s(...) is a field of an event: record(STREAM, %s(...)); a function of the "
		     "program that is called so is Call(\"%s\", ...)",
		     e->text, e->text, e->text);
	return CODE_WRONG;
}

static enum code_type type_of_record(struct body *b, const struct mdl_expr *e,
				     enum point_place place)
{
	const struct mdl_expr *arg = e->arg_count ? e->args[0] : NULL;
	enum mdl_vartype type = MDL_DISTRIBUTION;

	if (!arg) {
		parser_error(b->p, &e->place,
			     "record takes a distribution and a value, or a stream and what is to "
			     "be recorded");
		return CODE_WRONG;
	}
	if (arg->kind != MDL_NAME)
		parser_error(b->p, &arg->place,
			     "record needs the name of a distribution or of a stream");
	else if (!variable_find(b, arg->text, &type))
		unknown_name(b, arg);
	else if (type == MDL_STREAM)
		return type_of_event(b, e, place);
	else if (type != MDL_DISTRIBUTION)
		parser_error(b->p, &arg->place,
			     "'%.60s' is a %s, not a distribution or a stream: "
			     "'base is distribution'",
			     arg->text, mdl_vartype_name(type));
	if (!count_args(b, e, 2, "a distribution and a value"))
		return CODE_WRONG;
	want_number(b, e->args[1], place);
	return CODE_NOTHING;
}

static enum code_type type_of_read_symbol(struct body *b, const struct mdl_expr *e)
{
	if (!count_args(b, e, 1, "\"name\", \"module:name\" or \"name.field\""))
		return CODE_WRONG;
	if (e->args[0]->kind != MDL_STRING || !e->args[0]->text_size) {
		parser_error(b->p, &e->args[0]->place,
			     "readSymbol needs a name in quotes: readSymbol(\"module:name\")");
		return CODE_WRONG;
	}
	return CODE_NUMBER;
}

static enum code_type type_of_read_memory(struct body *b, const struct mdl_expr *e,
					  enum point_place place)
{
	int64_t n;

	if (!count_args(b, e, 2, "an address and how many bytes"))
		return CODE_WRONG;
	want_number(b, e->args[0], place);
	if (!constant_value(e->args[1], &n) || (n != 1 && n != 2 && n != 4 && n != 8))
		parser_error(b->p, &e->args[1]->place, "this must be 1, 2, 4 or 8 bytes");
	return CODE_NUMBER;
}

/* Timers and strings can only be meant for functions of the language. */
static void suggest_function(struct body *b, const struct mdl_expr *e, const struct mdl_expr *arg,
			     const char *why)
{
	static const char *const names[] = {
		"startWallTimer",
		"stopWallTimer",
		"startProcessTimer",
		"stopProcessTimer",
		"startThreadTimer",
		"stopThreadTimer",
		"record",
		"readSymbol",
		"readMemory",
		"Call",
	};
	struct meant m = {.count = 0};
	char meant[MEANT_TEXT];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		meant_add(&m, names[i]);
	meant_text(&m, b->p, e->text, meant);
	if (*meant)
		parser_error(b->p, &e->place, "there is no '%.60s'%s", e->text, meant);
	else
		parser_error(b->p, &arg->place,
			     "%s cannot be given to '%.60s', a function of the program", why,
			     e->text);
}

static enum code_type type_of_target_call(struct body *b, const struct mdl_expr *e,
					  enum point_place place)
{
	enum mdl_vartype type;

	if (!*e->text)
		parser_error(b->p, &e->place, "the function needs a name");
	if (e->arg_count > ARGUMENTS_MOST)
		parser_error(b->p, &e->args[ARGUMENTS_MOST]->place,
			     "a function can be given %d arguments at most", ARGUMENTS_MOST);
	for (size_t i = 0; i < e->arg_count; i++) {
		const struct mdl_expr *arg = e->args[i];

		if (arg->kind == MDL_STRING)
			suggest_function(b, e, arg, "a string");
		else if (arg->kind == MDL_NAME && variable_find(b, arg->text, &type) &&
			 type != MDL_COUNTER)
			suggest_function(b, e, arg, "this variable");
		else
			want_number(b, arg, place);
	}
	return CODE_NUMBER;
}

static enum code_type type_of_call(struct body *b, const struct mdl_expr *e, enum point_place place)
{
	switch (e->function) {
	case MDL_DO_CALL:
		return type_of_target_call(b, e, place);
	case MDL_DO_RECORD:
		return type_of_record(b, e, place);
	case MDL_DO_READ_SYMBOL:
		return type_of_read_symbol(b, e);
	case MDL_DO_READ_MEMORY:
		return type_of_read_memory(b, e, place);
	case MDL_DO_STRING:
	case MDL_DO_BYTES:
	case MDL_DO_STACK:
		return field_outside(b, e);
	default:
		return type_of_timer_call(b, e);
	}
}

/* ------------------------------------------------------------- expressions */

static enum code_type type_of_binary(struct body *b, const struct mdl_expr *e,
				     enum point_place place)
{
	int64_t zero;

	want_number(b, e->left, place);
	want_number(b, e->right, place);
	if ((e->op == MDL_OP_DIV || e->op == MDL_OP_REM) && constant_value(e->right, &zero) &&
	    !zero)
		parser_error(b->p, &e->right->place, "this divides by zero");
	return CODE_NUMBER;
}

static enum code_type type_of_operation(struct body *b, const struct mdl_expr *e,
					enum point_place place)
{
	switch (e->kind) {
	case MDL_ASSIGN:
		want_counter(b, e->left, e->op == '+' ? "'+='" : e->op == '-' ? "'-='" : "'='");
		want_number(b, e->right, place);
		return CODE_NUMBER;
	case MDL_STEP:
		want_counter(b, e->left, e->number < 0 ? "'--'" : "'++'");
		return CODE_NUMBER;
	case MDL_ADDRESS:
		want_counter(b, e->left, "'&'");
		return CODE_NUMBER;
	case MDL_UNARY:
		want_number(b, e->left, place);
		return CODE_NUMBER;
	case MDL_CHOICE: {
		enum code_type left, right;

		want_number(b, e->condition, place);
		left = type_of(b, e->left, place);
		right = type_of(b, e->right, place);
		return left == CODE_NOTHING || right == CODE_NOTHING ? CODE_NOTHING : CODE_NUMBER;
	}
	default:
		return type_of_binary(b, e, place);
	}
}

static enum code_type type_of(struct body *b, const struct mdl_expr *e, enum point_place place)
{
	switch (e->kind) {
	case MDL_INTEGER:
	case MDL_THREAD:
	case MDL_PID:
	case MDL_CPU:
	case MDL_NOW:
	case MDL_STACK:
		return CODE_NUMBER;
	case MDL_STRING:
		parser_error(b->p, &e->place,
			     "a string has no value in code; it can only name something in Call "
			     "and readSymbol");
		return CODE_WRONG;
	case MDL_NAME:
		return type_of_name(b, e);
	case MDL_CONSTRAINT:
		return type_of_constraint(b, e);
	case MDL_ARGUMENT:
		return type_of_argument(b, e, place);
	case MDL_RETURN:
		return only_at(b, e, place, place == AT_EXIT || place == AT_GUARDED, "at exits");
	case MDL_ELAPSED:
		return only_at(b, e, place, place == AT_EXIT, "at exits");
	case MDL_CALLER:
		return only_at(b, e, place,
			       place == AT_ENTRY || place == AT_EXIT || place == AT_GUARDED,
			       "at entries and exits");
	case MDL_CALL:
		return type_of_call(b, e, place);
	case MDL_PROCEDURES:
	case MDL_MODULES:
	case MDL_START:
	case MDL_EXIT:
	case MDL_MACHINE:
	case MDL_PROCESS:
		return where_only(b, e);
	case MDL_ATTRIBUTE:
	case MDL_INDEX:
		return type_of_part(b, e, place);
	default:
		return type_of_operation(b, e, place);
	}
}

/* True if it does anything but give a value. */
static bool has_effect(const struct mdl_expr *e)
{
	if (!e)
		return false;
	if (e->kind == MDL_ASSIGN || e->kind == MDL_STEP)
		return true;
	if (e->kind == MDL_CALL && e->function != MDL_DO_READ_SYMBOL &&
	    e->function != MDL_DO_READ_MEMORY)
		return true;
	for (size_t i = 0; i < e->arg_count; i++)
		if (has_effect(e->args[i]))
			return true;
	return has_effect(e->condition) || has_effect(e->left) || has_effect(e->right);
}

void check_code(struct body *b, const struct mdl_code *first, enum point_place place)
{
	for (const struct mdl_code *c = first; c; c = c->next) {
		switch (c->kind) {
		case MDL_CODE_EXPR:
			if (type_of(b, c->expr, place) != CODE_WRONG && !has_effect(c->expr))
				parser_error(b->p, &c->place, "this does nothing%s",
					     c->expr->kind == MDL_BINARY && c->expr->op == MDL_OP_EQ
						     ? "; did you mean '='?"
						     : "");
			break;
		case MDL_CODE_IF:
			want_number(b, c->expr, place);
			check_code(b, c->then, place);
			check_code(b, c->otherwise, place);
			break;
		case MDL_CODE_BLOCK:
			check_code(b, c->first, place);
			break;
		}
	}
}
