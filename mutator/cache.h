/* SPDX-License-Identifier: MIT */
/*
 * cache.h - files that spare us work the second time.
 *
 * They lie in $XDG_CACHE_HOME/dinst, else in ~/.cache/dinst, which must belong
 * to us and be closed to others; what is missing is made below a directory of ours only. Nothing depends on them: without a home, with
 * a full or read-only disk, with DINST_CACHE=off in the environment there is
 * no cache, and nobody is told. What is in a file is its reader's to judge; here
 * is only seen to it that it is ours and whole: a file appears under its name
 * complete or not at all, whoever else writes it at the same time.
 *
 * All files together take at most CACHE_TOTAL_MAX bytes; those that have not
 * been read for longest go.
 */
#ifndef DINST_MUTATOR_CACHE_H
#define DINST_MUTATOR_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mutator/siphash.h"

enum {
	CACHE_TOTAL_MAX = 256 << 20, /* bytes */
	CACHE_FILE_MAX = 64 << 20,
};

/*
 * Reads the whole file `name` (lower case, digits, '-'; ends in ".plans") into malloc'ed memory
 * that the caller frees. False if there is none that can be used.
 */
bool cache_read(const char *name, uint8_t **bytes, size_t *size);

/* Writes it. False if it could not be written; then what was there remains. */
bool cache_write(const char *name, const void *bytes, size_t size);

/*
 * The key of this cache, drawn when it was made: what is kept about files that others
 * have made is found by hashes with it, so that nobody can make a file that is taken
 * for another. False where there is no cache.
 */
bool cache_key(struct siphash_key *key);

/* Removes it, if it is there. */
void cache_remove(const char *name);

/* 64 bits that say what `bytes` are, for telling damage, not enemies. Chained by `seed`. */
uint64_t cache_hash(const void *bytes, size_t size, uint64_t seed);

#endif
