/* SPDX-License-Identifier: MIT */
/*
 * chrome.c - trace events in JSON. Times are microseconds with three decimals, so nothing is lost.
 */
#include <inttypes.h>

#include "daemon/report/chrome.h"
#include "daemon/report/escape.h"

static void begin_event(struct chrome *c)
{
	fputs(c->any ? ",\n" : "\n", c->out);
	c->any = true;
}

static void put_us(FILE *out, const char *key, uint64_t ns)
{
	fprintf(out, ",\"%s\":%" PRIu64 ".%03u", key, ns / 1000, (unsigned)(ns % 1000));
}

void chrome_begin(struct chrome *c, FILE *out, uint64_t base_ns)
{
	*c = (struct chrome){.out = out, .base_ns = base_ns};
	fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[", out);
}

void chrome_span(struct chrome *c, const struct call_span *span)
{
	if (c->spans == CHROME_SPANS) {
		c->left_out++;
		return;
	}
	c->spans++;
	begin_event(c);
	fputs("{\"ph\":\"X\",\"name\":\"", c->out);
	escape_json(c->out, span->node->function);
	fputs("\",\"cat\":\"", c->out);
	escape_json(c->out, span->node->module[0] ? span->node->module : "?");
	fprintf(c->out, "\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32, span->pid, span->tid);
	put_us(c->out, "ts", span->begun_ns > c->base_ns ? span->begun_ns - c->base_ns : 0);
	put_us(c->out, "dur", span->ns);
	fputc('}', c->out);
}

static void metadata(struct chrome *c, const char *what, uint32_t pid, uint32_t tid,
		     const char *name)
{
	begin_event(c);
	fprintf(c->out, "{\"ph\":\"M\",\"name\":\"%s\",\"pid\":%" PRIu32 ",\"tid\":%" PRIu32, what,
		pid, tid);
	fputs(",\"args\":{\"name\":\"", c->out);
	escape_json(c->out, name);
	fputs("\"}}", c->out);
}

void chrome_thread(struct chrome *c, uint32_t pid, uint32_t tid, const char *name)
{
	if (name && name[0])
		metadata(c, "thread_name", pid, tid, name);
}

void chrome_process(struct chrome *c, uint32_t pid, const char *process)
{
	metadata(c, "process_name", pid, pid, process);
}

void chrome_end(struct chrome *c)
{
	fputs("\n]}\n", c->out);
}
