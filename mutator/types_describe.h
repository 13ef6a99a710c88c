/* SPDX-License-Identifier: MIT */
/*
 * types_describe.h - types in words, for those who show values: names, enums, members,
 * as docs/protocol.md says of `events`. Read from DWARF by the image's reader
 * (types_reader.h), so what comes out is text that somebody else has made: it is valid JSON
 * of bounded size and depth (long names are cut), and nothing more is known of it.
 */
#ifndef DINST_MUTATOR_TYPES_DESCRIBE_H
#define DINST_MUTATOR_TYPES_DESCRIBE_H

#include <jansson.h>

#include "mutator/types.h"

enum {
	DESCRIBED_ARGUMENTS = 16,
	DESCRIBED_LEVELS = 2,	   /* structs in structs */
	DESCRIBED_MEMBERS = 32,	   /* of one struct */
	DESCRIBED_NAMES = 256,	   /* of one enum */
	DESCRIBED_NODES = 1024,	   /* types in all */
	DESCRIBED_BYTES = 1 << 18, /* of text */
};

/*
 * {"result": TYPE, "arguments": [{"name": ..., "type": TYPE}, ...]} of a function; a TYPE is
 * null where it is not known or there is nothing to show. NULL where there is no debug information.
 */
json_t *types_describe(struct image *img, uint32_t function);

/* Behind it: reads by itself. Malloc'ed text, NULL where nothing is known. */
char *read_description(struct image *img, uint32_t function);

#endif
