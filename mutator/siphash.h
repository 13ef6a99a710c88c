/* SPDX-License-Identifier: MIT */
/*
 * siphash.h - a hash that an enemy who does not know the key cannot aim.
 *
 * For tables whose keys come from files (else a file with names made for it turns
 * a table into a list), and for telling whether a file is the one that was seen
 * before. SipHash-1-3 of Aumasson and Bernstein ("SipHash: a fast short-input
 * PRF", 2012), with the numbers of rounds that Linux and Rust use for tables.
 */
#ifndef DINST_MUTATOR_SIPHASH_H
#define DINST_MUTATOR_SIPHASH_H

#include <stddef.h>
#include <stdint.h>

struct siphash_key {
	uint64_t word[2];
};

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t size);

/* Of a name in a file, by a key that this process has drawn. */
uint64_t name_hash(const char *name, size_t length);

#endif
