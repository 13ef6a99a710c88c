/* SPDX-License-Identifier: MIT */
/*
 * trace_text.c - the text of a metric that traces: functions of which the same is recorded
 * stand in one list and share their code's text.
 */
#include "mutator/trace_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/types_describe.h"

struct writing {
	const struct trace_request *q;
	const char *metric;
	FILE *to;
	bool late;   /* one event, at the return */
	bool inside; /* there are callees */
};

static int no_memory(struct dinst_error *e)
{
	return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
}

static void record_release(struct trace_record *r)
{
	for (size_t i = 0; i < r->count; i++) {
		free(r->fields[i].text);
		free(r->fields[i].name);
		json_decref(r->fields[i].type);
	}
	r->count = 0;
}

void trace_functions_free(struct trace_function *list, size_t count)
{
	for (size_t i = 0; list && i < count; i++) {
		record_release(&list[i].entry);
		record_release(&list[i].result);
		free(list[i].condition);
	}
	free(list);
}

/* --------------------------------------------------------------------- parts */

static void write_record(const struct writing *w, const struct trace_record *r)
{
	fprintf(w->to, "record(%s", w->metric);
	for (size_t i = 0; i < r->count; i++)
		fprintf(w->to, ", %s", r->fields[i].text);
	fprintf(w->to, ");");
}

/*
 * Events at the entry and at the return; a condition is asked at the entry. Of calls deeper in calls
 * than there are bits nothing is asked: entries and returns agree on which these are.
 */
static void write_running(const struct writing *w, const struct trace_function *f)
{
	const bool callee = f->level > 0, asked = !callee && f->condition;
	const char *m = w->metric;

	fprintf(w->to, "\t\tappend preInsn f.entry (* ");
	if (callee)
		fprintf(w->to, "if (%s_inside > 0) ", m);
	else if (asked)
		fprintf(w->to,
			"if (%s_deep < %d) { %s_passed = %s_passed << 1 | ((%s) ? 1 : 0); "
			"if (%s_passed & 1) { ",
			m, TRACE_DEPTH_MOST, m, m, f->condition, m);
	if (!callee && w->inside)
		fprintf(w->to, "%s_inside++; ", m);
	write_record(w, &f->entry);
	if (asked)
		fprintf(w->to, " } } %s_deep++;", m);
	fprintf(w->to, " *)\n\t\tprepend preInsn f.return (* ");
	if (callee)
		fprintf(w->to, "if (%s_inside > 0) ", m);
	else if (asked)
		fprintf(w->to, "%s_deep--; if (%s_deep < %d) { if (%s_passed & 1) { ", m, m,
			TRACE_DEPTH_MOST, m);
	write_record(w, &f->result);
	if (!callee && w->inside)
		fprintf(w->to, " %s_inside--;", m);
	if (asked)
		fprintf(w->to, " } %s_passed = %s_passed >> 1 & 0x7fffffffffffffff; }", m, m);
	fprintf(w->to, " *)\n");
}

/* The number of the argument that field i of a late record keeps; -1: it is none. */
static int kept_argument(const struct trace_function *f, size_t i)
{
	const struct trace_field *field = &f->result.fields[i];
	const size_t length = strlen(f->kept);

	if (strcmp(field->role, "argument") != 0 || strncmp(field->text, f->kept, length) != 0)
		return -1;
	return (int)strtol(field->text + length + 1, NULL, 10);
}

/* "call0_2 = $arg[2]; " and so on. Returns how many. */
static size_t write_kept(const struct trace_function *f, FILE *to, bool as_words)
{
	size_t count = 0;

	for (size_t i = 0; i < f->result.count; i++) {
		const int number = kept_argument(f, i);

		if (number < 0)
			continue;
		count++;
		if (to && as_words)
			fprintf(to, "\tcounter %s_%d;\n", f->kept, number);
		else if (to)
			fprintf(to, "%s_%d = $arg[%d]; ", f->kept, number, number);
	}
	return count;
}

/* One event when the call is over, if it is of the kind that is wanted. */
static int write_late(const struct writing *w, const struct trace_function *f,
		      struct dinst_error *e)
{
	char *condition = NULL, *saves = NULL, prefix[32];
	const size_t kept = write_kept(f, NULL, false);
	const bool callee = f->level > 0;
	size_t saved = 0;
	int status;

	snprintf(prefix, sizeof(prefix), "%s_c", f->kept);
	if (f->condition && !callee) {
		status = trace_condition_save(f->condition, prefix, &condition, &saves, &saved, e);
		if (status < 0)
			return status;
	}
	fprintf(w->to, "\t\tappend preInsn f.entry (* ");
	if (!callee && w->inside)
		fprintf(w->to, "%s_inside++; ", w->metric);
	if (kept || saved) {
		fprintf(w->to, "%s++; if (%s == 1) { %s", f->kept, f->kept, saves ? saves : "");
		write_kept(f, w->to, false);
		fprintf(w->to, "} ");
	} else {
		fprintf(w->to, "%s++; ", f->kept);
	}
	fprintf(w->to, "*)\n\t\tprepend preInsn f.return (* if ($elapsed >= %" PRIu64,
		w->q->min_ns);
	if (callee)
		fprintf(w->to, " && %s_inside > 0", w->metric);
	/* Of a call inside of another one of the function nothing was kept to ask about. */
	if (saved)
		fprintf(w->to, " && %s == 1", f->kept);
	if (condition || f->condition)
		fprintf(w->to, "%s%s%s", callee ? "" : " && (",
			callee	    ? ""
			: condition ? condition
				    : f->condition,
			callee ? "" : ")");
	fprintf(w->to, ") ");
	write_record(w, &f->result);
	if (!callee && w->inside)
		fprintf(w->to, " %s_inside--;", w->metric);
	fprintf(w->to, " %s--; *)\n", f->kept);
	free(condition);
	free(saves);
	return 0;
}

/* The words of a thread's that the text names. */
static int write_words(const struct writing *w, const struct trace_function *list, size_t count,
		       struct dinst_error *e)
{
	if (w->inside)
		fprintf(w->to, "\tcounter %s_inside;\n", w->metric);
	if (!w->late) {
		for (size_t i = 0; i < count; i++)
			if (list[i].condition) {
				fprintf(w->to, "\tcounter %s_passed;\n\tcounter %s_deep;\n",
					w->metric, w->metric);
				break;
			}
		return 0;
	}
	for (size_t i = 0; i < count; i++) {
		char *condition = NULL, *saves = NULL;
		size_t saved = 0;
		int status;

		fprintf(w->to, "\tcounter %s;\n", list[i].kept);
		write_kept(&list[i], w->to, true);
		if (!list[i].condition || list[i].level)
			continue;
		status = trace_condition_save(list[i].condition, "", &condition, &saves, &saved, e);
		if (status < 0)
			return status;
		free(condition);
		free(saves);
		for (size_t n = 0; n < saved; n++)
			fprintf(w->to, "\tcounter %s_c%zu;\n", list[i].kept, n);
	}
	return 0;
}

/* ---------------------------------------------------------------------- text */

static bool same_record(const struct trace_record *a, const struct trace_record *b)
{
	if (a->count != b->count)
		return false;
	for (size_t i = 0; i < a->count; i++)
		if (strcmp(a->fields[i].text, b->fields[i].text) != 0)
			return false;
	return true;
}

/* True if one piece of text does for both: words that keep something are each function's own. */
static bool same_code(const struct writing *w, const struct trace_function *a,
		      const struct trace_function *b)
{
	const bool conditions = a->condition && b->condition;

	return !w->late && a->level == b->level && !a->condition == !b->condition &&
	       (!conditions || !strcmp(a->condition, b->condition)) &&
	       same_record(&a->entry, &b->entry) && same_record(&a->result, &b->result);
}

/* group[i]: the first function whose text does for function i. */
static void make_groups(const struct writing *w, const struct trace_function *list, size_t count,
			size_t *group)
{
	for (size_t i = 0; i < count; i++) {
		group[i] = i;
		for (size_t k = 0; k < i; k++)
			if (group[k] == k && same_code(w, &list[k], &list[i])) {
				group[i] = k;
				break;
			}
	}
}

/* By its address: names may be those of several functions. */
static void write_item(FILE *to, const struct function_ref *f)
{
	const struct image_function *functions;

	image_functions(f->module->image, &functions);
	fprintf(to, "\"0x%" PRIx64 "\"", functions[f->index].address + f->module->bias);
}

static void write_lists(const struct writing *w, const struct trace_function *list, size_t count,
			const size_t *group)
{
	for (size_t k = 0; k < count; k++) {
		const char *between = "";

		if (group[k] != k)
			continue;
		fprintf(w->to, "list %s_list%zu is procedure { items { ", w->metric, k);
		for (size_t i = k; i < count; i++) {
			if (group[i] != k)
				continue;
			fputs(between, w->to);
			write_item(w->to, &list[i].function);
			between = ", ";
		}
		fprintf(w->to, " }; }\n");
	}
}

static int write_text(const struct writing *w, const struct trace_function *list, size_t count,
		      const size_t *group, struct dinst_error *e)
{
	int status;

	write_lists(w, list, count, group);
	fprintf(w->to, "metric %s {\n\tunits events;\n", w->metric);
	status = write_words(w, list, count, e);
	fprintf(w->to, "\tbase is stream {\n");
	for (size_t k = 0; k < count && status >= 0; k++) {
		if (group[k] != k)
			continue;
		fprintf(w->to, "\t\tforeach f in %s_list%zu {\n", w->metric, k);
		if (w->late)
			status = write_late(w, &list[k], e);
		else
			write_running(w, &list[k]);
		fprintf(w->to, "\t\t}\n");
	}
	fprintf(w->to, "\t}\n}\n");
	return status;
}

/* What is recorded of a function, and its own form of the condition. */
static int prepare(const struct trace_request *q, struct trace_function *f, size_t number,
		   bool late, struct dinst_error *e)
{
	const struct image_function *functions;
	struct image *img = f->function.module->image;
	const bool named = q->condition && !f->level;
	json_t *described = NULL;
	int status;

	snprintf(f->kept, sizeof(f->kept), "call%zu", number);
	image_functions(img, &functions);
	if (q->arguments || q->result || named)
		described = types_describe(img, f->function.index);
	status = trace_fields_make(q, f, late, described, e);
	if (status >= 0 && named)
		status = trace_condition_make(q->condition, functions[f->function.index].name,
					      described, &f->condition, e);
	json_decref(described);
	return status;
}

bool trace_is_at_return(const struct trace_request *q)
{
	return q->min_ns || trace_is_late(q->condition);
}

int trace_text_make(const struct trace_request *q, const char *metric, struct trace_function *list,
		    size_t count, char **text, struct dinst_error *e)
{
	struct writing w = {.q = q, .metric = metric, .late = trace_is_at_return(q)};
	size_t *group = calloc(count + 1, sizeof(*group)), size;
	int status = group ? 0 : no_memory(e);

	*text = NULL;
	for (size_t i = 0; i < count && status >= 0; i++) {
		w.inside = w.inside || list[i].level;
		status = prepare(q, &list[i], i, w.late, e);
	}
	if (status >= 0) {
		make_groups(&w, list, count, group);
		w.to = open_memstream(text, &size);
		status = w.to ? write_text(&w, list, count, group, e) : no_memory(e);
	}
	if (w.to && fclose(w.to) != 0 && status >= 0)
		status = no_memory(e);
	if (status < 0) {
		free(*text);
		*text = NULL;
	}
	free(group);
	return status;
}
