/* SPDX-License-Identifier: MIT */
/*
 * body.c - bodies and bases in the arena: writing, giving back, explaining.
 *
 * A body is written once, before anything leads to it, and never changed. It
 * owns its bytes in the arena and references to the counters that it uses. A
 * program counter in it is explained by generating it again.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "arch/scan.h"
#include "mutator/body.h"

enum { COLD_ALIGN = ARCH_COUNT_ALIGN, FAR_APART = (2 << 20) + 32 };
enum { BEGINNER_MOST = 4096, BEGINNER_INSNS = 4 };

/* ------------------------------------------------------------- the base */

int base_write(struct session *s, struct site *site, struct dinst_error *e)
{
	struct heap *heap = site->place->heap;
	/* Displacements have one size whatever the distance: any address in the arena will do. */
	taddr_t somewhere = site->place->arena->code + journal_size(site->place->arena);
	struct code code;
	int status = code_init(&code, s, site, NULL, e);

	if (status < 0)
		return status;
	status = code_emit(&code, somewhere, somewhere, e);
	if (status < 0)
		goto release;
	site->base_size = code.hot.used;
	status = heap_alloc_cold(heap, site->base_size, &site->base, e);
	if (status < 0)
		goto release;
	status = code_emit(&code, site->base, 0, e);
	if (status >= 0 && code.hot.used > site->base_size)
		status = dinst_fail(e, DINST_FAILED, "the base of %#llx has grown",
				    (unsigned long long)site->key.start);
	if (status >= 0)
		memcpy(heap_map(heap, site->base, code.hot.used), code.hot.bytes, code.hot.used);
	else
		heap_free_code(heap, site->base);
release:
	code_release(&code);
	return status;
}

/* ---------------------------------------------------- threads that begin */

/* A function's code, and whether it registers restartable sequences. */
struct beginner {
	const uint8_t *code;
	size_t size;
	vaddr_t address;
	bool registers;
};

/* rseq's number stands there: soon after it there is a system call, or it is another number. */
static void look_behind(void *arg, taddr_t from, taddr_t number)
{
	struct beginner *b = arg;
	size_t at = from - b->address;
	struct arch_insn insn;

	(void)number;
	for (unsigned i = 0; i < BEGINNER_INSNS && at < b->size; i++, at += insn.length) {
		if (arch_decode(b->code + at, b->size - at, b->address + at, &insn) != ARCH_OK)
			return;
		b->registers |= insn.flow == ARCH_FLOW_SYSCALL;
	}
}

/*
 * True for what runs in a new thread before the C library has registered its restartable sequences
 * (glibc: start_thread(), which does it itself, and what it calls first). The number of the CPU in the
 * thread's memory is 0 then, or that of the thread which had the memory before.
 */
static bool runs_before_rseq(const struct site *site)
{
	const struct image *image = site->module->image;
	const struct image_function *functions, *f;
	struct beginner b = {.size = 0};

	image_functions(image, &functions);
	f = &functions[site->function];
	if (!strcmp(f->name, "start_thread") || !strcmp(f->name, "__ctype_init"))
		return true;
	if (f->size > BEGINNER_MOST)
		return false;
	b.address = f->address;
	b.code = image_code(image, f->address, &b.size);
	if (!b.code)
		return false;
	if (b.size > f->size)
		b.size = f->size;
	arch_scan_constants(b.code, b.size, b.address, SYS_rseq, SYS_rseq + 1, look_behind, &b);
	return b.registers;
}

static void look_around(const struct session *s, const struct site *site,
			struct arch_environment *environment)
{
	snippet_look_around(s, site->place, environment);
	if (environment->counter.mode != ARCH_COUNT_PER_CPU && !environment->thread_clock_by_rseq)
		return;
	if (!runs_before_rseq(site))
		return;
	environment->counter.mode = ARCH_COUNT_LOCKED;
	environment->thread_clock_by_rseq = false;
}

/* --------------------------------------------------------------- bodies */

static struct body *body_new(const struct session *s, struct site *site, bool is_head,
			     struct dinst_error *e)
{
	struct body *b = calloc(1, sizeof(*b) + site->links * sizeof(b->pieces[0]));

	if (!b) {
		dinst_fail(e, DINST_NO_MEMORY, "out of memory for the code of a site");
		return NULL;
	}
	b->site = site;
	b->is_head = is_head;
	look_around(s, site, &b->environment);
	for (const struct link *l = site->first_link; l; l = l->next)
		b->pieces[b->count++] = (struct body_piece){
			.snippet = l->snippet,
			.live = l->live,
			.insn = l->insn,
			.point_insn = l->point_insn,
			.place = l->place,
			.kind = l->kind,
		};
	return b;
}

/* Room for the code, by what it took at some other address. */
static int alloc(struct body *b, const struct code *code, struct dinst_error *e)
{
	struct heap *heap = b->site->place->heap;
	int status;

	b->code_size = (uint32_t)code->hot.used;
	b->cold_size = (uint32_t)((code->cold.used + COLD_ALIGN - 1) / COLD_ALIGN * COLD_ALIGN);
	status = heap_alloc_code(heap, b->code_size, &b->code, e);
	if (status < 0 || !b->cold_size)
		return status;
	status = heap_alloc_cold(heap, b->cold_size, &b->cold, e);
	if (status < 0)
		heap_free_code(heap, b->code);
	return status;
}

static int write_code(struct session *s, struct body *b, struct dinst_error *e)
{
	struct heap *heap = b->site->place->heap;
	taddr_t somewhere = b->site->place->arena->code + journal_size(b->site->place->arena);
	struct code code;
	int status = code_init(&code, s, b->site, b, e);

	if (status < 0)
		return status;
	/* Hot and cold are far from each other, which some architectures pay for. */
	status = code_emit(&code, (somewhere + 4095) & ~(taddr_t)4095, somewhere + FAR_APART, e);
	b->site->small_stack = code.small_stack;
	if (status >= 0)
		status = alloc(b, &code, e);
	if (status < 0)
		goto release;
	status = code_emit(&code, b->code, b->cold, e);
	if (status >= 0 && (code.hot.used > b->code_size || code.cold.used > b->cold_size))
		status = dinst_fail(e, DINST_FAILED, "the code of %#llx has grown",
				    (unsigned long long)b->site->key.start);
	if (status < 0) {
		heap_free_code(heap, b->code);
		if (b->cold)
			heap_free_code(heap, b->cold);
		goto release;
	}
	memcpy(heap_map(heap, b->code, code.hot.used), code.hot.bytes, code.hot.used);
	if (code.cold.used)
		memcpy(heap_map(heap, b->cold, code.cold.used), code.cold.bytes, code.cold.used);
release:
	code_release(&code);
	return status;
}

/* Takes `b`, which nobody has yet: the result, or freed. */
static int write_new(struct session *s, struct body *b, struct body **out, struct dinst_error *e)
{
	int status;

	if (!b)
		return DINST_NO_MEMORY;
	status = write_code(s, b, e);
	if (status < 0) {
		free(b);
		return status;
	}
	for (unsigned i = 0; i < b->count; i++)
		snippet_hold(&b->pieces[i].snippet, b->site->place);
	*out = b;
	return 0;
}

int body_write(struct session *s, struct site *site, bool is_head, struct body **out,
	       struct dinst_error *e)
{
	return write_new(s, body_new(s, site, is_head, e), out, e);
}

int body_write_copy(struct session *s, const struct body *of, bool is_head, struct body **out,
		    struct dinst_error *e)
{
	const size_t size = sizeof(*of) + of->count * sizeof(of->pieces[0]);
	struct body *b = malloc(size);

	if (!b)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory for the code of a site");
	memcpy(b, of, size);
	b->is_head = is_head;
	b->code = b->cold = 0;
	b->next = NULL;
	return write_new(s, b, out, e);
}

void body_free(struct body *b)
{
	struct heap *heap = b->site->place->heap;

	for (unsigned i = 0; i < b->count; i++)
		snippet_release(&b->pieces[i].snippet, b->site->place);
	heap_free_code(heap, b->code);
	if (b->cold)
		heap_free_code(heap, b->cold);
	free(b);
}

/* ----------------------------------------------------- program counters */

bool body_contains(const struct body *b, taddr_t pc)
{
	return pc - b->code < b->code_size || (b->cold && pc - b->cold < b->cold_size);
}

/* What is known of an offset in code that was emitted where it lies. */
static bool explain(const struct code *c, bool cold, uint64_t offset, taddr_t *original,
		    size_t *pushed)
{
	const struct code_mark *found = NULL;

	for (size_t i = 0; i < c->mark_count; i++) {
		const struct code_mark *m = &c->marks[i];

		if ((cold ? m->cold_offset : m->offset) > offset)
			break;
		/* Only snippets have anything in the cold part. */
		if (!cold || m->kind == SITE_LINE_SNIPPET)
			found = m;
	}
	if (!found || (!cold && found->exact && found->offset != offset))
		return false;
	*original = found->home;
	*pushed = c->pushed + arch_pushed_at(cold ? &c->cold_trace : &c->hot_trace, (size_t)offset);
	return true;
}

bool body_home(const struct session *s, const struct body *b, taddr_t pc, taddr_t *original,
	       size_t *pushed)
{
	bool cold = b->cold && pc - b->cold < b->cold_size;
	struct code code;
	bool known = false;

	if (code_init(&code, s, b->site, b, NULL) < 0)
		return false;
	if (code_emit(&code, b->code, b->cold, NULL) >= 0)
		known = explain(&code, cold, pc - (cold ? b->cold : b->code), original, pushed);
	code_release(&code);
	return known;
}

bool base_home(const struct session *s, const struct site *site, taddr_t base, taddr_t pc,
	       taddr_t *original, size_t *pushed)
{
	struct code code;
	bool known = false;

	if (code_init(&code, s, site, NULL, NULL) < 0)
		return false;
	if (code_emit(&code, base, 0, NULL) >= 0)
		known = explain(&code, false, pc - base, original, pushed);
	code_release(&code);
	return known;
}

/* True if what the mark says comes first of all that belongs to the instruction. */
static bool begins_insn(const struct code *c, const struct code_mark *m, unsigned insn)
{
	const struct body_piece *p;

	if (m->kind == SITE_LINE_COPY || m->kind == SITE_LINE_BACK)
		return m->index == insn;
	if (m->kind != SITE_LINE_SNIPPET)
		return false;
	p = &c->body->pieces[m->index];
	return p->insn == insn && p->place != PLACE_FALLS;
}

bool site_copy_of(const struct session *s, const struct site *site, taddr_t pc, taddr_t *to)
{
	const struct body *b = site->body;
	taddr_t at = b ? b->code : site->base;
	struct code code;
	bool found = false;
	unsigned insn = 0;

	if (code_init(&code, s, site, b, NULL) < 0)
		return false;
	while (insn < code.insn_count && code.insns[insn].address != pc)
		insn++;
	if (insn < code.insn_count && code_emit(&code, at, b ? b->cold : 0, NULL) >= 0)
		for (size_t i = 0; i < code.mark_count && !found; i++)
			if (begins_insn(&code, &code.marks[i], insn)) {
				*to = at + code.marks[i].offset;
				found = true;
			}
	code_release(&code);
	return found;
}
