/* SPDX-License-Identifier: MIT */
/*
 * describe.c - the code of a site, instruction by instruction, with what each
 * is there for: read out of the arena, explained by emitting it once more.
 *
 * For people. Nothing is changed, and nothing depends on it.
 */
#include <string.h>

#include "mutator/body.h"

struct telling {
	const struct session *session;
	const struct site *site;
	int (*line)(void *arg, const struct site_line *l);
	void *arg;
	int status; /* what line() said */
};

static void tell(struct telling *t, struct site_line *l)
{
	if (t->status == 0)
		t->status = t->line(t->arg, l);
}

/* One line from `size` bytes at `bytes`; returns how many it took. */
static size_t tell_code(struct telling *t, struct site_line *l, const uint8_t *bytes, size_t size)
{
	struct arch_insn filling;
	size_t n = 0;

	if (arch_decode(bytes, size, l->address, &l->code) != ARCH_OK) {
		while (n < 8 && n < size &&
		       arch_decode(bytes + n, size - n, l->address + n, &filling) != ARCH_OK)
			n++;
		l->kind = SITE_LINE_DATA;
		l->code = (struct arch_insn){.address = l->address, .length = (uint8_t)n};
		memcpy(l->code.bytes, bytes, n);
	}
	tell(t, l);
	return l->code.length;
}

static void tell_data(struct telling *t, const struct site_line *like, const uint8_t *bytes,
		      size_t size)
{
	for (size_t at = 0, part; at < size; at += part) {
		struct site_line l = *like;

		part = size - at < 8 ? size - at : 8;
		l.kind = SITE_LINE_DATA;
		l.address = like->address + at;
		l.code = (struct arch_insn){.address = l.address, .length = (uint8_t)part};
		memcpy(l.code.bytes, bytes + at, part);
		tell(t, &l);
	}
}

/* ----------------------------------------------------------- the window */

/* What stands in the target now where the patches go, the window first. */
static void tell_window(struct telling *t)
{
	const struct site *site = t->site;
	struct site_line l = {.kind = SITE_LINE_WINDOW};
	uint8_t bytes[ARCH_INSN_MAX];
	size_t size;

	l.address = site->key.start;
	size = target_read_some(t->session->target, l.address, bytes, sizeof(bytes));
	if (size)
		tell_code(t, &l, bytes, size);
	if (!site->window.hole)
		return;
	l = (struct site_line){.kind = SITE_LINE_WINDOW};
	l.address = site->window.hole + site->module->bias;
	size = target_read_some(t->session->target, l.address, bytes, sizeof(bytes));
	if (size)
		tell_code(t, &l, bytes, size);
}

/* ----------------------------------------------------------------- code */

/* The mark that an offset belongs to; NULL before the first: the switch. */
static const struct code_mark *mark_at(const struct code *c, bool cold, size_t offset)
{
	const struct code_mark *found = NULL;

	for (size_t i = 0; i < c->mark_count; i++) {
		const struct code_mark *m = &c->marks[i];

		if (cold && m->kind != SITE_LINE_SNIPPET)
			continue;
		if ((cold ? m->cold_offset : m->offset) <= offset)
			found = m;
	}
	return found;
}

/* The link that piece number `index` of the body was made from, if it is still that. */
static const struct link *link_of(const struct site *site, const struct body *b, unsigned index)
{
	const struct link *l = site->first_link;

	if (!b || b != site->body || site->changed || site->held || b->count != site->links)
		return NULL;
	while (l && index--)
		l = l->next;
	return l;
}

enum { DESCRIPTOR = 32, SIGNATURE = 4 };

/*
 * struct rseq_cs of the kernel (include/uapi/linux/rseq.h), for a sequence of the
 * body. *signature is where that before its abort handler stands, an offset.
 */
static bool is_descriptor(const struct body *b, const uint8_t *bytes, size_t size,
			  size_t *signature)
{
	struct {
		uint32_t version, flags;
		uint64_t start, length, abort;
	} d;

	if (!b || size < sizeof(d))
		return false;
	memcpy(&d, bytes, sizeof(d));
	if (d.version != 0 || d.start - b->code >= b->code_size || d.length >= b->code_size ||
	    d.abort - b->cold >= b->cold_size || d.abort - b->cold < SIGNATURE)
		return false;
	*signature = d.abort - b->cold - SIGNATURE;
	return true;
}

/* [from, end) of the hot or the cold part. */
static void tell_part(struct telling *t, const struct code *c, bool cold, size_t from, size_t end)
{
	const struct body *b = c->body;
	taddr_t start = !b ? t->site->base : cold ? b->cold : b->code;
	const uint8_t *bytes = heap_map(t->site->place->heap, start, end);
	size_t signature = SIZE_MAX;

	for (size_t at = from; bytes && at < end && t->status == 0;) {
		const struct code_mark *m = mark_at(c, cold, at);
		struct site_line l = {.address = start + at, .cold = cold};

		l.kind = m ? m->kind : SITE_LINE_SWITCH;
		if (!b)
			l.kind = SITE_LINE_BASE;
		if (m && m->kind == SITE_LINE_SNIPPET) {
			const struct code_run *run = code_run_at(c, m->index);

			l.link = link_of(t->site, b, m->index);
			l.links = run ? run->end - run->first : 1;
			l.insn = b ? b->pieces[m->index].insn : 0;
		} else if (m) {
			l.insn = m->index;
		}
		if (cold && is_descriptor(b, bytes + at, end - at, &signature)) {
			tell_data(t, &l, bytes + at, DESCRIPTOR);
			at += DESCRIPTOR;
		} else if (cold && at == signature) {
			tell_data(t, &l, bytes + at, SIGNATURE);
			at += SIGNATURE;
		} else {
			at += tell_code(t, &l, bytes + at, end - at);
		}
	}
}

/* How far the switch at the beginning of a head goes. */
static size_t switch_end(const struct code *c)
{
	for (size_t i = 0; i < c->mark_count; i++)
		if (c->marks[i].kind != SITE_LINE_SWITCH)
			return c->marks[i].offset;
	return c->hot.used;
}

/* `body` NULL: the base. Of a head that is not in use any more only the switch is told. */
static int tell_body(struct telling *t, const struct body *b, bool whole)
{
	const struct site *site = t->site;
	struct code c;
	int status = code_init(&c, t->session, site, b, NULL);

	if (status < 0)
		return status;
	status = code_emit(&c, b ? b->code : site->base, b ? b->cold : 0, NULL);
	if (status >= 0) {
		tell_part(t, &c, false, 0, whole ? c.hot.used : switch_end(&c));
		if (b && b->cold && whole)
			tell_part(t, &c, true, 0, c.cold.used);
	}
	code_release(&c);
	return status < 0 ? status : 0;
}

int site_describe(const struct session *s, const struct site *site,
		  int (*line)(void *arg, const struct site_line *l), void *arg)
{
	struct telling t = {.session = s, .site = site, .line = line, .arg = arg};
	int status = 0;

	tell_window(&t);
	if (site->head)
		status = tell_body(&t, site->head, site->body == site->head);
	if (status == 0 && site->body && site->body != site->head)
		status = tell_body(&t, site->body, true);
	if (status == 0)
		status = tell_body(&t, NULL, true);
	return status < 0 ? status : t.status;
}
