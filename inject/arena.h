/* SPDX-License-Identifier: MIT */
/*
 * arena.h - memory of ours inside the target, near the code it serves.
 *
 * One memfd, mapped in the target as a data half (rw-) and a code half (r-x),
 * and once, writable, in the mutator. The target never has a page that is both
 * writable and executable; after set-up nothing in it can make the code half
 * writable (F_SEAL_FUTURE_WRITE). Code and counters are written and read by
 * plain loads and stores of ours, without stopping the target.
 *
 *     file offset 0                          code_size              + data_size
 *     | header | journal ...| code ..........| counters: one block per CPU ... |
 *     '--------- code half, r-x -------------'--------- data half, rw- --------'
 *
 * The data half lies below 2 GiB where that is possible, so that a counter can
 * be reached with one scratch register. (`low_data` says so.)
 *
 * What is kept for each thread cannot be shared: a forked child has the same
 * thread pointer as its parent. So there may be a third part, private memory
 * that fork copies as it copies the thread's stack, of which the kernel clears
 * a range in the child. It is made when somebody needs it, and is the target's
 * alone: it is read and written like any of its memory. The header in the code
 * half says where it is.
 *
 * Calling sequence: arena_create() in a stop; use; arena_destroy() in a stop,
 * when no thread can be inside and no patch leads there any more.
 */
#ifndef DINST_INJECT_ARENA_H
#define DINST_INJECT_ARENA_H

#include "inject/maps.h"
#include "inject/target.h"

enum arena_mode {
	ARENA_SHARED,  /* the memfd described above */
	ARENA_PRIVATE, /* fallback: private anonymous memory, written through /proc/PID/mem */
};

struct arena {
	taddr_t code, data;	      /* in the target */
	size_t code_size, data_size;  /* bytes, whole pages */
	uint8_t *code_map, *data_map; /* in the mutator; what is written here runs there */
	int fd;			      /* -1 when private */
	enum arena_mode mode;
	bool low_data;
	taddr_t reach_lo, reach_hi; /* code in [lo, hi) can be led here and back */
	unsigned cpus, cpu_shift;   /* blocks of counters, see struct arch_counter */
	char note[160];		    /* why it is private; "" if it is shared */
	bool locks_memory;	    /* the kernel fills what is mapped at once (mlockall) */
	uint64_t locked;	    /* bytes of locked memory before anything was mapped */
	bool commits;		    /* what is given out exists by then: arena_make_pages() */

	taddr_t threads; /* the private part; 0: none */
	size_t threads_size;

	/* For arena*.c and heap*.c only. */
	struct target *target;		/* borrowed */
	uint8_t *code_sent, *data_sent; /* private: what the target has, as far as we wrote it */
	bool *data_dirty; /* private: pages of the data half that may have to be sent */
	dev_t device;	  /* of the memfd, as maps show it; 0 when private */
	uint64_t inode;
};

/*
 * Maps a new arena from which all of [lo, hi) is within reach, with room for the code of `text` bytes of text:
 * of all that it is to serve, for it does not grow. Keeps clear of
 * the brk heap and of growing stacks, and never replaces a mapping.
 */
int arena_create(struct stop *s, taddr_t lo, taddr_t hi, size_t text, struct arena **out,
		 struct dinst_error *e);

/* As arena_create(), but the fallback at once; `why` becomes its note. */
int arena_create_private(struct stop *s, taddr_t lo, taddr_t hi, size_t text, const char *why,
			 struct arena **out, struct dinst_error *e);

/*
 * Unmaps the arena: refuses with DINST_BUSY while a program counter is inside,
 * clears every rseq_cs that points into it (the kernel kills a thread whose
 * rseq_cs leads nowhere), then munmap by a remote call. That no thread comes
 * back to it from a signal handler is the caller's promise (stack.h).
 * Frees *a. On failure the arena stays and is still valid.
 */
int arena_destroy(struct stop *s, struct arena *a, struct dinst_error *e);

/*
 * What arena_destroy() does to a target, for a forked child that shares the
 * arena: `s` is a stop of the child. *a stays as it is. DINST_BUSY: a thread
 * is inside. A process that does not have the arena (any more) is no error.
 */
int arena_unmap(struct stop *s, const struct arena *a, struct dinst_error *e);

/*
 * Maps the private part, `size` bytes of zeros but for the first eight: what is
 * there is ARENA_THREADS_MAGIC ^ its address. [wipe, wipe + wipe_size), whole
 * pages behind the first, is zeros again in a forked child. The journal has
 * been created, and the arena has no such part yet; nothing is mapped there in
 * any process that shows the arena. DINST_NO_MEMORY: not of that size;
 * DINST_UNSUPPORTED: the kernel cannot do it, the text says what. a->threads is set after a
 * failure, too, where something was mapped that could not be taken back.
 */
int arena_add_threads(struct stop *s, struct arena *a, size_t size, size_t wipe, size_t wipe_size,
		      struct dinst_error *e);

/*
 * The same for another process that has the arena, since it was forked when
 * the part was not there: at the same address. DINST_NO_MEMORY: it has
 * something there.
 */
int arena_add_threads_too(struct stop *s, const struct arena *a, size_t wipe, size_t wipe_size,
			  struct dinst_error *e);

/*
 * Takes the part out of one process that may have it, where nothing uses it. Every process that shares
 * the arena comes first; then it is forgotten, so that it can be made again.
 */
int arena_unmap_threads(struct stop *s, const struct arena *a, struct dinst_error *e);
/* Nobody is told of the part any more; where it is mapped it stays. */
void arena_forget_threads(struct stop *s, struct arena *a);

#define ARENA_THREADS_MAGIC 0x7364616572687464ull

/*
 * Before bytes [at, at + size) of the arena's file, the code half and then the data half, are given
 * out: they are made to exist, where else whoever touches them might get SIGBUS (a->commits).
 * DINST_NO_MEMORY: there is nothing left, and none of them was made.
 */
int arena_make_pages(const struct arena *a, size_t at, size_t size, struct dinst_error *e);

/* Gives back our side only: the target keeps its mappings. */
void arena_release(struct arena *a);

/*
 * True if a mapping of an arena's file, but for a mutator's, begins in one of its halves (size 0: there is none). Who was
 * forked has them where they were; a program that was given the file by another one shows it
 * elsewhere, and that is no arena in it.
 */
bool arena_is_half(const struct maps_entry *entry, taddr_t code, size_t code_size, taddr_t data,
		   size_t data_size);

/* True if the maps show the arena, or a half of it; never true for a private one. */
bool arena_is_in(const struct maps *m, const struct arena *a);
/* The same of the maps of `pid`: 1, 0, or why it cannot be told (DINST_NOT_PERMITTED, DINST_FAILED). */
int arena_look_for(pid_t pid, const struct arena *a, struct dinst_error *e);

/*
 * All processes but `target` whose maps show the arena, as far as we may look. Our own process
 * does not count. *out is malloc'ed, NULL where there are none. DINST_OK, DINST_NO_MEMORY, or
 * DINST_FAILED if we cannot look for a reason of our own (no descriptor), DINST_BUSY. Who is born while others end
 * may be missed by the first: it is for telling. The second is DINST_BUSY where `target`'s children are born and end
 * faster than they can be looked at.
 */
int arena_sharers(const struct arena *a, pid_t target, pid_t **out, size_t *count);
int arena_all_sharers(const struct arena *a, pid_t target, pid_t **out, size_t *count);

/*
 * Makes what was written through code_map, and what arena_data_written() told of data_map, visible
 * in a private arena; no-op otherwise. Words that did not change here are the target's own.
 */
int arena_sync(struct stop *s, struct arena *a, struct dinst_error *e);

/* Notes that bytes of data_map, from `offset` on, were written. */
void arena_data_written(struct arena *a, size_t offset, size_t size);

/* ----------------------------------------------- what a dead mutator left */

enum { ARENA_SESSION_MAX = 64 };

struct arena_found {
	taddr_t code, data;
	size_t code_size, data_size; /* data_size is 0 where the data half is not to be found */
	size_t code_floor; /* no code of ours was ever below code + this; 0: the header does not tell */
	bool header_valid;
	bool strange; /* ours, but of another version or damaged: code may lead there, leave it */
	char session[ARENA_SESSION_MAX]; /* "" unless the header is valid; printable */
	unsigned cpus, cpu_shift;	 /* likewise */
	enum arena_mode mode;
	dev_t device; /* of the memfd; 0 and 0: private */
	uint64_t inode;
	taddr_t threads; /* the private part, 0: none, or it is not there */
	size_t threads_size;
	pid_t owner; /* the mutator that made it, if the header tells; see arena_owner() */
	uint64_t owner_start;
	uint64_t owner_space; /* the pid namespace in which it is `owner`; 0: not told */
};

/*
 * The process that made the arena, if that is still there and is not us; else 0. It is
 * the header's word: whoever lives can be named there, and nobody but the target suffers. DINST_BUSY where
 * it cannot be told: it was made from outside of the container in which we are, and `pid`, which has it.
 */
int arena_owner(const struct arena_found *found, pid_t pid, pid_t *owner, struct dinst_error *e);

/* Looks through the target's maps for arenas of any earlier session; at most `max`. Returns the number. */
int arena_find(const struct target *t, struct arena_found *found, size_t max,
	       struct dinst_error *e);

/* True if the mapping is of a file that is named as an arena's, of whatever session. */
bool arena_is_named(const struct maps_entry *entry);

/*
 * 1 if the maps of `pid` show one half of some arena without the other. 0 if they do not, or are kept
 * from us; DINST_BUSY where we have no descriptor or no memory to look.
 */
int arena_has_half(pid_t pid, struct dinst_error *e);

/* The same: whether something in them can be an arena. Reads no more of it. */
int arena_may_be_in(pid_t pid, struct dinst_error *e);

/* Unmaps what arena_find() found, after the same checks as arena_unmap(). */
int arena_unmap_found(struct stop *s, const struct arena_found *found, struct dinst_error *e);

#endif
