/* SPDX-License-Identifier: MIT */
/*
 * image_flow.h - what image_flow.c and image_rests.c have in common: a target's code, and the marks that
 * are found on it.
 */
#ifndef DINST_TESTS_UNIT_IMAGE_FLOW_H
#define DINST_TESTS_UNIT_IMAGE_FLOW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "mutator/flow.h"
#include "mutator/hits.h"
#include "mutator/window.h"

static struct image *img;
static struct freemap *map;

static inline int open_named(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	char path[4096];
	int fd, r;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	r = image_open(fd, path, NULL, &img, &e);
	close(fd);
	if (r == 0)
		r = freemap_of(img, &map, &e);
	if (r < 0)
		print_error("%s\n", e.text);
	return r;
}

static inline int close_target(void **state)
{
	(void)state;
	image_close(img);
	return 0;
}

static inline uint32_t find(const char *name)
{
	struct dinst_error e = {0};
	uint32_t *found, index;
	size_t count;

	if (image_match(img, name, &found, &count, &e) < 0 || count != 1)
		fail_msg("%s: not one function", name);
	index = found[0];
	free(found);
	return index;
}

static inline vaddr_t start_of(const char *name)
{
	const struct image_function *functions;

	image_functions(img, &functions);
	return functions[find(name)].address;
}

static inline struct flow build(const char *name)
{
	struct dinst_error e = {0};
	struct flow f;

	if (flow_build(&f, img, map, find(name), &e) < 0)
		fail_msg("%s: %s", name, e.text);
	return f;
}

/* Marks of the byte at `offset` of the function. */
static inline unsigned marks_of(const char *name, unsigned offset)
{
	struct flow f = build(name);
	unsigned marks = flow_marks(&f, start_of(name) + offset);

	flow_release(&f);
	return marks;
}

static inline bool is_unresolved(const char *name)
{
	struct flow f = build(name);
	bool unresolved = f.unresolved;

	flow_release(&f);
	return unresolved;
}

/* Indirect jumps that leave the function. */
static inline unsigned leaving(const char *name)
{
	struct flow f = build(name);
	unsigned count = 0;

	for (size_t i = 0; i < f.insns.count; i++)
		count += f.insns.items[i].flow == ARCH_FLOW_JUMP_INDIRECT && !flow_is_switch(&f, i);
	flow_release(&f);
	return count;
}

#endif
