/* SPDX-License-Identifier: MIT */
/*
 * mdl.h - the metric language's front end: text to checked trees.
 *
 *   1. mdl_library_create(), mdl_library_load_installed(), then mdl_load_file()
 *      or mdl_load_text() for what the user gives. A text with an error loads
 *      nothing; a name that is loaded again replaces the older one.
 *   2. mdl_find_metric() and its like; the trees are the library's. Those that are
 *      replaced live until mdl_library_sweep(), or as long as a struct mdl_reader needs them.
 *
 * Knows no target: no image, session or register. What a tree means for a
 * program is evaluate.h's; what its code becomes, compile.h's. Any input gives
 * trees or errors, in bounded time and memory.
 */
#ifndef DINST_MUTATOR_MDL_H
#define DINST_MUTATOR_MDL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "inject/error.h"

/* Where something stands in its text; both from 1 on. */
struct mdl_place {
	const char *file; /* as it was given; the library's */
	uint32_t line, column;
};

/* Bytes that a field of an event may have. */
enum { MDL_STRING_BYTES = 64, MDL_STRING_MOST = 256, MDL_BYTES_MOST = 512 };
enum { MDL_FIELDS_MOST = 40 }; /* of an event */
enum { MDL_STACK_FRAMES = 16, MDL_STACK_MOST = 64 };

enum mdl_vartype {
	MDL_COUNTER,
	MDL_WALL_TIMER,
	MDL_PROCESS_TIMER,
	MDL_THREAD_TIMER,
	MDL_DISTRIBUTION,
	MDL_STREAM, /* of events */
	MDL_VOID,
};

/* ---------------------------------------------------------- expressions */

enum mdl_expr_kind {
	MDL_INTEGER, /* number */
	MDL_STRING,  /* text */
	/* where-world */
	MDL_NAME,	/* text: a list, a foreach variable; in code a variable or where-value */
	MDL_PROCEDURES, /* $procedures */
	MDL_MODULES,	/* $modules */
	MDL_START,	/* $start */
	MDL_EXIT,	/* $exit */
	MDL_MACHINE,	/* $machine */
	MDL_PROCESS,	/* $process */
	MDL_CONSTRAINT, /* $constraint[left] */
	MDL_ATTRIBUTE,	/* left.text */
	MDL_INDEX,	/* left[right] */
	/* what-world */
	MDL_ARGUMENT, /* $arg[number] */
	MDL_RETURN,   /* $return */
	MDL_THREAD,   /* $thread */
	MDL_PID,      /* $pid: of the process of the family that runs this */
	MDL_CPU,      /* $cpu */
	MDL_NOW,      /* $now: ns, monotonic */
	MDL_ELAPSED,  /* $elapsed: at an exit, ns since this activation's entry; -1 if not known */
	MDL_CALLER,   /* $caller */
	MDL_STACK,    /* $stack: the stack pointer */
	MDL_CALL,     /* text(args): built-in names below, or a function of the target */
	MDL_ASSIGN,   /* left = right; op: 0, or '+', '-' for += and -= */
	MDL_STEP,     /* left++ (number 1) or left-- (number -1); in code only */
	MDL_ADDRESS,  /* &left */
	/* both */
	MDL_UNARY,  /* op: ! ~ - */
	MDL_BINARY, /* op: enum mdl_operator */
	MDL_CHOICE, /* condition ? left : right */
};

enum mdl_operator {
	MDL_OP_MUL,
	MDL_OP_DIV,
	MDL_OP_REM,
	MDL_OP_ADD,
	MDL_OP_SUB,
	MDL_OP_SHL,
	MDL_OP_SHR,
	MDL_OP_LT,
	MDL_OP_LE,
	MDL_OP_GT,
	MDL_OP_GE,
	MDL_OP_EQ,
	MDL_OP_NE,
	MDL_OP_AND,
	MDL_OP_XOR,
	MDL_OP_OR,
	MDL_OP_BOTH /* && */,
	MDL_OP_EITHER /* || */,
};

/* Functions of the language that are called in code; MDL_DO_CALL is one of the target. */
enum mdl_function {
	MDL_DO_CALL, /* text "f" or "module:f" */
	MDL_DO_START_WALL,
	MDL_DO_STOP_WALL,
	MDL_DO_START_PROCESS,
	MDL_DO_STOP_PROCESS,
	MDL_DO_START_THREAD,
	MDL_DO_STOP_THREAD,
	MDL_DO_RECORD,
	MDL_DO_READ_SYMBOL, /* readSymbol("name"), text in args[0] */
	MDL_DO_READ_MEMORY,
	/* Fields of events, in record(STREAM, ...) only; bytes in args[1] are constants. */
	MDL_DO_STRING, /* string(address[, bytes]) */
	MDL_DO_BYTES,  /* bytes(address, bytes) */
	MDL_DO_STACK,  /* stack([frames]) */
};

struct mdl_expr {
	enum mdl_expr_kind kind;
	struct mdl_place place;
	int op;			    /* enum mdl_operator, or a character */
	enum mdl_function function; /* MDL_CALL */
	int64_t number;
	const char *text;
	size_t text_size; /* strings may hold zeros */
	struct mdl_expr *left, *right, *condition;
	struct mdl_expr **args;
	size_t arg_count;
};

/* ----------------------------------------------------------------- code */

/* What becomes machine code: the contents of (* *). */
enum mdl_code_kind { MDL_CODE_EXPR, MDL_CODE_IF, MDL_CODE_BLOCK };

struct mdl_code {
	enum mdl_code_kind kind;
	struct mdl_place place;
	struct mdl_expr *expr; /* what is done, or the condition */
	struct mdl_code *then, *otherwise;
	struct mdl_code *first; /* of a block */
	struct mdl_code *next;	/* in the block */
};

/* ----------------------------------------------------------- statements */

enum mdl_statement_kind {
	MDL_BLOCK,
	MDL_FOREACH,
	MDL_IF,
	MDL_INSERT,
	/*
	 * (* code *) without a point, in constraints only: it runs just before each
	 * piece of the metric's code that the constraint guards, there and then; its
	 * flag is no thread's but that moment's.
	 */
	MDL_GUARD,
};

struct mdl_statement {
	enum mdl_statement_kind kind;
	struct mdl_place place;
	const char *variable;			/* of foreach */
	struct mdl_expr *expr;			/* list, condition, or point */
	struct mdl_statement *then, *otherwise; /* of if; foreach's body is `then` */
	struct mdl_statement *first;		/* of a block */
	struct mdl_statement *next;		/* in the block */
	bool prepend, post_insn, unconstrained;
	struct mdl_code *code;
};

/* --------------------------------------------------------- declarations */

enum mdl_element { MDL_OF_PROCEDURES, MDL_OF_MODULES, MDL_OF_STRINGS, MDL_OF_INTEGERS };

struct mdl_list {
	const char *name;
	struct mdl_place place;
	enum mdl_element element;
	bool library; /* its functions are a library's: the default is false */
	struct mdl_expr **items;
	size_t item_count, item_room;
	struct mdl_list *next;
};

/* Which calls belong to what is measured. */
enum mdl_extent { MDL_AS_WRITTEN, MDL_INCLUSIVE, MDL_EXCLUSIVE };

enum mdl_constraint_kind { MDL_FLAG, MDL_DEFAULT, MDL_REPLACE };

enum { MDL_PATH_MAX = 6 };

struct mdl_constraint {
	const char *name;
	struct mdl_place place;
	enum mdl_constraint_kind kind;
	enum mdl_extent extent;
	enum mdl_vartype type; /* of the flag or of what replaces the base */
	/* "/SyncObject/Mutex" + "*": parts without slashes; "*" stands for any one. */
	const char *path[MDL_PATH_MAX];
	size_t path_count;
	struct mdl_statement *body; /* a block; NULL for `is default` */
	struct mdl_constraint *next;
};

struct mdl_variable {
	const char *name;
	struct mdl_place place;
	enum mdl_vartype type;
	struct mdl_variable *next;
};

/* A constraint that a metric may be restricted by, in the order of the text. */
struct mdl_use {
	const char *name; /* of a global one: looked up when it is needed */
	struct mdl_place place;
	struct mdl_constraint *constraint; /* one of the metric's own, else NULL */
	struct mdl_use *next;
};

enum mdl_aggregate { MDL_SUM, MDL_MIN, MDL_MAX, MDL_AVG };
enum mdl_style { MDL_EVENT_COUNTER, MDL_SAMPLED_FUNCTION };

struct mdl_metric {
	const char *id;	  /* names its variable, and the metric for `insert` */
	const char *name; /* for people; the id if there is none. `insert` takes it, too */
	const char *units, *units_type, *mode, *description; /* NULL if not given */
	const char **flavors;
	size_t flavor_count;
	struct mdl_place place;
	enum mdl_aggregate aggregate;
	enum mdl_style style;
	enum mdl_vartype type; /* of the base */
	enum mdl_extent extent;
	struct mdl_variable *variables; /* temporaries */
	struct mdl_use *uses;
	struct mdl_statement *base; /* a block */
	struct mdl_metric *next;
};

/* -------------------------------------------------------------- library */

struct mdl_library;

int mdl_library_create(struct mdl_library **out, struct dinst_error *e);
void mdl_library_free(struct mdl_library *l);

/*
 * Loads one text, all of it or nothing. On an error *e has code DINST_USAGE and
 * all messages, each "FILE:LINE:COLUMN: what is wrong" with the line, a caret,
 * and what would be right. `file` names it in messages.
 */
int mdl_load_text(struct mdl_library *l, const char *file, const char *text, size_t size,
		  struct dinst_error *e);
int mdl_load_file(struct mdl_library *l, const char *path, struct dinst_error *e);

/* What there is to say of one file. */
struct mdl_verdict {
	bool bad;   /* it was not loaded */
	char *text; /* messages, or warnings; NULL if there are none; for free() */
};

/*
 * Loads files together: they know of each other's lists, whatever their order.
 * verdicts[i] says what became of paths[i], with all messages, and what looks
 * wrong but may not be: constraints that no file has. DINST_NO_MEMORY or 0.
 */
int mdl_load_files(struct mdl_library *l, const char *const *paths, size_t count,
		   struct mdl_verdict *verdicts, struct dinst_error *e);

/*
 * Loads the shipped library, then the user's ($XDG_CONFIG_HOME/dinst/ *.mdl).
 * A bad file of the user's is skipped and named in *warnings (malloc'ed, NULL
 * if there is nothing to say); only a bad shipped one is an error. Where the
 * shipped library is looked for, installed.c says; $DINST_METRICS goes first.
 */
int mdl_library_load_installed(struct mdl_library *l, char **warnings, struct dinst_error *e);

/*
 * Whoever keeps trees, or what points into them, longer than until the next text is loaded
 * enters before looking for them, and leaves when they are not used any more. What was replaced
 * before it entered is none of its business.
 */
struct mdl_reader {
	struct mdl_library *of;
	uint64_t since;
	struct mdl_reader *next, **link;
};

void mdl_reader_enter(struct mdl_library *l, struct mdl_reader *r);
/* Gives back, too, what was kept for it alone. */
void mdl_reader_leave(struct mdl_reader *r);
/* Gives back what was replaced and nobody reads. */
void mdl_library_sweep(struct mdl_library *l);

/* By id, then by name. */
const struct mdl_metric *mdl_find_metric(const struct mdl_library *l, const char *name);
const struct mdl_constraint *mdl_find_constraint(const struct mdl_library *l, const char *name);
const struct mdl_list *mdl_find_list(const struct mdl_library *l, const char *name);

/*
 * The newest of each name, by name; walk `next`. A statement outside of metrics
 * is a metric as well: a counter, named like the variable that it changes.
 */
const struct mdl_metric *mdl_metrics(const struct mdl_library *l);
const struct mdl_constraint *mdl_constraints(const struct mdl_library *l);

/* The constraint that `use` means, its own or the global one of that name; NULL if there is none. */
const struct mdl_constraint *mdl_used_constraint(const struct mdl_library *l,
						 const struct mdl_use *use);

/* The value of an expression of numbers; false if it is none. */
bool mdl_constant(const struct mdl_expr *e, int64_t *value);
/* The expression as it would be written, as much of it as there is room for. */
void mdl_expr_text(const struct mdl_expr *x, char *text, size_t size);
const char *mdl_vartype_name(enum mdl_vartype type);
/* "/Code/ * / *" as it was written, into text. */
void mdl_path_text(const struct mdl_constraint *c, char *text, size_t size);

/* The name in names[] that is nearest to `name`, if one is near enough to be meant, else NULL. */
const char *mdl_nearest(const char *name, const char *const *names, size_t count);

/*
 * A message about something at `place`, for those who work on trees: adds
 * "FILE:LINE:COLUMN: text", the line and a caret to *e with `code`.
 */
int mdl_fail(const struct mdl_library *l, struct dinst_error *e, int code,
	     const struct mdl_place *place, const char *format, ...)
	__attribute__((format(printf, 5, 6)));

#endif
