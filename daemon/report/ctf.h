/* SPDX-License-Identifier: MIT */
/*
 * ctf.h - events in a directory that babeltrace2, Trace Compass and `dinst report` read:
 * the Common Trace Format, version 1.8 (diamon.org/ctf/v1.8.3).
 *
 *   DIR/metadata   what events look like, in CTF's own language
 *   DIR/stream     packets of events, each written as a whole
 *   DIR/.dinst     our own description of the kinds, as JSON; others' readers pass it over
 *   DIR/.places    what code is at the addresses in stacks and of callers: a JSON object a line, as
 *                  `events` has them (docs/protocol.md); only there where there are such addresses.
 *                  Where another module came to lie where one was, the first one's names are shown
 *
 *   packet:  magic u32, uuid 16 bytes, stream id u32 | begin, end (ns), content, size (bits), events
 *            dropped so far: u64 each | events
 *   event:   id u32, ns u64 | thread u32, process u32, name of the thread with its zero byte |
 *            fields: a value 8 bytes (a float 4), a string with its zero byte, memory as its
 *            length u32 and the bytes, a stack as the number u32 of its u64
 *            and these: 1 where it is complete, then addresses
 *   All of it is packed and little endian.
 *
 * Writing keeps one packet in memory, however long it goes on. What is there can be read at any
 * time, also after the writer was killed: up to the last whole packet.
 *
 * Reading believes nothing: a directory may have been made by anybody.
 */
#ifndef DINST_DAEMON_REPORT_CTF_H
#define DINST_DAEMON_REPORT_CTF_H

#include "daemon/report/event.h"

/* What is known of a recording besides its events. */
struct ctf_facts {
	char process[64]; /* name of the program */
	uint32_t pid;
	char words[256]; /* what was asked for */
	/* After reading: */
	uint64_t first_ns, last_ns; /* of the events */
	bool cut;		    /* its end is missing, or is none */
};

struct ctf_writer {
	int directory, stream, places; /* descriptors; -1: none */
	size_t places_written;	       /* of the log's */
	uint8_t uuid[16];
	uint8_t *packet;
	size_t used;
	uint64_t begin_ns, last_ns; /* of the packet's events */
	uint64_t events, bytes;	    /* written, with what is in the packet */
	uint64_t dropped, told;	    /* until the packet began; as the last packet says */
	bool described;		    /* the metadata are written */
	struct ctf_facts facts;
};

/*
 * Makes the directory, which must not be there or be empty. DINST_BAD_FILE: it is, or cannot be
 * written. `rows` (borrowed until it returns) have the kinds that the log has learnt.
 */
int ctf_create(struct ctf_writer *w, const char *path, const struct ctf_facts *facts,
	       const json_t *rows, struct dinst_error *e);
/* Adds an event. 0, DINST_BAD_FILE where it cannot be written. */
int ctf_event(struct ctf_writer *w, const struct event_log *log, const struct event *event,
	      struct dinst_error *e);
/* Writes out what is in memory: a packet that may be short. */
int ctf_flush(struct ctf_writer *w, const struct event_log *log, struct dinst_error *e);
/* The same, and closes it. Releases everything, whatever it returns. */
int ctf_close(struct ctf_writer *w, const struct event_log *log, struct dinst_error *e);

/*
 * Reads a directory from its beginning: the log learns kinds and threads, `each` is called for
 * every event. Returns 0, what `each` returned, or a negative code with *e filled: DINST_BAD_FILE
 * where there is nothing of ours. An end that is missing is no error: facts->cut.
 */
int ctf_read(const char *path, struct event_log *log, struct ctf_facts *facts, event_each *each,
	     void *arg, struct dinst_error *e);

/* ctf_metadata.c: the metadata as text, malloc'ed; NULL without memory. */
char *ctf_metadata(const struct ctf_writer *w, const struct event_log *log);

#endif
