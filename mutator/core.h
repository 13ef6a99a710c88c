/* SPDX-License-Identifier: MIT */
/*
 * core.h - the state of one session: what is inserted where.
 *
 *   session ── places    an arena with its heap and journal, near some modules
 *           ── sites     a window of the target's code, its switch, its body
 *           │    └ links snippets that run there
 *           ── instances what a request made: a metric at a focus, its counters
 *           └─ queue     what is switched off and waits until it can be freed
 *
 * A request travels: request.c (text to points) -> site.c, body.c (code written
 * while the target runs) -> batch.c (one stop: check, move program counters,
 * patch). Removal is the mirror: removal.c switches off at once, and a flush
 * restores windows and frees what no thread is in.
 *
 * Everything here is owned by one thread, the mutator's only one. Work
 * functions of a stop run on the tracer's thread while that one waits.
 */
#ifndef DINST_MUTATOR_CORE_H
#define DINST_MUTATOR_CORE_H

#include "inject/arena.h"
#include "inject/heap.h"
#include "inject/hidden.h"
#include "inject/journal.h"
#include "inject/patch.h"
#include "inject/stack.h"
#include "inject/target.h"
#include "mutator/mdl/mdl.h"
#include "mutator/module.h"
#include "mutator/points.h"
#include "mutator/site.h"

struct variable;       /* variable.h */
struct mdl_plan;       /* evaluate.h */
struct variable_value; /* variable.h */

/* --------------------------------------------------------------- places */

/* Of one process: so many are taken out together after our death, as code in each may lead into any other. */
enum { ARENAS_MOST = 32 };

/* An arena and what we keep in it. */
struct place {
	struct arena *arena;
	struct heap *heap;
	struct journal *journal;
	bool unmapped; /* in the target itself: detaching is under way */
	bool full;     /* a request did not fit: the next one gets a new place */
	bool crowded; /* what a request adds to sites of this place did not fit: nothing new of it goes here */
	/* Private arenas: stores that are sent when what they lead to has been. */
	struct late_store {
		taddr_t address;
		uint64_t value;
	} * stores;
	size_t store_count, store_room;
	taddr_t record, enter, leave, leaving; /* routines (threads.h), 0: none yet */
	struct place *next;
};

/* ------------------------------------------------------------ instances */

/* One counter of a raw instance; it has one in every place that it touches. */
struct tally {
	struct place *place;
	taddr_t counter;
	taddr_t exits; /* of an instance that pairs: exits that found their entry; else 0 */
};

enum { INSTANCE_TALLIES_MAX = 16 };

struct refused_point {
	char *where; /* MODULE:NAME */
	enum refusal refusal;
	char *why; /* what the compiler said, or NULL: refusal_text() says it */
};

/* A program that stands for exits of function `pair` that never come (threads_set_undo()). */
struct undo_code {
	uint32_t pair;
	struct code_rank rank; /* as at an exit */
	struct place *place;
	struct snippet_code *code;
};

/* Plans of one request; each of its instances has one of them. */
struct plan_set {
	struct mdl_plan *plans;
	size_t count;
	unsigned references;
	struct mdl_reader reader; /* of the library's trees that they point to */
};

/*
 * What a request made: a metric at a focus. It may use the instrumentation of
 * another one that was there already (`source`); everything from `plan` on is
 * then the other's. Flags are instances, too: hidden ones that have a key and no
 * number, and so are those whose own number was removed while others use them.
 */
struct instance {
	struct session *session;
	unsigned id;	     /* 0: hidden */
	unsigned references; /* its own number, instances whose source or flag it is */
	char *metric;	     /* id of the metric, name of the constraint */
	char *unit;
	char *focus;		 /* as the plan says it; of a flag: its key */
	uint32_t hash;		 /* of the focus, for finding the same */
	struct instance *source; /* NULL: itself */
	/*
	 * What `value` was when this one began, where it has a source: element by
	 * element; instance_read() takes it off. Likewise its hits, and keys without a place.
	 */
	struct variable_value *bases;
	size_t base_count;
	uint64_t base_hits, base_full;
	bool waiting;		 /* its module is not loaded yet; focus says what for */
	bool stopped, forbidden; /* switched off: above its limit, or what it does may be denied */
	double limit;		 /* percent of one CPU, 0: none */
	bool wants_cost;
	uint64_t since_ns;			/* clock_ns() when it began */
	uint64_t seen_hits, seen_ns;		/* at the last look at its cost */
	uint64_t since_switches, seen_switches; /* session_switches() at both */
	size_t unwalked; /* threads whose stacks could not be caught up with */

	const struct raw_metric *raw; /* request_insert_raw(); then no plan and no variables */
	struct plan_set *plans;	      /* NULL for flags, and while it waits */
	const struct mdl_plan *plan;
	/* The metric's own first, then its temporaries; a flag has its word. A reference to each. */
	struct variable **variables;
	size_t variable_count;
	struct variable *table;	 /* keys of the vector, where the plan is many, else NULL */
	struct variable *hits;	 /* how often its code was reached; NULL: not counted */
	struct instance **flags; /* hidden ones that guard it, and INSTANCE_HOOKS at most */
	size_t flag_count;
	uint64_t cost_ps;   /* predicted, per hit */
	uint64_t switch_ps; /* and besides, at most once behind each switch of a thread; mostly 0 */
	bool per_thread;    /* goes in and out in a stop */
	bool system_calls;  /* its code makes some */
	struct link *links;
	size_t link_count;
	size_t refused_count;
	struct refused_point *refused;
	/* Points where its code has nothing to take: no result at a tail jump. No harm, for -v. */
	size_t left_out_count;
	struct refused_point *left_out;
	struct tally tallies[INSTANCE_TALLIES_MAX];
	unsigned tally_count;
	uint32_t *pair_ids;		     /* of the functions that it pairs */
	struct function_ref *pair_functions; /* as many */
	size_t pair_id_count, pair_id_room;
	struct undo_code *undos;
	size_t undo_count;
	/* instances.c: its list, and what leads to it there (NULL: in none); its buckets. */
	struct instance *next, **link;
	struct instance *next_number, *next_focus;
	bool entered;
	bool has_key; /* a flag or a hook: focus is its key */
};

enum { INSTANCE_HOOKS = 2 }; /* hooks.c: hidden instances that one may have besides its flags */

/* Where instances are found: by number, and by the hash of their focus or key. */
struct instance_index {
	struct instance **by_focus, **by_number; /* one allocation; a power of two of each */
	size_t buckets, count;
};

/* The instance that has the instrumentation. */
static inline struct instance *instance_source(const struct instance *i)
{
	return i->source ? i->source : (struct instance *)i;
}

/* ------------------------------------------------------------ raw metrics */

/* Kinds of snippets at kinds of points, for tests and tools: no user command leads here. */
struct raw_metric {
	const char *name;
	const char *unit;
	const char *constraints; /* hierarchies that its focus may name */
	enum point_kind kind;	 /* where it counts */
	/* What is inserted there; SNIPPET_COUNT where not said. SNIPPET_ENTER at entries: each
	 * function's exits get SNIPPET_LEAVE, and are counted where they find their entry. */
	enum snippet_kind snippet;
};

/* -------------------------------------------------------------- session */

enum session_state {
	SESSION_RUNNING,
	SESSION_HELD,
	SESSION_EXITED,
	SESSION_EXECED,
	SESSION_TAKEN, /* somebody else has taken its arenas out of the target */
	SESSION_DETACHED
};

struct session {
	char name[64];
	pid_t pid;
	struct target *target;
	struct hidden *unseen; /* who kept themselves from us before there was a place, or NULL */
	struct module_list *modules;
	struct place *places;		   /* the newest one first */
	struct heap_totals heaps;	   /* of all of them */
	struct site **site_hash, *dropped; /* by next_hash: site_find(), site_drop_gone() */
	size_t site_count, site_buckets;
	struct mdl_library *library;
	char *library_warnings;	    /* about files of the user's that were skipped; NULL: none */
	struct instance *instances; /* by id, ascending */
	struct instance **instances_end; /* NULL: there was none yet */
	struct instance_index index;
	struct instance *hidden; /* flags, and what others use of those that were removed */
	unsigned next_id;
	bool holding;			/* new bodies wait for a stop: site_update() holds them */
	struct body *spent;		/* switched off, waiting until no thread can be inside */
	struct site *retired;		/* to be restored and freed */
	struct spent_code *spent_codes; /* routines and bases that nothing leads to any more */
	struct site_move *moves;	/* heads that some window may not lead to yet */
	size_t queue_length;		/* of all four */
	struct site *changed;		/* sites whose bodies are not what they should be */
	struct site *held;		/* sites with a body that waits for the request's stop */
	enum session_state state;
	bool private_arenas; /* to be set before the first insert: shared ones are not tried */
	/* Calls must not be moved (shadow.c); once true it stays so. */
	bool shadow_offered, shadow_stacks;
	/* counts changes of the module list, and those that waiting foci have seen */
	unsigned module_changes, changes_seen;
	/* when that list was read, CLOCK_MONOTONIC, and how long it took */
	uint64_t modules_ns, modules_cost_ns;
	bool maybe_pending;
	bool half_patched, unsearched, unknown_code; /* find_half; windows wait for it; parks.h */
	uint64_t retry_ns; /* CLOCK_MONOTONIC: windows that wait are not tried before */
	uint64_t retry_pause_ns;
	uint64_t incarnation;
	/* how the threads of the target registered rseq; see place_look_at_rseq() */
	bool rseq_known, rseq_usable;
	int64_t rseq_offset;
	uint32_t rseq_signature;
	/* plans by (image, function) are kept while the session lasts */
	struct plan_cache *plans;
	struct threads *threads; /* per-thread state in the target; NULL: nobody needed it */
	struct stream *stream;	 /* events from the target; NULL: nobody wants any */
	/* Wall timers by the vdso; NULL: by ticks, or by system calls. Never changes. */
	struct wall_clock *wall_clock;
	/* pages of text that were ever patched, for giving their private copies back */
	taddr_t *pages;
	size_t page_count, page_room;
	bool unmapped;
	/* Opened by the last family_stop(): its snapshots read through them. */
	struct target **members;
	size_t member_count, member_room;
	/* Those in which a thread may still make a call of ours by itself: detach cleans there. */
	struct target **late;
	size_t late_count;
	taddr_t late_code; /* in an arena: where one of the target itself may do so; 0: nowhere */
	uint64_t last_stop_ns, longest_stop_ns;
	uint64_t stop_count, stops_ns; /* all stops of it, and what they took together */
	/* Seccomp filters of all threads, of the one that has most, and when they were counted. */
	uint64_t filters_seen, filters_most, filters_ns;
	uint64_t switches, switches_seen, switches_ns; /* switches.c */
	void (*progress)(void *arg, const char *text, size_t done, size_t total);
	/* True once nobody wants what a request would insert: its daemon has ended. NULL: never. */
	bool (*deserted)(void *arg);
	void *progress_arg; /* for both */
};

/* session.c */
/* A text of the user's with metrics and constraints, all of it or nothing (mdl_load_text()). */
int session_load_mdl(struct session *s, const char *name, const char *text, size_t size,
		     struct dinst_error *e);
int session_attach(pid_t pid, const char *name, struct session **out, struct dinst_error *e);
void session_free(struct session *s); /* our side only */
void instance_free(struct instance *i);
/* DINST_GONE or DINST_FAILED unless the target is there and is the same program. */
int session_check(struct session *s, struct dinst_error *e);
/* Looks at the target's modules again; sites of those that are gone are dropped. */
int session_update_modules(struct session *s, struct dinst_error *e);
void session_note_stop(struct session *s, const struct stop_report *report, uint64_t *stop_ns);
void session_progress(struct session *s, const char *text, size_t done, size_t total);
/* DINST_DAEMON once s->deserted(): asked before something new is put into the target. */
int session_wanted(const struct session *s, struct dinst_error *e);
int session_plan(struct session *s, struct module *m, uint32_t function,
		 const struct function_plan **plan, struct dinst_error *e);
/*
 * The same with points of `kind`. What it adds to a plan that is known already
 * makes pointers into that plan's arrays void; its windows do not change, and
 * sites that were made from it are right.
 */
int session_plan_for(struct session *s, struct module *m, uint32_t function, enum point_kind kind,
		     const struct function_plan **plan, struct dinst_error *e);
/* The plan that session_plan() made before, or NULL. */
const struct function_plan *session_known_plan(const struct session *s, const struct module *m,
					       uint32_t function);
/* shadow.c */
/* Looks whether threads of the target have shadow stacks; before anything is inserted. */
void session_look_at_shadows(struct session *s);
/* Refuses the points of a plan that would need a call to be moved. */
void shadow_refuse(const struct image *img, struct function_plan *plan);

size_t session_points(const struct session *s);
/* Bytes of code in use, with the unused rest of their pages. */
size_t session_heap_bytes(const struct session *s);
/* The same, the most that it was, what exists, and the room, of all arenas together; others 0. */
void session_heap(const struct session *s, struct heap_stats *sum);
size_t session_text_pages(struct session *s); /* of which the target has copies of its own */

/* instances.c */
struct instance *session_instance(const struct session *s, unsigned id);
/* Those with that hash, oldest first; NULL: no more. Numbered, hidden and requested ones. */
struct instance *instances_of_hash(const struct session *s, uint32_t hash);
struct instance *instances_next_of_hash(const struct instance *i, uint32_t hash);
/* Into the index and out of it; for instance_new() and instance_free(). False: no memory. */
bool instances_enter(struct session *s, struct instance *i);
void instances_leave(struct session *s, struct instance *i);
/* Gives it the next number and appends it to the session's. */
void instances_number(struct session *s, struct instance *i);
/* It has no number any more; it stays in its list. */
void instances_unnumber(struct session *s, struct instance *i);
/* To the front of a list; it is in none. */
void instances_push(struct instance **list, struct instance *i);
/* Out of whatever list it is in. */
void instances_take_out(struct session *s, struct instance *i);
/* All of a list become the first hidden ones of the session, in their order. */
void instances_adopt(struct session *s, struct instance **list);
/* The index itself; no instance is left. */
void instances_release(struct session *s);

/* place.c */
/* The place that serves module m; made in a stop of its own if there is none yet. */
int place_for(struct session *s, struct module *m, struct place **out, uint64_t *stop_ns,
	      struct dinst_error *e);
struct place *place_at(const struct session *s, taddr_t address);
/* One routine may use counters of both: they are divided among CPUs alike. */
bool place_is_alike(const struct place *a, const struct place *b);
/*
 * Makes what was written reach the target where arenas are private, in a stop: everything new first, then the stores
 * that lead to it. At every moment in between what the target can reach is whole.
 */
int place_sync(struct stop *stop, struct session *s, struct dinst_error *e);
/* Stores an aligned word that leads to code: at once or, in private arenas, by the next place_sync(). */
void place_store(struct place *p, taddr_t address, uint64_t value);
bool place_has_unsent(const struct session *s); /* such stores */
/* place_sync() in a stop of its own, if there are any. */
int place_send(struct session *s, uint64_t *stop_ns, struct dinst_error *e);
/* DINST_GONE, and SESSION_TAKEN, where an arena is not there any more as we made it; DINST_BUSY: it cannot be told. */
int place_check(struct session *s, struct dinst_error *e);
void place_free(struct place *p, bool keep_arena);
/* For tests (DINST_POISON in the environment): ends us, loudly, if a thread is in code that was freed. */
void place_check_threads(const struct session *s, struct stop *stop);
/* Notices in a stop how threads registered rseq. */
void place_look_at_rseq(struct session *s, struct stop *stop);

/*
 * rseq_inherited.c: true if a new thread may begin with the rseq_cs of one that has ended, so that
 * nobody may end with one that leads to code of ours. Tried out once, in a child of ours (the first
 * call takes a millisecond: not in a stop).
 */
bool rseq_is_inherited(void);

/* batch.c */
struct batch_result {
	size_t patched, pending;
	uint64_t stop_ns;
};
/*
 * Patches the planned sites in one stop. Those whose window a thread might come
 * back into stay SITE_PLANNED (pending); those whose bytes are not as the file
 * says are set to foreign[i] = true.
 */
int batch_apply(struct session *s, struct site **sites, size_t count, bool *foreign,
		struct batch_result *result, struct dinst_error *e);

struct threads_function;
struct threads_late;
/*
 * What has effects on per-thread state comes whole, in one stop of the family:
 * held bodies are turned to, sites patched, and what is alive on the stacks is
 * caught up with (threads.h).
 */
struct batch_whole {
	struct site **sites;
	bool *foreign; /* by site, once sorted */
	const struct threads_function *functions;
	const struct threads_late *late;
	size_t count, function_count, late_count; /* of these */
	void (*find_absent)(void *arg, struct stop *stop, uint8_t *absent);
	const struct site *(*find_half)(void *arg, struct stop *stop, uint8_t *seen);
	void *arg;
	bool patient; /* DINST_BUSY also for a thread in a routine of the pairing, or about to leave; else it is unwalked */
	size_t caught, unwalked; /* threads */
};
/*
 * DINST_BUSY: a thread is where it must not be just now, nothing was done; try
 * again. DINST_REFUSED: some sites are foreign[], nothing was done.
 */
int batch_apply_whole(struct session *s, struct batch_whole *whole, struct batch_result *result,
		      struct dinst_error *e);

/* request.c */
struct insert_result {
	struct instance **instances;
	size_t count;
	uint64_t stop_ns;
};
/* What one may ask for besides metric and foci. */
struct insert_options {
	bool each;    /* an instance for each resource that the foci match */
	bool cost;    /* hits are counted, where they are not known anyway */
	double limit; /* percent of one CPU above which it is switched off; 0: none */
};
/*
 * Inserts an MDL metric, all of it or nothing. Words of foci: evaluate.h. The
 * caller frees result->instances.
 */
int request_insert(struct session *s, const char *metric, const char *const *words,
		   size_t word_count, const struct insert_options *options,
		   struct insert_result *result, struct dinst_error *e);
/* Snippets at all points of a kind; the metric must outlive the session. For tests and tools. */
int request_insert_raw(struct session *s, const struct raw_metric *metric, const char *const *foci,
		       size_t focus_count, bool each, struct insert_result *result,
		       struct dinst_error *e);

/* pending.c */
/* True if something waits: a window for its threads to leave, or a focus for its module. */
bool request_has_pending(struct session *s);
/* Tries again what is pending; returns how many points began to count. */
size_t request_retry_pending(struct session *s);
/* The same for being called all the time: windows only after growing pauses, since each try is a stop. */
void request_poll(struct session *s);

/* instance.c */
uint32_t instance_hash(const char *focus);
/* One of its own, in no list yet, reference count 1; NULL: no memory. */
struct instance *instance_new(struct session *s, const char *metric, const char *unit,
			      const char *focus, struct dinst_error *e);
/*
 * The value now, since the instance began: variable_read() of its metric's
 * variable without what it was then. variable_value_release() frees what it holds.
 */
int instance_read(const struct instance *i, unsigned element, struct variable_value *out,
		  struct dinst_error *e);
/* The same as one number, 0 where it cannot be read. */
uint64_t instance_value(const struct instance *i);
/* Exits that found their entry, of an instance that pairs; else 0. */
uint64_t instance_exits(const struct instance *i);
/* How many of its points count now, and how many wait for a stop at a better moment. */
void instance_points(const struct instance *i, size_t *points, size_t *pending);
/* Hits since it was inserted; false: not counted. */
bool instance_hits(const struct instance *i, uint64_t *hits);
/* cost.c: true if code of it makes system calls; of any that is not switched off. */
bool instance_makes_calls(const struct instance *i);
bool session_makes_calls(const struct session *s);
/*
 * cost.c: ns that an instance's code is predicted to have taken for so many hits, while its
 * threads were switched so many times.
 */
double instance_predicted_ns(const struct instance *i, uint64_t hits, uint64_t switches);
/*
 * switches.c: how often the process's threads have got a processor, since it was first asked.
 * As it was when that was looked at last, at most a second ago; `now`: it is looked at.
 */
uint64_t session_switches(struct session *s, bool now);
/* True if session_poll() should be called now and then. */
bool session_needs_poll(const struct session *s);
/*
 * Once a second: switches off what is above its limit, and what makes system
 * calls that the target has come to forbid since. told(arg, i, percent) is
 * called for each; percent is negative for the latter. Sends what is unsent.
 */
void session_poll(struct session *s,
		  void (*told)(void *arg, const struct instance *i, double percent), void *arg);
/*
 * Lets go of everything but names and numbers: variables, flags, functions. Its
 * links are gone already; flags that nobody needs any more are switched off.
 */
void instance_strip(struct session *s, struct instance *i);
/* On our side only, at the end of a session: gives up variables, plans, code. */
void instance_let_go(struct instance *i);
/* Takes the instance out of the session, strips and frees it. */
void instance_drop(struct session *s, struct instance *i);

/* gate.c */
/*
 * Lets a program that is held before its first instruction run to its entry
 * point, where the shared objects that it names are loaded, gives the foci that
 * wait for them their points, and lets it go on. Nothing is left behind: the
 * gate's window is on the removal queue afterwards. Where the entry point
 * cannot be instrumented the program is simply let go.
 */
int gate_release(struct session *s, struct dinst_error *e);

/* removal.c */
/* Takes the links away; site_update_all() is left to the caller. */
void removal_unlink_only(struct session *s, struct instance *i);
/* Takes the links away and makes that so; what they used is queued. */
void removal_unlink(struct session *s, struct instance *i);
/* One user less of an instance that is somebody's source or flag. */
void removal_release(struct session *s, struct instance *i);
struct flush_result {
	size_t freed, queued; /* things: bodies and sites */
	pid_t late;	      /* for whose sake nothing was freed: late_calls_last(); 0: nobody's */
	bool unsearched;      /* nothing was freed: snapshot_is_unsearched() */
	taddr_t others; /* where somebody else has written over a patch, which stays; 0: nowhere */
	uint64_t stop_ns;
};
/* Switches the instance off at once, frees it and queues what it used in the target. */
int removal_switch_off(struct session *s, struct instance *i, struct dinst_error *e);
/* All of them, each in the list once: no code is written for those that are still to go. */
int removal_switch_off_all(struct session *s, struct instance *const *list, size_t count,
			   struct dinst_error *e);
/* Flushes if the queue is longer than its threshold, the heap is above its mark, or something is unsent, which is sent. */
void removal_settle(struct session *s, struct flush_result *result);
/* Both. */
int removal_remove(struct session *s, struct instance *i, struct flush_result *result,
		   struct dinst_error *e);
/* Queues a body that nothing leads to any more. */
void removal_spend(struct session *s, struct body *body);
/*
 * Queues code that nothing leads to any more: it is given back, and the
 * references to `codes` (taken over, as the array is) with it, when a flush has
 * proved that no thread is in it. False if there is no memory: it stays.
 */
bool removal_spend_code(struct session *s, struct place *p, taddr_t code, size_t size,
			struct snippet_code **codes, size_t count);
/* The site whose base stood there until it moved, while a thread may be inside; else NULL. */
const struct site *removal_spent_base(const struct session *s, taddr_t pc, taddr_t *base);
/* On our side only, at the end of a session. */
void removal_forget_spent(struct session *s);
/* Queues a site that was never patched or is not to be used; does nothing while it has links. */
void removal_retire(struct session *s, struct site *site);
int removal_flush(struct session *s, struct flush_result *result, struct dinst_error *e);
void removal_look_for_tasks(struct session *s); /* before it, in no request */

/* detach.c */
struct detach_result {
	size_t restored; /* windows */
	size_t left; /* things that a thread still uses, or somebody else has written over: arena and journal stay */
	taddr_t others; /* where somebody else has; 0: nowhere */
	uint64_t stop_ns;
};
int session_detach(struct session *s, unsigned seconds, struct detach_result *result,
		   struct dinst_error *e);

/* family.c: processes forked from the target that share its arenas */
/* Called for one process of the family, on the thread that traces it. */
typedef int (*family_work)(struct stop *stop, void *arg, struct dinst_error *e);
/*
 * Stops the target and every process that shares an arena with it, to a fixed point. When all of them
 * are stopped work() is called for each, the target last, and a process is let go when its call has
 * returned. The first failure ends it: the rest are let go without work().
 */
int family_stop(struct session *s, family_work work, void *arg, struct stop_report *report,
		struct dinst_error *e);
/*
 * The same; ready() is called once before any work(), when all of them are stopped: what it turns in shared
 * memory is so for all. It may read the processes, not change them. If it fails all are let go without work().
 */
typedef int (*family_ready)(struct stop *const *stops, size_t count, void *arg,
			    struct dinst_error *e);
int family_stop_all(struct session *s, family_ready ready, family_work work, void *arg,
		    struct stop_report *report, struct dinst_error *e);
/* 1: process `pid` shows an arena that it shares with the target; 0; or why it cannot be told, or DINST_GONE. */
int family_shares(const struct session *s, pid_t pid, struct dinst_error *e);
/* Closes the other processes of the family; stop_target() of theirs, and snapshots, end here. */
void family_release(struct session *s);

/* late_calls.c: takes a member in which a thread was given up in a call of ours; false: it did not. */
bool late_calls_keep(struct session *s, struct target *member);
/*
 * A thread of the stopped process that was given up in a call of ours and is still in it: it goes on in any
 * code of ours, and no stack tells. 0: there is none; where it cannot be told which, the process.
 */
pid_t late_calls_last(struct session *s, struct stop *stop);
/* DINST_BUSY, and who it is; 0: somebody. */
int late_calls_fail(pid_t tid, struct dinst_error *e);
/* Detach: what such threads have made of our calls. Until `deadline`, in us of clock_ns(). */
int late_calls_clean(struct session *s, uint64_t deadline, struct detach_result *result,
		     struct dinst_error *e);

struct leftovers {	 /* leftovers.c */
	size_t patches;	 /* in the journals that were found */
	size_t restored; /* windows that were ours and are the original now */
	size_t arenas, arenas_left, unsearched; /* snapshot_is_unsearched() */
	size_t unknown_tails;			/* struct remote_tails */
	taddr_t others; /* where somebody else has written over a patch, for which an arena stays; 0: nowhere */
	bool sealed; /* the program has sealed what nothing leads to any more: it stays, and is not in arenas_left */
	uint64_t stop_ns;
};
/* Takes out what a dead mutator left in the target and its family. */
int leftovers_clean(struct target *t, unsigned milliseconds, struct leftovers *result,
		    struct dinst_error *e);
/*
 * heirs.c: the same for all processes with something that the dead mutator `maker`, which began at `start` (in
 * ticks, as proc_stat), has made. What cannot be done in one of them is counted in arenas_left.
 */
int leftovers_clean_heirs(pid_t maker, uint64_t start, unsigned milliseconds,
			  struct leftovers *result, struct dinst_error *e);

#endif
