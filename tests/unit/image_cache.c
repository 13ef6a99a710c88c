/* SPDX-License-Identifier: MIT */
/*
 * image_cache.c - plans from the cache are the plans that were made, and no
 * file in it, whatever has happened to it, is anything else but ignored.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "mutator/cache_pack.h"
#include "mutator/image_private.h"
#include "tests/unit/cache_home.h"

static void cache_remove_all(void)
{
	char name[256];

	while (files(name, sizeof(name)))
		cache_remove(name);
}

/* -------------------------------------------------------------- plans */

static void target_path(char *path, size_t size)
{
	const char *build = getenv("DINST_BUILD");

	snprintf(path, size, "%s/tests/live/targets/points-flow", build ? build : "build");
}

static struct image *open_file(const char *path)
{
	struct dinst_error e = {0};
	struct image *img = NULL;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s", e.text);
	close(fd);
	return img;
}

static struct image *open_target(void)
{
	char path[4096];

	target_path(path, sizeof(path));
	return open_file(path);
}

struct plans {
	struct function_plan **items;
	size_t count;
};

static void free_plans(struct image *img, struct plans *p)
{
	for (size_t i = 0; i < p->count; i++)
		plan_free(img, p->items[i]);
	free(p->items);
}

/* Makes and remembers all plans; what closing writes. */
static void make_plans(struct image *img, struct plans *p)
{
	const struct image_function *functions;
	struct dinst_error e = {0};

	p->count = image_functions(img, &functions);
	p->items = calloc(p->count, sizeof(*p->items));
	assert_non_null(p->items);
	for (size_t i = 0; i < p->count; i++) {
		if (plan_function(img, (uint32_t)i, &p->items[i], &e) < 0)
			fail_msg("%s", e.text);
		plan_cache_put(img, p->items[i]);
	}
}

static bool same_point(const struct point *a, const struct point *b)
{
	return a->kind == b->kind && a->tactic == b->tactic && a->refusal == b->refusal &&
	       a->place == b->place && a->part == b->part && a->address == b->address &&
	       a->window == b->window && a->insn == b->insn && a->callee == b->callee &&
	       a->live == b->live && a->through_pointer == b->through_pointer;
}

static bool same_window(const struct window *a, const struct window *b)
{
	return a->start == b->start && a->length == b->length && a->padding == b->padding &&
	       a->insn_count == b->insn_count && a->hole_length == b->hole_length &&
	       a->kind == b->kind && a->hole == b->hole;
}

static bool same_plan(const struct function_plan *a, const struct function_plan *b)
{
	if (a->function != b->function || a->point_count != b->point_count ||
	    a->window_count != b->window_count || a->level != b->level)
		return false;
	for (size_t i = 0; i < a->point_count; i++)
		if (!same_point(&a->points[i], &b->points[i]))
			return false;
	for (size_t i = 0; i < a->window_count; i++)
		if (!same_window(&a->windows[i], &b->windows[i]))
			return false;
	return true;
}

/* How many plans the cache has; every one is as it was made. */
static size_t check_cached(const struct plans *p)
{
	struct image *img = open_target();
	size_t found = 0;

	for (size_t i = 0; i < p->count; i++) {
		struct function_plan *plan;

		if (!plan_cache_get(img, (uint32_t)i, &plan))
			continue;
		assert_true(same_plan(plan, p->items[i]));
		plan_free(img, plan);
		found++;
	}
	image_close(img);
	return found;
}

static void test_round_trip(void **state)
{
	struct image *img = open_target();
	struct plans p;
	char name[256];

	(void)state;
	make_plans(img, &p);
	assert_int_equal(files(NULL, 0), 0);
	plan_cache_flush(img);
	assert_int_equal(files(name, sizeof(name)), 1);
	assert_int_equal(check_cached(&p), p.count);
	/* Nothing new: nothing is written. */
	plan_cache_flush(img);
	assert_int_equal(files(NULL, 0), 1);
	free_plans(img, &p);
	image_close(img);
}

/* fear L1, F6: plans of a file that is written anew while it is looked at are nobody's: none is kept */
static void test_written_anew(void **state)
{
	const struct image_function *functions;
	char path[4096], copy[128], command[4300];
	struct function_plan *plan = NULL;
	const uint8_t *code;
	struct image *img;
	struct plans p;
	uint8_t byte;
	size_t size;
	int fd;

	(void)state;
	target_path(path, sizeof(path));
	snprintf(copy, sizeof(copy), "%s/copy", home);
	snprintf(command, sizeof(command), "cp %s %s", path, copy);
	assert_int_equal(system(command), 0);
	img = open_file(copy);
	/* What the file is now is what plans are kept for. */
	assert_false(plan_cache_get(img, 0, &plan));
	assert_true(image_functions(img, &functions) > 0);
	code = image_code(img, functions[0].address, &size);
	assert_non_null(code);
	byte = (uint8_t)~code[0];
	fd = open(copy, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, &byte, 1, code - img->file.bytes), 1);
	close(fd);
	assert_int_equal(code[0], byte);
	make_plans(img, &p);
	plan_cache_flush(img);
	assert_int_equal(files(NULL, 0), 0);
	free_plans(img, &p);
	image_close(img);
}

/* Copies the target, with one of its symbols that names nothing in code moved to `place`; 0: none is. */
static void copy_target(const char *to, vaddr_t place)
{
	char path[4096], command[4300];
	struct image *img;
	struct dinst_error e = {0};
	bool moved = false;
	int fd;

	target_path(path, sizeof(path));
	snprintf(command, sizeof(command), "cp %s %s", path, to);
	assert_int_equal(system(command), 0);
	fd = open(to, O_RDWR | O_CLOEXEC);
	assert_true(fd >= 0);
	if (image_open(fd, to, NULL, &img, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t i = 0; place && i < img->file.section_count; i++) {
		const struct elf_section *s = &img->file.sections[i];

		for (size_t at = 0; s->type == SHT_SYMTAB && !moved && at < s->size;
		     at += sizeof(Elf64_Sym)) {
			Elf64_Sym sym;

			memcpy(&sym, s->bytes + at, sizeof(sym));
			if (ELF64_ST_TYPE(sym.st_info) != STT_OBJECT || !sym.st_name)
				continue;
			sym.st_info = ELF64_ST_INFO(STB_LOCAL, STT_NOTYPE);
			sym.st_value = place;
			assert_int_equal(pwrite(fd, &sym, sizeof(sym), s->offset + at),
					 sizeof(sym));
			moved = true;
		}
	}
	assert_int_equal(moved, place != 0);
	close(fd);
	image_close(img);
}

/* fear L1: a label that only the symbol table knows is known to the plans, whatever was planned without it */
static void test_labels(void **state)
{
	struct function_plan *plan = NULL;
	struct dinst_error e = {0};
	struct image *img;
	struct plans p;
	char path[128];
	vaddr_t inside = 0;
	uint32_t function = 0;

	(void)state;
	snprintf(path, sizeof(path), "%s/copy", home);
	copy_target(path, 0);
	img = open_file(path);
	make_plans(img, &p);
	for (size_t i = 0; i < p.count && !inside; i++)
		for (size_t k = 0; k < p.items[i]->window_count && !inside; k++) {
			const struct window *w = &p.items[i]->windows[k];

			if (w->insn_count > 1 && w->length > 1) {
				inside = w->start + 1;
				function = (uint32_t)i;
			}
		}
	assert_true(inside != 0);
	plan_cache_flush(img);
	assert_int_equal(files(NULL, 0), 1);
	image_close(img);
	copy_target(path, inside);
	img = open_file(path);
	if (plan_function(img, function, &plan, &e) < 0)
		fail_msg("%s", e.text);
	for (size_t k = 0; k < plan->window_count; k++)
		assert_false(inside > plan->windows[k].start &&
			     inside < plan->windows[k].start + plan->windows[k].length);
	plan_free(img, plan);
	free_plans(img, &p);
	image_close(img);
}

/* Its build id is where no segment has it, and there is room behind it. Returns where in the file. */
static off_t move_build_id(const char *path)
{
	struct image *img = open_file(path);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	const struct elf_section *s = elf_section_named(&img->file, ".note.gnu.build-id");
	Elf64_Ehdr h;
	Elf64_Shdr section;
	uint8_t note[1024] = {0};
	uint64_t at;
	off_t end;
	const uint32_t none = PT_NULL;

	assert_non_null(s);
	assert_true(fd >= 0);
	memcpy(&h, img->file.bytes, sizeof(h));
	for (unsigned i = 0; i < h.e_phnum; i++) {
		Elf64_Phdr p;

		at = h.e_phoff + i * sizeof(p);
		memcpy(&p, img->file.bytes + at, sizeof(p));
		if (p.p_type == PT_NOTE)
			assert_int_equal(pwrite(fd, &none, sizeof(none), (off_t)at), sizeof(none));
	}
	at = h.e_shoff + (size_t)(s - img->file.sections) * sizeof(section);
	memcpy(&section, img->file.bytes + at, sizeof(section));
	end = lseek(fd, 0, SEEK_END);
	memcpy(note, s->bytes, s->size);
	assert_int_equal(pwrite(fd, note, sizeof(note), end), sizeof(note));
	section.sh_flags = 0;
	section.sh_offset = (uint64_t)end;
	section.sh_size = sizeof(note);
	assert_int_equal(pwrite(fd, &section, sizeof(section), (off_t)at), sizeof(section));
	close(fd);
	image_close(img);
	return end;
}

/* fear L1, F6: a build id that grows while the file is looked at is written nowhere */
static void test_growing_id(void **state)
{
	const uint32_t length = 900;
	struct image *img;
	struct plans p;
	char path[128];
	off_t note;
	int fd;

	(void)state;
	snprintf(path, sizeof(path), "%s/copy", home);
	copy_target(path, 0);
	note = move_build_id(path);
	img = open_file(path);
	make_plans(img, &p);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	assert_int_equal(pwrite(fd, &length, sizeof(length),
				note + (off_t)offsetof(Elf64_Nhdr, n_descsz)),
			 sizeof(length));
	close(fd);
	plan_cache_flush(img);
	/* What is written is for the file that it was. */
	assert_true(files(NULL, 0) <= 1);
	free_plans(img, &p);
	image_close(img);
}

/* fear L1: a window that would be in another's tail, and there is no such other, is in no plan */
static void test_hosts(void **state)
{
	static const int32_t hosts[] = {-2, 0, 1, 1000, INT32_MAX, INT32_MIN};
	const size_t kinds = sizeof(hosts) / sizeof(hosts[0]);
	struct image *img = open_target();
	struct dinst_error e = {0};
	struct function_plan *plan;
	size_t wrong = 0;
	struct plans p;

	(void)state;
	make_plans(img, &p);
	image_close(img);
	cache_remove_all();
	img = open_target();
	assert_int_equal(image_references(img, &e), 0);
	for (size_t i = 0; i < p.count; i++) {
		/* the first is its own host, or two are each other's */
		if (p.items[i]->window_count) {
			p.items[i]->windows[0].host = hosts[i % kinds];
			if (p.items[i]->window_count > 1)
				p.items[i]->windows[1].host = 0;
			wrong++;
		}
		plan_cache_put(img, p.items[i]);
	}
	assert_true(wrong > kinds);
	for (unsigned written = 0; written < 2; written++) {
		for (size_t i = 0; i < p.count; i++)
			if (plan_cache_get(img, (uint32_t)i, &plan)) {
				for (size_t k = 0; k < plan->window_count; k++)
					assert_in_range(plan->windows[k].host + 1, 0,
							plan->window_count);
				assert_true(!plan->window_count || plan->windows[0].host != 0);
				assert_false(plan->window_count > 1 && plan->windows[0].host == 1);
				plan_free(img, plan);
			}
		plan_cache_flush(img);
		image_close(img);
		img = open_target();
	}
	free_plans(img, &p);
	image_close(img);
}

static void test_off(void **state)
{
	struct image *img = open_target();
	struct plans p;

	(void)state;
	plan_cache_enable(false);
	make_plans(img, &p);
	free_plans(img, &p);
	image_close(img);
	assert_int_equal(files(NULL, 0), 0);
	plan_cache_enable(true);
	setenv("DINST_CACHE", "off", 1);
	img = open_target();
	make_plans(img, &p);
	free_plans(img, &p);
	image_close(img);
	unsetenv("DINST_CACHE");
	assert_int_equal(files(NULL, 0), 0);
}

static void put_file(const char *name, const uint8_t *bytes, size_t size)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, bytes, size), size);
	close(fd);
}

/* fear L1: cut short anywhere, or with any byte changed, a file of plans is ignored */
static void test_damage(void **state)
{
	struct image *img = open_target();
	struct plans p;
	char name[256];
	uint8_t *bytes;
	size_t size;

	(void)state;
	make_plans(img, &p);
	plan_cache_flush(img);
	assert_int_equal(files(name, sizeof(name)), 1);
	assert_true(cache_read(name, &bytes, &size));
	assert_int_equal(check_cached(&p), p.count);
	for (size_t at = 0; at < size; at++) {
		put_file(name, bytes, at);
		assert_int_equal(check_cached(&p), 0);
		for (unsigned bit = 0; bit < 8; bit += 7) {
			bytes[at] ^= (uint8_t)(1u << bit);
			put_file(name, bytes, size);
			assert_int_equal(check_cached(&p), 0);
			bytes[at] ^= (uint8_t)(1u << bit);
		}
	}
	put_file(name, bytes, size);
	assert_int_equal(check_cached(&p), p.count);
	print_message("%zu bytes for %zu plans\n", size, p.count);
	free(bytes);
	free_plans(img, &p);
	image_close(img);
}

/* A row of items survives, and unpacking any bytes stays inside them. */
static void test_pack(void **state)
{
	uint64_t items[64][4], copy[64][4];
	struct pack_buffer b = {0};
	struct pack_reader r;

	(void)state;
	srandom(7);
	for (unsigned i = 0; i < 64; i++)
		for (unsigned k = 0; k < 4; k++)
			items[i][k] = i && random() % 2 ? items[i - 1][k]
							: (uint64_t)random() << random() % 40;
	pack_put(&b, 300);
	pack_put_items(&b, items, 64, sizeof(items[0]));
	assert_false(b.bad);
	for (size_t size = 0; size <= b.size; size++) {
		uint8_t *exact = malloc(size + !size);

		memcpy(exact, b.bytes, size);
		memset(copy, 0, sizeof(copy));
		r = (struct pack_reader){exact, exact + size, false};
		if (pack_take(&r) == 300)
			pack_take_items(&r, copy, 64, sizeof(copy[0]));
		assert_int_equal(r.bad, size < b.size);
		free(exact);
	}
	assert_memory_equal(items, copy, sizeof(items));
	free(b.bytes);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, make_home, drop_home)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_round_trip),	 CASE(test_off),	CASE(test_damage),
		CASE(test_written_anew), CASE(test_pack),	CASE(test_labels),
		CASE(test_hosts),	 CASE(test_growing_id),
	};

	return cmocka_run_group_tests_name("image: cache", tests, NULL, NULL);
}
