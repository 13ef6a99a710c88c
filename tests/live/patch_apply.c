/* SPDX-License-Identifier: MIT */
/*
 * patch_apply.c - patches of a running program's text: what becomes of each,
 * how long it takes, and that the pages are the file's own again afterwards.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/fault.h"
#include "tests/live/patch_scene.h"

/* fear J4: bytes that are not as expected are never written */
static void outcomes(void **state)
{
	struct patch p[6];
	struct scene c;
	uint8_t foreign[LENGTH] = {0xcc, NOP, NOP, NOP, NOP};

	begin(&c, *state);
	p[0] = patch_at(c.blob + 16);
	apply_all(&c, p, 1);
	assert_int_equal(p[0].outcome, PATCH_DONE);
	expect_bytes(&c, c.blob + 16, long_nop, LENGTH);
	apply_all(&c, p, 1);
	assert_int_equal(p[0].outcome, PATCH_ALREADY);
	/* Six at once: already, foreign before it and behind it, done, not mapped, not mapped. */
	p[1] = patch_at(c.blob + 32);
	memcpy(p[1].before, foreign, LENGTH);
	p[2] = patch_at(c.blob + 14);
	p[3] = patch_at(c.blob + 40);
	p[4] = patch_at(0x1000);
	p[5] = patch_at(UINT64_MAX - 64);
	apply_all(&c, p, 6);
	assert_int_equal(p[0].outcome, PATCH_ALREADY);
	assert_int_equal(p[1].outcome, PATCH_FOREIGN);
	assert_int_equal(p[2].outcome, PATCH_FOREIGN);
	assert_int_equal(p[3].outcome, PATCH_DONE);
	assert_int_equal(p[4].outcome, PATCH_UNMAPPED);
	assert_int_equal(p[5].outcome, PATCH_UNMAPPED);
	assert_true(strtoul(help_ask(c.h, "run"), NULL, 10) > 0);
	reverse(p, 1);
	reverse(&p[3], 1);
	apply_all(&c, p, 1);
	apply_all(&c, &p[3], 1);
	assert_int_equal(p[0].outcome, PATCH_DONE);
	assert_int_equal(p[3].outcome, PATCH_DONE);
	finish(&c);
}

/* Bytes that somebody else has put there are never touched, nor their neighbours. */
static int write_foreign(struct stop *s, void *arg, struct dinst_error *e)
{
	static const uint8_t theirs[2] = {0x66, NOP};
	struct scene *c = arg;

	return stop_write(s, c->blob + 102, theirs, sizeof(theirs), e);
}

static int write_back(struct stop *s, void *arg, struct dinst_error *e)
{
	static const uint8_t nops[2] = {NOP, NOP};
	struct scene *c = arg;

	return stop_write(s, c->blob + 102, nops, sizeof(nops), e);
}

/* fear J4: nor are their neighbours in the same page */
static void foreign_bytes_stay(void **state)
{
	static const uint8_t want[15] = {0x0f, 0x1f, 0x44, 0,	 0,    NOP, NOP, 0x66,
					 NOP,  NOP,  0x0f, 0x1f, 0x44, 0,   0};
	struct patch p[3];
	struct scene c;

	begin(&c, *state);
	help_stop_well(c.target, write_foreign, &c);
	p[0] = patch_at(c.blob + 95);
	p[1] = patch_at(c.blob + 100);
	p[2] = patch_at(c.blob + 105);
	apply_all(&c, p, 3);
	assert_int_equal(p[0].outcome, PATCH_DONE);
	assert_int_equal(p[1].outcome, PATCH_FOREIGN);
	assert_int_equal(p[2].outcome, PATCH_DONE);
	expect_bytes(&c, c.blob + 95, want, sizeof(want));
	reverse(p, 3);
	apply_all(&c, p, 3);
	assert_int_equal(p[1].outcome, PATCH_FOREIGN);
	help_stop_well(c.target, write_back, &c);
	finish(&c);
}

static void across_pages_unsorted_overlapping(void **state)
{
	struct patch p[6];
	struct scene c;

	begin(&c, *state);
	/* Ending in, beginning in and lying across a border, in no order. */
	p[0] = patch_at(c.blob + 3 * PAGE - 2);
	p[1] = patch_at(c.blob + 9 * PAGE);
	p[2] = patch_at(c.blob + 2 * PAGE + 100);
	p[3] = patch_at(c.blob + 3 * PAGE + 3);
	p[4] = patch_at(c.blob + 9 * PAGE - 5);
	/* The last one undoes the first, and knows what that has written. */
	p[5] = p[0];
	reverse(&p[5], 1);
	apply_all(&c, p, 6);
	for (int i = 0; i < 6; i++)
		assert_int_equal(p[i].outcome, PATCH_DONE);
	expect_bytes(&c, p[0].address, p[0].before, LENGTH);
	expect_bytes(&c, p[3].address, long_nop, LENGTH);
	expect_bytes(&c, p[4].address, long_nop, LENGTH);
	/* Across a border, foreign in the second page only. */
	p[0].after[4] = 0x77;
	p[0].before[4] = 0x78;
	apply_all(&c, p, 1);
	assert_int_equal(p[0].outcome, PATCH_FOREIGN);
	expect_bytes(&c, p[0].address, p[5].after, LENGTH);
	reverse(&p[1], 4);
	apply_all(&c, &p[1], 4);
	finish(&c);
}

static int apply_and_die(struct stop *s, void *arg, struct dinst_error *e)
{
	fault_countdown = 2; /* before the second write */
	return apply(s, arg, e);
}

/* A mutator that dies between the two writes of the patch. */
static void die_within(struct scene *c, struct patch *p)
{
	int status = 0;
	pid_t mutator;

	fflush(NULL);
	mutator = fork();
	if (mutator == 0) {
		struct dinst_error e = {0};
		struct target *t = NULL;

		if (target_open(c->h->pid, &t, &e))
			_exit(3);
		c->patches = p;
		c->count = 1;
		target_stop(t, NULL, apply_and_die, c, NULL, &e);
		_exit(4);
	}
	assert_int_equal(waitpid(mutator, &status, 0), mutator);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* What control comes to is whole at every moment: nothing of ours, or all of it. */
/* fear C7, J2: killed between the two writes of a patch across pages: what stands there is whole */
static void half_of_it(void **state)
{
	const uint8_t made[LENGTH] = {NOP, NOP, 0x44, 0, 0},
		      unmade[LENGTH] = {NOP, NOP, 0x44, 0, 0};
	struct patch p;
	struct scene c;

	begin(&c, *state);
	p = patch_at(c.blob + 3 * PAGE - 2);
	die_within(&c, &p);
	expect_bytes(&c, p.address, made, LENGTH);
	memcpy(p.before, made, LENGTH);
	apply_all(&c, &p, 1);
	assert_int_equal(p.outcome, PATCH_DONE);
	reverse(&p, 1);
	die_within(&c, &p);
	expect_bytes(&c, p.address, unmade, LENGTH);
	memcpy(p.before, unmade, LENGTH);
	apply_all(&c, &p, 1);
	assert_int_equal(p.outcome, PATCH_DONE);
	finish(&c);
}

/* fear C7, J2: the same where the last byte of the jump that goes was there before, so that the patch has it not */
static void half_of_a_trimmed_jump(void **state)
{
	static const uint8_t jump[] = {0xe9, 0x40, 0x30, 0x20};
	const uint8_t made[LENGTH] = {NOP, NOP, 0x30, 0x20, NOP};
	struct patch p;
	struct scene c;

	begin(&c, *state);
	p = patch_at(c.blob + 3 * PAGE - 2);
	p.length = sizeof(jump);
	memcpy(p.after, jump, sizeof(jump));
	apply_all(&c, &p, 1);
	assert_int_equal(p.outcome, PATCH_DONE);
	memcpy(p.before, jump, sizeof(jump));
	memset(p.after, NOP, sizeof(jump));
	p.removal = true;
	die_within(&c, &p);
	expect_bytes(&c, p.address, made, LENGTH);
	apply_all(&c, &p, 1);
	assert_int_equal(p.outcome, PATCH_DONE);
	finish(&c);
}

static void malformed(void **state)
{
	struct dinst_error e = {0};
	struct scene c;
	struct patch p;

	begin(&c, *state);
	p = patch_at(c.blob);
	c.patches = &p;
	c.count = 1;
	p.length = 0;
	assert_int_equal(help_stop(c.target, apply, &c, &e), DINST_FAILED);
	dinst_error_clear(&e);
	p.length = ARCH_PATCH_MAX + 1;
	assert_int_equal(help_stop(c.target, apply, &c, &e), DINST_FAILED);
	c.patches = NULL;
	c.count = 0;
	help_stop_well(c.target, apply, &c);
	finish(&c);
}

/* ------------------------------------------------------------ many, and pages */

/* Private copies of the text, in KiB, as smaps says. */
static unsigned copies(struct scene *c)
{
	unsigned long lo, hi, kib, total = 0;
	bool inside = false;
	char path[64], line[512];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", (int)c->h->pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx ", &lo, &hi) == 2)
			inside = c->blob >= lo && c->blob < hi;
		else if (inside && sscanf(line, "Anonymous: %lu kB", &kib) == 1)
			total = kib;
	}
	fclose(f);
	return (unsigned)total;
}

/* 32 patches in each of 313 pages. */
static void make_many(struct scene *c)
{
	enum { PER_PAGE = 32, COUNT = 10016 };

	c->patches = calloc(COUNT, sizeof(*c->patches));
	c->pages = calloc(PAGES, sizeof(*c->pages));
	assert_non_null(c->patches);
	assert_non_null(c->pages);
	c->count = COUNT;
	for (size_t i = 0; i < COUNT; i++)
		c->patches[i] = patch_at(c->blob + i / PER_PAGE * PAGE + i % PER_PAGE * 127);
	for (c->page_count = 0; c->page_count < COUNT / PER_PAGE; c->page_count++)
		c->pages[c->page_count] = c->blob + c->page_count * PAGE + 17;
}

static void apply_many(struct scene *c)
{
	help_stop_well(c->target, apply, c);
	for (size_t i = 0; i < c->count; i++)
		assert_int_equal(c->patches[i].outcome, PATCH_DONE);
}

static int drop(struct stop *s, void *arg, struct dinst_error *e)
{
	struct scene *c = arg;
	uint64_t began = now_ns();

	c->kept = patch_drop_private_pages(s, c->pages, c->page_count, c->files, 0, NULL, e);
	c->ns = now_ns() - began;
	return c->kept < 0 ? c->kept : 0;
}

/* It is bounded in time, and the machine may be busy: what is left is for the next stop. */
static void drop_until(struct scene *c, int kept)
{
	/* Nothing is opened in a stop: without files nothing can be compared, and all copies stay. */
	c->files = NULL;
	help_stop_well(c->target, drop, c);
	assert_true(c->kept > kept);
	c->files = patch_files_open(c->target, c->pages, c->page_count);
	for (int i = 0; i < 50; i++) {
		help_stop_well(c->target, drop, c);
		if (c->kept <= kept)
			break;
	}
	patch_files_close(c->files);
	assert_int_equal(c->kept, kept);
}

/*
 * The remote calls themselves leave a copy of the page in whose unused tail
 * they ran: it is made before anything is counted.
 */
static unsigned copies_at_first(struct scene *c)
{
	struct patch one = patch_at(c->blob);
	taddr_t page = c->blob;

	apply_all(c, &one, 1);
	reverse(&one, 1);
	apply_all(c, &one, 1);
	c->pages = &page;
	c->page_count = 1;
	drop_until(c, 0);
	c->pages = NULL;
	return copies(c);
}

static void many_at_once(void **state)
{
	struct scene c;
	unsigned before;

	begin(&c, *state);
	before = copies_at_first(&c);
	make_many(&c);
	for (int round = 0; round < 5; round++) {
		apply_many(&c);
		/* A few milliseconds. */
		assert_true(c.ns < 100 * 1000 * 1000);
		assert_true(strtoul(help_ask(c.h, "run"), NULL, 10) > 0);
		assert_int_equal(copies(&c), before + 313 * 4);
		reverse(c.patches, c.count);
		apply_many(&c);
		drop_until(&c, 0);
		assert_int_equal(copies(&c), before);
		for (size_t i = 0; i < c.count; i++)
			c.patches[i] = patch_at(c.patches[i].address);
	}
	finish(&c);
}

/* fear J3: private copies of text pages are given back when they equal the file */
static void only_what_equals_the_file_is_dropped(void **state)
{
	struct patch one;
	struct scene c;
	unsigned before;

	begin(&c, *state);
	before = copies_at_first(&c);
	make_many(&c);
	apply_many(&c);
	reverse(c.patches, c.count);
	apply_many(&c);
	/* One page differs, and one that is not on our list, between two that are. */
	one = patch_at(c.blob + 50 * PAGE + 3000);
	apply_all(&c, &one, 1);
	assert_int_equal(one.outcome, PATCH_DONE);
	c.pages[100] = c.pages[99];
	help_stop_well(c.target, write_foreign, &c);
	drop_until(&c, 2);
	assert_int_equal(copies(&c), before + 3 * 4);
	expect_bytes(&c, one.address, long_nop, LENGTH);
	help_stop_well(c.target, write_back, &c);
	reverse(&one, 1);
	apply_all(&c, &one, 1);
	c.pages[100] = c.blob + 100 * PAGE;
	drop_until(&c, 0);
	assert_int_equal(copies(&c), before);
	finish(&c);
}

/* What stat(2) tells besides: on btrfs another device than the maps. */
static dev_t other_device;
static ino_t other_inode;

int __real_fstat(int fd, struct stat *st);
int __wrap_fstat(int fd, struct stat *st);

int __wrap_fstat(int fd, struct stat *st)
{
	const int result = __real_fstat(fd, st);

	st->st_dev += other_device;
	st->st_ino += other_inode;
	return result;
}

/*
 * fear J3: private copies of text pages are given back also where the maps tell another device of the file than
 * stat(2) does, as on btrfs and in overlays; what is another file is not taken for it
 */
static void whatever_device_is_told(void **state)
{
	struct patch one;
	struct scene c;
	unsigned before;

	begin(&c, *state);
	before = copies_at_first(&c);
	one = patch_at(c.blob + 50 * PAGE);
	apply_all(&c, &one, 1);
	reverse(&one, 1);
	apply_all(&c, &one, 1);
	c.pages = calloc(1, sizeof(*c.pages));
	assert_non_null(c.pages);
	c.pages[0] = one.address;
	c.page_count = 1;
	other_inode = 1;
	c.files = patch_files_open(c.target, c.pages, c.page_count);
	help_stop_well(c.target, drop, &c);
	patch_files_close(c.files);
	other_inode = 0;
	assert_int_equal(c.kept, 1);
	assert_int_equal(copies(&c), before + 4);
	other_device = 1;
	drop_until(&c, 0);
	other_device = 0;
	assert_int_equal(copies(&c), before);
	finish(&c);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(outcomes),
		CASE(foreign_bytes_stay),
		CASE(across_pages_unsorted_overlapping),
		CASE(half_of_it),
		CASE(half_of_a_trimmed_jump),
		CASE(malformed),
		CASE(many_at_once),
		CASE(only_what_equals_the_file_is_dropped),
		CASE(whatever_device_is_told),
	};

	return cmocka_run_group_tests_name("live/patch_apply", tests, NULL, NULL);
}
