/* SPDX-License-Identifier: MIT */
/*
 * report_fuzz.c - any bytes as a recording that somebody made: what `dinst report` makes of
 * it is lines that no terminal obeys, JSON that can be read, and files for other programs.
 *
 * The first byte of the input says how to look at it: 1 as JSON, 2 what is behind the
 * description is the whole stream; else it is the events of one packet, whose head is made
 * right, since nobody guesses that. Then come two bytes with the description's length, and
 * the description, which stands in the place of the metadata, too.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/report/callgrind.h"
#include "daemon/report/chrome.h"
#include "daemon/report/ctf_private.h"
#include "daemon/report/flame.h"
#include "daemon/report/folded.h"
#include "daemon/report/pprof.h"
#include "daemon/report/summary.h"
#include "daemon/report/text.h"
#include "tests/fuzz/fuzz.h"

enum { AS_JSON = 1, WHOLE_STREAM = 2, PREFIX = 3, LINES_MOST = 64 << 20 };

static char directory[] = "/tmp/dinst-fuzz-XXXXXX";
static int at = -1;

/* ----------------------------------------------------------------- the recording */

static void remove_directory(void)
{
	unlinkat(at, ".dinst", 0);
	unlinkat(at, "metadata", 0);
	unlinkat(at, "stream", 0);
	rmdir(directory);
}

static void make_directory(void)
{
	if (at >= 0)
		return;
	require(mkdtemp(directory));
	at = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	require(at >= 0);
	atexit(remove_directory);
}

static void write_file(const char *name, const void *head, size_t head_size, const void *bytes,
		       size_t size)
{
	const int fd = openat(at, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	require(fd >= 0);
	require(write(fd, head, head_size) == (ssize_t)head_size);
	require(write(fd, bytes, size) == (ssize_t)size);
	close(fd);
}

/* Returns how to look at it. */
static uint8_t write_recording(const uint8_t *bytes, size_t size)
{
	const size_t length = (size_t)bytes[1] | (size_t)bytes[2] << 8;
	const size_t described = length < size - PREFIX ? length : size - PREFIX;
	const uint8_t *rest = bytes + PREFIX + described;
	const size_t left = size - PREFIX - described;
	const uint64_t bits = (left + CTF_PACKET_HEAD) * 8;
	const uint32_t magic = CTF_MAGIC;
	uint8_t head[CTF_PACKET_HEAD] = {0};

	memcpy(head, &magic, sizeof(magic));
	memcpy(head + 40, &bits, sizeof(bits));
	memcpy(head + 48, &bits, sizeof(bits));
	write_file(CTF_OWN_FILE, NULL, 0, bytes + PREFIX, described);
	write_file("metadata", NULL, 0, bytes + PREFIX, described);
	write_file(CTF_STREAM_FILE, head, bytes[0] & WHOLE_STREAM ? 0 : sizeof(head), rest, left);
	return bytes[0];
}

/* -------------------------------------------------------------- what is made of it */

struct looking {
	struct event_log log;
	struct ctf_facts facts;
	struct trace trace;
	struct text lines;
	struct summary summary;
	struct call_tree *tree;
	struct chrome chrome;
	char *chrome_text;
	size_t chrome_size;
};

static int on_event(void *arg, const struct event *e)
{
	struct looking *l = arg;

	require(e->kind && e->size >= 24 && (!e->thread || e->thread->tid == e->tid));
	trace_event(&l->trace, e, &l->lines);
	summary_event(&l->summary, e);
	require(!call_tree_event(l->tree, e));
	return l->lines.used > LINES_MOST;
}

static void on_span(void *arg, const struct call_span *span)
{
	struct looking *l = arg;

	chrome_span(&l->chrome, span);
}

/* Nothing that a terminal obeys: no byte below a blank but newlines, none of U+0080 to U+009F. */
static void check_harmless(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		const uint8_t c = (uint8_t)text[i];

		require(c >= ' ' || c == '\n');
		require(c != 0xc2 || i + 1 == size || (uint8_t)text[i + 1] >= 0xa0);
	}
}

static void check_json(const char *text, size_t size)
{
	json_t *value = json_loadb(text, size, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, NULL);

	require(value);
	json_decref(value);
}

static void check_lines(const struct looking *l, bool json)
{
	const char *line = l->lines.data, *end;

	check_harmless(line, l->lines.used);
	for (; json && line && *line; line = end + 1) {
		end = strchr(line, '\n');
		require(end);
		check_json(line, (size_t)(end - line));
	}
}

enum format { FOLDED, CALLGRIND, FLAME, PPROF, FORMATS };

static void write_format(const struct looking *l, enum format format)
{
	const struct flame_options drawing = {l->facts.words, l->facts.process};
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	require(out);
	if (format == FOLDED)
		folded_write(out, l->tree);
	else if (format == CALLGRIND)
		require(!callgrind_write(out, l->tree, l->facts.words));
	else if (format == FLAME)
		require(!flame_write(out, l->tree, &drawing));
	else
		require(!pprof_write(out, l->tree, 1, l->facts.last_ns - l->facts.first_ns));
	require(!fclose(out));
	if (format == FOLDED || format == CALLGRIND)
		check_harmless(text, size);
	free(text);
}

static void write_chrome(struct looking *l)
{
	const struct event_log *log = &l->log;

	for (size_t i = 0; i < log->thread_count; i++)
		chrome_thread(&l->chrome, log->threads[i]->pid, log->threads[i]->tid,
			      log->threads[i]->name);
	chrome_process(&l->chrome, l->facts.pid, l->facts.process);
	chrome_end(&l->chrome);
	require(!fflush(l->chrome.out));
	check_json(l->chrome_text, l->chrome_size);
}

static void look(struct looking *l)
{
	struct dinst_error e = {0};
	const int status = ctf_read(directory, &l->log, &l->facts, on_event, l, &e);

	require(status >= 0 || (e.code == status && e.text[0]));
	require(l->facts.first_ns <= l->facts.last_ns);
	trace_flush(&l->trace, UINT64_MAX, &l->lines);
	check_lines(l, l->trace.json);
	summary_end(&l->summary, l->facts.last_ns);
	for (size_t i = 0; i < l->summary.count; i++) {
		const struct summary_function *f = &l->summary.functions[i];

		require(f->timed <= f->calls && (!f->timed || f->min_ns <= f->max_ns));
		require(summary_quantile(f, 0.5) <= summary_quantile(f, 0.99));
	}
	call_tree_end(l->tree, l->facts.last_ns);
	for (enum format format = 0; format < FORMATS; format++)
		write_format(l, format);
	write_chrome(l);
}

/* fear L1: a recording that an enemy made is read as far as it is one, and nothing in it moves the cursor */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct looking l = {0};

	if (size < PREFIX)
		return 0;
	make_directory();
	event_log_init(&l.log);
	trace_init(&l.trace, &l.log);
	l.trace.json = write_recording(bytes, size) & AS_JSON;
	l.tree = call_tree_new();
	l.chrome.out = open_memstream(&l.chrome_text, &l.chrome_size);
	require(l.tree && l.chrome.out && !summary_init(&l.summary));
	chrome_begin(&l.chrome, l.chrome.out, 0);
	call_tree_watch(l.tree, on_span, &l);
	look(&l);
	fclose(l.chrome.out);
	free(l.chrome_text);
	call_tree_free(l.tree);
	summary_release(&l.summary);
	trace_release(&l.trace);
	text_drop(&l.lines);
	event_log_release(&l.log);
	return 0;
}

FUZZ_MAIN(report, 10000);
