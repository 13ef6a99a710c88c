/* SPDX-License-Identifier: MIT */
/*
 * rpc.c - JSON-RPC 2.0, one object per line.
 *
 * Owns the checks of what comes from outside and the making of lines. Never
 * touches a descriptor, and never recurses on input.
 */
#include "daemon/common/rpc.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

bool rpc_depth_ok(const char *text, size_t length, unsigned depth)
{
	unsigned open = 0;
	bool string = false;

	for (size_t i = 0; i < length; i++) {
		char c = text[i];

		if (string) {
			if (c == '\\')
				i++;
			else if (c == '"')
				string = false;
		} else if (c == '"') {
			string = true;
		} else if (c == '{' || c == '[') {
			if (++open > depth)
				return false;
		} else if ((c == '}' || c == ']') && open > 0) {
			open--;
		}
	}
	return true;
}

json_t *rpc_load(const char *text, size_t length, struct dinst_error *e)
{
	json_error_t why;
	json_t *value;

	if (!rpc_depth_ok(text, length, RPC_DEPTH)) {
		dinst_fail(e, DINST_PROTOCOL, "JSON is nested more than %d deep", RPC_DEPTH);
		return NULL;
	}
	value = json_loadb(text, length, JSON_DECODE_ANY, &why);
	if (!value)
		dinst_fail(e, DINST_PROTOCOL, "not valid JSON: %s (byte %d)", why.text,
			   why.position);
	return value;
}

/* ---------------------------------------------------------------- scanning */

struct scan {
	const char *text;
	size_t length;
	size_t at;
};

/* Not strchr(): a NUL is none of them. */
static bool is_one_of(const char *set, char c)
{
	return c != '\0' && strchr(set, c);
}

static int scan_peek(struct scan *s)
{
	while (s->at < s->length && is_one_of(" \t\r\n", s->text[s->at]))
		s->at++;
	return s->at < s->length ? (unsigned char)s->text[s->at] : -1;
}

/* Goes past a string; false if it does not end. */
static bool scan_string(struct scan *s)
{
	if (scan_peek(s) != '"')
		return false;
	for (s->at++; s->at < s->length; s->at++) {
		if (s->text[s->at] == '\\')
			s->at++;
		else if (s->text[s->at] == '"') {
			s->at++;
			return true;
		}
	}
	return false;
}

/* Goes past one value of any kind; false if it does not end or nests too deep. */
static bool scan_value(struct scan *s)
{
	char stack[RPC_DEPTH];
	unsigned open = 0;
	int c = scan_peek(s);

	if (c < 0 || is_one_of(",:]}", (char)c))
		return false;
	do {
		c = scan_peek(s);
		if (c < 0)
			return false;
		if (c == '"') {
			if (!scan_string(s))
				return false;
		} else if (c == '{' || c == '[') {
			if (open == RPC_DEPTH)
				return false;
			stack[open++] = c == '{' ? '}' : ']';
			s->at++;
		} else if (c == '}' || c == ']') {
			if (open == 0 || stack[--open] != c)
				return false;
			s->at++;
		} else if (c == ',' || c == ':') {
			s->at++;
		} else {
			size_t from = s->at;

			while (s->at < s->length && !is_one_of(" \t\r\n,:]}[{\"", s->text[s->at]))
				s->at++;
			if (s->at == from)
				return false;
		}
	} while (open > 0);
	return true;
}

static void scan_keep(struct rpc_message *m, struct rpc_span key, struct rpc_span value)
{
	static const char *const names[] = {"id", "method", "params", "result", "error"};
	struct rpc_span *members[] = {&m->id, &m->method, &m->params, &m->result, &m->error};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (strlen(names[i]) == key.length && !memcmp(names[i], key.text, key.length))
			*members[i] = value;
}

static bool scan_member(struct scan *s, struct rpc_message *m)
{
	struct rpc_span key, value;

	if (scan_peek(s) != '"')
		return false;
	key.text = s->text + s->at + 1;
	if (!scan_string(s))
		return false;
	key.length = (size_t)(s->text + s->at - key.text) - 1;
	if (scan_peek(s) != ':')
		return false;
	s->at++;
	if (scan_peek(s) < 0)
		return false;
	value.text = s->text + s->at;
	if (!scan_value(s))
		return false;
	value.length = (size_t)(s->text + s->at - value.text);
	scan_keep(m, key, value);
	return true;
}

int rpc_scan(const char *text, size_t length, struct rpc_message *m, struct dinst_error *e)
{
	struct scan s = {text, length, 0};
	int c;

	memset(m, 0, sizeof(*m));
	if (scan_peek(&s) != '{')
		goto bad;
	s.at++;
	if (scan_peek(&s) == '}') {
		s.at++;
	} else {
		do {
			if (!scan_member(&s, m))
				goto bad;
			c = scan_peek(&s);
			s.at++;
		} while (c == ',');
		if (c != '}')
			goto bad;
	}
	if (scan_peek(&s) >= 0)
		goto bad;
	return 0;
bad:
	memset(m, 0, sizeof(*m));
	return dinst_fail(e, DINST_PROTOCOL, "the message is not a JSON object (byte %zu of %zu)",
			  s.at, length);
}

/* ---------------------------------------------------------------- requests */

int rpc_request_parse(const char *text, size_t length, struct rpc_request *r, struct dinst_error *e)
{
	json_t *version, *method;

	memset(r, 0, sizeof(*r));
	r->root = rpc_load(text, length, e);
	if (!r->root)
		return RPC_PARSE;
	if (json_is_array(r->root)) {
		dinst_fail(e, DINST_PROTOCOL, "batches are not supported: send one object a line");
		return RPC_INVALID;
	}
	if (!json_is_object(r->root)) {
		dinst_fail(e, DINST_PROTOCOL, "a request is an object");
		return RPC_INVALID;
	}
	r->id = json_object_get(r->root, "id");
	if (r->id && !json_is_string(r->id) && !json_is_number(r->id) && !json_is_null(r->id)) {
		r->id = NULL;
		dinst_fail(e, DINST_PROTOCOL, "id is neither a string nor a number");
		return RPC_INVALID;
	}
	version = json_object_get(r->root, "jsonrpc");
	method = json_object_get(r->root, "method");
	if (!json_is_string(version) || strcmp(json_string_value(version), "2.0") != 0) {
		dinst_fail(e, DINST_PROTOCOL, "\"jsonrpc\":\"2.0\" is missing");
		return RPC_INVALID;
	}
	if (!json_is_string(method)) {
		dinst_fail(e, DINST_PROTOCOL, "method is not a string");
		return RPC_INVALID;
	}
	r->method = json_string_value(method);
	r->params = json_object_get(r->root, "params");
	if (r->params && !json_is_object(r->params)) {
		dinst_fail(e, DINST_PROTOCOL, "params is not an object");
		return RPC_PARAMS;
	}
	return 0;
}

void rpc_request_release(struct rpc_request *r)
{
	json_decref(r->root);
	memset(r, 0, sizeof(*r));
}

/* ------------------------------------------------------------------ makers */

enum { RPC_DUMP = JSON_COMPACT | JSON_ENCODE_ANY };

/* head + middle + tail in one allocation. */
static char *join(const char *head, size_t head_length, struct rpc_span middle, const char *tail)
{
	size_t tail_length = strlen(tail);
	char *line = malloc(head_length + middle.length + tail_length + 1);

	if (!line)
		return NULL;
	memcpy(line, head, head_length);
	memcpy(line + head_length, middle.text, middle.length);
	memcpy(line + head_length + middle.length, tail, tail_length + 1);
	return line;
}

/* {"jsonrpc":"2.0","id":ID,"MEMBER":TEXT} */
static char *make_answer(json_t *id, const char *member, struct rpc_span text)
{
	char *id_text = id ? json_dumps(id, RPC_DUMP) : strdup("null");
	char *head = NULL, *line = NULL;
	int n;

	if (id_text) {
		n = asprintf(&head, "{\"jsonrpc\":\"2.0\",\"id\":%s,\"%s\":", id_text, member);
		if (n >= 0) {
			line = join(head, (size_t)n, text, "}\n");
			free(head);
		}
	}
	free(id_text);
	return line;
}

char *rpc_make_result_text(json_t *id, struct rpc_span result)
{
	return make_answer(id, "result", result);
}

char *rpc_make_error_text(json_t *id, struct rpc_span error)
{
	return make_answer(id, "error", error);
}

static char *make_answer_json(json_t *id, const char *member, json_t *value)
{
	char *text = value ? json_dumps(value, RPC_DUMP) : NULL;
	char *line = NULL;

	if (text)
		line = make_answer(id, member, (struct rpc_span){text, strlen(text)});
	free(text);
	return line;
}

char *rpc_make_result(json_t *id, json_t *result)
{
	return make_answer_json(id, "result", result);
}

char *rpc_make_error(json_t *id, int rpc_code, const char *word, const char *text)
{
	json_t *error = json_pack("{s:i,s:o,s:{s:s}}", "code", rpc_code, "message", rpc_text(text),
				  "data", "code", word);
	char *line = make_answer_json(id, "error", error);

	json_decref(error);
	return line;
}

static char *make_call(json_t *message)
{
	char *text = message ? json_dumps(message, RPC_DUMP) : NULL;
	char *line = NULL;

	if (text)
		line = join("", 0, (struct rpc_span){text, strlen(text)}, "\n");
	free(text);
	json_decref(message);
	return line;
}

char *rpc_make_request(json_int_t id, const char *method, json_t *params)
{
	return make_call(json_pack("{s:s,s:I,s:s,s:O*}", "jsonrpc", "2.0", "id", id, "method",
				   method, "params", params));
}

char *rpc_make_notification(const char *method, json_t *params)
{
	return make_call(
		json_pack("{s:s,s:s,s:O*}", "jsonrpc", "2.0", "method", method, "params", params));
}

int rpc_error_read(json_t *error, struct dinst_error *e)
{
	const char *text = json_string_value(json_object_get(error, "message"));
	json_t *data = json_object_get(error, "data");
	const char *word = json_string_value(json_object_get(data, "code"));
	int code = word ? dinst_code_from_name(word) : DINST_PROTOCOL;

	return dinst_fail_text(e, code, text ? text : "the answer has an error without a text");
}

json_t *rpc_text(const char *text)
{
	json_t *value = json_string(text);
	char *clean;

	if (value || !text)
		return value;
	clean = strdup(text);
	if (!clean)
		return NULL;
	for (char *p = clean; *p; p++)
		if ((unsigned char)*p >= 0x80)
			*p = '?';
	value = json_string(clean);
	free(clean);
	return value;
}

/* To a terminal of one byte a character (ISO 8859, KOI8) these are control characters wherever they stand. */
static bool bytes_are_characters;

void text_for_charset(const char *set)
{
	/* the last is what glibc says of the locales C and POSIX */
	bytes_are_characters =
		set && *set && strcasecmp(set, "UTF-8") != 0 && strcmp(set, "ANSI_X3.4-1968") != 0;
}

/* Control characters are escaped in JSON, but for those of two bytes, which terminals obey as well. */
static bool has_controls(const char *text)
{
	for (const unsigned char *p = (const unsigned char *)text; *p; p++)
		if (*p >= 0x80 && *p <= 0x9f &&
		    (bytes_are_characters || (p > (const unsigned char *)text && p[-1] == 0xc2)))
			return true;
	return false;
}

char *rpc_shown(const json_t *value, size_t flags)
{
	char *text = json_dumps(value, flags);

	if (text && has_controls(text)) {
		free(text);
		text = json_dumps(value, flags | JSON_ENSURE_ASCII);
	}
	return text;
}

/* Bytes that follow the first one of a character of UTF-8 (RFC 3629); they need not be there. */
static size_t bytes_that_follow(unsigned char first)
{
	return first < 0xc2 || first > 0xf4 ? 0 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : 3;
}

/* A lone byte of 0x80 to 0x9f is a control character to a terminal that knows no UTF-8. */
void text_clean(char *text, bool lines)
{
	size_t follow;

	for (unsigned char *p = (unsigned char *)text; *p; p++) {
		if (*p == '\n' || *p == '\t')
			*p = lines ? *p : ' ';
		else if (*p < 0x20 || *p == 0x7f || (*p >= 0x80 && *p <= 0x9f))
			*p = '?';
		else if (*p == 0xc2 && p[1] >= 0x80 && p[1] <= 0x9f)
			p[0] = p[1] = '?';
		else
			for (follow = bytes_that_follow(*p);
			     follow && !bytes_are_characters && (p[1] & 0xc0) == 0x80; follow--)
				p++;
	}
}

static void clean_string(json_t *string)
{
	const char *text = json_string_value(string) ?: "";
	char *copy = strdup(text);

	/* without memory nothing is shown rather than something harmful */
	if (copy)
		text_clean(copy, true);
	if (!copy || strcmp(copy, text) != 0)
		json_string_set(string, copy ? copy : "?");
	free(copy);
}

/* Values come from rpc_load(), so they nest at most RPC_DEPTH deep. */
void rpc_clean(json_t *value)
{
	const char *key;
	json_t *member;
	size_t index;

	if (json_is_string(value)) {
		clean_string(value);
	} else if (json_is_array(value)) {
		json_array_foreach(value, index, member) rpc_clean(member);
	} else if (json_is_object(value)) {
		json_object_foreach(value, key, member) rpc_clean(member);
	}
}

bool parse_number(const char *text, unsigned long long max, unsigned long long *value)
{
	unsigned long long n = 0;

	if (!*text)
		return false;
	for (; *text; text++) {
		unsigned digit = (unsigned)(*text - '0');

		if (digit > 9 || n > (max - digit) / 10)
			return false;
		n = n * 10 + digit;
	}
	*value = n;
	return true;
}
