/* SPDX-License-Identifier: MIT */
/*
 * text_private.h - for text*.c: what text and JSON do alike.
 */
#ifndef DINST_DAEMON_REPORT_TEXT_PRIVATE_H
#define DINST_DAEMON_REPORT_TEXT_PRIVATE_H

#include "daemon/common/rpc.h"
#include "daemon/report/text.h"

/* Strings that were recorded of a struct's members. */
struct pointee {
	const struct event *e;
	const struct event_field *members;
	size_t count;
	size_t base; /* of the struct that is shown, in the outermost one */
};

/* The string that the pointer at `at` leads to. */
bool pointee_string(const struct pointee *p, size_t at, const uint8_t **bytes, size_t *length,
		    bool *cut);
/* The same for a struct in it; nothing if p is NULL. */
struct pointee pointee_inside(const struct pointee *p, size_t at);

/* The fields that belong to field n: returns how many, with it. */
struct field_parts {
	const struct event_field *target; /* what it points to, or NULL */
	struct pointee pointee;
};
size_t field_parts(const struct event *e, size_t n, struct field_parts *out);

/* Where a member's bytes are; of a bit field they are in *bits. False: not there. */
bool value_member_at(const struct value_member *m, const uint8_t *bytes, size_t size,
		     uint64_t *bits, const uint8_t **at, size_t *there);

/* More than one character, and all of them for people. */
bool looks_like_text(const uint8_t *bytes, size_t length);

/* 'x', escaped where it must be. */
void text_add_char(struct text *t, uint8_t byte);

/* text_value.c: what a number means. */
bool type_is_pointer(const struct value_type *type);
/* A float of 4 or 8 bytes, which must be there; false: it has no such size. */
bool value_real(const struct value_type *type, const uint8_t *bytes, double *number);
int64_t value_widened(const struct value_type *type, const uint8_t *bytes);
const char *value_name(const struct value_type *type, int64_t value);

#endif
