/* SPDX-License-Identifier: MIT */
/*
 * core.h - the state of one session: what is inserted where.
 *
 *   session ── places    an arena with its heap and journal, near some modules
 *           ── sites     a window of the target's code and its base trampoline
 *           │    └ links snippets (mini trampolines) chained from its slots
 *           ── instances what a request made: a metric at a focus, its counters
 *           └─ queue     what is switched off and waits until it can be freed
 *
 * A request travels: request.c (text to points) -> site.c (base and mini
 * trampolines, written while the target runs) -> batch.c (one stop: check,
 * move program counters, patch). Removal is the mirror: removal.c unlinks at
 * once, and a flush restores windows and frees what no thread is in.
 *
 * Everything here is owned by one thread, the mutator's only one. Work
 * functions of a stop run on the tracer's thread while that one waits.
 */
#ifndef DINST_MUTATOR_CORE_H
#define DINST_MUTATOR_CORE_H

#include "inject/arena.h"
#include "inject/heap.h"
#include "inject/journal.h"
#include "inject/patch.h"
#include "inject/stack.h"
#include "inject/target.h"
#include "mutator/module.h"
#include "mutator/points.h"

/* --------------------------------------------------------------- places */

/* An arena and what we keep in it. */
struct place {
	struct arena *arena;
	struct heap *heap;
	struct journal *journal;
	bool unmapped; /* in the target itself: detaching is under way */
	bool full;     /* a request did not fit: the next one gets a new place */
	/* Private arenas: stores to slots that are sent when what they lead to has been. */
	struct slot_store {
		taddr_t displacement;
		uint32_t value;
	} * stores;
	size_t store_count, store_room;
	struct place *next;
};

/* ---------------------------------------------------------------- sites */

struct link;

/* One slot of a base trampoline: before one instruction, for one kind of point. */
struct slot {
	uint8_t insn; /* index into the window */
	enum point_kind kind;
	taddr_t displacement; /* address of the slot's aligned displacement */
	taddr_t resume;	      /* where an empty slot leads */
	arch_regset live;     /* what the code behind it may need */
	struct link *first;   /* snippets, in the order in which they run */
};

/* Offsets in a base trampoline that belong to one instruction of the window. */
struct site_offsets {
	uint16_t slots; /* where its slots begin */
	uint16_t copy;	/* where the relocated instruction itself begins */
};

enum site_state {
	SITE_PLANNED,  /* base trampoline and journal written, window untouched */
	SITE_PATCHED,  /* the window leads to the base trampoline */
	SITE_DRAINING, /* the window is restored; threads may still be inside */
};

struct site {
	struct module *module;
	uint32_t function; /* that asked for it first */
	struct place *place;
	struct window window; /* link-time addresses; + module->bias */
	struct window_key {
		taddr_t start; /* address in the target of the window */
	} key;
	enum site_state state;
	taddr_t base; /* base trampoline */
	size_t base_size;
	struct site_offsets *offsets; /* of each instruction, and of the end */
	unsigned links;		      /* snippets linked now */
	unsigned queued_links;	      /* unlinked, not freed yet */
	bool queued;		      /* on the removal queue, to be restored */
	bool touched;	      /* planned, but patched earlier: a forked child may have it still */
	bool dropped;	      /* not in the table any more: its module was unmapped */
	bool foreign;	      /* its bytes were somebody else's when it was to be patched */
	taddr_t gate;	      /* code that leads to the base trampoline, 0 if none (gate.c) */
	bool busy;	      /* during a flush: a thread may be in something of it */
	bool listed;	      /* in the batch that is being prepared */
	unsigned journal[2];  /* window, hole */
	unsigned patch_count; /* 1, or 2 with a hole */
	struct patch patches[2]; /* in the order in which they are applied */
	struct site *next_hash;
	unsigned slot_count;
	struct slot slots[];
};

/* What is inserted at a point. */
enum snippet_kind {
	SNIPPET_COUNT, /* one more in `counter` */
	SNIPPET_NONE,  /* nothing: for PLACE_BYPASS, which only leads control elsewhere */
	SNIPPET_ENTER, /* per-thread state: an activation begins */
	SNIPPET_LEAVE, /* ... and ends */
};

struct snippet {
	enum snippet_kind kind;
	taddr_t counter;   /* of the site's place; 0 if it has none */
	uint64_t argument; /* what else the kind needs */
};

/* A snippet at one part of a point: one mini trampoline in a cell. */
struct link {
	struct site *site;
	struct slot *slot;
	struct instance *instance;
	bool part; /* not the point's first part */
	taddr_t cell;
	taddr_t counter; /* of the site's place; the link holds a reference */
	struct arch_cell shape;
	struct link *next;	    /* in the slot's chain */
	struct link *next_instance; /* of the same instance */
};

/* ------------------------------------------------------------ instances */

/* One counter of an instance; it has one in every place that it touches. */
struct tally {
	struct place *place;
	taddr_t counter;
};

enum { INSTANCE_TALLIES_MAX = 16 };

struct refused_point {
	char *where; /* MODULE:NAME */
	enum refusal refusal;
};

struct instance {
	unsigned id;
	const struct metric *metric;
	char *focus;
	bool waiting; /* its module is not loaded yet */
	struct link *links;
	size_t link_count;
	size_t refused_count;
	struct refused_point *refused;
	struct tally tallies[INSTANCE_TALLIES_MAX];
	unsigned tally_count;
	struct instance *next;
};

/* -------------------------------------------------------------- metrics */

struct metric {
	const char *name;
	const char *unit;
	const char *constraints;   /* hierarchies that its focus may name */
	enum point_kind kind;	   /* where it counts */
	enum snippet_kind snippet; /* what is inserted there; SNIPPET_COUNT where not said */
};

const struct metric *metric_find(const char *name);
size_t metric_all(const struct metric **metrics);

/* -------------------------------------------------------------- session */

struct queue_item {
	struct site *site; /* restore this window and free its base trampoline ... */
	struct link *link; /* ... or free this mini; exactly one is set */
	struct queue_item *next;
};

enum session_state {
	SESSION_RUNNING,
	SESSION_HELD,
	SESSION_EXITED,
	SESSION_EXECED,
	SESSION_DETACHED
};

struct session {
	char name[64];
	pid_t pid;
	struct target *target;
	struct module_list *modules;
	struct place *places;
	struct site **site_hash;
	size_t site_count, site_buckets;
	struct instance *instances; /* by id, ascending */
	unsigned next_id;
	struct queue_item *queue, *queue_tail;
	size_t queue_length;
	enum session_state state;
	bool private_arenas; /* to be set before the first insert: shared ones are not tried */
	/* counts changes of the module list, and those that waiting foci have seen */
	unsigned module_changes, changes_seen;
	bool maybe_pending;
	uint64_t retry_ns; /* CLOCK_MONOTONIC: windows that wait are not tried before */
	uint64_t retry_pause_ns;
	uint64_t incarnation;
	/* how the threads of the target registered rseq; see place_look_at_rseq() */
	bool rseq_known, rseq_usable;
	int64_t rseq_offset;
	uint32_t rseq_signature;
	/* plans by (image, function) are kept while the session lasts */
	struct plan_cache *plans;
	/* pages of text that were ever patched, for giving their private copies back */
	taddr_t *pages;
	size_t page_count, page_room;
	bool unmapped;
	/* Opened by the last family_stop(): its snapshots read through them. */
	struct target **members;
	size_t member_count, member_room;
	uint64_t last_stop_ns, longest_stop_ns;
	void (*progress)(void *arg, const char *text, size_t done, size_t total);
	void *progress_arg;
};

/* session.c */
int session_attach(pid_t pid, const char *name, struct session **out, struct dinst_error *e);
void session_free(struct session *s); /* our side only */
void instance_free(struct instance *i);
/* DINST_GONE or DINST_FAILED unless the target is there and is the same program. */
int session_check(struct session *s, struct dinst_error *e);
/* Looks at the target's modules again; sites of those that are gone are dropped. */
int session_update_modules(struct session *s, struct dinst_error *e);
void session_note_stop(struct session *s, const struct stop_report *report, uint64_t *stop_ns);
void session_progress(struct session *s, const char *text, size_t done, size_t total);
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
size_t session_points(const struct session *s);
size_t session_heap_bytes(const struct session *s);
struct instance *session_instance(const struct session *s, unsigned id);

/* place.c */
/* The place that serves module m; made in a stop of its own if there is none yet. */
int place_for(struct session *s, struct module *m, struct place **out, uint64_t *stop_ns,
	      struct dinst_error *e);
struct place *place_at(const struct session *s, taddr_t address);
/*
 * Makes what was written reach the target where an arena is private; no-op for
 * shared ones. Everything new first, then the slots that lead to it: at every
 * moment in between what the target can reach is whole. In a stop.
 */
int place_sync(struct stop *stop, struct session *s, struct dinst_error *e);
/* True if something was switched on or off that a private arena has not been told. */
bool place_has_unsent(const struct session *s);
/* place_sync() in a stop of its own, if there is anything to send. */
int place_send(struct session *s, uint64_t *stop_ns, struct dinst_error *e);
void place_free(struct place *p, bool keep_arena);
/* Fills in what arch_emit_counter_cell() needs to know about place and threads. */
void place_counter_spec(const struct session *s, const struct place *p, taddr_t counter,
			struct arch_counter *spec);
/* Notices in a stop how threads registered rseq. */
void place_look_at_rseq(struct session *s, struct stop *stop);

/* site.c */
/* Leads the slot whose displacement is at `displacement` to `target`, under running threads. */
void site_store_slot(struct place *p, taddr_t displacement, taddr_t target);
struct site *site_find(const struct session *s, taddr_t window_start);
/* The site of window w of m, made (base trampoline written, window untouched) if need be. */
int site_make(struct session *s, struct module *m, struct place *p,
	      const struct function_plan *plan, unsigned window, struct site **out,
	      struct dinst_error *e);
/* Forgets a site that was never patched, or whose trampoline may be freed. */
void site_free(struct session *s, struct site *site);
/*
 * Sites of modules that are unmapped now: new requests do not find them. They
 * still go through the queue, since a forked child may have the module.
 */
void site_drop_gone(struct session *s);
/*
 * False if the site was patched and its window is the original again: the
 * module was loaded anew at the same place, or a flush did not come to its end.
 */
bool site_is_in_place(const struct session *s, const struct site *site);
/* Takes a site out of the table: its window will be restored; new requests make a new one. */
void site_forget(struct session *s, struct site *site);
/*
 * Adds a snippet at a part of a point whose window is the site's; *snippet is
 * copied, and a reference to its counter is held. Runs if the site is patched.
 */
int site_link(struct session *s, struct site *site, const struct point *p,
	      const struct snippet *snippet, struct instance *instance, struct dinst_error *e);
/* Takes the mini out of its chain; it stays readable until it is freed. */
void site_unlink(struct link *link);
void link_free(struct link *link); /* frees cell and link; no thread may be inside */
/* For a pc in the window: where its relocated copy begins. False if the pc is not on an instruction. */
bool site_copy_of(const struct site *site, taddr_t pc, taddr_t *to);
/* stack_home over all sites of the session (arg: struct session). */
bool site_home(void *session, taddr_t pc, taddr_t *original, size_t *pushed);

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

/* request.c */
struct insert_result {
	struct instance **instances;
	size_t count;
	uint64_t stop_ns;
};
int request_insert(struct session *s, const char *metric, const char *const *foci,
		   size_t focus_count, bool each, struct insert_result *result,
		   struct dinst_error *e);
/* The same for a metric that has no name of its own; it must outlive the session. */
int request_insert_metric(struct session *s, const struct metric *metric, const char *const *foci,
			  size_t focus_count, bool each, struct insert_result *result,
			  struct dinst_error *e);

/* pending.c */
/* True if something waits: a window for its threads to leave, or a focus for its module. */
bool request_has_pending(struct session *s);
/* Tries again what is pending; returns how many points began to count. */
size_t request_retry_pending(struct session *s);
/* The same for being called all the time: windows only after growing pauses, since each try is a stop. */
void request_poll(struct session *s);

/* request.c */
uint64_t instance_value(const struct instance *i);
/* How many of its points count now, and how many wait for a stop at a better moment. */
void instance_points(const struct instance *i, size_t *points, size_t *pending);
/* Takes the instance out of the session and frees it; its links are gone already. */
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
struct flush_result {
	size_t freed, queued; /* things: minis and base trampolines */
	uint64_t stop_ns;
};
/* Switches the instance off at once, frees it and queues what it used in the target. */
int removal_switch_off(struct session *s, struct instance *i, struct dinst_error *e);
/* Flushes if the queue is longer than its threshold or the heap is above its mark. */
void removal_settle(struct session *s, struct flush_result *result);
/* Both. */
int removal_remove(struct session *s, struct instance *i, struct flush_result *result,
		   struct dinst_error *e);
/* Switches one snippet off: takes it out of its chain and queues it. Not part of an instance any more. */
int removal_unlink(struct session *s, struct link *link, struct dinst_error *e);
/* Queues a site that was never patched or is not to be used; nothing is linked to it. */
int removal_retire(struct session *s, struct site *site, struct dinst_error *e);
int removal_flush(struct session *s, struct flush_result *result, struct dinst_error *e);

struct detach_result {
	size_t restored; /* windows */
	size_t left;	 /* things that a thread still uses: arena and journal stay */
	uint64_t stop_ns;
};
int session_detach(struct session *s, unsigned seconds, struct detach_result *result,
		   struct dinst_error *e);

/* family.c: processes forked from the target that share its arenas */
/* Called for one process of the family, on the thread that traces it. */
typedef int (*family_work)(struct stop *stop, void *arg, struct dinst_error *e);
/*
 * Stops the target and every process that shares an arena with it, to a fixed
 * point. When all of them are stopped work() is called for each, the target
 * last, and a process is let go when its call has returned. The first failure
 * ends it: the rest are let go without work().
 */
int family_stop(struct session *s, family_work work, void *arg, struct stop_report *report,
		struct dinst_error *e);
/* Closes the other processes of the family; stop_target() of theirs, and snapshots, end here. */
void family_release(struct session *s);

/* leftovers.c */
struct leftovers {
	size_t patches;	 /* in the journals that were found */
	size_t restored; /* windows that were ours and are the original now */
	size_t arenas, arenas_left;
	uint64_t stop_ns;
};
/* Takes out what a dead mutator left in the target and its family. */
int leftovers_clean(struct target *t, unsigned milliseconds, struct leftovers *result,
		    struct dinst_error *e);

#endif
