/* SPDX-License-Identifier: MIT */
/*
 * cache_plans.c - the file of plans of one image.
 *
 *     struct header
 *     offsets   one 32-bit number a function: where its record starts, 0: none
 *     parts     struct part: what image_references() finds out about functions
 *     records   points and windows of one plan, packed (cache_pack.c)
 *
 * Everything is in the byte order and layout of this very build of the program.
 * The last field of the header is a hash over all the rest of the file.
 */
#include "mutator/cache_plans.h"

#include "mutator/cache.h"
#include "mutator/cache_pack.h"
#include "mutator/image_private.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	FORMAT = 2,
	ID_MAX = 32,	      /* longest build id that is looked at */
	NEW_MIN = 16,	      /* new plans that are worth writing a file */
	POINTS_MAX = 1 << 22, /* of one function */
};

static const char magic[8] = "dinst-p";

struct header {
	char magic[8];
	uint32_t format, machine;
	uint64_t program; /* hash of this program */
	uint64_t image;	  /* hash of what the image is */
	uint64_t size;	  /* of this file */
	uint32_t id_size, function_count, part_count, plan_count;
	uint8_t id[ID_MAX];
	uint64_t hash; /* of the file with this field 0 */
};

/* A function that turned out to be a part of another. */
struct part {
	uint32_t index, flags, parent;
};

struct plan_cache {
	char name[ID_MAX * 2 + 64]; /* of the file; "" if there is none */
	uint8_t id[ID_MAX];	    /* that of the name: the file may say another by now */
	size_t id_size;
	uint64_t image;
	uint8_t *file; /* what was read, NULL if nothing */
	size_t file_size;
	const uint32_t *old; /* offsets in `file` */
	uint32_t *fresh;     /* offsets in `records`, plus one */
	struct pack_buffer records;
	size_t old_count, fresh_count;
};

static bool enabled;

void plan_cache_enable(bool on)
{
	enabled = on;
}

/* ---------------------------------------------------------------- identity */

/* Whatever in this program has changed, its plans may have. 0: it cannot be told. */
static uint64_t program_hash(void)
{
	static uint64_t hash;
	struct stat st;
	void *bytes;
	int fd;

	if (hash)
		return hash;
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (fstat(fd, &st) == 0 && st.st_size > 0) {
		bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
		if (bytes != MAP_FAILED) {
			hash = cache_hash(bytes, (size_t)st.st_size, 1);
			munmap(bytes, (size_t)st.st_size);
		}
	}
	close(fd);
	return hash;
}

/* Hashes that go on from one another. */
static uint64_t hash_on(const struct siphash_key *key, uint64_t before, const void *bytes,
			size_t size)
{
	const uint64_t both[] = {before, siphash(key, bytes, size)};

	return siphash(key, both, sizeof(both));
}

uint64_t plan_cache_shape(const struct image *img)
{
	const uint64_t traits[] = {img->go, img->turns_faults, img->ocaml.begin_count,
				   img->ocaml.everywhere, img->ocaml.grows};
	uint64_t hash = img->file.size;
	struct siphash_key key;

	if (!enabled || !cache_key(&key))
		return 0;
	for (size_t i = 0; i < img->function_count; i++) {
		const struct image_function *fn = &img->functions[i];
		uint64_t words[] = {hash, fn->address, fn->size,
				    (uint64_t)fn->flags << 32 | fn->parent};

		hash = siphash(&key, words, sizeof(words));
	}
	/* What only names tell: they may be in a debug file, or where no segment has them. */
	hash = hash_on(&key, hash, img->labels, img->label_count * sizeof(*img->labels));
	hash = hash_on(&key, hash, traits, sizeof(traits));
	return hash ? hash : 1;
}

/* What is read by the section headers: the headers, and what is not in a segment where they say. */
static uint64_t hash_sections(const struct image *img, const struct siphash_key *key, uint64_t hash)
{
	for (size_t i = 0; i < img->file.section_count; i++) {
		const struct elf_section *s = &img->file.sections[i];
		const uint64_t words[] = {s->type, s->flags,	  s->address, s->offset,
					  s->size, s->entry_size, s->link,    s->info};
		size_t size = 0;

		hash = hash_on(key, hash, words, sizeof(words));
		hash = hash_on(key, hash, s->name, strlen(s->name));
		if (s->bytes && (s->flags & SHF_ALLOC) &&
		    (elf_at(&img->file, s->address, &size, NULL) != s->bytes || size < s->size))
			hash = hash_on(key, hash, s->bytes, s->size);
	}
	return hash;
}

/*
 * The build id says it all, if everybody behaves. But a file with that of libc may be
 * somebody's who wants us to make wrong plans for libc: so all that plans are made of is
 * looked at, with a key that he does not know. And since a file may be written between two looks
 * at it, and shown as it was again, plans are those of the very file that they were made of: who
 * may write to it has none but those that run it to deceive. 0: there is no such key.
 */
static uint64_t image_hash(const struct image *img)
{
	uint64_t hash = img->shape, hashed = 0;
	struct siphash_key key;

	if (!img->shape || !cache_key(&key))
		return 0;
	for (size_t i = 0; i < img->file.segment_count; i++) {
		const struct elf_segment *s = &img->file.segments[i];
		const uint64_t words[] = {s->type,   s->flags,	   s->address,
					  s->offset, s->file_size, s->memory_size};

		hash = hash_on(&key, hash, words, sizeof(words));
		hashed += s->file_size;
		if (hashed / 4 > img->file.size)
			return 0;
		hash = hash_on(&key, hash, s->bytes, s->file_size);
	}
	hash = hash_on(&key, hash, &img->file.version, sizeof(img->file.version));
	hash = hash_sections(img, &key, hash);
	/* Unwind data are read once, and then they are these. */
	for (size_t i = 0; i < img->fde_count; i++) {
		const struct cfi_range *r = &img->fdes[i];
		const uint64_t words[] = {hash, r->lo, r->size, r->flags, r->lsda};

		hash = siphash(&key, words, sizeof(words));
	}
	elf_file_forget(&img->file, img->file.bytes, img->file.size);
	return hash ? hash : 1;
}

/* Only where to look: whether it is of this image, the hashes in the file tell. */
static bool make_name(const struct image *img, struct plan_cache *c)
{
	size_t size = 0;
	const uint8_t *id = image_build_id(img, &size);
	int used = 0;

	if (!id || size < 8 || size > ID_MAX || !program_hash())
		return false;
	memcpy(c->id, id, size);
	c->id_size = size;
	for (size_t i = 0; i < size; i++)
		used += snprintf(c->name + used, sizeof(c->name) - used, "%02x", c->id[i]);
	snprintf(c->name + used, sizeof(c->name) - used, "-%016llx-%016llx.plans",
		 (unsigned long long)program_hash(),
		 (unsigned long long)cache_hash(&img->file.version, sizeof(img->file.version), 0));
	return true;
}

/* ----------------------------------------------------------------- reading */

static bool header_is_right(const struct image *img, const struct plan_cache *c,
			    const struct header *h)
{
	struct header blank = *h;
	uint64_t hash;

	if (memcmp(h->magic, magic, sizeof(magic)) != 0 || h->format != FORMAT ||
	    h->machine != arch_elf_machine || h->program != program_hash() ||
	    h->image != c->image || h->size != c->file_size)
		return false;
	if (h->id_size != c->id_size || memcmp(h->id, c->id, c->id_size) != 0 ||
	    h->function_count != img->function_count)
		return false;
	blank.hash = 0;
	hash = cache_hash(&blank, sizeof(blank), 0);
	return h->hash == cache_hash(c->file + sizeof(blank), c->file_size - sizeof(blank), hash);
}

/* What image_references() would find out, and who asks no more may want to know. */
static bool parts_are_right(const struct image *img, const struct part *parts, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (parts[i].index >= img->function_count || parts[i].parent >= img->function_count)
			return false;
	return true;
}

static void read_parts(struct image *img, const struct part *parts, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		img->functions[parts[i].index].flags = parts[i].flags;
		img->functions[parts[i].index].parent = parts[i].parent;
	}
}

static void load(struct image *img, struct plan_cache *c)
{
	size_t tables;
	struct header h;

	if (!cache_read(c->name, &c->file, &c->file_size))
		return;
	if (c->file_size < sizeof(h))
		goto bad;
	memcpy(&h, c->file, sizeof(h));
	tables = sizeof(h) + (size_t)h.function_count * sizeof(uint32_t);
	if (!header_is_right(img, c, &h) ||
	    tables + (uint64_t)h.part_count * sizeof(struct part) > c->file_size)
		goto bad;
	/* malloc()ed memory and 32-bit fields: everything is aligned. */
	if (!parts_are_right(img, (const void *)(c->file + tables), h.part_count))
		goto bad;
	c->old = (const void *)(c->file + sizeof(h));
	c->old_count = h.plan_count;
	read_parts(img, (const void *)(c->file + tables), h.part_count);
	return;
bad:
	free(c->file);
	c->file = NULL;
	c->file_size = 0;
	cache_remove(c->name);
}

static struct plan_cache *cache_of(struct image *img)
{
	struct plan_cache *c = img->plans;

	if (c || !enabled)
		return c;
	c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	img->plans = c;
	c->fresh = calloc(img->function_count + 1, sizeof(*c->fresh));
	if (!c->fresh || !make_name(img, c)) {
		c->name[0] = 0;
		return c;
	}
	c->image = image_hash(img);
	if (c->image)
		load(img, c);
	else
		c->name[0] = 0;
	return c;
}

/* ---------------------------------------------------------------- records */

static bool point_is_right(const struct function_plan *plan, const struct point *p)
{
	if ((unsigned)p->kind >= POINT_KINDS || (unsigned)p->tactic >= TACTIC_COUNT ||
	    (unsigned)p->refusal > REFUSAL_UNMAPPED || (unsigned)p->place > PLACE_BYPASS)
		return false;
	if (p->window < 0)
		return p->window == -1 && p->refusal != REFUSAL_NONE;
	return (size_t)p->window < plan->window_count &&
	       p->insn < plan->windows[p->window].insn_count;
}

static bool window_is_right(const struct image *img, const struct function_plan *plan, size_t i)
{
	const struct window *w = &plan->windows[i];

	return w->start >= img->lowest && w->start < img->highest && w->insn_count &&
	       w->insn_count <= WINDOW_INSNS_MAX && w->length && w->length <= WINDOW_BYTES_MAX &&
	       (unsigned)w->kind <= ARCH_PATCH_CALL &&
	       (!w->hole || (w->hole >= img->lowest && w->hole < img->highest)) &&
	       (!i || w[-1].start + w[-1].length <= w->start);
}

/* Hosts are windows of the plan, and none is in its own tail by way of others. */
static bool host_is_right(const struct function_plan *plan, size_t i)
{
	int32_t host = plan->windows[i].host;
	size_t steps = 0;

	for (; host >= 0; host = plan->windows[host].host)
		if ((size_t)host >= plan->window_count || ++steps > plan->window_count)
			return false;
	return host == -1;
}

static bool plan_is_right(const struct image *img, const struct function_plan *plan)
{
	for (size_t i = 0; i < plan->window_count; i++)
		if (!window_is_right(img, plan, i) || !host_is_right(plan, i))
			return false;
	for (size_t i = 0; i < plan->point_count; i++)
		if (!point_is_right(plan, &plan->points[i]))
			return false;
	return true;
}

static void free_plan(struct function_plan *plan)
{
	free(plan->points);
	free(plan->windows);
	free(plan);
}

static struct function_plan *read_record(const struct image *img, uint32_t function,
					 const uint8_t *at, size_t size)
{
	struct pack_reader r = {at, at + size, false};
	struct function_plan *plan;
	uint64_t points = pack_take(&r), windows = pack_take(&r);

	if (r.bad || points > POINTS_MAX || windows > POINTS_MAX ||
	    points * pack_least(sizeof(struct point)) +
			    windows * pack_least(sizeof(struct window)) >
		    (size_t)(r.end - r.p))
		return NULL;
	plan = calloc(1, sizeof(*plan));
	if (!plan)
		return NULL;
	plan->function = function;
	plan->point_count = points;
	plan->window_count = windows;
	plan->points = calloc(points + 1, sizeof(*plan->points));
	plan->windows = calloc(windows + 1, sizeof(*plan->windows));
	if (plan->points && plan->windows) {
		pack_take_items(&r, plan->points, points, sizeof(*plan->points));
		pack_take_items(&r, plan->windows, windows, sizeof(*plan->windows));
		if (!r.bad && plan_is_right(img, plan))
			return plan;
	}
	free_plan(plan);
	return NULL;
}

bool plan_cache_get(struct image *img, uint32_t function, struct function_plan **plan)
{
	struct plan_cache *c = cache_of(img);
	struct function_plan *found = NULL;
	uint32_t offset;

	if (!c || function >= img->function_count)
		return false;
	offset = c->old ? c->old[function] : 0;
	if (offset && offset < c->file_size)
		found = read_record(img, function, c->file + offset, c->file_size - offset);
	if (!found && c->fresh && c->fresh[function])
		found = read_record(img, function, c->records.bytes + c->fresh[function] - 1,
				    c->records.size - (c->fresh[function] - 1));
	if (found)
		*plan = found;
	return found != NULL;
}

static void add_record(struct pack_buffer *b, const struct function_plan *plan)
{
	pack_put(b, plan->point_count);
	pack_put(b, plan->window_count);
	pack_put_items(b, plan->points, plan->point_count, sizeof(*plan->points));
	pack_put_items(b, plan->windows, plan->window_count, sizeof(*plan->windows));
}

void plan_cache_put(struct image *img, const struct function_plan *plan)
{
	struct plan_cache *c = cache_of(img);
	size_t at;

	if (!c || !c->name[0] || plan->function >= img->function_count || c->records.bad ||
	    c->fresh[plan->function] || c->records.size > CACHE_FILE_MAX)
		return;
	at = c->records.size;
	add_record(&c->records, plan);
	if (c->records.bad)
		return;
	c->fresh[plan->function] = (uint32_t)at + 1;
	c->fresh_count++;
}

/* ----------------------------------------------------------------- writing */

static void put_parts(const struct image *img, struct pack_buffer *b, struct header *h)
{
	for (size_t i = 0; i < img->function_count; i++) {
		const struct image_function *fn = &img->functions[i];
		struct part part = {(uint32_t)i, fn->flags, fn->parent};

		if (!(fn->flags & FUNCTION_COLD))
			continue;
		pack_put_bytes(b, &part, sizeof(part));
		h->part_count++;
	}
}

/* The record of function `i`, old or new, is appended; its offset is kept. */
static void put_record(const struct image *img, struct plan_cache *c, size_t i,
		       struct pack_buffer *b, size_t offsets, struct header *h)
{
	struct function_plan *plan = NULL;
	uint32_t at = (uint32_t)b->size;

	if (c->old && c->old[i] && c->old[i] < c->file_size)
		plan = read_record(img, (uint32_t)i, c->file + c->old[i], c->file_size - c->old[i]);
	else if (c->fresh[i])
		plan = read_record(img, (uint32_t)i, c->records.bytes + c->fresh[i] - 1,
				   c->records.size - (c->fresh[i] - 1));
	if (!plan)
		return;
	add_record(b, plan);
	free_plan(plan);
	if (b->bad)
		return;
	memcpy(b->bytes + offsets + i * sizeof(at), &at, sizeof(at));
	h->plan_count++;
}

static void write_file(struct image *img, struct plan_cache *c)
{
	struct pack_buffer b = {0};
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
	pack_put_bytes(&b, &h, sizeof(h));
	pack_put_zeroes(&b, img->function_count * sizeof(uint32_t));
	put_parts(img, &b, &h);
	for (size_t i = 0; i < img->function_count && !b.bad && b.size <= CACHE_FILE_MAX; i++)
		put_record(img, c, i, &b, sizeof(h), &h);
	if (!b.bad && b.size <= CACHE_FILE_MAX) {
		h.size = b.size;
		h.hash = cache_hash(b.bytes + sizeof(h), b.size - sizeof(h),
				    cache_hash(&h, sizeof(h), 0));
		memcpy(b.bytes, &h, sizeof(h));
		cache_write(c->name, b.bytes, b.size);
	}
	free(b.bytes);
}

void plan_cache_flush(struct image *img)
{
	struct plan_cache *c = img->plans;

	if (!c || !c->name[0] || !img->references || c->fresh_count < NEW_MIN ||
	    c->fresh_count < c->old_count / 16)
		return;
	/* Of a file that was written meanwhile nobody knows what the plans were made of. */
	if (image_hash(img) == c->image)
		write_file(img, c);
	/* Written once, whether it worked or not: who plans on adds to the next one. */
	c->old_count += c->fresh_count;
	c->fresh_count = 0;
}

void plan_cache_release(struct plan_cache *c)
{
	if (!c)
		return;
	free(c->file);
	free(c->fresh);
	free(c->records.bytes);
	free(c);
}
