/* SPDX-License-Identifier: MIT */
/*
 * siphash.c - SipHash-1-3: see siphash.h.
 */
#include "mutator/siphash.h"

#include <stdbool.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

static uint64_t rotate(uint64_t word, unsigned by)
{
	return word << by | word >> (64 - by);
}

struct state {
	uint64_t a, b, c, d;
};

static inline void round_of(struct state *s)
{
	s->a += s->b;
	s->b = rotate(s->b, 13) ^ s->a;
	s->a = rotate(s->a, 32);
	s->c += s->d;
	s->d = rotate(s->d, 16) ^ s->c;
	s->a += s->d;
	s->d = rotate(s->d, 21) ^ s->a;
	s->c += s->b;
	s->b = rotate(s->b, 17) ^ s->c;
	s->c = rotate(s->c, 32);
}

static inline void take_word(struct state *s, uint64_t word)
{
	s->d ^= word;
	round_of(s);
	s->a ^= word;
}

uint64_t siphash(const struct siphash_key *key, const void *bytes, size_t size)
{
	const uint8_t *p = bytes;
	struct state s = {
		key->word[0] ^ UINT64_C(0x736f6d6570736575),
		key->word[1] ^ UINT64_C(0x646f72616e646f6d),
		key->word[0] ^ UINT64_C(0x6c7967656e657261),
		key->word[1] ^ UINT64_C(0x7465646279746573),
	};
	uint64_t word = 0;
	size_t left = size;

	for (; left >= sizeof(word); left -= sizeof(word), p += sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		take_word(&s, word);
	}
	word = 0;
	if (left)
		memcpy(&word, p, left);
	take_word(&s, word | (uint64_t)size << 56);
	s.c ^= 0xff;
	for (unsigned i = 0; i < 3; i++)
		round_of(&s);
	return s.a ^ s.b ^ s.c ^ s.d;
}

uint64_t name_hash(const char *name, size_t length)
{
	static struct siphash_key key;
	static bool drawn;

	if (!drawn) {
		drawn = true;
		/* a kernel that has no random numbers yet: the next best, and no reason to wait */
		if (getrandom(&key, sizeof(key), GRND_NONBLOCK) != sizeof(key))
			key = (struct siphash_key){{(uint64_t)time(NULL), (uint64_t)getpid()}};
	}
	return siphash(&key, name, length);
}
