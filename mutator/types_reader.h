/* SPDX-License-Identifier: MIT */
/*
 * types_reader.h - debug information is read by a child that can do nothing else.
 *
 * DWARF is read by libdw, and the file may be an enemy's. So in a mutator the questions
 * of types.h are put to a child, one for each image, made by fork() when the first one is
 * asked and confined (confine.h) before it looks at the file. It has the file mapped as
 * we have it, the same memory in private, one connection to us, and nothing of a
 * target: what we share with one is not handed on to children (inject/arena_map.c).
 * What it answers is checked as anything from outside. If it dies, or does not answer for
 * long, the image is as if it had no debug information; who asks is told (types_unanswered()).
 *
 * Where no child can be made, or the kernel has no filters, it is read all the same, by
 * ourselves or by a child without one, and the log says so once.
 */
#ifndef DINST_MUTATOR_TYPES_READER_H
#define DINST_MUTATOR_TYPES_READER_H

#include "mutator/types.h"

struct types_reader; /* of an image */

/* For the whole process; off until then: tests, and the child, read by themselves. */
void types_reader_enable(bool on);

/* The process that reads `img`; 0 if there is none. */
pid_t types_reader_pid(const struct image *img);

void types_reader_release(struct types_reader *r);

/*
 * How many questions have had no answer so far, of any image, because a reader had died; *name
 * is that of the last one's image ("" while there was none), valid until the next question.
 */
uint64_t types_unanswered(const char **name);

/* What is behind types.h: reads by itself. */
void read_function(struct image *img, uint32_t function, struct type_function *out);
void read_variable(struct image *img, vaddr_t address, struct type *out);
void read_target(const struct type *type, struct type *out);
bool read_field(const struct type *type, const char *name, struct type_field *out);
bool read_words(const struct type *type, bool is_float[2]);
bool read_inlined(struct image *img, const char *name, const char **callers, size_t max,
		  size_t *count);
size_t read_field_names(const struct type *type, const char **names, size_t max);

#endif
