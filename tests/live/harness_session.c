/* SPDX-License-Identifier: MIT */
/*
 * harness_session.c - see harness_session.h.
 */
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mutator/variable.h"

static void must(int status, const struct dinst_error *e, const char *what)
{
	if (status < 0)
		fail_msg("%s: %s (%s)", what, e->text, dinst_code_name(e->code));
}

/*
 * On a machine that is busy enough a thread may not stop in time: an answer, and to be tried
 * again, as a user would. True if it was that.
 */
static bool busy_again(int status, struct dinst_error *e, unsigned *tries)
{
	if (status != DINST_BUSY || ++*tries > 50)
		return false;
	dinst_error_clear(e);
	usleep(20000);
	return true;
}

struct session *session_begin(struct harness *h)
{
	struct dinst_error e = {0};
	struct session *s;

	must(session_attach(h->pid, "test", &s, &e), &e, "attach");
	return s;
}

void session_end(struct session *s)
{
	struct dinst_error e = {0};
	struct detach_result result;

	must(session_detach(s, 100, &result, &e), &e, "detach");
	assert_int_equal(result.left, 0);
	session_free(s);
}

int session_try_insert(struct session *s, const char *focus, bool each, size_t *count,
		       unsigned *first_id, struct dinst_error *e)
{
	const char *const foci[] = {focus};
	const struct insert_options options = {.each = each};
	struct insert_result result;
	int status = request_insert(s, "calls", foci, 1, &options, &result, e);

	if (status < 0)
		return status;
	*count = result.count;
	*first_id = result.count ? result.instances[0]->id : 0;
	free(result.instances);
	return 0;
}

unsigned session_insert(struct session *s, const char *focus)
{
	struct dinst_error e = {0};
	unsigned id = 0, tries = 0;
	size_t count = 0;
	int status;

	do
		status = session_try_insert(s, focus, false, &count, &id, &e);
	while (busy_again(status, &e, &tries));
	must(status, &e, focus);
	assert_int_equal(count, 1);
	return id;
}

int session_insert_patiently(struct session *s, const char *focus, unsigned *id,
			     struct dinst_error *e)
{
	unsigned tries = 0;
	size_t count;
	int status;

	do
		status = session_try_insert(s, focus, false, &count, id, e);
	while (busy_again(status, e, &tries));
	return status;
}

static const struct instance *only_one(struct insert_result *result)
{
	const struct instance *i;

	assert_int_equal(result->count, 1);
	i = result->instances[0];
	free(result->instances);
	return i;
}

const struct instance *session_insert_metric(struct session *s, const char *metric,
					     const char *focus,
					     const struct insert_options *options)
{
	struct insert_result result;
	struct dinst_error e = {0};
	unsigned tries = 0;
	int status;

	do
		status = request_insert(s, metric, &focus, 1, options, &result, &e);
	while (busy_again(status, &e, &tries));
	must(status, &e, focus);
	return only_one(&result);
}

const struct instance *session_insert_raw(struct session *s, const struct raw_metric *metric,
					  const char *focus)
{
	struct insert_result result;
	struct dinst_error e = {0};
	unsigned tries = 0;
	int status;

	do
		status = request_insert_raw(s, metric, &focus, 1, false, &result, &e);
	while (busy_again(status, &e, &tries));
	must(status, &e, focus);
	return only_one(&result);
}

int session_try_insert_kind(struct session *s, const char *focus, enum point_kind kind,
			    unsigned *id, struct dinst_error *e)
{
	/* Instances keep a pointer to their metric. */
	static struct raw_metric metrics[POINT_KINDS];
	const char *const foci[] = {focus};
	struct insert_result result;
	int status;

	metrics[kind] = (struct raw_metric){
		.name = point_kind_name(kind), .unit = "", .constraints = "/Code", .kind = kind};
	status = request_insert_raw(s, &metrics[kind], foci, 1, false, &result, e);
	if (status < 0)
		return status;
	assert_int_equal(result.count, 1);
	*id = result.instances[0]->id;
	free(result.instances);
	return 0;
}

unsigned session_insert_kind(struct session *s, const char *focus, enum point_kind kind)
{
	struct dinst_error e = {0};
	unsigned id = 0, tries = 0;
	int status;

	do
		status = session_try_insert_kind(s, focus, kind, &id, &e);
	while (busy_again(status, &e, &tries));
	must(status, &e, focus);
	return id;
}

static struct instance *instance_of(struct session *s, unsigned id)
{
	struct instance *i = session_instance(s, id);

	if (!i)
		fail_msg("no instance %u", id);
	return i;
}

uint64_t session_value(struct session *s, unsigned id)
{
	return instance_value(instance_of(s, id));
}

size_t session_pending(struct session *s, unsigned id)
{
	size_t points, pending;

	instance_points(instance_of(s, id), &points, &pending);
	return pending;
}

size_t session_refused(struct session *s, unsigned id)
{
	return instance_of(s, id)->refused_count;
}

void session_remove(struct session *s, unsigned id)
{
	struct dinst_error e = {0};
	struct flush_result result;

	must(removal_remove(s, instance_of(s, id), &result, &e), &e, "remove");
}

void session_flush_all(struct session *s)
{
	struct flush_result result = {0};
	struct dinst_error e = {0};
	unsigned tries = 0;

	for (int i = 0; i < 200; i++) {
		int status;

		do
			status = removal_flush(s, &result, &e);
		while (busy_again(status, &e, &tries));
		must(status, &e, "flush");
		if (!result.queued)
			return;
		usleep(1000);
	}
	fail_msg("%zu things are still queued", result.queued);
}

taddr_t session_address(struct session *s, const char *function)
{
	const struct image_function *functions;
	struct dinst_error e = {0};
	struct function_ref *found;
	taddr_t address;
	size_t count;

	must(find_functions(s->modules, function, &found, &count, &e), &e, function);
	image_functions(found[0].module->image, &functions);
	address = functions[found[0].index].address + found[0].module->bias;
	free(found);
	return address;
}

void session_load_deep(struct session *s, unsigned depth)
{
	struct dinst_error e = {0};
	char text[8192];
	size_t n;

	n = (size_t)snprintf(text, sizeof(text),
			     "metric deep%u { units calls; description \"deep\";\n"
			     "constraint f /Code/*/* is replace counter {\n"
			     "append preInsn $constraint[0].entry (* deep%u = ",
			     depth, depth);
	for (unsigned k = 1; k <= depth; k++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "(deep%u * %u + ", depth,
				      k * 2 + 1);
	n += (size_t)snprintf(text + n, sizeof(text) - n, "1");
	for (unsigned k = 1; k <= depth; k++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, ")");
	snprintf(text + n, sizeof(text) - n, "; *) }\nbase is counter { } }\n");
	if (mdl_load_text(s->library, "test", text, strlen(text), &e) < 0)
		fail_msg("%s", e.text);
}

void session_go(struct harness *h, unsigned long n)
{
	char text[32];

	snprintf(text, sizeof(text), "go %lu\n", n);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
}

bool harness_has_clock(bool whole)
{
	if (ticks_may_do())
		return true;
	print_message("%s: the kernel does not trust this processor's clock\n",
		      whole ? "SKIP events" : "skipped");
	return false;
}
