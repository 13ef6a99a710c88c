/* SPDX-License-Identifier: MIT */
/*
 * words.c - looking for words in the texts of the kernel: "key : word word ...",
 * a line each. Knows no key.
 */
#include <string.h>

#include "arch/common/common.h"

/* The line's value if it begins with the key; NULL if it does not. */
static const char *value_of(const char *line, const char *key)
{
	const size_t length = strlen(key);

	if (strncmp(line, key, length))
		return NULL;
	line += length;
	line += strspn(line, " \t");
	return *line == ':' ? line + 1 : NULL;
}

static bool has_word(const char *value, const char *word)
{
	const size_t length = strlen(word);

	for (;;) {
		size_t size;

		value += strspn(value, " \t");
		size = strcspn(value, " \t\n");
		if (!size)
			return false;
		if (size == length && !strncmp(value, word, length))
			return true;
		value += size;
	}
}

bool arch_text_has(const char *text, const char *key, const char *word)
{
	for (const char *line = text; *line;) {
		const char *value = value_of(line, key);

		if (value && has_word(value, word))
			return true;
		line += strcspn(line, "\n");
		line += *line == '\n';
	}
	return false;
}
