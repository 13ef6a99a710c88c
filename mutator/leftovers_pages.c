/* SPDX-License-Identifier: MIT */
/*
 * leftovers_pages.c - memory that patches cost, given back where a mutator that died can no more do it.
 */
#include <stdlib.h>

#include "mutator/leftovers.h"

struct giving {
	taddr_t *pages;
	size_t count;
	struct patch_files *files;
};

static int give_back(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct giving *g = arg;

	/* Through the tail of a module: no arena need be there. */
	return patch_drop_private_pages(stop, g->pages, g->count, g->files, 0, NULL, e);
}

void leftovers_give_back(struct target *t, const struct patch *patches, size_t count,
			 struct leftovers *result)
{
	struct giving g = {.pages = calloc(count + 1, sizeof(*g.pages)), .count = count};
	struct stop_report report = {0};
	struct dinst_error ignored = {0};

	for (size_t i = 0; g.pages && i < count; i++)
		g.pages[i] = patches[i].address;
	if (g.pages && count) {
		g.files = patch_files_open(t, g.pages, count);
		target_stop(t, NULL, give_back, &g, &report, &ignored);
		if (report.stop_ns > result->stop_ns)
			result->stop_ns = report.stop_ns;
	}
	patch_files_close(g.files);
	free(g.pages);
}
