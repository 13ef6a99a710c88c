/* SPDX-License-Identifier: MIT */
/*
 * site.h - windows in use, what runs there, and the code that does it. A part of
 * core.h, which includes it.
 *
 *   site      a window of the target's code, its switch, its base
 *   link      a snippet at a part of a point: what is wanted
 *   body      generated code that does what the links say
 *
 * A body is never changed after it was written; a change of the links is
 * another body, and turning the switch to it.
 */
#ifndef DINST_MUTATOR_SITE_H
#define DINST_MUTATOR_SITE_H

#include "arch/program.h"
#include "inject/patch.h"
#include "mutator/module.h"
#include "mutator/points.h"

struct session;
struct place;
struct instance;
struct variable; /* variable.h */

/* ---------------------------------------------------------------- sites */

/*
 * A program that was compiled for one place; any number of points there run it.
 * Links, bodies, routines and lists of them hold references; with the last one
 * the references to its variables go.
 */
struct snippet_code {
	struct session *session;
	unsigned references;
	struct arch_program program; /* optimised; ops are malloc'ed and its own. No ops: nothing */
	struct variable **variables; /* a reference to each, malloc'ed */
	size_t variable_count;
	uint64_t cost_ps, switch_ps;
	bool activation, start, per_thread, system_calls; /* as struct compiled */
};

/* What is inserted at a point. */
enum snippet_kind {
	SNIPPET_COUNT, /* one more in `counter` */
	SNIPPET_NONE,  /* nothing: for PLACE_BYPASS, which only leads control elsewhere */
	SNIPPET_ENTER, /* per-thread state: an activation begins */
	SNIPPET_LEAVE, /* ... and ends */
	/* At loads and stores: the address of the last access goes into the first word of
	 * `counter`. Argument: access_pack(). */
	SNIPPET_ADDRESS,
	/*
	 * `code`, and where `pair` is set ARCH_OP_ENTER or ARCH_OP_LEAVE of that
	 * function in front of it, once for all snippets of the place that have it.
	 */
	SNIPPET_PROGRAM,
};

/* What decides about the order of pieces of code that run at one point, besides the order in which they come. */
struct code_rank {
	uint8_t role; /* enum mdl_role: 0 sets flags, 1 measures, 2 clears flags */
	bool prepend; /* before what is there of its role, else behind it */
};

struct snippet {
	enum snippet_kind kind;
	struct code_rank rank;
	bool start;		   /* the entry writes the time into its pair_entry */
	uint32_t pair;		   /* PROGRAM: number of the function (threads_pair()), or 0 */
	taddr_t counter;	   /* of the site's place; 0 if it has none */
	uint64_t argument;	   /* what else the kind needs */
	struct snippet_code *code; /* PROGRAM: may be NULL where there is only `pair` */
};

/* A snippet at one part of a point: what is wanted. The target has bodies. */
struct link {
	struct site *site;
	struct instance *instance;
	struct snippet snippet;	      /* the link holds references to its counter and code */
	arch_regset live, point_live; /* where it runs, and at the point (count_place.c) */
	uint8_t insn, point_insn;     /* of the window, likewise */
	uint8_t place;		      /* enum point_place */
	uint8_t kind;		      /* enum point_kind */
	bool part;		      /* not the point's first part */
	struct link *next;	      /* of the site, in the order in which they run */
	struct link *next_instance;   /* of the same instance; parts before the first part */
};

/* The same as a body has it, for as long as the body exists. */
struct body_piece {
	struct snippet snippet; /* the body holds references to its counter and code */
	arch_regset live;
	uint8_t insn, point_insn, place, kind;
};

/*
 * All snippets of a site and its relocated instructions as one straight piece
 * of code. Never changed after it was written: a change of the site is another
 * body. What seldom runs, and descriptors of sequences, are apart: `cold`.
 */
struct body {
	struct site *site;
	taddr_t code, cold; /* cold: 0 if there is nothing of it */
	uint32_t code_size, cold_size;
	bool is_head; /* a switch stands in front: the window leads to it */
	struct arch_environment environment;
	struct body *next; /* on the queue */
	unsigned count;
	struct body_piece pieces[];
};

/*
 * A head that has moved (compact.h). The switch of the one before leads to it, so
 * that a window may lead to either, until all windows of the family lead here.
 */
struct site_move {
	struct site *site;
	struct body *old;     /* the head before */
	struct patch patch;   /* from the jump to that one to the jump to the new one */
	unsigned journal[2];  /* lines of the old one's patches */
	unsigned patch_count; /* how many lines */
	bool failed;	      /* during a flush: not so in some process */
	struct site_move *next;
};

enum site_state {
	SITE_PLANNED,  /* head and journal written, window untouched */
	SITE_PATCHED,  /* the window leads to the head */
	SITE_DRAINING, /* the window is restored; threads may still be inside */
};

/*
 *	window --> [switch] body ... --> behind the window
 *	               |
 *	               +--> base: switched off, or
 *	               +--> a newer body
 */
struct site {
	struct module *module;
	uint32_t function; /* that asked for it first */
	struct place *place;
	struct window window; /* link-time addresses; + module->bias */
	/*
	 * The window's bytes when it was made: all code of the site is made of them, and what
	 * is patched must be them. Whoever owns the file may write it meanwhile.
	 */
	uint8_t original[WINDOW_BYTES_MAX];
	struct window_key {
		taddr_t start; /* address in the target of the window */
	} key;
	enum site_state state;
	/*
	 * Where the near jump of a short one lies: in the tail of the host, which is
	 * patched before it and stays until no guest is left.
	 */
	struct site *host;
	unsigned guests; /* sites whose host this is */
	taddr_t left_to; /* of a host: no thread is before this address in its bytes, but in holes; 0: none is known */
	/* Its last instruction, a call, stays where it is and is gone back to: no room for guests. */
	bool keeps_call;
	bool shares_call; /* ... and its first byte is the last one of the window's jump */
	taddr_t base; /* the plain relocated copy: where control goes when nothing is inserted */
	size_t base_size;
	struct body
		*head; /* with the switch; lives as long as the site. NULL before site_update() */
	struct body *body; /* what the switch leads to now: the head itself, another one, or
				    NULL for the base */
	/* Written, but nothing leads to it before the stop of the request that wants it. */
	struct body *held;
	struct site_move *move;	 /* NULL: no window leads anywhere but to the head */
	struct link *first_link; /* in the order in which they run */
	unsigned links;		 /* how many */
	unsigned spent;		 /* bodies on the queue */
	bool changed;		 /* links and body differ; on session.changed */
	bool queued;		 /* on the removal queue, to be restored */
	bool touched;	      /* planned, but patched earlier: a forked child may have it still */
	bool entered;	      /* a thread was moved into its code when nothing led there */
	bool dropped;	      /* not in the table any more: its module was unmapped */
	bool foreign;	      /* its bytes were somebody else's when it was to be patched */
	bool unwritable;      /* ... or ours could not be written */
	bool small_stack;     /* what is inserted takes more stack than there may be */
	bool gated;	      /* the switch leads to the gate */
	taddr_t gate;	      /* code of the gate, 0 if none (gate.c) */
	bool unreached;	      /* draining, and nothing ever led to its code */
	bool busy;	      /* during a flush: a thread may be in something of it */
	bool listed;	      /* in the batch that is being prepared */
	unsigned journal[2];  /* window, hole */
	unsigned patch_count; /* 1, or 2 with a hole; 0 before site_update() */
	struct patch patches[2]; /* in the order in which they are applied */
	/* next_hash: of session.dropped where it was dropped; `before` is what points to it then */
	struct site *next_hash, *next_queued, *next_changed, *next_held, **before;
	/* What points to it on session.changed and on session.held, while it is there. */
	struct site **changed_at, **held_at;
};

/* ------------------------------------------------------------ functions */

/* site.c */
struct site *site_find(const struct session *s, taddr_t window_start);
/* The site of window w of m, made (base written, window untouched) if need be. */
int site_make(struct session *s, struct module *m, struct place *p,
	      const struct function_plan *plan, unsigned window, struct site **out,
	      struct dinst_error *e);
/* Forgets a site that was never patched, or whose code may be freed. */
void site_free(struct session *s, struct site *site);
/*
 * Sites of modules that are unmapped now: new requests do not find them. They
 * still go through the queue, since a forked child may have the module.
 */
void site_drop_gone(struct session *s);
/* All sites, those of unmapped modules last: the first one after NULL, NULL after the last one. */
struct site *site_next(const struct session *s, const struct site *site);
/*
 * False if the site was patched and its window is the original again: the
 * module was loaded anew at the same place, or a flush or a batch did not come to its end.
 */
bool site_is_in_place(const struct session *s, const struct site *site);
/* One that is not: it is to be patched again, and a child may have it still. */
void site_revert(struct session *s, struct site *site);

/* True if it was removed and whoever is still in its code comes back to the call that it left in its place. */
bool site_is_come_back_to(const struct site *site);
/* Takes a site out of the table: its window will be restored; new requests make a new one. */
void site_forget(struct session *s, struct site *site);
/* Patches and journal entries of a site whose window is to lead to `to`; nothing is changed
 * where that fails. */
int site_lead_to(struct site *site, taddr_t to, struct dinst_error *e);
/*
 * The same where the window is patched: the journal has both ways then, and
 * *move says what is to be written and which lines are those of the old one.
 * DINST_REFUSED where the bytes that change lie in two pages, which cannot be
 * written in one go, or are not the bytes that are patched now.
 */
int site_move_to(struct site *site, taddr_t to, struct site_move *move, struct dinst_error *e);
/* The instructions of the site's window as they stand in the target; 0 if the plan was made of other bytes. */
size_t site_instructions(const struct site *site, struct arch_insn *insns);

/* site_links.c */
/*
 * Adds a snippet at a part of a point whose window is the site's; *snippet is
 * copied, and a reference to its counter is held. Nothing runs before
 * site_update().
 */
int site_link(struct session *s, struct site *site, const struct point *p,
	      const struct snippet *snippet, struct instance *instance, struct dinst_error *e);
/* The link's program is another one; site_update() is left to the caller. */
void site_replace_code(struct session *s, struct link *link, struct snippet_code *code);
/* Takes the snippet out of its site and frees the link; site_update() is left to the caller. */
void site_unlink(struct session *s, struct link *link);
/*
 * Makes what runs at the site what its links say: writes a new body and turns
 * the switch, while the target runs; the old body goes on the queue. Where
 * nothing leads to the site yet its head is written anew, with patches and
 * journal. On failure everything is as it was and the site stays `changed`.
 */
int site_update(struct session *s, struct site *site, struct dinst_error *e);
/*
 * site_update() for all sites that are `changed`, empty ones retired. A new
 * body that there is no memory for comes later: until then the old one counts
 * in counters that nobody reads.
 */
void site_update_all(struct session *s);
/* It is not `changed` any more, or will be freed. */
void site_forget_change(struct site *site);
/* Turns the switches of all sites with a held body; in a stop, or while the target runs. */
void site_turn_held(struct session *s);
/* Nothing will lead to the site's held body. */
void site_forget_held(struct site *site);
/* Leads the site's switch to where it belongs now, under running threads. */
void site_turn(struct site *site);
/* Leads the switch of `head`, which may not be the site's any more, to `target`; 0: it falls
 * through. */
void site_turn_head(struct site *site, const struct body *head, taddr_t target);
/* The body that control goes to now (NULL: the base); queues the one before it. */
void site_lead_to_body(struct session *s, struct site *site, struct body *body);
/* For a pc in the window: where in the site's code the same begins, snippets before it
 * included. False if the pc is not on an instruction. */
bool site_copy_of(const struct session *s, const struct site *site, taddr_t pc, taddr_t *to);
/* stack_home over all sites of the session (arg: struct session). */
bool site_home(void *session, taddr_t pc, taddr_t *original, size_t *pushed);

/* snippet.c */
enum { SNIPPET_HOT_MAX = 384, SNIPPET_COLD_MAX = 384 }; /* bytes of one snippet */
/* What is to go into code that is written now. */
void snippet_look_around(const struct session *s, const struct place *p,
			 struct arch_environment *environment);
/* Raises what the frame around the snippets of one place provides; programs: arch/program.h. */
void snippet_needs(const struct arch_environment *environment, const struct snippet *snippet,
		   struct arch_frame *frame);
/* Emits one snippet inside its open frame: what runs always, and what seldom does. */
void snippet_emit(const struct arch_environment *environment, const struct snippet *snippet,
		  const struct arch_frame *frame, struct arch_buf *out, struct arch_buf *cold);
/* A snippet holds references while it is in a link or a body. */
void snippet_hold(const struct snippet *snippet, struct place *p);
void snippet_release(const struct snippet *snippet, struct place *p);
/* Takes the program's ops; references to `variables` are added. NULL: no memory, ops are kept. */
struct snippet_code *snippet_code_new(struct session *s, struct arch_program *program,
				      struct variable *const *variables, size_t count);
struct snippet_code *snippet_code_ref(struct snippet_code *code);
void snippet_code_unref(struct snippet_code *code);

/* describe.c */
enum site_line_kind {
	SITE_LINE_WINDOW, /* the target's own code as it is patched */
	SITE_LINE_SWITCH,
	SITE_LINE_SNIPPET, /* of `link`; its cold part where `cold` */
	SITE_LINE_COPY,	   /* relocated instruction number `insn` of the window */
	SITE_LINE_AROUND,  /* of the window that is gone round */
	SITE_LINE_BACK,	   /* leaves the generated code */
	SITE_LINE_DATA,	   /* no instruction: descriptor of a sequence, filling */
	SITE_LINE_BASE,	   /* in the base: relocated instruction number `insn`, or the way back */
};

/* One instruction of the code of a site. */
struct site_line {
	enum site_line_kind kind;
	taddr_t address;
	struct arch_insn code;	 /* as it stands in the target; `length` bytes where it is none */
	unsigned insn;		 /* index into the window */
	const struct link *link; /* NULL where not known */
	unsigned links;		 /* from `link` on: those whose programs are this one code */
	bool cold;
};

/*
 * Calls `line` for each instruction of the site's window, head or current body
 * and its cold part, and base, read out of our view of the arena. DINST_OK or
 * what line() returned that is not 0.
 */
int site_describe(const struct session *s, const struct site *site,
		  int (*line)(void *arg, const struct site_line *l), void *arg);

#endif
