/* SPDX-License-Identifier: MIT */
/*
 * types_reader.c - the questions of types.h, put to a confined child: see
 * types_reader.h. Both sides are this program and the same image at the same
 * addresses, so a question is a plain structure; an answer is believed in nothing.
 */
#include "mutator/types_reader.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "inject/target.h"
#include "mutator/confine.h"
#include "mutator/types_describe.h"
#include "mutator/types_private.h"

enum {
	NAME_MAX_BYTES = 512,
};

enum op {
	OP_FUNCTION,
	OP_VARIABLE,
	OP_TARGET,
	OP_FIELD,
	OP_WORDS,
	OP_NAMES,
	OP_INLINED,
	OP_DESCRIBE
};

struct question {
	enum op op;
	uint32_t function; /* or how many names */
	vaddr_t address;
	struct type type;
	char name[NAME_MAX_BYTES];
};

struct answer {
	unsigned
		yes; /* or how many names (and one, for OP_INLINED), or bytes of text that follow */
	unsigned char is_float[2];
	struct type type;
	struct type_field field;
	struct type_function function;
	struct type_name names[TYPE_NAMES_MAX];
};

struct types_reader {
	const struct image *image;
	pid_t pid; /* 0: it has died, and there is no other */
	int fd;
	uint64_t deadline; /* of the answer to the last question, as a whole; ns of clock_ns() */
};

static bool enabled;
static uint64_t unanswered;
static char unanswered_name[256];

void types_reader_enable(bool on)
{
	enabled = on;
}

/* ------------------------------------------------------------------- the child */

static void copy_names(struct type_name *to, const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		snprintf(to[i].text, sizeof(to[i].text), "%s", names[i]);
}

static size_t at_most(size_t max)
{
	return max < TYPE_NAMES_MAX ? max : TYPE_NAMES_MAX;
}

static size_t own_field_names(const struct type *type, struct type_name *to, size_t max)
{
	const char *names[TYPE_NAMES_MAX];
	const size_t count = read_field_names(type, names, at_most(max));

	copy_names(to, names, count);
	return count;
}

static bool own_inlined(struct image *img, const char *name, struct type_name *callers, size_t max,
			size_t *count)
{
	const char *names[TYPE_NAMES_MAX];

	if (!read_inlined(img, name, names, at_most(max), count))
		return false;
	copy_names(callers, names, *count);
	return true;
}

static void answer_inlined(struct image *img, const struct question *q, struct answer *a)
{
	size_t count;

	if (own_inlined(img, q->name, a->names, q->function, &count))
		a->yes = 1 + (unsigned)count;
}

/* *text is what follows the answer, malloc'ed, or NULL. */
static void answer_question(struct image *img, const struct question *q, struct answer *a,
			    char **text)
{
	bool is_float[2] = {false, false};

	switch (q->op) {
	case OP_FUNCTION:
		read_function(img, q->function, &a->function);
		break;
	case OP_VARIABLE:
		read_variable(img, q->address, &a->type);
		break;
	case OP_TARGET:
		read_target(&q->type, &a->type);
		break;
	case OP_FIELD:
		a->yes = read_field(&q->type, q->name, &a->field);
		break;
	case OP_WORDS:
		a->yes = read_words(&q->type, is_float);
		a->is_float[0] = is_float[0];
		a->is_float[1] = is_float[1];
		break;
	case OP_NAMES:
		a->yes = (unsigned)own_field_names(&q->type, a->names, q->function);
		break;
	case OP_INLINED:
		answer_inlined(img, q, a);
		break;
	case OP_DESCRIBE:
		*text = read_description(img, q->function);
		a->yes = *text ? (unsigned)strlen(*text) : 0;
		break;
	}
}

/* Never returns; whoever made us is all that ends us, by hanging up. */
static void read_for(struct image *img, int fd, pid_t parent)
{
	static struct question q;
	static struct answer a;
	int confined;

	enabled = false;
	confined = confine_child(fd, parent);
	if (!confine_write(CONFINED_FD, &confined, sizeof(confined)))
		_exit(1);
	while (confine_take(CONFINED_FD, &q, sizeof(q), 0)) {
		char *text = NULL;
		bool sent;

		memset(&a, 0, sizeof(a));
		answer_question(img, &q, &a, &text);
		sent = confine_write(CONFINED_FD, &a, sizeof(a)) &&
		       (!text || confine_write(CONFINED_FD, text, a.yes));
		free(text);
		if (!sent)
			break;
	}
	_exit(0);
}

/* ------------------------------------------------------------------ our side */

static void end_reader(struct types_reader *r)
{
	if (!r->pid)
		return;
	close(r->fd);
	kill(r->pid, SIGKILL);
	child_wait(r->pid);
	r->pid = 0;
	r->fd = -1;
}

void types_reader_release(struct types_reader *r)
{
	if (!r)
		return;
	end_reader(r);
	free(r);
}

pid_t types_reader_pid(const struct image *img)
{
	return img->reader ? img->reader->pid : 0;
}

uint64_t types_unanswered(const char **name)
{
	*name = unanswered_name;
	return unanswered;
}

/* No answer comes from it any more: whose types that leaves unknown is kept for whoever asked. */
static void give_up(struct types_reader *r)
{
	if (r->pid)
		fprintf(stderr,
			"dinst-mutator: the reader of debug information (pid %d) has died\n",
			(int)r->pid);
	end_reader(r);
	unanswered++;
	snprintf(unanswered_name, sizeof(unanswered_name), "%s", r->image->name);
}

static void tell_once(const char *what, int error)
{
	static bool told;

	if (!told)
		fprintf(stderr, "dinst-mutator: %s (%s)\n", what, strerror(error));
	told = true;
}

/* False where there can be no child at all. */
static bool start_reader(struct types_reader *r, struct image *img)
{
	int pair[2], confined = 0;
	pid_t parent = getpid();

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
		return false;
	fflush(NULL);
	/* The child makes objects, and may not ask the system for chance. */
	json_object_seed(0);
	r->pid = fork();
	if (r->pid == 0)
		read_for(img, pair[1], parent);
	close(pair[1]);
	if (r->pid < 0) {
		tell_once("debug information is read without a process of its own", errno);
		close(pair[0]);
		r->pid = 0;
		return false;
	}
	r->fd = pair[0];
	if (!confine_take(r->fd, &confined, sizeof(confined), clock_ns() + CONFINE_PATIENCE_NS))
		end_reader(r);
	else if (confined)
		tell_once("debug information is read without a filter of system calls", confined);
	return true;
}

/* The reader, made on first use; NULL: read by ourselves. Its pid is 0 where it is dead. */
static struct types_reader *reader_of(struct image *img)
{
	if (!enabled || !types_are_told(img))
		return NULL;
	if (!img->reader) {
		struct types_reader *r = calloc(1, sizeof(*r));

		if (!r || !start_reader(r, img)) {
			free(r);
			return NULL;
		}
		r->image = img;
		img->reader = r;
	}
	return img->reader;
}

/* False, with an answer of zeros, if none came. */
static bool ask(struct types_reader *r, const struct question *q, struct answer *a)
{
	memset(a, 0, sizeof(*a));
	r->deadline = clock_ns() + CONFINE_PATIENCE_NS;
	if (r->pid && confine_send(r->fd, q, sizeof(*q), r->deadline) &&
	    confine_take(r->fd, a, sizeof(*a), r->deadline))
		return true;
	give_up(r);
	memset(a, 0, sizeof(*a));
	return false;
}

/* ------------------------------------------------------------- what is believed */

/* A bool of theirs may be any byte, which none of ours may be. */
static bool as_bool(const bool *theirs)
{
	unsigned char byte;

	memcpy(&byte, theirs, sizeof(byte));
	return byte != 0;
}

static struct type as_type(struct image *img, const struct type *theirs)
{
	struct type t = {.size = theirs->size,
			 .is_signed = as_bool(&theirs->is_signed),
			 .is_aligned = as_bool(&theirs->is_aligned),
			 .taken = theirs->taken};

	if ((unsigned)theirs->kind > TYPE_VOID)
		return (struct type){0};
	t.kind = theirs->kind;
	if (theirs->die) {
		t.image = img;
		t.die = theirs->die;
	}
	return t;
}

static bool as_field(struct image *img, const struct type *type, const struct type_field *theirs,
		     struct type_field *out)
{
	*out = (struct type_field){
		.type = as_type(img, &theirs->type),
		.offset = theirs->offset,
		.bit_offset = theirs->bit_offset,
		.bit_size = theirs->bit_size,
	};
	if (out->bit_size > 64 || out->bit_offset > 63 || !types_is_within(type, out))
		*out = (struct type_field){.type = {.kind = TYPE_OTHER}};
	return true;
}

/* ------------------------------------------------------------------- questions */

void types_of_function(struct image *img, uint32_t function, struct type_function *out)
{
	struct types_reader *r = reader_of(img);
	struct question q = {.op = OP_FUNCTION, .function = function};
	struct answer a;

	if (!r) {
		read_function(img, function, out);
		return;
	}
	memset(out, 0, sizeof(*out));
	if (!ask(r, &q, &a) || a.function.argument_count > TYPE_ARGUMENTS)
		return;
	out->known = as_bool(&a.function.known);
	out->variadic = as_bool(&a.function.variadic);
	out->is_changed = as_bool(&a.function.is_changed);
	out->result = as_type(img, &a.function.result);
	out->argument_count = a.function.argument_count;
	for (size_t i = 0; i < out->argument_count; i++)
		out->arguments[i] = as_type(img, &a.function.arguments[i]);
}

void types_of_variable(struct image *img, vaddr_t address, struct type *out)
{
	struct types_reader *r = reader_of(img);
	struct question q = {.op = OP_VARIABLE, .address = address};
	struct answer a;

	if (!r)
		read_variable(img, address, out);
	else if (ask(r, &q, &a))
		*out = as_type(img, &a.type);
}

void type_target(const struct type *type, struct type *out)
{
	struct types_reader *r = type->image ? reader_of(type->image) : NULL;
	struct question q = {.op = OP_TARGET, .type = *type};
	struct answer a;

	if (!r) {
		read_target(type, out);
		return;
	}
	ask(r, &q, &a);
	*out = as_type(type->image, &a.type);
}

bool type_field(const struct type *type, const char *name, struct type_field *out)
{
	struct types_reader *r = type->image ? reader_of(type->image) : NULL;
	struct question q = {.op = OP_FIELD, .type = *type};
	struct answer a;

	if (!r)
		return read_field(type, name, out);
	if (strlen(name) >= sizeof(q.name))
		return false;
	memcpy(q.name, name, strlen(name) + 1);
	return ask(r, &q, &a) && a.yes && as_field(type->image, type, &a.field, out);
}

/* The text that follows an answer; NULL where there is none. */
static char *take_text(struct types_reader *r, size_t length)
{
	char *text = length && length <= DESCRIBED_BYTES ? malloc(length + 1) : NULL;

	if (!text || !confine_take(r->fd, text, length, r->deadline)) {
		free(text);
		/* What it sent, or goes on sending, is no answer to anything else. */
		if (length)
			give_up(r);
		return NULL;
	}
	text[length] = '\0';
	return text;
}

json_t *types_describe(struct image *img, uint32_t function)
{
	struct types_reader *r = reader_of(img);
	struct question q = {.op = OP_DESCRIBE, .function = function};
	struct answer a;
	json_t *whole;
	char *text;

	if (!r)
		text = read_description(img, function);
	else
		text = ask(r, &q, &a) ? take_text(r, a.yes) : NULL;
	whole = text ? json_loads(text, 0, NULL) : NULL;
	free(text);
	if (whole &&
	    (!json_is_object(whole) || !json_is_array(json_object_get(whole, "arguments")))) {
		json_decref(whole);
		whole = NULL;
	}
	return whole;
}

bool type_words(const struct type *type, bool is_float[2])
{
	struct types_reader *r = type->image ? reader_of(type->image) : NULL;
	struct question q = {.op = OP_WORDS, .type = *type};
	struct answer a;

	if (!r)
		return read_words(type, is_float);
	ask(r, &q, &a);
	is_float[0] = a.is_float[0] != 0;
	is_float[1] = a.is_float[1] != 0;
	return a.yes != 0;
}

/* What a child says are names. */
static size_t as_names(const struct answer *a, size_t count, struct type_name *names, size_t max)
{
	const size_t kept = count < max ? count : max;

	for (size_t i = 0; i < kept; i++) {
		names[i] = a->names[i];
		names[i].text[sizeof(names[i].text) - 1] = '\0';
	}
	return kept;
}

bool types_inlined(struct image *img, const char *name, struct type_name *callers, size_t max,
		   size_t *count)
{
	struct types_reader *r = reader_of(img);
	struct question q = {.op = OP_INLINED, .function = (uint32_t)max};
	struct answer a;

	*count = 0;
	if (!r)
		return own_inlined(img, name, callers, max, count);
	if (strlen(name) >= sizeof(q.name))
		return false;
	memcpy(q.name, name, strlen(name) + 1);
	if (!ask(r, &q, &a) || !a.yes || a.yes > 1 + TYPE_NAMES_MAX)
		return false;
	*count = as_names(&a, a.yes - 1, callers, max);
	return true;
}

size_t type_field_names(const struct type *type, struct type_name *names, size_t max)
{
	struct types_reader *r = type->image ? reader_of(type->image) : NULL;
	struct question q = {.op = OP_NAMES, .type = *type, .function = (uint32_t)max};
	struct answer a;

	if (!r)
		return own_field_names(type, names, max);
	if (!ask(r, &q, &a) || a.yes > TYPE_NAMES_MAX)
		return 0;
	return as_names(&a, a.yes, names, max);
}
