/* SPDX-License-Identifier: MIT */
/*
 * flat.h - the functions of a call tree, each once, with numbers: what formats need that keep
 * functions and not paths.
 *
 * Calling sequence: flat_make() after call_tree_end(), flat_find(), flat_release(). Names are the
 * tree's, which must outlive it.
 */
#ifndef DINST_DAEMON_REPORT_FLAT_H
#define DINST_DAEMON_REPORT_FLAT_H

#include "daemon/report/tree.h"

struct flat_function {
	const char *function, *module;
	size_t module_number; /* in flat.modules */
	uint64_t count, self_ns;
	uint64_t total_ns; /* recursive calls counted once */
};

struct flat {
	struct flat_function *functions; /* sorted by module, then by name */
	size_t count;
	const char **modules; /* sorted */
	size_t module_count;
};

/* Returns 0 or DINST_NO_MEMORY, with nothing to release. */
int flat_make(struct flat *f, const struct call_tree *t);
void flat_release(struct flat *f);

/* The number of a node's function. The node is of the tree, and not the root. */
size_t flat_find(const struct flat *f, const struct call_node *node);

#endif
