/* SPDX-License-Identifier: MIT */
/*
 * ctf_read.c - what ctf_write.c wrote, as events again: packet by packet, each looked at with
 * its bounds. A packet that is damaged ends the reading, as if nothing came behind it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/report/ctf_private.h"

enum { RECORD_HEAD = 24, RECORD_MOST = 1 << 15 };

struct reading {
	struct event_log *log;
	struct ctf_facts *facts;
	event_each *each;
	void *arg;
	const uint8_t *at, *end; /* of the packet */
	uint8_t *record;
	size_t record_room;
};

/* -------------------------------------------------------------------- description */

/* A regular file of a bounded size, with a zero byte behind it. */
static char *read_file(int directory, const char *name, size_t most)
{
	const int fd = openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	char *text = NULL;
	size_t used = 0;

	if (fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_size >= 0 &&
	    (size_t)st.st_size <= most)
		text = malloc((size_t)st.st_size + 1);
	while (text && used < (size_t)st.st_size) {
		const ssize_t n = read(fd, text + used, (size_t)st.st_size - used);

		if (n <= 0)
			break;
		used += (size_t)n;
	}
	if (text)
		text[used] = '\0';
	if (fd >= 0)
		close(fd);
	return text;
}

static void keep_text(char *to, size_t size, const json_t *from)
{
	const char *text = json_string_value(from);
	size_t length = text ? strnlen(text, size - 1) : 0;

	memcpy(to, text ? text : "", length);
	to[length] = '\0';
}

static int read_description(int directory, const char *path, struct reading *r,
			    struct dinst_error *e)
{
	char *text = read_file(directory, CTF_OWN_FILE, CTF_OWN_MOST);
	json_t *whole = text ? json_loads(text, 0, NULL) : NULL;
	int status = 0;

	free(text);
	if (!json_is_object(whole) || !json_is_integer(json_object_get(whole, "dinst")))
		status = dinst_fail(e, DINST_BAD_FILE, "%s is no recording of dinst", path);
	else if (json_integer_value(json_object_get(whole, "dinst")) != CTF_VERSION)
		status = dinst_fail(e, DINST_BAD_FILE,
				    "%s was recorded by another version of dinst", path);
	if (!status) {
		keep_text(r->facts->process, sizeof(r->facts->process),
			  json_object_get(whole, "process"));
		keep_text(r->facts->words, sizeof(r->facts->words),
			  json_object_get(whole, "words"));
		r->facts->pid = (uint32_t)json_integer_value(json_object_get(whole, "pid"));
		/* Kinds that are none are left out, and their events are counted as damaged. */
		if (event_log_kinds(r->log, json_object_get(whole, "rows"), NULL) ==
		    DINST_NO_MEMORY)
			status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	}
	json_decref(whole);
	return status;
}

/* A line that is none is passed over: an address without a name is shown as it is. */
static void read_places(int directory, struct event_log *log)
{
	char *text = read_file(directory, CTF_PLACES_FILE, CTF_OWN_MOST), *save = NULL;
	const char *line = text ? strtok_r(text, "\n", &save) : NULL;

	for (; line; line = strtok_r(NULL, "\n", &save)) {
		json_t *row = json_loads(line, 0, NULL), *rows = json_array();

		json_array_append_new(rows, row);
		event_log_places(log, rows, NULL);
		json_decref(rows);
	}
	free(text);
}

/* What time it was: the one thing of the metadata that is not in our description. */
static void read_clock(int directory, struct event_log *log)
{
	char *text = read_file(directory, "metadata", CTF_OWN_MOST);
	const char *seconds = text ? strstr(text, "offset_s = ") : NULL;
	const char *rest = seconds ? strstr(seconds, "offset = ") : NULL;

	if (rest) {
		const long long s = strtoll(seconds + 11, NULL, 10);
		const long long ns = strtoll(rest + 9, NULL, 10);

		if (s >= 0 && s < INT64_MAX / 1000000000 - 1 && ns >= 0 && ns < 1000000000)
			log->epoch_ns = s * 1000000000 + ns;
	}
	free(text);
}

/* --------------------------------------------------------------------------- events */

static bool take(struct reading *r, void *to, size_t size)
{
	if ((size_t)(r->end - r->at) < size)
		return false;
	memcpy(to, r->at, size);
	r->at += size;
	return true;
}

/* A string in the packet; *length is without its zero byte. NULL: it does not end. */
static const char *take_string(struct reading *r, size_t *length)
{
	const char *text = (const char *)r->at;
	const uint8_t *zero = memchr(r->at, 0, (size_t)(r->end - r->at));

	if (!zero)
		return NULL;
	*length = (size_t)(zero - r->at);
	r->at = zero + 1;
	return text;
}

/* Bytes into a field of a record: its length, then as much as there is room for. */
static void fill(uint8_t *record, const struct event_field *f, const void *bytes, uint64_t length)
{
	const uint64_t room = f->size >= 8 ? f->size - 8 : 0;
	const uint64_t kept = length < room ? length : room;

	if (f->size < 8)
		return;
	memcpy(record + f->offset, &kept, sizeof(kept));
	memcpy(record + f->offset + 8, bytes, kept);
}

static bool take_field(struct reading *r, const struct event_field *f)
{
	uint64_t value = 0;
	uint32_t length;
	size_t size;
	const char *text;

	if (f->form == EVENT_VALUE) {
		if (!take(r, &value, ctf_is_small(f) ? 4 : 8))
			return false;
		memcpy(r->record + f->offset, &value, sizeof(value));
		return true;
	}
	if (f->form == EVENT_STRING) {
		text = take_string(r, &size);
		if (text)
			fill(r->record, f, text, size);
		return text != NULL;
	}
	if (!take(r, &length, sizeof(length)))
		return false;
	size = f->form == EVENT_STACK ? (size_t)length * sizeof(uint64_t) : length;
	if ((size_t)(r->end - r->at) < size)
		return false;
	fill(r->record, f, r->at, size);
	r->at += size;
	return true;
}

/* How long a record of that kind is. */
static size_t record_size(const struct event_kind *k)
{
	size_t size = RECORD_HEAD;

	for (size_t i = 0; i < k->field_count; i++) {
		const struct event_field *f = &k->fields[i];
		const size_t end = (size_t)f->offset + (f->size > 8 ? f->size : 8);

		size = end > size ? end : size;
	}
	return (size + 7) / 8 * 8;
}

static bool make_record(struct reading *r, size_t size)
{
	if (size > RECORD_MOST)
		return false;
	if (size > r->record_room) {
		uint8_t *grown = realloc(r->record, size);

		if (!grown)
			return false;
		r->record = grown;
		r->record_room = size;
	}
	memset(r->record, 0, size);
	return true;
}

static void name_thread(struct reading *r, uint32_t tid, uint32_t pid, const char *name,
			size_t length)
{
	const struct event_thread *known = event_log_thread(r->log, tid);
	char text[CTF_NAME_MOST + 1];

	if (length > CTF_NAME_MOST)
		length = CTF_NAME_MOST;
	memcpy(text, name, length);
	text[length] = '\0';
	if (!known || known->pid != pid || strcmp(known->name, text) != 0)
		event_log_name(r->log, tid, pid, text, NULL);
}

/* One event. *damaged: it is none, and nothing behind it is. */
static int take_event(struct reading *r, bool *damaged)
{
	const struct event_kind *k;
	uint32_t id, tid, pid, size;
	size_t length;
	const char *name;
	uint64_t ns;

	*damaged = true;
	if (!take(r, &id, 4) || !take(r, &ns, 8) || !take(r, &tid, 4) || !take(r, &pid, 4))
		return 0;
	name = take_string(r, &length);
	k = event_log_kind(r->log, id);
	if (!name || !k || !make_record(r, record_size(k)))
		return 0;
	size = (uint32_t)record_size(k);
	memcpy(r->record, &id, 4);
	memcpy(r->record + 4, &size, 4);
	memcpy(r->record + 8, &ns, 8);
	memcpy(r->record + 16, &tid, 4);
	for (size_t i = 0; i < k->field_count; i++)
		if (!take_field(r, &k->fields[i]))
			return 0;
	*damaged = false;
	name_thread(r, tid, pid, name, length);
	if (!r->facts->first_ns)
		r->facts->first_ns = ns;
	if (ns > r->facts->last_ns)
		r->facts->last_ns = ns;
	return event_log_records(r->log, r->record, size, r->each, r->arg);
}

/* ------------------------------------------------------------------------ packets */

static size_t read_whole(int fd, uint8_t *to, size_t size)
{
	size_t used = 0;

	while (used < size) {
		const ssize_t n = read(fd, to + used, size - used);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		used += (size_t)n;
	}
	return used;
}

static uint64_t number_at(const uint8_t *at)
{
	uint64_t number;

	memcpy(&number, at, sizeof(number));
	return number;
}

/* Its sizes in bytes; false if it is no packet of ours. */
static bool packet_head(const uint8_t *head, size_t *content, size_t *size)
{
	const uint64_t content_bits = number_at(head + 40), size_bits = number_at(head + 48);
	uint32_t magic;

	memcpy(&magic, head, sizeof(magic));
	*content = content_bits / 8;
	*size = size_bits / 8;
	return magic == CTF_MAGIC && size_bits % 8 == 0 && content_bits % 8 == 0 &&
	       *content >= CTF_PACKET_HEAD && *content <= *size && *size <= CTF_PACKET_MOST;
}

static int read_packets(int fd, struct reading *r, uint8_t *packet)
{
	size_t got, content, size;
	bool damaged = false;
	int status = 0;

	while (!status && !damaged) {
		got = read_whole(fd, packet, CTF_PACKET_HEAD);
		if (!got)
			break;
		damaged = got < CTF_PACKET_HEAD || !packet_head(packet, &content, &size) ||
			  read_whole(fd, packet + CTF_PACKET_HEAD, size - CTF_PACKET_HEAD) !=
				  size - CTF_PACKET_HEAD;
		if (damaged)
			break;
		r->log->dropped = number_at(packet + 56);
		r->at = packet + CTF_PACKET_HEAD;
		r->end = packet + content;
		while (!status && !damaged && r->at < r->end)
			status = take_event(r, &damaged);
	}
	r->facts->cut = damaged;
	return status;
}

int ctf_read(const char *path, struct event_log *log, struct ctf_facts *facts, event_each *each,
	     void *arg, struct dinst_error *e)
{
	struct reading r = {.log = log, .facts = facts, .each = each, .arg = arg};
	const int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int status, stream = -1;
	uint8_t *packet = NULL;
	struct stat st;

	*facts = (struct ctf_facts){0};
	if (directory < 0)
		return dinst_fail_errno(e, DINST_BAD_FILE, errno, "cannot read %s", path);
	status = read_description(directory, path, &r, e);
	if (status)
		goto out;
	read_clock(directory, log);
	read_places(directory, log);
	packet = malloc(CTF_PACKET_MOST);
	stream = openat(directory, CTF_STREAM_FILE, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (!packet)
		status = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	else if (stream < 0 || fstat(stream, &st) != 0 || !S_ISREG(st.st_mode))
		status = dinst_fail(e, DINST_BAD_FILE, "%s has no stream of events", path);
	else
		status = read_packets(stream, &r, packet);
out:
	if (stream >= 0)
		close(stream);
	close(directory);
	free(packet);
	free(r.record);
	return status;
}
