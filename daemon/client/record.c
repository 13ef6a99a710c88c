/* SPDX-License-Identifier: MIT */
/*
 * record.c - dinst record: events into a directory, as daemon/report/ctf.h says. Keeps
 * one packet of them in memory, however long it goes on.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "daemon/client/tracing.h"
#include "daemon/report/ctf.h"

enum { WRITE_AFTER_NS = 1000000000 }; /* what has come is in the file after this */

const struct option_spec record_options[] = {
	TRACING_OPTIONS,
	{'d', "duration", "SECONDS", "so long (1.5, 30s, 2m; default: until Ctrl-C)"},
	{'o', "output", "DIR", "make this directory (default: PROGRAM-TIME.ctf)"},
	{0, NULL, NULL, NULL},
};

struct recorder {
	struct tracing t;
	struct ctf_writer writer;
	uint64_t written_ns; /* when something was written last */
	struct dinst_error e;
};

static int record_event(void *arg, const struct event *e)
{
	struct recorder *r = arg;

	return ctf_event(&r->writer, &r->t.log, e, &r->e) != 0;
}

static void record_idle(void *arg, uint64_t ns)
{
	struct recorder *r = arg;

	if (r->e.code || ns == UINT64_MAX)
		return;
	if (!r->written_ns || ns - r->written_ns < WRITE_AFTER_NS) {
		r->written_ns = r->written_ns ? r->written_ns : ns;
		return;
	}
	r->written_ns = ns;
	if (!ctf_flush(&r->writer, &r->t.log, &r->e))
		question_progress(&r->t.q, "%" PRIu64 " events, %" PRIu64 " dropped, %.1f MB",
				  r->writer.events, r->t.log.dropped,
				  (double)r->writer.bytes / 1e6);
}

/* Here, and to be seen, whatever the process calls itself. */
static void default_path(const char *process, char *path, size_t size)
{
	const time_t now = time(NULL);
	struct tm when = {0};

	localtime_r(&now, &when);
	snprintf(path, size, "%s-%02d%02d%02d.ctf", process, when.tm_hour, when.tm_min,
		 when.tm_sec);
	if (path[0] == '.')
		path[0] = '_';
	for (char *p = path; (p = strchr(p, '/'));)
		*p = '_';
}

/* Two connections must not be needed to leave: the directory is made when all is inserted. */
static int begin(struct recorder *r, struct context *c, const struct arguments *a, char *path,
		 size_t size)
{
	struct ctf_facts facts = {.pid = (uint32_t)r->t.q.pid};
	const char *given = arguments_get(a, 'o');

	snprintf(facts.process, sizeof(facts.process), "%s", c->session);
	for (int i = 0; i < a->word_count; i++)
		snprintf(facts.words + strlen(facts.words),
			 sizeof(facts.words) - strlen(facts.words), "%s%s", i ? " " : "",
			 a->word[i]);
	if (given)
		snprintf(path, size, "%s", given);
	else
		default_path(facts.process, path, size);
	if (ctf_create(&r->writer, path, &facts, r->t.rows, &r->e))
		return report(c, &r->e);
	return EXIT_DONE;
}

static void print_facts(const struct recorder *r, const char *path)
{
	json_t *facts =
		json_pack("{s:o, s:I, s:I, s:I}", "directory", rpc_text(path), "events",
			  (json_int_t)r->writer.events, "dropped", (json_int_t)r->t.log.dropped,
			  "bytes", (json_int_t)r->writer.bytes);

	print_json(facts);
	json_decref(facts);
}

int record_run(struct context *c, const struct arguments *a)
{
	struct recorder r = {.t = {.q.own_output = true, .patience_ms = 10000}};
	const struct tracing_calls calls = {record_event, record_idle, &r};
	char path[4096];
	int status = tracing_begin(&r.t, c, a);

	if (status != EXIT_DONE && status != EXIT_PARTIAL)
		return status;
	if (begin(&r, c, a, path, sizeof(path)) != EXIT_DONE)
		return tracing_end(&r.t, EXIT_FAILED);
	status = tracing_run(&r.t, &calls);
	if (!r.e.code)
		ctf_close(&r.writer, &r.t.log, &r.e);
	else
		ctf_close(&r.writer, &r.t.log, NULL);
	question_progress(&r.t.q, "%s", "");
	tracing_tell(&r.t, "events recorded", r.writer.events);
	if (r.e.code)
		status = report(c, &r.e);
	else if (c->json)
		print_facts(&r, path);
	else
		note(c, "dinst report %s shows it; babeltrace2 reads it, too", path);
	return tracing_end(&r.t, status);
}
