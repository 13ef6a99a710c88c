/* SPDX-License-Identifier: MIT */
/*
 * contradictions.c - windows that are not those of what is patched there already: planning never gives
 * any, and should it do so they are refused, instead of being written over the others or live code.
 */
#include "mutator/request.h"
#include "tests/live/harness_session.h"

enum { SITES = 64 };

struct scene {
	struct session *s;
	struct place *place;
};

/* A plan that has these windows, the last of which is asked for, is refused. */
static void refuse(struct scene *c, const struct site *near, struct window *windows, size_t count)
{
	const struct function_plan plan = {
		.function = near->function, .windows = windows, .window_count = count};
	const size_t before = c->s->site_count;
	struct dinst_error e = {0};
	struct site *made;
	const int status =
		site_make(c->s, near->module, c->place, &plan, (unsigned)count - 1, &made, &e);

	if (status != DINST_REFUSED)
		fail_msg("a window at %#llx, a hole at %#llx: %d %s",
			 (unsigned long long)windows[count - 1].start,
			 (unsigned long long)windows[count - 1].hole, status, e.text);
	assert_int_equal(c->s->site_count, before);
}

/* What begins where the site's window does, and is another one. */
static void try_others(struct scene *c, const struct site *site)
{
	struct window w = site->window;

	w.length++;
	refuse(c, site, &w, 1);
	w = site->window;
	w.padding++;
	refuse(c, site, &w, 1);
	w = site->window;
	w.insn_count++;
	refuse(c, site, &w, 1);
	w = site->window;
	w.kind = w.kind == ARCH_PATCH_JUMP ? ARCH_PATCH_CALL : ARCH_PATCH_JUMP;
	refuse(c, site, &w, 1);
	w = site->window;
	w.hole++;
	refuse(c, site, &w, 1);
}

/* What has some of the site's bytes. */
static void try_over(struct scene *c, const struct site *site)
{
	const vaddr_t end = site->window.start + site->window.length + site->window.padding;
	struct window w = {.length = 5, .insn_count = 1, .kind = ARCH_PATCH_JUMP, .host = -1};

	for (w.start = site->window.start - w.length + 1; w.start < end; w.start++)
		if (w.start != site->window.start)
			refuse(c, site, &w, 1);
	if (!site->window.hole)
		return;
	for (w.start = site->window.hole - 4; w.start < site->window.hole + 5; w.start++)
		refuse(c, site, &w, 1);
	w.start = site->window.start + 2 * (vaddr_t)UINT8_MAX;
	w.hole_length = 5;
	for (w.hole = site->window.hole - 4; w.hole < site->window.hole + 5; w.hole++)
		refuse(c, site, &w, 1);
}

/* A near jump that is not quite in the tail of its host. */
static void try_as_host(struct scene *c, const struct site *site)
{
	struct window w[2] = {site->window,
			      {.start = site->window.start + 2 * (vaddr_t)UINT8_MAX,
			       .length = 2,
			       .insn_count = 1,
			       .hole_length = 5,
			       .kind = ARCH_PATCH_SHORT_JUMP}};
	const vaddr_t end = site->window.start + site->window.length;

	if (site->window.hole)
		return;
	for (w[1].hole = end - 4; w[1].hole < end + 16; w[1].hole++)
		refuse(c, site, w, 2);
	for (w[1].hole = site->window.start - 4; w[1].hole < site->window.start + 5; w[1].hole++)
		refuse(c, site, w, 2);
}

/* Whatever is not the site itself is refused where that is. */
static void try_all(struct scene *c, const struct site *site)
{
	struct window same = site->window;
	const struct function_plan plan = {
		.function = site->function, .windows = &same, .window_count = 1};
	struct dinst_error e = {0};
	struct site *found = NULL;

	c->place = site->place;
	assert_int_equal(site_make(c->s, site->module, c->place, &plan, 0, &found, &e), 0);
	assert_ptr_equal(found, site);
	try_others(c, site);
	try_over(c, site);
	try_as_host(c, site);
}

/*
 * fear C1: near jumps in padding and in the tails of other windows, and windows over them, of plans that contradict
 * each other: refused
 */
static void test_contradictions(void **state)
{
	static const char *const functions[] = {"ladder", "ways",  "roomy",
						"narrow", "tight", "woven"};
	size_t count = 0, hosts = 0, in_padding = 0;
	const struct site *sites[SITES];
	struct harness *h = *state;
	struct scene c = {0};

	harness_start(h, "tactics", "1", NULL);
	c.s = session_begin(h);
	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++)
		for (enum point_kind kind = POINT_ENTRY; kind <= POINT_EXIT; kind++)
			session_insert_kind(c.s, functions[i], kind);
	for (const struct site *site = site_next(c.s, NULL); site; site = site_next(c.s, site)) {
		assert_true(count < SITES);
		sites[count++] = site;
		hosts += site->guests > 0;
		in_padding += site->window.hole && !site->host;
	}
	assert_true(hosts && in_padding);
	for (size_t i = 0; i < count; i++)
		try_all(&c, sites[i]);
	session_end(c.s);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {CASE(test_contradictions)};

	return cmocka_run_group_tests_name("live/contradictions", tests, NULL, NULL);
}
