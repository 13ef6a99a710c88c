/* SPDX-License-Identifier: MIT */
/*
 * modules_late.c - modules that were looked at in the wrong moment: what is said of them then does
 * not stay so.
 */
#include "tests/live/harness.h"

#include <stdio.h>

#include "mutator/image_private.h"
#include "mutator/module.h"
#include "tests/live/harness_thread.h"

struct view {
	struct target *target;
	struct module_list *list;
};

static struct view look(struct harness *h)
{
	struct dinst_error e = {0};
	struct view v = {0};

	if (target_open(h->pid, &v.target, &e) || module_list_read(v.target, &v.list, &e))
		fail_msg("%s", e.text);
	return v;
}

static void look_away(struct view *v)
{
	module_list_free(v->list);
	target_close(v->target);
}

static void update(struct view *v, bool expected)
{
	struct dinst_error e = {0};
	bool changed = !expected;

	assert_int_equal(module_list_update(v->list, v->target, &changed, &e), 0);
	assert_int_equal(changed, expected);
}

static taddr_t build_id_address(const struct module *m)
{
	const struct elf_file *f = &m->image->file;
	size_t size;
	const uint8_t *id = image_build_id(m->image, &size);

	for (size_t i = 0; id && i < f->load_count; i++)
		if (id >= f->loads[i].bytes && id < f->loads[i].bytes + f->loads[i].file_size)
			return f->loads[i].address + (taddr_t)(id - f->loads[i].bytes) + m->bias;
	fail_msg("%s has no build id", m->name);
	return 0;
}

/*
 * fear F6: what is in memory is not the file's while it is looked at, as where a plugin is unloaded and loaded
 * meanwhile: it is looked at again
 */
static void test_read_too_late(void **state)
{
	static const char name[] = "libimage-plugin.so";
	struct harness *h = *state;
	uint8_t id[8], other[sizeof(id)] = {0};
	struct module *first, *second;
	struct view v;
	char path[4096];
	taddr_t at;

	snprintf(path, sizeof(path), "%s", harness_path("tests/live/targets/libimage-plugin.so"));
	harness_start(h, "image-loads", path, NULL);
	harness_send(h, "load\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	v = look(h);
	first = module_named(v.list, name);
	assert_true(first && first->image);
	at = build_id_address(first);
	look_away(&v);
	thread_peek(h->pid, at, id, sizeof(id));
	thread_poke(h->pid, at, other, sizeof(other));
	v = look(h);
	first = module_named(v.list, name);
	assert_true(first && !first->image);
	update(&v, false);
	thread_poke(h->pid, at, id, sizeof(id));
	update(&v, true);
	second = module_named(v.list, name);
	assert_true(first && first->gone);
	assert_true(second && second->image && !second->problem[0]);
	update(&v, false);
	look_away(&v);
	harness_end(h, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_read_too_late, harness_setup,
						harness_teardown),
	};

	return cmocka_run_group_tests_name("live/modules_late", tests, NULL, NULL);
}
