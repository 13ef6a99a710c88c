/* SPDX-License-Identifier: MIT */
/*
 * pprof.c - profile.proto, encoded by hand: it is a dozen numbers and a table of strings.
 */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "daemon/report/escape.h"
#include "daemon/report/flat.h"
#include "daemon/report/pprof.h"

/* Field numbers of profile.proto. */
enum {
	PROFILE_SAMPLE_TYPE = 1,
	PROFILE_SAMPLE = 2,
	PROFILE_MAPPING = 3,
	PROFILE_LOCATION = 4,
	PROFILE_FUNCTION = 5,
	PROFILE_STRING_TABLE = 6,
	PROFILE_TIME_NANOS = 9,
	PROFILE_DURATION_NANOS = 10,
	PROFILE_DEFAULT_SAMPLE_TYPE = 14,
	VALUE_TYPE_TYPE = 1,
	VALUE_TYPE_UNIT = 2,
	SAMPLE_LOCATION_ID = 1,
	SAMPLE_VALUE = 2,
	MAPPING_ID = 1,
	MAPPING_FILENAME = 5,
	MAPPING_HAS_FUNCTIONS = 7,
	LOCATION_ID = 1,
	LOCATION_MAPPING_ID = 2,
	LOCATION_LINE = 4,
	LINE_FUNCTION_ID = 1,
	FUNCTION_ID = 1,
	FUNCTION_NAME = 2,
	FUNCTION_SYSTEM_NAME = 3,
	FUNCTION_FILENAME = 4,
};

/* Numbers of strings in the table: these, then the modules' names, then the functions'. */
enum { STRING_EMPTY, STRING_CALLS, STRING_COUNT, STRING_TIME, STRING_NS, STRING_MODULES };

enum { WIRE_VARINT = 0, WIRE_BYTES = 2 };

/* A message that grows. `failed`: without memory; then it takes nothing more. */
struct message {
	uint8_t *bytes;
	size_t size, room;
	bool failed;
};

static void put_bytes(struct message *m, const void *bytes, size_t size)
{
	if (m->room - m->size < size && !m->failed) {
		const size_t room = (m->room + size) * 2;
		uint8_t *more = realloc(m->bytes, room);

		m->failed = !more;
		if (more) {
			m->bytes = more;
			m->room = room;
		}
	}
	if (m->failed || !size)
		return;
	memcpy(m->bytes + m->size, bytes, size);
	m->size += size;
}

static void put_varint(struct message *m, uint64_t value)
{
	uint8_t bytes[10];
	size_t n = 0;

	for (; value >= 0x80; value >>= 7)
		bytes[n++] = (uint8_t)(value | 0x80);
	bytes[n++] = (uint8_t)value;
	put_bytes(m, bytes, n);
}

static void put_number(struct message *m, unsigned field, uint64_t value)
{
	put_varint(m, field << 3 | WIRE_VARINT);
	put_varint(m, value);
}

static void put_field(struct message *m, unsigned field, const void *bytes, size_t size)
{
	put_varint(m, field << 3 | WIRE_BYTES);
	put_varint(m, size);
	put_bytes(m, bytes, size);
}

/* Appends `inner` and empties it, so that it can be used again. */
static void put_message(struct message *m, unsigned field, struct message *inner)
{
	put_field(m, field, inner->bytes, inner->size);
	m->failed = m->failed || inner->failed;
	inner->size = 0;
}

/* Strings must be UTF-8. */
static void put_string(struct message *m, const char *text)
{
	char *clean = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&clean, &size);

	if (!out) {
		m->failed = true;
		return;
	}
	escape_line(out, text, "");
	m->failed = fclose(out) != 0 || m->failed;
	put_field(m, PROFILE_STRING_TABLE, clean, size);
	free(clean);
}

static void put_types(struct message *m, struct message *inner)
{
	put_number(inner, VALUE_TYPE_TYPE, STRING_CALLS);
	put_number(inner, VALUE_TYPE_UNIT, STRING_COUNT);
	put_message(m, PROFILE_SAMPLE_TYPE, inner);
	put_number(inner, VALUE_TYPE_TYPE, STRING_TIME);
	put_number(inner, VALUE_TYPE_UNIT, STRING_NS);
	put_message(m, PROFILE_SAMPLE_TYPE, inner);
	put_number(m, PROFILE_DEFAULT_SAMPLE_TYPE, STRING_TIME);
}

/* Locations, innermost first, and the two values, all packed. */
static void put_samples(struct message *m, struct message *inner, const struct flat *f,
			const struct call_tree *t)
{
	struct message packed = {0};

	for (const struct call_node *n = call_tree_root(t); n; n = call_node_next(n, NULL)) {
		if (!n->parent)
			continue;
		for (const struct call_node *up = n; up->parent; up = up->parent)
			put_varint(&packed, flat_find(f, up) + 1);
		put_message(inner, SAMPLE_LOCATION_ID, &packed);
		put_varint(&packed, n->count);
		put_varint(&packed, n->self_ns);
		put_message(inner, SAMPLE_VALUE, &packed);
		put_message(m, PROFILE_SAMPLE, inner);
	}
	free(packed.bytes);
}

/* A function has one location, of the same number: addresses inside of it are not known. */
static void put_functions(struct message *m, struct message *inner, const struct flat *f)
{
	struct message line = {0};

	for (size_t i = 0; i < f->module_count; i++) {
		put_number(inner, MAPPING_ID, i + 1);
		put_number(inner, MAPPING_FILENAME, STRING_MODULES + i);
		put_number(inner, MAPPING_HAS_FUNCTIONS, 1);
		put_message(m, PROFILE_MAPPING, inner);
	}
	for (size_t i = 0; i < f->count; i++) {
		const uint64_t name = STRING_MODULES + f->module_count + i;

		put_number(inner, LOCATION_ID, i + 1);
		put_number(inner, LOCATION_MAPPING_ID, f->functions[i].module_number + 1);
		put_number(&line, LINE_FUNCTION_ID, i + 1);
		put_message(inner, LOCATION_LINE, &line);
		put_message(m, PROFILE_LOCATION, inner);
		put_number(inner, FUNCTION_ID, i + 1);
		put_number(inner, FUNCTION_NAME, name);
		put_number(inner, FUNCTION_SYSTEM_NAME, name);
		put_number(inner, FUNCTION_FILENAME,
			   STRING_MODULES + f->functions[i].module_number);
		put_message(m, PROFILE_FUNCTION, inner);
	}
	free(line.bytes);
}

static void put_strings(struct message *m, const struct flat *f)
{
	static const char *const fixed[] = {"", "calls", "count", "time", "nanoseconds"};

	for (size_t i = 0; i < STRING_MODULES; i++)
		put_string(m, fixed[i]);
	for (size_t i = 0; i < f->module_count; i++)
		put_string(m, f->modules[i][0] ? f->modules[i] : "?");
	for (size_t i = 0; i < f->count; i++)
		put_string(m, f->functions[i].function);
}

/* windowBits 15 + 16: with the header of gzip (zlib.h). */
static int write_compressed(FILE *out, const struct message *m)
{
	z_stream z = {.next_in = m->bytes, .avail_in = (uInt)m->size};
	uint8_t part[16384];
	int done =
		deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);

	if (done != Z_OK)
		return done == Z_MEM_ERROR ? DINST_NO_MEMORY : DINST_FAILED;
	do {
		z.next_out = part;
		z.avail_out = sizeof(part);
		done = deflate(&z, Z_FINISH);
		fwrite(part, 1, sizeof(part) - z.avail_out, out);
	} while (done == Z_OK);
	deflateEnd(&z);
	return done == Z_STREAM_END ? 0 : DINST_FAILED;
}

int pprof_write(FILE *out, const struct call_tree *t, uint64_t realtime_ns, uint64_t duration_ns)
{
	struct message m = {0}, inner = {0};
	struct flat f;
	int status = flat_make(&f, t);

	if (status < 0)
		return status;
	put_types(&m, &inner);
	put_samples(&m, &inner, &f, t);
	put_functions(&m, &inner, &f);
	put_strings(&m, &f);
	put_number(&m, PROFILE_TIME_NANOS, realtime_ns);
	put_number(&m, PROFILE_DURATION_NANOS, duration_ns);
	if (m.failed || m.size > UINT32_MAX)
		status = DINST_NO_MEMORY;
	else
		status = write_compressed(out, &m);
	free(m.bytes);
	free(inner.bytes);
	flat_release(&f);
	return status;
}
