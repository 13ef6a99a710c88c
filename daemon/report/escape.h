/* SPDX-License-Identifier: MIT */
/*
 * escape.h - names in files of other programs. A name comes from a symbol table and may be
 * anything: bytes that are no UTF-8, control characters, what is special to the format.
 *
 * What is written can always be read by a strict reader of the format; names that are plain text
 * come out as they are.
 */
#ifndef DINST_DAEMON_REPORT_ESCAPE_H
#define DINST_DAEMON_REPORT_ESCAPE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/*
 * The next character of a text, which moves on; 0 at its end. What is no UTF-8 (RFC 3629) is
 * U+FFFD, one for each byte.
 */
uint32_t escape_next(const char **text);

/* As part of a JSON string (RFC 8259), without the quotes. */
void escape_json(FILE *out, const char *text);

/* As content or attribute of XML 1.0: characters that XML has no way to write become U+FFFD. */
void escape_xml(FILE *out, const char *text);

/* On one line: control characters become '?', and so do those in `also`. */
void escape_line(FILE *out, const char *text, const char *also);

/* Puts one character as UTF-8. */
void escape_put(FILE *out, uint32_t c);

#endif
