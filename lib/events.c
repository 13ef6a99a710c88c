/* SPDX-License-Identifier: MIT */
/*
 * events.c - libdinst: single calls and returns, as they were recorded.
 *
 * Owns the public picture of an event, which lives while the callback runs. What comes
 * from outside is checked in daemon/report/event.c.
 */
#include "lib/library.h"

enum { FIELDS_MAX = 64 };

struct passing {
	dinst_event_each each;
	void *arg;
	bool ended;
};

static const char *what_name(enum event_what what)
{
	switch (what) {
	case EVENT_ENTRY:
		return "entry";
	case EVENT_RETURN:
		return "return";
	case EVENT_CALL:
		return "call";
	default:
		return "other";
	}
}

static enum dinst_field_role public_role(enum event_role role)
{
	switch (role) {
	case EVENT_ARGUMENT:
		return DINST_ARGUMENT;
	case EVENT_RESULT:
		return DINST_OUTCOME;
	case EVENT_POINTEE:
		return DINST_POINTEE;
	case EVENT_ELAPSED:
		return DINST_ELAPSED;
	case EVENT_CALLER:
		return DINST_CALLER;
	case EVENT_BACKTRACE:
		return DINST_BACKTRACE;
	default:
		return DINST_FIELD;
	}
}

static bool take_field(struct dinst_field *to, const struct event *e, const struct event_field *f)
{
	const uint8_t *bytes = NULL;

	*to = (struct dinst_field){
		.name = f->name ? f->name : f->text,
		.role = public_role(f->role),
	};
	switch (f->form) {
	case EVENT_STRING:
		to->form = DINST_STRING;
		break;
	case EVENT_BYTES:
		to->form = DINST_BYTES;
		break;
	case EVENT_STACK:
		to->form = DINST_STACK;
		break;
	default:
		to->form = DINST_VALUE;
		return event_value(e, f, &to->value);
	}
	if (!event_bytes(e, f, &bytes, &to->length))
		return false;
	to->bytes = bytes;
	return true;
}

static int pass_event(void *arg, const struct event *e)
{
	struct dinst_field fields[FIELDS_MAX];
	struct passing *p = arg;
	struct dinst_event event = {
		.ns = e->ns,
		.tid = e->tid,
		.thread = e->thread ? e->thread->name : NULL,
		.what = what_name(e->kind->what),
		.function = e->kind->function,
		.module = e->kind->module,
		.address = e->kind->address,
		.fields = fields,
	};

	for (size_t i = 0; i < e->kind->field_count && event.field_count < FIELDS_MAX; i++)
		if (take_field(&fields[event.field_count], e, &e->kind->fields[i]))
			event.field_count++;
	p->ended = p->each(p->arg, &event) != 0;
	return p->ended;
}

DINST_PUBLIC int dinst_events(struct dinst *d, const char *session, const uint64_t *ids,
			      size_t count, dinst_event_each each, void *arg, uint64_t *dropped,
			      struct dinst_failure *f)
{
	json_t *params, *answer = NULL;
	struct passing p = {each, arg, false};
	struct dinst_error e = {0, ""};
	struct session_log *l;
	int err;

	if (!each || (count && !ids))
		return failure_missing(f, each ? "the list of ids" : "who is told of the events");
	params = session_params(session);
	if (count)
		json_object_set_new(params, "ids", ids_array(ids, count));
	err = library_call(d, "events", params, &answer, f);
	if (err)
		return err;
	l = kinds_pass(d, answer);
	if (!l) {
		json_decref(answer);
		return failure_memory(f);
	}
	err = event_log_add(&l->log, answer, pass_event, &p, &e);
	json_decref(answer);
	if (dropped && (!err || p.ended))
		*dropped = l->log.dropped;
	kinds_passed(l);
	return err && !p.ended ? failure_pass(f, &e) : 0;
}

DINST_PUBLIC int dinst_trace(struct dinst *d, const char *session, const char *const *functions,
			     unsigned flags, struct dinst_instances **instances,
			     struct dinst_failure *f)
{
	json_t *params = session_params(session), *names = json_array();

	for (; functions && *functions; functions++)
		json_array_append_new(names, rpc_text(*functions));
	json_object_set_new(params, "functions", names);
	json_object_set_new(params, "args", json_boolean(flags & DINST_ARGUMENTS));
	json_object_set_new(params, "return", json_boolean(flags & DINST_RETURNS));
	if (flags & DINST_HOLD)
		json_object_set_new(params, "hold", json_true());
	return insert_call(d, "trace", params, instances, f);
}
