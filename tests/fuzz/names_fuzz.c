/* SPDX-License-Identifier: MIT */
/*
 * names_fuzz.c - any bytes as names in a file, one per line: what is made readable
 * is bounded in size and time, whatever a name says of itself.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/common/rpc.h"
#include "mutator/image_private.h"
#include "tests/fuzz/fuzz.h"

static void try_name(const char *name)
{
	char *readable = demangle(name);

	if (!readable)
		return;
	require(name_is_mangled(name));
	require(strlen(readable) <= 32 * strlen(name) + 1024);
	require(readable_base_length(readable) <= strlen(readable));
	text_clean(readable, false);
	for (const char *p = readable; *p; p++)
		require((unsigned char)*p >= 0x20 && *p != 0x7f);
	free(readable);
}

/* fear L1: a name of 4 KiB that unfolds to gigabytes stays as it is; others are read soon */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	char *text = malloc(size + 1);

	require(text);
	memcpy(text, bytes, size);
	text[size] = '\0';
	for (char *rest = text, *name; (name = strsep(&rest, "\n"));)
		try_name(name);
	free(text);
	return 0;
}

FUZZ_MAIN(names, 20000);
