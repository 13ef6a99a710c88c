/* SPDX-License-Identifier: MIT */
/*
 * patch_scene.h - a program full of instructions that do nothing, and patches of them.
 */
#ifndef DINST_TESTS_LIVE_PATCH_SCENE_H
#define DINST_TESTS_LIVE_PATCH_SCENE_H

#include <time.h>

#include "inject/patch.h"
#include "tests/live/inject_help.h"

enum { PAGE = 4096, PAGES = 320, NOP = 0x90, LENGTH = 5 };

/* One instruction that does nothing, five bytes long. */
static const uint8_t long_nop[LENGTH] = {0x0f, 0x1f, 0x44, 0, 0};

struct scene {
	struct harness *h;
	struct target *target;
	taddr_t blob;
	struct patch *patches;
	size_t count;
	taddr_t *pages;
	size_t page_count;
	struct patch_files *files; /* of the pages */
	int kept;		   /* what patch_drop_private_pages() returned */
	uint64_t ns;		   /* what the work took */
};

/* The calling thread's own: how long it had to wait for a CPU says nothing. */
static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline void begin(struct scene *c, struct harness *h)
{
	memset(c, 0, sizeof(*c));
	c->h = h;
	harness_start(h, "patch-text", NULL);
	c->blob = strtoull(harness_line(h, HARNESS_ANSWER_MS), NULL, 16);
	c->target = help_open(h->pid);
}

static inline void finish(struct scene *c)
{
	free(c->patches);
	free(c->pages);
	target_close(c->target);
	harness_verify(c->h);
	harness_end(c->h, 0);
}

static inline struct patch patch_at(taddr_t address)
{
	struct patch p = {.address = address, .length = LENGTH, .outcome = PATCH_FAILED};

	memset(p.before, NOP, LENGTH);
	memcpy(p.after, long_nop, LENGTH);
	return p;
}

static inline int apply(struct stop *s, void *arg, struct dinst_error *e)
{
	struct scene *c = arg;
	uint64_t began = now_ns();
	int result = patch_apply(s, c->patches, c->count, e);

	c->ns = now_ns() - began;
	return result;
}

static inline void apply_all(struct scene *c, struct patch *patches, size_t count)
{
	struct patch *owned = c->patches;

	c->patches = patches;
	c->count = count;
	help_stop_well(c->target, apply, c);
	c->patches = owned;
}

/* Turns patches that were made into those that take them back. */
static inline void reverse(struct patch *patches, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		memcpy(patches[i].before, long_nop, LENGTH);
		memset(patches[i].after, NOP, LENGTH);
		patches[i].outcome = PATCH_FAILED;
	}
}

static inline void expect_bytes(struct scene *c, taddr_t address, const uint8_t *bytes, size_t size)
{
	struct dinst_error e = {0};
	uint8_t now[64];

	assert_int_equal(target_read(c->target, address, now, size, &e), 0);
	assert_memory_equal(now, bytes, size);
}

#endif
