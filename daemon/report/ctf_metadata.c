/* SPDX-License-Identifier: MIT */
/*
 * ctf_metadata.c - what events look like, in TSDL (CTF 1.8.3, chapter 7 and appendix C).
 * Names of the target's are put into it as far as they are identifiers, or strings without
 * anything special; a leading underscore, which readers take off, keeps them apart from
 * the language's words.
 */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/report/ctf.h"

enum { NAME_MOST = 120, FIELD_NAME = NAME_MOST + 32 };

static void write_uuid(FILE *to, const uint8_t uuid[16])
{
	for (int i = 0; i < 16; i++)
		fprintf(to, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", uuid[i]);
}

/* The inside of a string. */
static void write_plain(FILE *to, const char *text)
{
	for (size_t i = 0; text[i] && i < NAME_MOST; i++)
		fputc(isalnum((unsigned char)text[i]) || strchr("_.:-+<>()*&~, []@$ ", text[i])
			      ? text[i]
			      : '?',
		      to);
}

/* What of a text can stand in a name. Returns where the name ends. */
static size_t put_name(char *name, size_t used, const char *from)
{
	for (; *from && used < NAME_MOST; from++)
		if (isalnum((unsigned char)*from) || *from == '_')
			name[used++] = *from;
		else if (*from == '.')
			name[used++] = '_';
	name[used] = '\0';
	return used;
}

/* One would be the other, or the other's number of elements. */
static bool clashes(const char *a, const char *b)
{
	const size_t x = strlen(a), y = strlen(b), common = x < y ? x : y;

	return !strncmp(a, b, common) && (x == y || !strcmp((x > y ? a : b) + common, "_length"));
}

static bool is_taken(char (*names)[FIELD_NAME], size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (clashes(names[i], name))
			return true;
	return false;
}

/* names[n], one that no field before it has: readers refuse all of it if two are alike. */
static void name_field(const struct event_kind *k, size_t n, char (*names)[FIELD_NAME])
{
	const struct event_field *f = &k->fields[n];
	const char *from = f->role == EVENT_ARGUMENT && !f->name[0] ? "arg"
			   : f->role == EVENT_RESULT		    ? "return"
			   : f->role == EVENT_POINTEE		    ? "to"
			   : f->role == EVENT_BACKTRACE		    ? "backtrace"
			   : f->name[0]				    ? f->name
								    : f->text;
	char *name = names[n];
	size_t used = put_name(name, 0, "_");

	used = put_name(name, used, from);
	/* A struct that is returned comes in parts. */
	if (f->role == EVENT_RESULT && f->name[0])
		used = put_name(name, put_name(name, used, "_"), f->name);
	/* Numbers keep names apart that are alike: of arguments without one, of members. */
	if (f->role == EVENT_POINTEE || f->role == EVENT_MEMBER || f->role == EVENT_FIELD ||
	    used == 1 || (f->role == EVENT_ARGUMENT && !f->name[0]))
		used += (size_t)snprintf(name + used, FIELD_NAME - used, "%zu", n);
	for (size_t number = n; is_taken(names, n, name); number++)
		snprintf(name + used, FIELD_NAME - used, "_%zu", number);
}

static void write_enum(FILE *to, const struct value_type *type)
{
	const char *between = "";

	fprintf(to, "enum : integer { size = 64; align = 8; signed = %s; } { ",
		type->is_unsigned ? "false" : "true");
	for (size_t i = 0; i < type->name_count; i++) {
		fprintf(to, "%s\"", between);
		write_plain(to, type->names[i].name);
		fprintf(to, type->is_unsigned ? "\" = %" PRIu64 : "\" = %" PRId64,
			type->names[i].value);
		between = ", ";
	}
	fprintf(to, " }");
}

static void write_value(FILE *to, const struct event_field *f)
{
	const struct value_type *type = f->type;
	const bool pointer = type ? type->form == VALUE_POINTER || type->form == VALUE_STRING
				  : f->role == EVENT_CALLER || f->role == EVENT_STACK_POINTER;

	if (type && type->form == VALUE_ENUM && type->name_count)
		write_enum(to, type);
	else if (type && type->form == VALUE_FLOAT)
		fprintf(to,
			"floating_point { exp_dig = %d; mant_dig = %d; align = 8; byte_order = le; }",
			type->size == 4 ? 8 : 11, type->size == 4 ? 24 : 53);
	else
		fprintf(to, "integer { size = 64; align = 8; signed = %s; base = %d; }",
			pointer || (type && (type->form == VALUE_UINT || type->form == VALUE_BOOL))
				? "false"
				: "true",
			pointer ? 16 : 10);
}

static void write_field(FILE *to, const struct event_field *f, const char *name)
{
	fprintf(to, "\t\t");
	if (f->form == EVENT_VALUE) {
		write_value(to, f);
		fprintf(to, " %s;\n", name);
	} else if (f->form == EVENT_STRING) {
		fprintf(to, "string { encoding = UTF8; } %s;\n", name);
	} else if (f->form == EVENT_STACK) {
		fprintf(to,
			"uint32_t %s_length;\n\t\tinteger { size = 64; align = 8; signed = false; "
			"base = 16; } %s[%s_length];\n",
			name, name, name);
	} else {
		fprintf(to,
			"uint32_t %s_length;\n\t\tinteger { size = 8; align = 8; base = 16; } "
			"%s[%s_length];\n",
			name, name, name);
	}
}

/* False without memory. */
static bool write_event(FILE *to, const struct event_kind *k)
{
	static const char *const whats[] = {"event", "entry", "return", "call"};
	char(*names)[FIELD_NAME] = calloc(k->field_count + 1, sizeof(*names));

	if (!names)
		return false;
	fprintf(to, "event {\n\tname = \"");
	write_plain(to, k->module);
	fputc(':', to);
	write_plain(to, k->function);
	fprintf(to, ":%s\";\n\tid = %" PRIu32 ";\n\tstream_id = 0;\n\tfields := struct {\n",
		whats[k->what], k->id);
	for (size_t n = 0; n < k->field_count; n++) {
		name_field(k, n, names);
		write_field(to, &k->fields[n], names[n]);
	}
	fprintf(to, "\t};\n};\n\n");
	free(names);
	return true;
}

static void write_head(FILE *to, const struct ctf_writer *w, const struct event_log *log)
{
	char host[65] = "";
	const int64_t offset = log->epoch_ns > 0 ? log->epoch_ns : 0;

	gethostname(host, sizeof(host) - 1);
	fprintf(to, "/* CTF 1.8 */\n\n"
		    "typealias integer { size = 8; align = 8; signed = false; } := uint8_t;\n"
		    "typealias integer { size = 32; align = 8; signed = false; } := uint32_t;\n"
		    "typealias integer { size = 64; align = 8; signed = false; } := uint64_t;\n\n"
		    "trace {\n\tmajor = 1;\n\tminor = 8;\n\tuuid = \"");
	write_uuid(to, w->uuid);
	fprintf(to, "\";\n\tbyte_order = le;\n\tpacket.header := struct {\n\t\tuint32_t magic;\n"
		    "\t\tuint8_t uuid[16];\n\t\tuint32_t stream_id;\n\t};\n};\n\n"
		    "env {\n\ttracer_name = \"dinst\";\n\tdomain = \"ust\";\n\thostname = \"");
	write_plain(to, host);
	fprintf(to, "\";\n\tprocname = \"");
	write_plain(to, w->facts.process);
	fprintf(to, "\";\n\tvpid = %" PRIu32 ";\n};\n\n", w->facts.pid);
	fprintf(to, "clock {\n\tname = \"monotonic\";\n\tuuid = \"");
	write_uuid(to, w->uuid);
	fprintf(to,
		"\";\n\tdescription = \"Monotonic Clock\";\n\tfreq = 1000000000;\n"
		"\toffset_s = %" PRId64 ";\n\toffset = %" PRId64 ";\n};\n\n",
		offset / 1000000000, offset % 1000000000);
	fprintf(to, "typealias integer {\n\tsize = 64; align = 8; signed = false;\n"
		    "\tmap = clock.monotonic.value;\n} := time_t;\n\n"
		    "stream {\n\tid = 0;\n\tpacket.context := struct {\n"
		    "\t\ttime_t timestamp_begin;\n\t\ttime_t timestamp_end;\n"
		    "\t\tuint64_t content_size;\n\t\tuint64_t packet_size;\n"
		    "\t\tuint64_t events_discarded;\n\t};\n"
		    "\tevent.header := struct {\n\t\tuint32_t id;\n\t\ttime_t timestamp;\n\t};\n"
		    "\tevent.context := struct {\n\t\tuint32_t _vtid;\n\t\tuint32_t _vpid;\n"
		    "\t\tstring { encoding = UTF8; } _procname;\n\t};\n};\n\n");
}

char *ctf_metadata(const struct ctf_writer *w, const struct event_log *log)
{
	char *text = NULL;
	size_t size;
	FILE *to = open_memstream(&text, &size);
	bool whole = true;

	if (!to)
		return NULL;
	write_head(to, w, log);
	for (size_t i = 0; i < log->kind_count && whole; i++)
		whole = write_event(to, log->kinds[i]);
	if (fclose(to) == 0 && whole)
		return text;
	free(text);
	return NULL;
}
