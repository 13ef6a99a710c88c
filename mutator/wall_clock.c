/* SPDX-License-Identifier: MIT */
/*
 * wall_clock.c - the vdso's clock_gettime(CLOCK_MONOTONIC) as operations. Knows
 * nothing of how the kernel keeps its data: that is in the code that is lifted.
 * Must never be tried on a vdso that is not where the kernel told the program.
 */
#include "mutator/wall_clock.h"

#include <elf.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/proc_open.h"
#include "inject/target.h"
#include "mutator/callee.h"

enum {
	VDSO_MOST = 64 * 1024,
	RAW_OPS = 1200, /* before anything was made simpler */
	LOOKS = 64,	/* at how long a call takes: the least counts */
	NS = 1000000000,
};

/* ------------------------------------------------------------------ lifting */

struct making {
	const struct wall_clock_source *source;
	struct arch_program *p;
	bool full;
};

static struct arch_op *new_op(void *arg, unsigned kind)
{
	static struct arch_op nowhere;
	struct making *m = arg;

	if (m->p->count == RAW_OPS) {
		m->full = true;
		return &nowhere;
	}
	m->p->ops[m->p->count] = (struct arch_op){.kind = (uint8_t)kind};
	return &m->p->ops[m->p->count++];
}

static unsigned new_value(void *arg)
{
	struct making *m = arg;

	if (m->p->values >= LIFT_VALUES) {
		m->full = true;
		return LIFT_VALUES;
	}
	return ++m->p->values;
}

static unsigned new_label(void *arg)
{
	struct making *m = arg;

	if (m->p->labels >= ARCH_PROGRAM_LABELS) {
		m->full = true;
		return ARCH_PROGRAM_LABELS;
	}
	return ++m->p->labels;
}

static bool is_mapped(void *arg, taddr_t address, uint64_t size)
{
	const struct wall_clock_source *s = ((struct making *)arg)->source;

	return address >= s->lo && address < s->hi && size <= s->hi - address;
}

static void put_label(struct making *m, unsigned kind, unsigned label)
{
	new_op(m, kind)->label = (uint16_t)label;
}

/* What the function has left: 0 and a struct timespec, or control went to `otherwise`. */
static void put_end(struct making *m, const struct lift *l, unsigned result, unsigned otherwise)
{
	const unsigned done = new_label(m), sec = new_value(m), ns = new_value(m);
	struct arch_op *op = new_op(m, ARCH_OP_IF);

	op->condition = ARCH_TEST_NE;
	op->a = (uint16_t)result;
	op->label = (uint16_t)otherwise;
	op = new_op(m, ARCH_OP_MUL);
	op->a = (uint16_t)arch_lift_buffer(l, 0);
	op->immediate = NS;
	op->result = (uint16_t)sec;
	op = new_op(m, ARCH_OP_ADD);
	op->a = (uint16_t)sec;
	op->b = (uint16_t)arch_lift_buffer(l, 1);
	op->result = (uint16_t)ns;
	put_label(m, ARCH_OP_JUMP, done);
	put_label(m, ARCH_OP_LABEL, otherwise);
	op = new_op(m, ARCH_OP_CLOCK);
	op->number = ARCH_CLOCK_MONOTONIC;
	op->immediate = 1;
	op->result = (uint16_t)ns;
	put_label(m, ARCH_OP_LABEL, done);
	/* So that it is of use while this is optimised. */
	op = new_op(m, ARCH_OP_STORE);
	op->b = (uint16_t)ns;
	op->size = 8;
}

static int lift(struct making *m, struct dinst_error *e)
{
	const struct lift_argument arguments[] = {
		{.known = true, .number = CLOCK_MONOTONIC},
		{.buffer = true},
	};
	struct lift l = {
		.arg = m, .op = new_op, .value = new_value, .is_mapped = is_mapped, .clock = true};
	struct callee_request q = {.code = m->source->code,
				   .size = m->source->size,
				   .start = m->source->start,
				   .entry = m->source->entry,
				   .arguments = arguments,
				   .argument_count = 2,
				   .lift = &l,
				   .label = new_label};
	int status;

	m->p->values = WALL_CLOCK_RESULT;
	q.result = new_value(m);
	q.otherwise = new_label(m);
	status = callee_lift(&q, e);
	if (status)
		return status;
	if (!arch_lift_buffer(&l, 0) || !arch_lift_buffer(&l, 1))
		return dinst_fail(e, DINST_UNSUPPORTED, "no way through it is understood");
	put_end(m, &l, q.result, q.otherwise);
	return m->full ? dinst_fail(e, DINST_UNSUPPORTED, "it is too long") : 0;
}

/* The optimised program ends with what stands for its use. */
static bool put_result(struct arch_program *p)
{
	struct arch_op *last = p->count ? &p->ops[p->count - 1] : NULL;

	if (!last || last->kind != ARCH_OP_STORE || !last->b)
		return false;
	*last = (struct arch_op){.kind = ARCH_OP_COPY, .a = last->b, .result = WALL_CLOCK_RESULT};
	return true;
}

/* What sets a value that nobody uses goes: flags that are never asked, copies of registers. */
static void drop_unused(struct arch_program *p)
{
	bool used[LIFT_VALUES + 1], dropped = true;

	while (dropped) {
		unsigned kept = 0;

		memset(used, 0, sizeof(used));
		for (unsigned i = 0; i < p->count; i++)
			used[p->ops[i].a] = used[p->ops[i].b] = true;
		for (unsigned i = 0; i < p->count; i++)
			if (arch_op_has_effect(&p->ops[i]) || used[p->ops[i].result])
				p->ops[kept++] = p->ops[i];
		dropped = kept < p->count;
		p->count = (uint16_t)kept;
	}
}

/* Values that are left get numbers without gaps; the result keeps its own. */
static void pack_values(struct arch_program *p)
{
	uint16_t numbers[LIFT_VALUES + 1] = {[WALL_CLOCK_RESULT] = WALL_CLOCK_RESULT};
	uint16_t count = WALL_CLOCK_RESULT;

	for (unsigned i = 0; i < p->count; i++) {
		uint16_t *const used[] = {&p->ops[i].result, &p->ops[i].second, &p->ops[i].a,
					  &p->ops[i].b};

		for (size_t n = 0; n < sizeof(used) / sizeof(used[0]); n++) {
			if (*used[n] && !numbers[*used[n]])
				numbers[*used[n]] = ++count;
			*used[n] = numbers[*used[n]];
		}
	}
	p->values = count;
}

static bool reads_a_clock(const struct arch_program *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (p->ops[i].kind == ARCH_OP_CLOCK && p->ops[i].number == ARCH_CLOCK_TICKS_ORDERED)
			return true;
	return false;
}

struct wall_clock *wall_clock_lift(const struct wall_clock_source *source, struct dinst_error *e)
{
	struct wall_clock *clock = calloc(1, sizeof(*clock));
	struct making m = {.source = source, .p = clock ? &clock->program : NULL};
	int status;

	if (clock)
		clock->program.ops = calloc(RAW_OPS, sizeof(struct arch_op));
	if (!clock || !clock->program.ops) {
		dinst_fail(e, DINST_NO_MEMORY, "no memory for a clock");
		goto fail;
	}
	clock->program.room = RAW_OPS;
	status = lift(&m, e);
	if (status)
		goto fail;
	drop_unused(&clock->program);
	pack_values(&clock->program);
	arch_program_optimise(&clock->program);
	if (!put_result(&clock->program) || !reads_a_clock(&clock->program)) {
		dinst_fail(e, DINST_UNSUPPORTED,
			   "no way through it that reads the processor's "
			   "clock is understood");
		goto fail;
	}
	if (clock->program.count > WALL_CLOCK_OPS) {
		dinst_fail(e, DINST_UNSUPPORTED, "it is too long");
		goto fail;
	}
	pack_values(&clock->program);
	return clock;
fail:
	wall_clock_free(clock);
	return NULL;
}

void wall_clock_free(struct wall_clock *clock)
{
	if (clock)
		free(clock->program.ops);
	free(clock);
}

/* ----------------------------------------------------------------- the vdso */

/* `size` bytes at `offset` of the image. */
static bool take(const uint8_t *image, size_t all, uint64_t offset, void *to, size_t size)
{
	if (offset > all || size > all - offset)
		return false;
	memcpy(to, image + offset, size);
	return true;
}

static size_t find_symbol(const uint8_t *image, size_t size, const Elf64_Shdr *symbols,
			  const Elf64_Shdr *strings)
{
	static const char name[] = "__vdso_clock_gettime";
	char text[sizeof(name)];
	Elf64_Sym s;

	for (uint64_t n = 0; n < symbols->sh_size / sizeof(s); n++)
		if (take(image, size, symbols->sh_offset + n * sizeof(s), &s, sizeof(s)) &&
		    ELF64_ST_TYPE(s.st_info) == STT_FUNC && s.st_shndx != SHN_UNDEF &&
		    take(image, size, strings->sh_offset + s.st_name, text, sizeof(text)) &&
		    !memcmp(text, name, sizeof(name)) && s.st_value < size)
			return s.st_value;
	return 0;
}

/* It is mapped as it is in its file: addresses are offsets (vdso(7)). */
size_t wall_clock_find(const uint8_t *image, size_t size)
{
	Elf64_Shdr symbols, strings;
	Elf64_Ehdr h;

	if (!take(image, size, 0, &h, sizeof(h)) || memcmp(h.e_ident, ELFMAG, SELFMAG) ||
	    h.e_ident[EI_CLASS] != ELFCLASS64 || h.e_shentsize != sizeof(symbols))
		return 0;
	for (unsigned n = 0; n < h.e_shnum; n++)
		if (take(image, size, h.e_shoff + n * sizeof(symbols), &symbols, sizeof(symbols)) &&
		    symbols.sh_type == SHT_DYNSYM && symbols.sh_link < h.e_shnum &&
		    take(image, size, h.e_shoff + symbols.sh_link * sizeof(strings), &strings,
			 sizeof(strings)))
			return find_symbol(image, size, &symbols, &strings);
	return 0;
}

/* Where the kernel put it when the program began: AT_SYSINFO_EHDR (getauxval(3)). */
static taddr_t told_address(pid_t pid)
{
	Elf64_auxv_t entry;
	taddr_t found = 0;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/auxv", (int)pid);
	fd = proc_open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	while (!found && read(fd, &entry, sizeof(entry)) == sizeof(entry))
		if (entry.a_type == AT_SYSINFO_EHDR)
			found = entry.a_un.a_val;
	close(fd);
	return found;
}

/* The mappings of the kernel's data that end where it begins. */
static taddr_t lowest(const struct maps *maps, const struct maps_entry *vdso)
{
	taddr_t lo = vdso->lo;

	for (size_t i = (size_t)(vdso - maps->entries); i-- > 0;) {
		const struct maps_entry *m = &maps->entries[i];

		if (m->hi != lo || m->inode || !(m->protection & 1 /* PROT_READ */) ||
		    (strcmp(m->name, "[vvar]") && strcmp(m->name, "[vvar_vclock]")))
			break;
		lo = m->lo;
	}
	return lo;
}

static uint64_t took(bool by_call)
{
	uint64_t least = UINT64_MAX;

	for (unsigned i = 0; i < LOOKS; i++) {
		struct timespec now;
		const uint64_t before = arch_clock_ticks();
		uint64_t ticks;

		if (by_call)
			syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
		else
			clock_gettime(CLOCK_MONOTONIC, &now);
		ticks = arch_clock_ticks() - before;
		if (ticks < least)
			least = ticks;
	}
	return least;
}

/* The code of the vdso; without a target it is our own. */
static bool copy_code(const struct target *t, taddr_t from, void *to, size_t size)
{
	/* There is none. */
	if (!from)
		return false;
	if (t)
		return !target_read(t, from, to, size, NULL);
	memcpy(to, (const void *)(uintptr_t)from, size);
	return true;
}

static struct wall_clock *make(const struct target *t, pid_t pid, const struct maps *maps,
			       struct dinst_error *e)
{
	const struct maps_entry *vdso = maps_named(maps, "[vdso]");
	struct wall_clock_source source = {0};
	struct wall_clock *clock = NULL;
	uint8_t *code;
	size_t entry;

	if (!vdso || vdso->inode || vdso->hi - vdso->lo > VDSO_MOST ||
	    vdso->lo != told_address(pid)) {
		dinst_fail(e, DINST_UNSUPPORTED, "the program has no vdso, or not where it was");
		return NULL;
	}
	source = (struct wall_clock_source){.size = vdso->hi - vdso->lo,
					    .start = vdso->lo,
					    .lo = lowest(maps, vdso),
					    .hi = vdso->hi};
	code = malloc(source.size);
	source.code = code;
	entry = code && copy_code(t, vdso->lo, code, source.size)
			? wall_clock_find(code, source.size)
			: 0;
	source.entry = source.start + entry;
	if (!entry)
		dinst_fail(e, DINST_UNSUPPORTED, "the vdso has no clock_gettime()");
	else
		clock = wall_clock_lift(&source, e);
	free(code);
	return clock;
}

struct wall_clock *wall_clock_make(const struct target *t, struct dinst_error *e)
{
	const char *set = getenv("DINST_UNSTEADY");
	const pid_t pid = t ? target_memory_tid(t) : getpid();
	struct wall_clock *clock;
	struct maps maps;

	/* For tests: what happens where there is no vdso, or none that is understood. */
	if (set && !strcmp(set, "call")) {
		dinst_fail(e, DINST_UNSUPPORTED, "the vdso is not to be used (DINST_UNSTEADY)");
		return NULL;
	}
	/* There the kernel's own function makes the system call, too, as with most other clocks. */
	if (took(false) > took(true) / 2) {
		dinst_fail(e, DINST_UNSUPPORTED,
			   "the kernel's clock is one that only the kernel can read");
		return NULL;
	}
	if (maps_read(pid, &maps, e))
		return NULL;
	clock = make(t, pid, &maps, e);
	maps_release(&maps);
	return clock;
}

/* ---------------------------------------------------------------- programs */

static bool is_expanded(const struct arch_op *op)
{
	return op->kind == ARCH_OP_CLOCK && op->number == ARCH_CLOCK_MONOTONIC && !op->immediate;
}

bool wall_clock_is_wanted(const struct arch_program *p)
{
	for (unsigned i = 0; i < p->count; i++)
		if (is_expanded(&p->ops[i]))
			return true;
	return false;
}

static uint16_t moved(uint16_t value, uint16_t by, uint16_t result)
{
	if (value == WALL_CLOCK_RESULT)
		return result;
	return value ? (uint16_t)(value + by) : 0;
}

/* The clock instead of operation i. */
static void expand(const struct arch_program *clock, struct arch_program *p, unsigned i)
{
	const uint16_t result = p->ops[i].result;

	memmove(&p->ops[i + clock->count], &p->ops[i + 1], (p->count - i - 1) * sizeof(*p->ops));
	for (unsigned n = 0; n < clock->count; n++) {
		struct arch_op *op = &p->ops[i + n];

		*op = clock->ops[n];
		op->result = moved(op->result, p->values, result);
		op->second = moved(op->second, p->values, result);
		op->a = moved(op->a, p->values, result);
		op->b = moved(op->b, p->values, result);
		if (op->label)
			op->label = (uint16_t)(op->label + p->labels);
	}
	p->count = (uint16_t)(p->count + clock->count - 1);
	p->values = (uint16_t)(p->values + clock->values);
	p->labels = (uint16_t)(p->labels + clock->labels);
}

void wall_clock_expand(const struct wall_clock *clock, struct arch_program *p)
{
	const struct arch_program *c = &clock->program;

	for (unsigned i = 0; i < p->count; i++) {
		if (!is_expanded(&p->ops[i]) || !p->ops[i].result)
			continue;
		if (p->count + c->count - 1 > ARCH_PROGRAM_OPS ||
		    p->values + c->values > ARCH_PROGRAM_VALUES ||
		    p->labels + c->labels > ARCH_PROGRAM_LABELS)
			return;
		expand(c, p, i);
		i += c->count - 1;
	}
}
