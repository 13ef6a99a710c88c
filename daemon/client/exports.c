/* SPDX-License-Identifier: MIT */
/*
 * exports.c - from options to files of other programs' formats. Owns the files; the formats are
 * daemon/report/'s.
 */
#include "daemon/client/exports.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/report/callgrind.h"
#include "daemon/report/flame.h"
#include "daemon/report/folded.h"
#include "daemon/report/pprof.h"

enum { RECORDING_MOST = 900000 }; /* bytes: a line to the daemon has at most 1 MiB */

/* In the order of exports.out. */
enum kind { FLAME, CHROME, PERFETTO, FOLDED, CALLGRIND, PPROF };

static const struct {
	char letter;
	const char *name;
	const char *then; /* what to do with it */
} kinds[EXPORT_KINDS] = {
	[FLAME] = {OPTION_FLAME, "flame graph", "open it in a browser"},
	[CHROME] = {OPTION_CHROME, "trace", "load it in chrome://tracing"},
	[PERFETTO] = {OPTION_PERFETTO, "trace", "open it at ui.perfetto.dev"},
	[FOLDED] = {OPTION_FOLDED, "folded stacks", "flamegraph.pl or speedscope reads them"},
	[CALLGRIND] = {OPTION_CALLGRIND, "callgrind profile",
		       "kcachegrind or callgrind_annotate reads it"},
	[PPROF] = {OPTION_PPROF, "profile", "go tool pprof reads it"},
};

bool exports_wanted(const struct arguments *a)
{
	for (size_t i = 0; i < EXPORT_KINDS; i++)
		if (arguments_get(a, kinds[i].letter))
			return true;
	return false;
}

static void span_ended(void *arg, const struct call_span *span)
{
	struct exports *x = arg;

	for (size_t i = 0; i < 2; i++)
		if (x->chrome[i].out)
			chrome_span(&x->chrome[i], span);
}

int exports_begin(struct exports *x, const struct arguments *a, struct dinst_error *e)
{
	int error;

	*x = (struct exports){.tree = call_tree_new()};
	if (!x->tree)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < EXPORT_KINDS; i++) {
		const char *path = arguments_get(a, kinds[i].letter);

		if (!path)
			continue;
		error = result_file_open(&x->out[i].result, path);
		if (!error && !(x->out[i].file = fdopen(x->out[i].result.fd, "w"))) {
			error = -errno;
			result_file_drop(&x->out[i].result);
			close(x->out[i].result.fd);
		}
		if (error) {
			dinst_fail_errno(e, DINST_BAD_FILE, -error, "cannot write %s", path);
			exports_release(x);
			return DINST_BAD_FILE;
		}
	}
	if (x->out[CHROME].file || x->out[PERFETTO].file)
		call_tree_watch(x->tree, span_ended, x);
	return 0;
}

/* Times in traces count from the first event. */
static void begin_traces(struct exports *x, uint64_t base_ns)
{
	x->begun = true;
	for (size_t i = 0; i < 2; i++)
		if (x->out[CHROME + i].file) {
			result_file_begin(&x->out[CHROME + i].result);
			chrome_begin(&x->chrome[i], x->out[CHROME + i].file, base_ns);
		}
}

int exports_event(struct exports *x, const struct event *event)
{
	if (!x->begun)
		begin_traces(x, event->ns);
	return call_tree_event(x->tree, event);
}

void exports_thread(struct exports *x, uint32_t pid, uint32_t tid, const char *name)
{
	for (size_t i = 0; i < 2; i++)
		if (x->chrome[i].out)
			chrome_thread(&x->chrome[i], pid, tid, name);
}

static int write_kind(struct exports *x, enum kind kind, const struct export_facts *facts)
{
	const struct flame_options drawing = {facts->title, facts->subtitle};
	FILE *out = x->out[kind].file;

	switch (kind) {
	case FLAME:
		return flame_write(out, x->tree, &drawing);
	case CHROME:
	case PERFETTO:
		if (facts->process)
			chrome_process(&x->chrome[kind - CHROME], facts->pid, facts->process);
		chrome_end(&x->chrome[kind - CHROME]);
		return 0;
	case FOLDED:
		folded_write(out, x->tree);
		return 0;
	case CALLGRIND:
		return callgrind_write(out, x->tree, facts->title);
	default:
		return pprof_write(out, x->tree, facts->realtime_ns, facts->duration_ns);
	}
}

/* A file is right only if all of it could be written. */
static int finish(struct exports *x, struct context *c, size_t i, const struct export_facts *facts)
{
	const char *path = x->out[i].result.path;
	int status, failed;

	if (i != CHROME && i != PERFETTO)
		result_file_begin(&x->out[i].result);
	status = write_kind(x, (enum kind)i, facts);
	failed = ferror(x->out[i].file);
	failed = fclose(x->out[i].file) != 0 || failed;
	x->out[i].file = NULL;
	if (status < 0)
		return report_text(c, status, "no memory to write %s", path);
	if (failed)
		return report_text(c, DINST_BAD_FILE, "cannot write %s: %s", path, strerror(errno));
	note(c, "%s: %s (%s)", path, kinds[i].name, kinds[i].then);
	return EXIT_DONE;
}

int exports_end(struct exports *x, struct context *c, const struct export_facts *facts,
		uint64_t now_ns)
{
	int status = EXIT_DONE;

	if (!x->begun)
		begin_traces(x, now_ns);
	call_tree_end(x->tree, now_ns);
	for (size_t i = 0; i < EXPORT_KINDS; i++) {
		if (!x->out[i].file)
			continue;
		if (finish(x, c, i, facts) != EXIT_DONE)
			status = EXIT_FAILED;
	}
	for (size_t i = 0; i < 2; i++)
		if (x->chrome[i].left_out)
			note(c, "%s has the first %d calls; %llu that came later are left out",
			     x->out[CHROME + i].result.path, CHROME_SPANS,
			     (unsigned long long)x->chrome[i].left_out);
	return status;
}

void note_tree(struct context *c, const struct call_tree *t)
{
	struct call_tree_facts facts;

	call_tree_facts(t, &facts);
	if (facts.too_deep)
		note(c, "%" PRIu64 " calls deeper than %d are left out", facts.too_deep,
		     CALL_TREE_DEPTH);
	if (facts.left)
		note(c,
		     "%" PRIu64
		     " calls ended without a return (an exception, a jump, a thread that ended): "
		     "their times are what is known of them, until the last or next event",
		     facts.left);
}

void exports_recording(struct exports *x, struct context *c, const char *title)
{
	struct dinst_error ignored = {0, ""};
	json_t *params, *answer = NULL;
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (!out)
		return;
	folded_write(out, x->tree);
	if (fclose(out) == 0 && size && size <= RECORDING_MOST) {
		params = json_pack("{s:o,s:s,s:o}", "title", rpc_text(title), "unit", "ns",
				   "folded", rpc_text(text));
		call(c, "recording", params, &answer, &ignored);
		json_decref(params);
		json_decref(answer);
	}
	free(text);
}

void exports_release(struct exports *x)
{
	for (size_t i = 0; i < EXPORT_KINDS; i++) {
		if (!x->out[i].file)
			continue;
		if (!x->begun || (i != CHROME && i != PERFETTO))
			result_file_drop(&x->out[i].result);
		fclose(x->out[i].file);
	}
	call_tree_free(x->tree);
	*x = (struct exports){0};
}
