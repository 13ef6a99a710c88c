/* SPDX-License-Identifier: MIT */
/*
 * patch_breakpoints.c - patches among breakpoints that others put into the text: over the bytes of a
 * patch, before it is taken back, and between two of them.
 */
#include "tests/live/patch_scene.h"

/* What a uprobe puts over the first byte of our bytes, and what its removal leaves there. */
static int write_breakpoint(struct stop *s, void *arg, struct dinst_error *e)
{
	static const uint8_t breakpoint = 0xcc, files = NOP, theirs = 0x66;
	struct scene *c = arg;

	if (stop_write(s, c->blob + 16, &breakpoint, 1, e) < 0 ||
	    stop_write(s, c->blob + 32, &files, 1, e) < 0)
		return -1;
	return stop_write(s, c->blob + 48, &theirs, 1, e);
}

/*
 * fear J4: a breakpoint that the kernel put over our bytes stays when they go, and all the others
 * go; where it was removed before, they go as well; another's byte keeps all of them
 */
static void breakpoints_stay(void **state)
{
	static const uint8_t want[LENGTH] = {0xcc, NOP, NOP, NOP, NOP};
	static const uint8_t nops[LENGTH] = {NOP, NOP, NOP, NOP, NOP};
	uint8_t theirs[LENGTH];
	struct patch p[3];
	struct scene c;

	begin(&c, *state);
	for (int i = 0; i < 3; i++)
		p[i] = patch_at(c.blob + 16 + 16 * (taddr_t)i);
	apply_all(&c, p, 3);
	help_stop_well(c.target, write_breakpoint, &c);
	reverse(p, 3);
	apply_all(&c, p, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(p[i].outcome, PATCH_FOREIGN);
	for (int i = 0; i < 3; i++)
		p[i].removal = true;
	apply_all(&c, p, 3);
	assert_int_equal(p[0].outcome, PATCH_DONE);
	assert_int_equal(p[1].outcome, PATCH_DONE);
	assert_int_equal(p[2].outcome, PATCH_FOREIGN);
	expect_bytes(&c, c.blob + 16, want, LENGTH);
	expect_bytes(&c, c.blob + 32, nops, LENGTH);
	memcpy(theirs, long_nop, LENGTH);
	theirs[0] = 0x66;
	expect_bytes(&c, c.blob + 48, theirs, LENGTH);
	/* Once more: nothing of ours is left. */
	apply_all(&c, p, 2);
	assert_int_equal(p[0].outcome, PATCH_ALREADY);
	assert_int_equal(p[1].outcome, PATCH_ALREADY);
	/* As it was, for those who look at the end. */
	memcpy(p[0].before, want, LENGTH);
	memcpy(p[2].before, theirs, LENGTH);
	p[0].removal = p[2].removal = false;
	apply_all(&c, p, 3);
	assert_int_equal(p[2].outcome, PATCH_DONE);
	finish(&c);
}

/* Over the first of the bytes, which are in two pages, and over the first one in the second page. */
static int write_breakpoints_across(struct stop *s, void *arg, struct dinst_error *e)
{
	static const uint8_t breakpoint = 0xcc;
	struct scene *c = arg;

	if (stop_write(s, c->blob + 3 * PAGE - 2, &breakpoint, 1, e) < 0)
		return -1;
	return stop_write(s, c->blob + 5 * PAGE, &breakpoint, 1, e);
}

/* fear J4: the same where our bytes lie in two pages, in either of which the breakpoint is */
static void breakpoints_stay_across_pages(void **state)
{
	static const uint8_t want[2][LENGTH] = {{0xcc, NOP, NOP, NOP, NOP},
						{NOP, NOP, 0xcc, NOP, NOP}};
	struct patch p[2];
	struct scene c;

	begin(&c, *state);
	for (int i = 0; i < 2; i++)
		p[i] = patch_at(c.blob + (taddr_t)(3 + 2 * i) * PAGE - 2);
	apply_all(&c, p, 2);
	help_stop_well(c.target, write_breakpoints_across, &c);
	reverse(p, 2);
	for (int i = 0; i < 2; i++)
		p[i].removal = true;
	apply_all(&c, p, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(p[i].outcome, PATCH_DONE);
		expect_bytes(&c, p[i].address, want[i], LENGTH);
	}
	apply_all(&c, p, 2);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(p[i].outcome, PATCH_ALREADY);
		/* As it was, for those who look at the end. */
		memcpy(p[i].before, want[i], LENGTH);
		p[i].removal = false;
	}
	apply_all(&c, p, 2);
	assert_int_equal(p[0].outcome, PATCH_DONE);
	assert_int_equal(p[1].outcome, PATCH_DONE);
	finish(&c);
}

/* What is written goes through here (the Makefile wraps stop_write()). */
static struct written {
	taddr_t address;
	size_t size;
} written[16];
static size_t written_count;
static taddr_t gone[2]; /* the kernel takes what it has there away, before the write */
static uint8_t gone_byte;

int __real_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);
int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e);

int __wrap_stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
		      struct dinst_error *e)
{
	if (written_count < sizeof(written) / sizeof(written[0]))
		written[written_count++] = (struct written){address, size};
	for (size_t i = 0; i < 2; i++)
		if (gone[i] && address - gone[i] < size + LENGTH)
			__real_stop_write(s, gone[i], &gone_byte, 1, e);
	return __real_stop_write(s, address, from, size, e);
}

struct byte {
	taddr_t at;
	uint8_t value;
};

static int put_byte(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct byte *b = arg;

	return stop_write(s, b->at, &b->value, 1, e);
}

static void expect_written(size_t index, taddr_t address, size_t size)
{
	assert_true(index < written_count);
	assert_int_equal(written[index].address, address);
	assert_int_equal(written[index].size, size);
}

/*
 * fear J4: a breakpoint between two patches of one page is not written along with them: if it is a uprobe's
 * the kernel may take it away at any moment
 */
static void breakpoint_between(void **state)
{
	struct byte foreign;
	struct patch p[4];
	struct scene c;

	begin(&c, *state);
	foreign = (struct byte){c.blob + 40, 0xcc};
	help_stop_well(c.target, put_byte, &foreign);
	p[0] = patch_at(c.blob + 8);
	p[1] = patch_at(c.blob + 16);
	p[2] = patch_at(c.blob + 64);
	p[3] = patch_at(c.blob + 80);
	for (int round = 0; round < 2; round++) {
		written_count = 0;
		apply_all(&c, p, 4);
		for (size_t i = 0; i < 4; i++)
			assert_int_equal(p[i].outcome, PATCH_DONE);
		/* The first shows that what is written is written whole. */
		assert_int_equal(written_count, 3);
		expect_written(0, c.blob + 8, LENGTH);
		expect_written(1, c.blob + 16, LENGTH);
		expect_written(2, c.blob + 64, 16 + LENGTH);
		expect_bytes(&c, c.blob + 80, round ? p[3].after : long_nop, LENGTH);
		expect_bytes(&c, foreign.at, &foreign.value, 1);
		reverse(p, 4);
	}
	foreign.value = NOP;
	help_stop_well(c.target, put_byte, &foreign);
	/* Without it all others are one write. */
	for (size_t i = 0; i < 4; i++)
		p[i] = patch_at(p[i].address);
	written_count = 0;
	apply_all(&c, p, 4);
	assert_int_equal(written_count, 2);
	expect_written(0, c.blob + 8, LENGTH);
	expect_written(1, c.blob + 16, 64 + LENGTH);
	reverse(p, 4);
	apply_all(&c, p, 4);
	finish(&c);
}

/*
 * fear J4: nor is one at the beginning of our bytes, when these go: the kernel takes it away just before, and it does not
 * come back
 */
static void breakpoint_goes(void **state)
{
	static const uint8_t nops[LENGTH] = {NOP, NOP, NOP, NOP, NOP};
	struct patch p[2];
	struct byte foreign;
	struct scene c;

	begin(&c, *state);
	p[0] = patch_at(c.blob + 16);
	p[1] = patch_at(c.blob + 3 * PAGE - 2);
	apply_all(&c, p, 2);
	foreign = (struct byte){p[0].address, 0xcc};
	help_stop_well(c.target, put_byte, &foreign);
	foreign.at = p[1].address;
	help_stop_well(c.target, put_byte, &foreign);
	reverse(p, 2);
	p[0].removal = p[1].removal = true;
	written_count = 0;
	gone[0] = p[0].address;
	gone[1] = p[1].address;
	gone_byte = NOP;
	apply_all(&c, p, 2);
	gone[0] = gone[1] = 0;
	for (size_t i = 0; i < 2; i++) {
		assert_int_equal(p[i].outcome, PATCH_DONE);
		expect_bytes(&c, p[i].address, nops, LENGTH);
	}
	expect_written(0, p[0].address + 1, LENGTH - 1);
	finish(&c);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(breakpoints_stay),
		CASE(breakpoints_stay_across_pages),
		CASE(breakpoint_between),
		CASE(breakpoint_goes),
	};

	return cmocka_run_group_tests_name("live/patch_breakpoints", tests, NULL, NULL);
}
