/* SPDX-License-Identifier: MIT */
/*
 * request.h - a request in the making; for request*.c, hooks and pending.c only.
 *
 *   1. request_plan() or request_raw() for each instance: everything is
 *      written, nothing leads to it (session.holding);
 *   2. request_commit(): one stop, where one is needed;
 *   3. request_adopt(), or request_undo() where anything failed.
 */
#ifndef DINST_MUTATOR_REQUEST_H
#define DINST_MUTATOR_REQUEST_H

#include "mutator/core.h"
#include "mutator/evaluate.h"
#include "mutator/threads.h"
#include "mutator/variable.h"

/* As enum compile_mode. */
enum code_mode { CODE_POINT, CODE_CATCH_UP, CODE_UNDO };

/* Programs that were compiled: those that are the same for other functions are found again. */
struct code_entry {
	const struct instance *instance;
	const struct mdl_placement *placement; /* of the first that had it */
	struct place *place;
	struct function_ref function;
	enum code_mode mode;
	bool tail_exit, shared;
	bool refused; /* `why` says what is missing there */
	char why[200];
	struct snippet_code *code; /* NULL: nothing to insert */
};

enum { CODE_ENTRIES = 64 };

/* Code of a function that lies apart. */
struct cold_fragment {
	uint32_t parent, index;
};

enum { REQUEST_FLAGS_SEEN = 4 };

struct request {
	struct session *session;
	const struct insert_options *options;
	struct instance **instances; /* those that get numbers */
	size_t count, room;
	struct instance *hidden; /* made by this request: flags, hooks */
	struct instance *begun;	 /* what has waited for its module: in the session's list already */
	struct site **sites;	 /* to be patched in this batch */
	size_t site_count, site_room;
	size_t queue_left; /* a longer queue than this is worth a flush where there is no room */
	uint64_t stop_ns;
	bool clock_looked; /* the target may read the processor's clock */
	struct code_entry codes[CODE_ENTRIES];
	unsigned next_code;
	const struct instance *flags_seen[REQUEST_FLAGS_SEEN]; /* they are in place */
	unsigned next_seen;
	/* Per-thread state: what the stop has to catch up with. */
	bool in_stop;
	struct threads_function *functions;
	size_t function_count, function_room;
	uint32_t *function_at; /* by number: 1 + index in functions, 0: not there */
	const struct image *fragments_of;
	struct cold_fragment *fragments; /* by parent */
	size_t fragment_count;
	struct threads_late *late;
	struct snippet_code **late_codes; /* a reference to each */
	size_t late_count, late_room;
};

/* What an instance wants at the points of one function. */
struct function_work {
	struct function_ref function;
	struct snippet_code *code;    /* of a raw metric whose snippet is SNIPPET_PROGRAM */
	const struct raw_metric *raw; /* or: */
	const struct mdl_placement **placements; /* all of this function, in the plan's order */
	size_t count;
	/* Found out on the way. */
	uint32_t pair;
	bool start, per_thread;
};

/* request_points.c */
/* Writes what one function needs for instance i; the window stays untouched for now. */
int request_function(struct request *r, struct instance *i, struct function_work *w,
		     struct dinst_error *e);
/* Writes what is not written yet, for all instances of the request and `also`, which may be NULL. */
int request_write(struct request *r, struct instance *also, struct dinst_error *e);
/* True if the code looks at what a function returns. */
bool request_uses_result(const struct snippet_code *code);
/* Lists a point that has no place, or one side of a call whose other side has none, or that is too late. */
int request_refuse_point(struct instance *i, const struct function_ref *f, const struct point *p,
			 bool too_late, struct dinst_error *e);
/* Lists a refused point; texts are copied. `why` may be NULL. */
int request_refuse(struct instance *i, const struct function_ref *f, enum refusal refusal,
		   const char *why, struct dinst_error *e);
/* Lists a point where the code has nothing to work on: no result at a tail jump, for example. */
int request_leave_out(struct instance *i, const struct function_ref *f, const char *why,
		      struct dinst_error *e);
/*
 * Somebody else changed the bytes of those sites that are foreign[]: their
 * points, of these instances and all of the session's, are refused after all.
 * Their sites go through the queue, since a thread may have been moved into
 * the base before the bytes were compared.
 */
void request_drop_foreign(struct request *r, struct session *s, struct site **sites,
			  const bool *foreign, size_t site_count);

/* request_links.c */
/* The site of a part of a point, made if need be; it may be in another place than `place`. */
int request_site(struct request *r, struct module *m, struct place *place,
		 const struct function_plan *plan, const struct point *p, struct site **out,
		 struct dinst_error *e);
/* The site of a part of a point gets the snippet. */
int request_link(struct request *r, struct instance *i, struct site *site, const struct point *p,
		 const struct snippet *snippet, struct dinst_error *e);
/* Nothing was linked to the site after all: where it is new it goes, or its host could never be restored. */
void request_let_go(struct session *s, struct site *site);
/* Takes back the links that the instance got since `mark` was its first. */
void request_unlink(struct session *s, struct instance *i, const struct link *mark);
/* The same without writing anything: where those links have no code yet. */
void request_unlink_only(struct session *s, struct instance *i, const struct link *mark);
/* The same with whole points that have a part at a site that is `foreign`. */
void request_drop_points(struct session *s, struct instance *i, const struct function_ref *f,
			 enum refusal why);
/* How many parts the point that begins at plan->points[n] has. */
size_t request_parts(const struct function_plan *plan, size_t n);

/* request_code.c */
/*
 * The program of a placement at one place. *code is the request's (take a
 * reference to keep it), NULL where there is nothing to insert. DINST_REFUSED:
 * this point cannot have it.
 */
int request_code(struct request *r, struct instance *i, const struct mdl_placement *p,
		 struct place *place, enum code_mode mode, bool tail_exit,
		 struct snippet_code **code, struct dinst_error *e);
void request_free_codes(struct request *r);

/* request_mdl.c: links of a function for a plan's placements */
int request_link_placements(struct request *r, struct instance *i, struct function_work *w,
			    const struct function_plan *plan, struct place *place,
			    struct dinst_error *e);
/* Forgets what a failed attempt at a function has noted. */
void request_forget_late(struct request *r, struct instance *i, size_t late, size_t undos);

/* request_plan.c */
/* The flag, or what else is hidden, with that key, that is not switched off, or NULL. */
struct instance *request_find_hidden(const struct request *r, const char *key);
/* Everything of a plan for an instance that has nothing yet: variables, flags, links. */
int request_plan(struct request *r, struct instance *i, struct plan_set *set,
		 const struct mdl_plan *plan, struct dinst_error *e);
/* An instance that exists already and is this metric at this focus, or NULL. */
struct instance *request_find_same(const struct request *r, const struct mdl_plan *plan);

/* request_commit.c */
int request_commit(struct request *r, struct dinst_error *e);
/* The request's own hidden instances are the session's. */
void request_adopt(struct request *r);
/*
 * Takes everything of a failed request back; its instances are freed. `also` (or
 * NULL) is one of the session's that the request was to fill: it is empty again.
 */
void request_undo(struct request *r, struct instance *also);
void request_release(struct request *r);
/* request_family.c: DINST_REFUSED where a forked process lacks what held bodies need. */
int request_check_family(struct request *r, struct dinst_error *e);
/*
 * False, and says why in *e, where a thread of the target is in the strict mode of seccomp: code that
 * reads the processor's clock would end it. Looked for once for each request.
 */
bool request_may_read_clock(struct request *r, struct dinst_error *e);
/* The undo routines of these functions, of all instances, those of the request (or NULL) too. */
int request_set_undos(const struct request *r, struct session *s, const uint32_t *ids, size_t count,
		      struct dinst_error *e);

/* request.c */
struct instance *request_add_instance(struct request *r, const char *metric, const char *unit,
				      const char *focus, struct dinst_error *e);
/* What has waited for its module: everything of it, or it waits on. *began grows by new windows. */
int request_begin(struct session *s, struct instance *i, size_t *began, struct dinst_error *e);

/* pending.c: a look at the maps that nobody asked for just now is not too much of the target's time. */
bool request_modules_due(const struct session *s);

/* hooks.c: what per-thread state needs besides, in with the first instance that uses it. */
int request_hook(struct request *r, struct instance *i, struct dinst_error *e);

/* instance.c: the values of all elements of the source, as they are now. */
int instance_read_bases(struct instance *i, struct dinst_error *e);

/* What it pairs, and what stands for exits that never come, is not its own any more; its links are gone. */
void instance_unpair(struct session *s, struct instance *i);

/* The functions that a focus names. */
int request_find(const struct session *s, const char *focus, struct function_ref **functions,
		 size_t *count, struct dinst_error *e);

#endif
