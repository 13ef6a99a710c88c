/* SPDX-License-Identifier: MIT */
/*
 * cache_fuzz.c - any bytes as a file of plans whose header and hash are right: what
 * comes out lies inside the image, and everything else is ignored.
 *
 * The input is what stands behind the header; its first two bytes are how many parts
 * the header tells of.
 */
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define cache_read cache_read_from_disk
#include "mutator/cache.c"
#undef cache_read

bool cache_read(const char *name, uint8_t **bytes, size_t *size);

static uint8_t *input;
static size_t input_size;

bool cache_read(const char *name, uint8_t **bytes, size_t *size)
{
	(void)name;
	*bytes = malloc(input_size);
	if (!*bytes)
		return false;
	memcpy(*bytes, input, input_size);
	*size = input_size;
	return true;
}

#include "mutator/cache_plans.c"

#include <fcntl.h>

static struct image *img;
static struct image_function *functions; /* as they were */

static void open_image(void)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	char path[4096], home[] = "/tmp/dinst-fuzz-XXXXXX";
	int fd;

	/* the key is drawn once, and the directory is of no more use */
	require(mkdtemp(home));
	setenv("XDG_CACHE_HOME", home, 1);
	snprintf(path, sizeof(path), "%s/tests/live/targets/points-flow", build ? build : "build");
	fd = open(path, O_RDONLY | O_CLOEXEC);
	require(fd >= 0);
	plan_cache_enable(true);
	require(image_open(fd, path, NULL, &img, &e) == 0);
	close(fd);
	functions = malloc(img->function_count * sizeof(*functions));
	require(functions && img->shape && program_hash());
	memcpy(functions, img->functions, img->function_count * sizeof(*functions));
	snprintf(path, sizeof(path), "rm -rf %s", home);
	require(system(path) == 0);
	unsetenv("XDG_CACHE_HOME");
	setenv("DINST_CACHE", "off", 1);
}

/* A file that is right but for what is in it. */
static void make_file(const uint8_t *bytes, size_t size, const struct plan_cache *c)
{
	struct header h = {
		.format = FORMAT,
		.machine = arch_elf_machine,
		.program = program_hash(),
		.image = c->image,
		.id_size = (uint32_t)c->id_size,
		.function_count = (uint32_t)img->function_count,
	};

	memcpy(h.magic, magic, sizeof(magic));
	memcpy(h.id, c->id, c->id_size);
	h.part_count = size > 1 ? bytes[0] | (uint32_t)bytes[1] << 8 : 0;
	size = size > 2 ? size - 2 : 0;
	h.size = sizeof(h) + size;
	h.hash = cache_hash(bytes + 2, size, cache_hash(&h, sizeof(h), 0));
	input_size = h.size;
	input = malloc(input_size);
	require(input);
	memcpy(input, &h, sizeof(h));
	memcpy(input + sizeof(h), bytes + 2, size);
}

/* fear L1: a file of plans with anything in it gives plans that lie in the image, or none */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct plan_cache *c;

	if (!img)
		open_image();
	if (size < 2)
		return 0;
	c = calloc(1, sizeof(*c));
	require(c);
	c->image = 1;
	require(make_name(img, c));
	img->plans = c;
	make_file(bytes, size, c);
	load(img, c);
	/* as far as its tables fit */
	require(c->file ||
		sizeof(struct header) + img->function_count * sizeof(uint32_t) > input_size ||
		bytes[0] || bytes[1]);
	for (uint32_t i = 0; i < img->function_count; i++) {
		struct function_plan *plan;

		require(img->functions[i].parent < img->function_count);
		if (!plan_cache_get(img, i, &plan))
			continue;
		require(plan->function == i);
		for (size_t k = 0; k < plan->window_count; k++)
			require(plan->windows[k].start >= img->lowest &&
				plan->windows[k].start + plan->windows[k].length <=
					img->highest + WINDOW_BYTES_MAX);
		for (size_t k = 0; k < plan->window_count; k++)
			require(plan->windows[k].host < (long)plan->window_count);
		for (size_t k = 0; k < plan->point_count; k++)
			require(plan->points[k].window < (long)plan->window_count);
		free_plan(plan);
	}
	plan_cache_release(c);
	img->plans = NULL;
	free(input);
	memcpy(img->functions, functions, img->function_count * sizeof(*functions));
	return 0;
}

FUZZ_MAIN(cache, 5000);
