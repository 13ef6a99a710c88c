/* SPDX-License-Identifier: MIT */
/*
 * ctf_private.h - for ctf_*.c: numbers and names of the format.
 */
#ifndef DINST_DAEMON_REPORT_CTF_PRIVATE_H
#define DINST_DAEMON_REPORT_CTF_PRIVATE_H

#include "daemon/report/ctf.h"

#define CTF_MAGIC 0xC1FC1FC1u
#define CTF_OWN_FILE \
	"."          \
	"dinst"
#define CTF_STREAM_FILE "stream"
#define CTF_PLACES_FILE \
	"."             \
	"places"

enum {
	CTF_VERSION = 1,
	CTF_PACKET_HEAD = 24 + 40,    /* header and context, bytes */
	CTF_PACKET_MOST = 256 * 1024, /* bytes that are written at once */
	CTF_NAME_MOST = 64,	      /* of a thread's name */
	CTF_OWN_MOST = 64 << 20,      /* of our description */
};

/* A float of 32 bits lies in 4 bytes of the file. */
static inline bool ctf_is_small(const struct event_field *f)
{
	return f->form == EVENT_VALUE && f->type && f->type->form == VALUE_FLOAT &&
	       f->type->size == 4;
}

/* Closes what is open. */
void ctf_release(struct ctf_writer *w);

#endif
