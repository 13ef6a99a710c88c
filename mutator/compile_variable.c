/* SPDX-License-Identifier: MIT */
/*
 * compile_variable.c - what code does to variables, by their form (variable.h).
 *
 * Words of a thread's record are changed by one addition where that is possible:
 * a signal handler of the thread may run the same code at any moment.
 */
#include <string.h>

#include "mutator/compile_private.h"

/* Of word 0 of a timer; see variable.h. Bit 31: its last stop is being written down. */
enum { TIMER_COUNT = 0x7fffffff };
#define TIMER_BUSY    (1ull << 31)
#define TIMER_STOPPED (1ull << 32)

static bool at_the_point(const struct compiler *c)
{
	return c->q->mode == COMPILE_POINT;
}

/* Offset of the element that is known here, times `stride`; 0: there is one element. */
static unsigned element_offset(struct compiler *c, const struct mdl_expr *x,
			       const struct variable *v, unsigned stride)
{
	unsigned index, inside;

	if (v->elements <= 1)
		return 0;
	if (!c->place_known)
		return compile_fail(c, &x->place, DINST_USAGE,
				    "'%s' has a value for each of many objects, and nothing says "
				    "for which of them this is",
				    v->name);
	index = compile_new_value(c);
	inside = compile_label(c);
	compile_copy(c, index, compile_with(c, ARCH_OP_SUB, c->place, 1));
	/* A place comes out of memory that the target can write: never beyond the vector. */
	compile_if_constant(c, ARCH_TEST_BELOW, index, v->elements, inside);
	compile_set(c, index, v->elements - 1);
	compile_put_label(c, inside);
	return compile_with(c, ARCH_OP_MUL, index, stride);
}

static struct arch_op *at_address(struct compiler *c, unsigned kind, unsigned base, uint64_t number)
{
	struct arch_op *op = compile_op(c, kind);

	op->a = (uint16_t)base;
	op->number = number;
	op->size = 8;
	return op;
}

static void add_to(struct compiler *c, unsigned kind, unsigned base, uint64_t number,
		   unsigned value)
{
	at_address(c, kind, base, number)->b = (uint16_t)value;
}

static unsigned fetch_add(struct compiler *c, unsigned base, uint64_t number, unsigned value)
{
	struct arch_op *op = at_address(c, ARCH_OP_FETCH_ADD, base, number);

	op->b = (uint16_t)value;
	op->result = (uint16_t)compile_new_value(c);
	return op->result;
}

static struct variable *named_variable(struct compiler *c, const struct mdl_expr *x)
{
	struct variable *v = NULL;

	if (x && x->kind == MDL_NAME && x->text)
		v = compile_find_variable(c, x->text);
	if (!v)
		compile_fail(c, x ? &x->place : c->at, DINST_USAGE,
			     x && x->kind == MDL_NAME && x->text
				     ? "'%s' is no variable of this metric or constraint"
				     : "here a variable is needed",
			     x && x->text ? x->text : "");
	return v;
}

/* ------------------------------------------------------------ assignments */

/* A flag counts down to 0 and not further: takes away what is there at most. */
static unsigned count_down(struct compiler *c, uint64_t number, unsigned less)
{
	const unsigned word = compile_load(c, c->record, number, 8, false);
	const unsigned amount = compile_new_value(c), enough = compile_label(c);

	compile_copy(c, amount, less);
	compile_if(c, ARCH_TEST_BELOW_EQUAL, amount, word, enough);
	compile_copy(c, amount, word);
	compile_put_label(c, enough);
	return fetch_add(c, c->record, number, compile_unary(c, ARCH_OP_NEG, amount));
}

static unsigned change_flag(struct compiler *c, const struct variable *v, int op, unsigned value)
{
	const uint64_t number = v->record_offset;
	/* What measures has temporaries; flags are changed by their own code. */
	const bool is_flag = c->q->placement->rank.role != MDL_MEASURES;

	if (!op) {
		compile_store(c, c->record, number, value);
		return value;
	}
	if (op == '-' && is_flag)
		return count_down(c, number, value);
	if (op == '-')
		value = compile_unary(c, ARCH_OP_NEG, value);
	return fetch_add(c, c->record, number, value);
}

static unsigned change_shared(struct compiler *c, const struct mdl_expr *x,
			      const struct variable *v, int op, unsigned value)
{
	const unsigned element = element_offset(c, x, v, 8);
	const uint64_t number = variable_counter(v, c->q->place);

	if (op == '-')
		value = compile_unary(c, ARCH_OP_NEG, value);
	if (v->form == VARIABLE_TOTAL)
		add_to(c, ARCH_OP_COUNT, element, number, value);
	else
		add_to(c, op ? ARCH_OP_ATOMIC_ADD : ARCH_OP_ATOMIC_STORE, element, number, value);
	return value;
}

void compile_count(struct compiler *c, const struct mdl_expr *x, const struct variable *v)
{
	if (at_the_point(c))
		add_to(c, ARCH_OP_COUNT, element_offset(c, x, v, 8),
		       variable_counter(v, c->q->place), compile_constant(c, 1));
}

/* What v++ and v += e give, from what the word was before. */
static void result_of(struct compiler *c, const struct mdl_expr *x, const struct variable *v,
		      unsigned given, struct operand *out)
{
	if (x->kind == MDL_STEP || !x->op)
		*out = operand_value(given);
	else
		compile_variable_read(c, x, (struct variable *)v, out);
}

static bool is_local(const struct compiler *c, const struct mdl_expr *x)
{
	return c->local_name && x && x->kind == MDL_NAME && x->text &&
	       !strcmp(c->local_name, x->text);
}

/* The flag of a guard that is evaluated here is no thread's: it is a value. */
static void change_local(struct compiler *c, const struct mdl_expr *x, int op)
{
	unsigned value = x->kind == MDL_STEP ? compile_constant(c, 1) : compile_place(c, x->right);

	if (op)
		value = compile_binary(c, op == '-' ? ARCH_OP_SUB : ARCH_OP_ADD, c->local, value);
	compile_copy(c, c->local, value);
}

unsigned compile_local(struct compiler *c)
{
	const unsigned value = compile_new_value(c);

	compile_copy(c, value, c->local);
	return value;
}

/* Compares with many objects anywhere in it. */
static bool mentions_any(const struct compiler *c, const struct mdl_expr *x)
{
	const struct mdl_expr *other;

	if (!x)
		return false;
	for (size_t i = 0; i < x->arg_count; i++)
		if (mentions_any(c, x->args[i]))
			return true;
	return compile_is_any(c, x, &other) || mentions_any(c, x->left) ||
	       mentions_any(c, x->right) || mentions_any(c, x->condition);
}

/* Its value is the place of what is compared, 0, or what the flag holds already. */
static bool gives_place(const struct compiler *c, const struct mdl_expr *x)
{
	const struct mdl_expr *other;
	int64_t constant;

	if (x->kind == MDL_CHOICE)
		return !mentions_any(c, x->condition) && gives_place(c, x->left) &&
		       gives_place(c, x->right);
	if (compile_is_any(c, x, &other))
		return x->op == MDL_OP_EQ;
	if (x->kind == MDL_NAME && x->text && compile_find_variable(c, x->text))
		return true;
	return mdl_constant(x, &constant) && !constant;
}

/* Leaves the lower half of the word as it is, where a flag of many objects has its place. */
static bool keeps_place(const struct mdl_expr *x)
{
	int64_t amount;

	return x->kind == MDL_ASSIGN && mdl_constant(x->right, &amount) && !(uint32_t)amount;
}

/*
 * A flag of many objects holds the place of the one that it is set for: 1 would stand for
 * whichever object has the first place, and one more or less than a place is another's.
 */
static bool loses_place(const struct compiler *c, const struct mdl_expr *x, int op)
{
	if (!c->q->vector || c->q->placement->rank.role == MDL_MEASURES)
		return false;
	return op ? !keeps_place(x) : !gives_place(c, x->right);
}

void compile_assign(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	const int op = x->kind == MDL_STEP ? (x->number < 0 ? '-' : '+') : x->op;
	struct variable *v;
	unsigned value;

	if (is_local(c, x->left)) {
		change_local(c, x, op);
		*out = operand_value(compile_local(c));
		return;
	}
	v = named_variable(c, x->left);
	if (!v)
		return;
	value = x->kind == MDL_STEP		  ? compile_constant(c, 1)
		: v->form == VARIABLE_FLAG && !op ? compile_place(c, x->right)
						  : compile_number(c, x->right);
	*out = operand_value(value);
	switch (v->form) {
	case VARIABLE_FLAG:
		if (loses_place(c, x, op)) {
			compile_fail(c, &x->place, DINST_USAGE,
				     "with '*' this must tell which object it is: %s = (... == "
				     "$constraint[n])",
				     v->name);
			break;
		}
		value = change_flag(c, v, op, value);
		result_of(c, x, v, value, out);
		break;
	case VARIABLE_TOTAL:
		if (!op)
			compile_fail(c, &x->place, DINST_FAILED, "'%s' was taken for a total",
				     v->name);
		if (at_the_point(c) || compile_is_level_step(c, x, v))
			change_shared(c, x, v, op, value);
		break;
	case VARIABLE_LEVEL:
		if (!at_the_point(c) && !compile_is_level_step(c, x, v))
			break;
		if (x->kind == MDL_STEP)
			compile_variable_read(c, x, v, out);
		change_shared(c, x, v, op, value);
		if (x->kind == MDL_ASSIGN && op)
			compile_variable_read(c, x, v, out);
		break;
	default:
		compile_fail(c, &x->place, DINST_USAGE,
			     "'%s' is no counter: a %s cannot be assigned to", v->name,
			     mdl_vartype_name(v->type));
		break;
	}
}

void compile_variable_read(struct compiler *c, const struct mdl_expr *x, struct variable *v,
			   struct operand *out)
{
	switch (v->form) {
	case VARIABLE_FLAG:
		*out = operand_value(compile_load(c, c->record, v->record_offset, 8, false));
		break;
	case VARIABLE_LEVEL:
		*out = operand_value(compile_load(c, element_offset(c, x, v, 8),
						  variable_counter(v, c->q->place), 8, false));
		break;
	case VARIABLE_TOTAL:
		compile_fail(c, &x->place, DINST_FAILED, "'%s' was taken for a total", v->name);
		break;
	default:
		compile_fail(c, &x->place, DINST_USAGE, "'%s' is a %s: code cannot read it",
			     v->name, mdl_vartype_name(v->type));
		break;
	}
}

void compile_address(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	struct variable *v = named_variable(c, x->left);

	if (!v)
		return;
	if (v->form != VARIABLE_FLAG) {
		compile_fail(
			c, &x->place, DINST_USAGE,
			"'&' takes a temporary counter of the metric: '%s' has no address of its "
			"own",
			v->name);
		return;
	}
	*out = operand_value(compile_with(c, ARCH_OP_ADD, c->record, v->record_offset));
}

/* ----------------------------------------------------------------- timers */

/*
 * The clock of threads needs the word that a sequence of a per-CPU counter
 * changes. So this adds whole among processors, to the slot of the processor that
 * the thread ran on a moment ago: nobody adds to it in any other way, and seldom two
 * at a time. Where the processor is not known, to the slot for all of them.
 */
void compile_add_to_cpu(struct compiler *c, unsigned element, uint64_t number, unsigned value)
{
	const unsigned cpu = compile_new_value(c), known = compile_label(c);
	unsigned offset;

	compile_copy(c, cpu, compile_get(c, ARCH_OP_CPU, 0));
	compile_if_constant(c, ARCH_TEST_BELOW, cpu, c->cpus, known);
	compile_set(c, cpu, c->cpus);
	compile_put_label(c, known);
	offset = compile_with(c, ARCH_OP_SHL, cpu, c->cpu_shift);
	if (element)
		offset = compile_binary(c, ARCH_OP_ADD, offset, element);
	add_to(c, ARCH_OP_ATOMIC_ADD, offset, number, value);
}

static void add_time(struct compiler *c, const struct mdl_expr *x, const struct variable *v,
		     unsigned time)
{
	const unsigned element = element_offset(c, x, v, 8);
	const uint64_t number = variable_counter(v, c->q->place);

	if (v->clock == ARCH_CLOCK_THREAD)
		compile_add_to_cpu(c, element, number, time);
	else
		add_to(c, ARCH_OP_COUNT, element, number, time);
}

static void start_timer(struct compiler *c, const struct variable *v)
{
	const uint64_t number = v->record_offset;
	const unsigned word = compile_load(c, c->record, number, 8, false);
	const unsigned runs = compile_label(c);

	compile_if_constant(c, ARCH_TEST_NE, compile_with(c, ARCH_OP_AND, word, TIMER_COUNT), 0,
			    runs);
	compile_store(c, c->record, number + 8, compile_clock(c, v->clock));
	compile_put_label(c, runs);
	fetch_add(c, c->record, number, compile_constant(c, 1));
}

/*
 * The one that runs is being stopped. Nothing is added: where a handler has jumped out of this before, it is said
 * already, and is taken back once.
 */
static void mark_busy(struct compiler *c, uint64_t number)
{
	const unsigned word = compile_constant(c, (int64_t)(TIMER_BUSY | 1));
	struct arch_op *op = at_address(c, ARCH_OP_STORE, c->record, number);

	op->size = 4;
	op->b = (uint16_t)word;
}

/* Gives the time that the stop ended, as the clock has it; -1 where it ended none. */
static unsigned stop_timer(struct compiler *c, const struct mdl_expr *x, const struct variable *v)
{
	const uint64_t number = v->record_offset;
	const unsigned end = compile_label(c), last = compile_label(c), positive = compile_label(c);
	const unsigned result = compile_constant(c, -1);
	unsigned count, time;

	count = compile_with(c, ARCH_OP_AND, compile_load(c, c->record, number, 8, false),
			     TIMER_COUNT);
	compile_if_constant(c, ARCH_TEST_EQ, count, 0, end);
	compile_if_constant(c, ARCH_TEST_EQ, count, 1, last);
	fetch_add(c, c->record, number, compile_constant(c, -1));
	compile_jump(c, end);
	compile_put_label(c, last);
	time = compile_clock(c, v->clock);
	compile_copy(c, result,
		     compile_binary(c, ARCH_OP_SUB, time,
				    compile_load(c, c->record, number + 8, 8, false)));
	compile_if_constant(c, ARCH_TEST_GE, result, 0, positive);
	compile_set(c, result, 0);
	compile_put_label(c, positive);
	mark_busy(c, number);
	add_time(c, x, v, result);
	fetch_add(c, c->record, number,
		  compile_constant(c, (int64_t)(TIMER_STOPPED - 1 - TIMER_BUSY)));
	compile_put_label(c, end);
	return result;
}

static unsigned time_to_ns(struct compiler *c, const struct variable *v, unsigned time)
{
	const unsigned result = compile_new_value(c), none = compile_label(c);

	if (v->clock != ARCH_CLOCK_TICKS)
		return time;
	compile_copy(c, result, time);
	compile_if_constant(c, ARCH_TEST_LT, time, 0, none);
	compile_copy(c, result, compile_ticks_to_ns(c, time));
	compile_put_label(c, none);
	return result;
}

void compile_timer(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	static const struct {
		enum mdl_vartype type;
		bool stop;
	} functions[] = {
		[MDL_DO_START_WALL] = {MDL_WALL_TIMER, false},
		[MDL_DO_STOP_WALL] = {MDL_WALL_TIMER, true},
		[MDL_DO_START_PROCESS] = {MDL_PROCESS_TIMER, false},
		[MDL_DO_STOP_PROCESS] = {MDL_PROCESS_TIMER, true},
		[MDL_DO_START_THREAD] = {MDL_THREAD_TIMER, false},
		[MDL_DO_STOP_THREAD] = {MDL_THREAD_TIMER, true},
	};
	struct variable *v;

	if (x->arg_count != 1) {
		compile_fail(c, &x->place, DINST_USAGE, "'%s' takes a timer",
			     x->text ? x->text : "");
		return;
	}
	v = named_variable(c, x->args[0]);
	if (!v)
		return;
	if (v->type != functions[x->function].type || v->form != VARIABLE_TIMER) {
		compile_fail(c, &x->args[0]->place, DINST_USAGE, "'%s' is a %s; this is for a %s",
			     v->name, mdl_vartype_name(v->type),
			     mdl_vartype_name(functions[x->function].type));
		return;
	}
	if (functions[x->function].stop)
		*out = operand_value(time_to_ns(c, v, stop_timer(c, x, v)));
	else
		start_timer(c, v);
}

/* ---------------------------------------------------------- distributions */

/* min or max: written only where the value is better, since most are not. */
static void record_extreme(struct compiler *c, unsigned base, uint64_t number, unsigned value,
			   bool max)
{
	const unsigned done = compile_label(c);
	const unsigned word = compile_load(c, base, number, 8, false);

	compile_if(c, max ? ARCH_TEST_LE : ARCH_TEST_GE, value, word, done);
	add_to(c, max ? ARCH_OP_ATOMIC_MAX : ARCH_OP_ATOMIC_MIN, base, number, value);
	compile_put_label(c, done);
}

void compile_record(struct compiler *c, const struct mdl_expr *x, struct operand *out)
{
	unsigned value, log, power, bucket, row, words, done;
	struct variable *v = x->arg_count ? named_variable(c, x->args[0]) : NULL;
	uint64_t number;

	if (v && v->form == VARIABLE_STREAM) {
		compile_event(c, x, v, out);
		return;
	}
	if (x->arg_count != 2) {
		compile_fail(c, &x->place, DINST_USAGE, "record takes a distribution and a value");
		return;
	}
	value = compile_number(c, x->args[1]);
	*out = operand_value(value);
	if (!v || c->failed)
		return;
	if (v->form != VARIABLE_DISTRIBUTION) {
		compile_fail(c, &x->args[0]->place, DINST_USAGE, "'%s' is a %s, not a distribution",
			     v->name, mdl_vartype_name(v->type));
		return;
	}
	if (!at_the_point(c))
		return;
	done = compile_label(c);
	compile_if_constant(c, ARCH_TEST_LT, value, 0, done);
	row = element_offset(c, x, v, 8 * VARIABLE_ROW);
	words = element_offset(c, x, v, 16);
	number = variable_counter(v, c->q->place);
	log = compile_unary(c, ARCH_OP_LOG2, compile_with(c, ARCH_OP_OR, value, 32));
	power = compile_with(c, ARCH_OP_SUB, log, 5);
	bucket = compile_binary(c, ARCH_OP_ADD, compile_with(c, ARCH_OP_SHL, power, 5),
				compile_binary(c, ARCH_OP_SHR, value, power));
	bucket = compile_with(c, ARCH_OP_SHL, bucket, 3);
	if (row)
		bucket = compile_binary(c, ARCH_OP_ADD, bucket, row);
	add_to(c, ARCH_OP_COUNT, bucket, number, compile_constant(c, 1));
	add_to(c, ARCH_OP_COUNT, row, number + 8UL * VARIABLE_BUCKETS, value);
	record_extreme(c, words, v->word, value, false);
	record_extreme(c, words, v->word + 8, value, true);
	compile_put_label(c, done);
}
