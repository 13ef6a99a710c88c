/* SPDX-License-Identifier: MIT */
/*
 * hist.c - dinst hist: how long the calls of a function take, as a distribution, or one for
 * each argument, thread or caller.
 *
 * Owns the text of the metric that answers it, and what is printed. Never reads the
 * target itself.
 */
#include "daemon/client/question.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/values.h"

enum {
	KEYS_SHOWN = 10,
	ARGUMENTS = 6,
	PIPED_SECONDS = 10,
	LOOK_MS = 200,
	FUNCTIONS_MAX = 1000, /* that a pattern may match */
	CALL_NS = 3,	      /* what the way to the inserted code and back takes beside it */
	SMALL_KEY = 1 << 20,  /* arguments below are shown as numbers, others as addresses */
};

struct hist {
	struct question q;
	const char *function;
	const char *by; /* NULL: one for all calls */
	char name[40];	/* of the metric */
	json_t *ids;
	double cost_ns; /* predicted, of a call */
	double interval;
	double seconds; /* that the last reading is about */
	bool repeated;	/* the user wants every interval */
	size_t drawn;	/* lines on the terminal */
	size_t function_count;
};

const struct option_spec hist_options[] = {
	{'b', "by", "KEY", "one distribution per arg0..arg5, thread or caller"},
	{'i', "interval", "SECONDS", "between refreshes (default 1)"},
	QUESTION_OPTIONS,
	{0, NULL, NULL, NULL},
};

/* ------------------------------------------------------------------ the text */

/* What tells the distributions apart, as a constraint; "" if nothing does, or a thread. */
static void key_text(const struct hist *h, char *text, size_t size)
{
	const char *n = h->name;

	text[0] = '\0';
	if (h->by && !strcmp(h->by, "caller"))
		snprintf(text, size,
			 "constraint %s_key /SyncObject/Caller/* is counter {\n"
			 "\t(* %s_key = ($caller == $constraint[0]); *)\n}\n",
			 n, n);
	else if (h->by && !strncmp(h->by, "arg", 3))
		snprintf(text, size,
			 "constraint %s_key /SyncObject/Argument/* is counter {\n"
			 "\tappend preInsn %s_functions.entry (* %s_key = ($arg[%s] == "
			 "$constraint[0]); *)\n"
			 "\tprepend preInsn %s_functions.return (* %s_key = 0; *)\n}\n",
			 n, n, n, h->by + 3, n, n);
}

static const char *focus_of(const struct hist *h)
{
	if (!h->by)
		return NULL;
	return !strcmp(h->by, "thread")	  ? "/Process/*"
	       : !strcmp(h->by, "caller") ? "/SyncObject/Caller/*"
					  : "/SyncObject/Argument/*";
}

/* Whatever is no address has no business in a text of ours. */
static bool is_address(const char *text)
{
	return text && !strncmp(text, "0x", 2) && text[2] &&
	       !text[2 + strspn(text + 2, "0123456789abcdef")];
}

/* By their addresses: several functions of a module may have one name. */
static void list_text(const struct hist *h, json_t *rows, FILE *to)
{
	const char *between = "";
	size_t index;
	json_t *row;

	fprintf(to, "list %s_functions is procedure { items {", h->name);
	json_array_foreach(rows, index, row)
	{
		const char *address = json_string_value(json_object_get(row, "address"));

		if (!is_address(address))
			continue;
		fprintf(to, "%s \"%s\"", between, address);
		between = ",\n\t";
	}
	fprintf(to, " }; }\n");
}

static int load_text(struct hist *h, json_t *rows, struct dinst_error *e)
{
	char key[512], *text = NULL;
	size_t size = 0;
	FILE *to = open_memstream(&text, &size);
	int err;

	if (!to)
		return dinst_fail(e, DINST_NO_MEMORY, "no memory for a text");
	/* names for each process of ours: two may ask the same session */
	snprintf(h->name, sizeof(h->name), "hist_%d", (int)getpid());
	key_text(h, key, sizeof(key));
	list_text(h, rows, to);
	fprintf(to,
		"%smetric %s {\n\tunits ns; description \"How long calls take.\";\n"
		"\tconstraint thread;",
		key, h->name);
	if (key[0])
		fprintf(to, " constraint %s_key;", h->name);
	fprintf(to,
		"\n\tbase is distribution {\n\t\tforeach f in %s_functions\n"
		"\t\t\tprepend preInsn f.return (* record(%s, $elapsed); *)\n\t}\n}\n",
		h->name, h->name);
	if (fclose(to) != 0)
		err = dinst_fail(e, DINST_NO_MEMORY, "no memory for a text");
	else
		err = question_load(&h->q, "hist", text, e);
	free(text);
	return err;
}

static int find(struct hist *h, json_t **rows, struct dinst_error *e)
{
	json_t *params = json_pack("{s:o}", "pattern", rpc_text(h->function)), *answer = NULL;
	int err = question_call(&h->q, "funcs", params, &answer, e);

	json_decref(params);
	if (err)
		return err;
	*rows = json_incref(json_object_get(answer, "rows"));
	json_decref(answer);
	if (json_array_size(*rows) <= FUNCTIONS_MAX)
		return 0;
	err = dinst_fail(e, DINST_USAGE, "'%.200s' are %zu functions: say which, at most %d",
			 h->function, json_array_size(*rows), FUNCTIONS_MAX);
	json_decref(*rows);
	*rows = NULL;
	return err;
}

static int insert(struct hist *h)
{
	struct context *c = h->q.c;
	const char *focus = focus_of(h);
	struct dinst_error e = {0, ""};
	json_t *foci = focus ? json_pack("[s]", focus) : NULL, *functions = NULL, *answer = NULL;
	json_t *row;
	int status = EXIT_DONE;

	if (find(h, &functions, &e) != 0 || load_text(h, functions, &e) != 0 ||
	    question_insert(&h->q, h->name, foci, false, 0, &answer, &e) != 0) {
		status = report(c, &e);
	} else {
		row = json_array_get(json_object_get(answer, "rows"), 0);
		h->ids = json_pack("[O]", json_object_get(row, "id"));
		h->cost_ns = json_number_value(json_object_get(row, "predicted_ns"));
		h->function_count = json_array_size(functions);
		if (json_integer_value(json_object_get(row, "points")) == 0 && c->target_ended)
			status = report_text(c, DINST_GONE, "it ended before anything was counted");
		else if (json_integer_value(json_object_get(row, "points")) == 0)
			status = report_text(c, DINST_REFUSED,
					     "no exit of %s can be instrumented (dinst points %s "
					     "says why)",
					     h->function, h->function);
	}
	json_decref(answer);
	json_decref(functions);
	json_decref(foci);
	return status;
}

/* ------------------------------------------------------------------- showing */

static double number_of(json_t *row, const char *key)
{
	return json_number_value(json_object_get(row, key));
}

/* Percent of a CPU that the counting takes from the target. */
static double cost_percent(const struct hist *h, double count)
{
	return h->seconds > 0 ? count * (h->cost_ns + CALL_NS) / h->seconds / 1e7 : 0;
}

/* In one line, or in two where it is longer than the terminal's. Returns how many. */
static size_t print_head(const struct hist *h, json_t *row, size_t columns)
{
	const double count = number_of(row, "count");
	char more[60] = "", cost[80];
	size_t used;
	bool wraps;

	if (h->function_count > 1)
		snprintf(more, sizeof(more), " (%zu functions)", h->function_count);
	used = (size_t)printf("%s%s in %s (pid %d): %.1f s, %.0f calls, %.0f/s,", h->function, more,
			      h->q.c->session, (int)h->q.pid, h->seconds, count,
			      h->seconds > 0 ? count / h->seconds : 0);
	snprintf(cost, sizeof(cost), "costs it %.2f %% of a CPU", cost_percent(h, count));
	wraps = used + 1 + strlen(cost) > columns;
	printf("%s%s\n", wraps ? "\n  " : " ", cost);
	return wraps ? 2 : 1;
}

static const struct column key_columns[] = {
	{"key", "KEY", COLUMN_TEXT},
	{"name", "NAME", COLUMN_TEXT},
	{"count", "CALLS", COLUMN_NUMBER},
	{"share", "SHARE", COLUMN_NUMBER},
	{"p50", "P50", COLUMN_NUMBER},
	{"p90", "P90", COLUMN_NUMBER},
	{"p99", "P99", COLUMN_NUMBER},
	{"p999", "P99.9", COLUMN_NUMBER},
	{"max", "MAX", COLUMN_NUMBER},
	{"shape", "SHAPE", COLUMN_TEXT},
	{NULL, NULL, 0},
};

/* Keys are words of 64 bits as the registers had them: small numbers are read as such. */
static void key_shown(const struct hist *h, json_t *key, char *text, size_t size)
{
	const char *word = json_string_value(key);
	char *end = NULL;
	const uint64_t value = word ? strtoull(word, &end, 16) : 0;

	if (json_is_null(key) || !key)
		snprintf(text, size, "(others)");
	else if (!word)
		value_text(key, COLUMN_TEXT, text, size);
	else if (h->by[0] == 'a' && !*end && value + SMALL_KEY <= 2 * (uint64_t)SMALL_KEY)
		snprintf(text, size, "%lld", (long long)value);
	else
		snprintf(text, size, "%s", word);
}

/* An element as it is shown in the table; the shape is drawn over first..last for all. */
static json_t *key_row(const struct hist *h, json_t *element, double total, int first, int last)
{
	static const char *const quantiles[] = {"p50", "p90", "p99", "p999", "max", NULL};
	json_t *shown = json_object();
	char text[512];

	key_shown(h, json_object_get(element, "key"), text, sizeof(text));
	json_object_set_new(shown, "key", rpc_text(text));
	if (json_object_get(element, "name"))
		json_object_set(shown, "name", json_object_get(element, "name"));
	json_object_set(shown, "count", json_object_get(element, "count"));
	snprintf(text, sizeof(text), "%.1f %%",
		 total > 0 ? 100 * number_of(element, "count") / total : 0);
	json_object_set_new(shown, "share", json_string(text));
	for (const char *const *key = quantiles; *key; key++) {
		value_with_unit(number_of(element, *key), "ns", text);
		json_object_set_new(shown, *key, json_string(text));
	}
	spark_text(json_object_get(element, "buckets"), first, last, output_is_fine(), text,
		   sizeof(text));
	json_object_set_new(shown, "shape", json_string(text));
	return shown;
}

/* The busiest keys, one line each, those without a place last. */
static size_t print_keys(const struct hist *h, json_t *row)
{
	json_t *elements = json_object_get(row, "elements"), *shown = json_array(), *element;
	json_t *others = NULL;
	const double total = number_of(row, "count");
	char low[VALUE_TEXT], high[VALUE_TEXT];
	int first = 1, last = 0;
	size_t index, keys = 0, lines;

	buckets_extent(json_object_get(row, "buckets"), &first, &last);
	json_array_foreach(elements, index, element)
	{
		if (json_is_null(json_object_get(element, "key")))
			others = element;
		else if (keys++ < KEYS_SHOWN)
			json_array_append_new(shown, key_row(h, element, total, first, last));
	}
	if (others)
		json_array_append_new(shown, key_row(h, others, total, first, last));
	lines = table_print(key_columns, shown, h->q.c->verbose);
	json_decref(shown);
	if (keys > KEYS_SHOWN)
		lines += printf("... and %zu more keys\n", keys - KEYS_SHOWN) > 0;
	if (first <= last) {
		value_with_unit(first < 0 ? 0 : (double)(1ull << first), "ns", low);
		value_with_unit((double)(1ull << (last + 1)), "ns", high);
		lines += printf("SHAPE is from %s to %s, each step twice the one before\n", low,
				high) > 0;
	}
	return lines;
}

/* What a terminal has left for the distribution: the whole is drawn over what was drawn before. */
static size_t bar_lines(const struct hist *h, json_t *row)
{
	const size_t keys = json_array_size(json_object_get(row, "elements"));
	const size_t table = h->by ? (keys < KEYS_SHOWN + 1 ? keys : KEYS_SHOWN + 1) + 4 : 0;
	const size_t lines = output_lines(SIZE_MAX);
	const size_t others = 2 + table + 1; /* the head, and where the cursor stands */

	if (!h->q.terminal || lines == SIZE_MAX)
		return SIZE_MAX;
	return lines > others ? lines - others : 0;
}

static void print_row(struct hist *h, json_t *row)
{
	const size_t columns = h->q.terminal ? output_columns(COLUMNS_PIPE) : COLUMNS_PIPE;

	if (h->q.c->json) {
		json_object_set_new(row, "function", rpc_text(h->function));
		json_object_set_new(row, "seconds", json_real(h->seconds));
		json_object_set_new(row, "cost_percent",
				    json_real(cost_percent(h, number_of(row, "count"))));
		json_object_del(row, "metric");
		json_object_del(row, "id");
		print_json(row);
		return;
	}
	if (h->drawn)
		printf("\033[%zuA\033[J", h->drawn);
	if (h->q.terminal)
		fputs("\033[?7l", stdout); /* lines that are too long are cut, not wrapped */
	h->drawn = print_head(h, row, columns);
	h->drawn += distribution_print(row, "ns", columns, bar_lines(h, row), output_is_fine());
	if (h->by) {
		putchar('\n');
		h->drawn += 1 + print_keys(h, row);
	}
	if (h->q.terminal)
		fputs("\033[?7h", stdout);
	else
		h->drawn = 0;
	output_flush();
}

/* Returns an exit status. */
static int show(struct hist *h)
{
	struct dinst_error e = {0, ""};
	json_t *rows = NULL, *row;
	int err = question_read(&h->q, h->ids, &rows, &e);

	/* a target that has ended, or a second signal: there is nothing to show any more */
	if (err && (h->q.c->target_ended || link_interrupted))
		return EXIT_DONE;
	if (err)
		return report(h->q.c, &e);
	h->seconds = question_seconds(&h->q);
	row = json_array_get(rows, 0);
	if (row)
		print_row(h, row);
	json_decref(rows);
	return EXIT_DONE;
}

/* ------------------------------------------------------------------- command */

/* Only an answer tells that the target has ended: then the time is over, and with it what rates are of. */
static int look(struct hist *h)
{
	struct dinst_error e = {0, ""};
	json_t *rows = NULL;
	int err = question_read(&h->q, h->ids, &rows, &e);

	json_decref(rows);
	return err && !h->q.c->target_ended && !link_interrupted ? report(h->q.c, &e) : EXIT_DONE;
}

static int watch(struct hist *h)
{
	const unsigned wait = (unsigned)(h->interval * 1000);
	const bool live = h->q.terminal || h->repeated;
	int status = EXIT_DONE;

	while (status == EXIT_DONE && question_wait(&h->q, live ? wait : LOOK_MS))
		status = live ? show(h) : look(h);
	return status == EXIT_DONE ? show(h) : status;
}

static bool by_is_known(const char *by)
{
	return !strcmp(by, "thread") || !strcmp(by, "caller") ||
	       (!strncmp(by, "arg", 3) && by[3] >= '0' && by[3] < '0' + ARGUMENTS && !by[4]);
}

int hist_run(struct context *c, const struct arguments *a)
{
	const char *interval = arguments_get(a, 'i');
	struct hist h = {.function = a->word[0], .by = arguments_get(a, 'b'), .interval = 1};
	int status;

	if (h.by && !by_is_known(h.by))
		return report_text(c, DINST_USAGE,
				   "--by takes arg0 to arg%d, thread or caller, not '%s'",
				   ARGUMENTS - 1, h.by);
	if (interval && (!question_seconds_from(interval, &h.interval) || h.interval < 0.05))
		return report_text(c, DINST_USAGE,
				   "--interval takes seconds from 0.05 on, not '%s'", interval);
	h.repeated = interval != NULL;
	/* nobody is there who would end it */
	if (!isatty(STDOUT_FILENO) || arguments_get(a, 'o'))
		h.q.duration_s = PIPED_SECONDS;
	status = question_begin(&h.q, c, a);
	if (status != EXIT_DONE)
		return status;
	status = insert(&h);
	if (status == EXIT_DONE)
		status = watch(&h);
	json_decref(h.ids);
	return question_end(&h.q, status);
}
