/* SPDX-License-Identifier: MIT */
/*
 * ctf_write.c - events into a directory: one packet in memory, written as a whole where it is full
 * or somebody asks for it.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/common/rpc.h"
#include "daemon/report/ctf.h"
#include "daemon/report/ctf_private.h"

/* ----------------------------------------------------------------------- files */

static int cannot(struct dinst_error *e, const char *what, const char *path)
{
	return dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot %s %s", what, path);
}

static bool is_empty(int directory)
{
	const int fd = dup(directory);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;
	bool empty = true;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (empty && (entry = readdir(d)))
		empty = !strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..");
	closedir(d);
	return empty;
}

static int make_directory(const char *path, int *out, struct dinst_error *e)
{
	const bool made = mkdir(path, 0777) == 0;

	if (!made && errno != EEXIST)
		return cannot(e, "make the directory", path);
	*out = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (*out < 0)
		return cannot(e, "open the directory", path);
	if (made || is_empty(*out))
		return 0;
	close(*out);
	*out = -1;
	return dinst_fail(e, DINST_BAD_FILE, "%s is there already, and not empty; another name?",
			  path);
}

static int write_all(int fd, const void *bytes, size_t size, struct dinst_error *e)
{
	const uint8_t *p = bytes;

	while (size) {
		const ssize_t n = write(fd, p, size);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return cannot(e, "write", "the recording");
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

static int write_file(int directory, const char *name, const char *text, struct dinst_error *e)
{
	const int fd = openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	int status;

	if (fd < 0)
		return cannot(e, "write", name);
	status = write_all(fd, text, strlen(text), e);
	if (close(fd) != 0 && !status)
		status = cannot(e, "write", name);
	return status;
}

static int write_description(struct ctf_writer *w, const json_t *rows, struct dinst_error *e)
{
	json_t *kinds = json_array(), *whole, *row;
	char *text;
	int status;
	size_t i;

	/* Of the rows only what is about events. */
	json_array_foreach((json_t *)rows, i, row) json_array_append_new(
		kinds, json_pack("{s:O?}", "events", json_object_get(row, "events")));
	/* Both may be cut in the middle of a character. */
	whole = json_pack("{s:i, s:o, s:I, s:o, s:o}", "dinst", CTF_VERSION, "process",
			  rpc_text(w->facts.process), "pid", (json_int_t)w->facts.pid, "words",
			  rpc_text(w->facts.words), "rows", kinds);
	text = whole ? json_dumps(whole, JSON_COMPACT) : NULL;
	json_decref(whole);
	if (!text)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = write_file(w->directory, CTF_OWN_FILE, text, e);
	free(text);
	return status;
}

/* --------------------------------------------------------------------- packets */

static void put(struct ctf_writer *w, const void *bytes, size_t size)
{
	memcpy(w->packet + w->used, bytes, size);
	w->used += size;
}

static void put32(struct ctf_writer *w, uint32_t value)
{
	put(w, &value, sizeof(value));
}

static void put64(struct ctf_writer *w, uint64_t value)
{
	put(w, &value, sizeof(value));
}

/* When the first events have come it is known what their clock means. */
static int describe(struct ctf_writer *w, const struct event_log *log, struct dinst_error *e)
{
	char *text;
	int status;

	if (w->described)
		return 0;
	text = ctf_metadata(w, log);
	if (!text)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = write_file(w->directory, "metadata", text, e);
	free(text);
	w->described = !status;
	return status;
}

static int write_place(struct ctf_writer *w, const struct event_place *p, struct dinst_error *e)
{
	char address[32], *text;
	json_t *row;
	int status;

	snprintf(address, sizeof(address), "0x%" PRIx64, p->word);
	row = json_pack("{s:s, s:s?, s:s?, s:I}", "address", address, "function", p->function,
			"module", p->module, "offset", (json_int_t)p->offset);
	text = row ? json_dumps(row, JSON_COMPACT) : NULL;
	json_decref(row);
	if (!text)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	status = write_all(w->places, text, strlen(text), e);
	free(text);
	return status ? status : write_all(w->places, "\n", 1, e);
}

/* In front of the events that name them. */
static int write_places(struct ctf_writer *w, const struct event_log *log, struct dinst_error *e)
{
	int status = 0;

	if (w->places < 0 && w->places_written < log->place_count) {
		w->places = openat(w->directory, CTF_PLACES_FILE,
				   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		if (w->places < 0)
			return cannot(e, "write", CTF_PLACES_FILE);
	}
	while (!status && w->places_written < log->place_count)
		status = write_place(w, log->place_order[w->places_written++], e);
	return status;
}

/* Writes the packet; `dropped`: how many events were until its end. */
static int write_packet(struct ctf_writer *w, const struct event_log *log, uint64_t dropped,
			struct dinst_error *e)
{
	const size_t size = w->used;
	int status = describe(w, log, e);

	if (!status)
		status = write_places(w, log, e);
	/* A packet without events says what was dropped at the end. */
	if (status || (size <= CTF_PACKET_HEAD && dropped == w->told))
		return status;
	if (size <= CTF_PACKET_HEAD)
		w->begin_ns = w->last_ns;
	w->told = dropped;
	w->used = 0;
	put32(w, CTF_MAGIC);
	put(w, w->uuid, sizeof(w->uuid));
	put32(w, 0);
	put64(w, w->begin_ns);
	put64(w, w->last_ns);
	put64(w, size * 8);
	put64(w, size * 8);
	put64(w, dropped);
	w->used = CTF_PACKET_HEAD;
	status = write_all(w->stream, w->packet, size, e);
	/* A part of a packet would make other readers refuse all that is there; as good as can be. */
	if (status && ftruncate(w->stream, (off_t)w->bytes) == 0)
		lseek(w->stream, (off_t)w->bytes, SEEK_SET);
	if (!status)
		w->bytes += size;
	return status;
}

int ctf_flush(struct ctf_writer *w, const struct event_log *log, struct dinst_error *e)
{
	w->dropped = log->dropped;
	return write_packet(w, log, log->dropped, e);
}

static void put_field(struct ctf_writer *w, const struct event *event, const struct event_field *f)
{
	const uint8_t *bytes = NULL;
	size_t length = 0;
	uint64_t value = 0;

	if (f->form == EVENT_VALUE) {
		event_value(event, f, &value);
		if (ctf_is_small(f))
			put32(w, (uint32_t)value);
		else
			put64(w, value);
		return;
	}
	if (!event_bytes(event, f, &bytes, &length))
		length = 0;
	if (f->form == EVENT_STRING) {
		length = strnlen((const char *)bytes, length);
		if (length)
			put(w, bytes, length);
		put(w, "", 1);
		return;
	}
	if (f->form == EVENT_STACK)
		length -= length % sizeof(uint64_t);
	put32(w, (uint32_t)(f->form == EVENT_STACK ? length / sizeof(uint64_t) : length));
	if (length)
		put(w, bytes, length);
}

int ctf_event(struct ctf_writer *w, const struct event_log *log, const struct event *event,
	      struct dinst_error *e)
{
	const char *name = event->thread ? event->thread->name : "";
	const size_t name_size = strnlen(name, CTF_NAME_MOST);
	/* Nothing is longer in the file than it is in a record. */
	const size_t most = event->size + (size_t)2 * CTF_NAME_MOST + 4 * event->kind->field_count;
	int status = 0;

	if (most > CTF_PACKET_MOST - CTF_PACKET_HEAD)
		return 0;
	/* Where some were dropped a packet begins, so that readers know where. */
	if (w->used + most > CTF_PACKET_MOST || w->dropped != log->dropped)
		status = write_packet(w, log, w->dropped, e);
	w->dropped = log->dropped;
	if (status)
		return status;
	if (w->used == CTF_PACKET_HEAD)
		w->begin_ns = event->ns > w->last_ns ? event->ns : w->last_ns;
	/* Readers refuse a clock that goes back. */
	if (event->ns > w->last_ns)
		w->last_ns = event->ns;
	put32(w, event->kind->id);
	put64(w, w->last_ns);
	put32(w, event->tid);
	put32(w, event->pid);
	if (name_size)
		put(w, name, name_size);
	put(w, "", 1);
	for (size_t i = 0; i < event->kind->field_count; i++)
		put_field(w, event, &event->kind->fields[i]);
	w->events++;
	return 0;
}

/* ------------------------------------------------------------------ begin, end */

int ctf_create(struct ctf_writer *w, const char *path, const struct ctf_facts *facts,
	       const json_t *rows, struct dinst_error *e)
{
	int status;

	*w = (struct ctf_writer){.directory = -1, .stream = -1, .places = -1, .facts = *facts};
	w->used = CTF_PACKET_HEAD;
	w->packet = calloc(1, CTF_PACKET_MOST);
	if (!w->packet)
		return dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	if (getrandom(w->uuid, sizeof(w->uuid), 0) != sizeof(w->uuid))
		memcpy(w->uuid, &facts->pid, sizeof(facts->pid));
	/* RFC 4122, 4.4: made of chance. */
	w->uuid[6] = (w->uuid[6] & 0x0f) | 0x40;
	w->uuid[8] = (w->uuid[8] & 0x3f) | 0x80;
	status = make_directory(path, &w->directory, e);
	if (!status) {
		w->stream = openat(w->directory, CTF_STREAM_FILE,
				   O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
		status = w->stream < 0 ? cannot(e, "write", path) : write_description(w, rows, e);
	}
	if (status)
		ctf_release(w);
	return status;
}

void ctf_release(struct ctf_writer *w)
{
	if (w->stream >= 0)
		close(w->stream);
	if (w->places >= 0)
		close(w->places);
	if (w->directory >= 0)
		close(w->directory);
	free(w->packet);
	w->packet = NULL;
	w->stream = w->places = w->directory = -1;
}

int ctf_close(struct ctf_writer *w, const struct event_log *log, struct dinst_error *e)
{
	int status = ctf_flush(w, log, e);

	if (w->stream >= 0 && close(w->stream) != 0 && !status)
		status = cannot(e, "write", "the recording");
	w->stream = -1;
	ctf_release(w);
	return status;
}
