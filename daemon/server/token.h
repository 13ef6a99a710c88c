/* SPDX-License-Identifier: MIT */
/*
 * token.h - the secret by which a client of the HTTP port may change something.
 *
 * A file of one line, of ours and readable by nobody else. A missing one is made, with 256
 * random bits.
 */
#ifndef DINST_DAEMON_TOKEN_H
#define DINST_DAEMON_TOKEN_H

#include <stdbool.h>

#include "inject/error.h"

enum { TOKEN_MIN = 16, TOKEN_MAX = 128 }; /* characters, printable ASCII without blanks */

/* Reads the token, or makes the file. Fills token[TOKEN_MAX + 1]; *made: there was none. */
int token_load(const char *path, char *token, bool *made, struct dinst_error *e);
/* True if they are equal; takes as long for each `given` of one length. */
bool token_equal(const char *token, const char *given);

#endif
