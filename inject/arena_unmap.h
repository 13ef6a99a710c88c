/* SPDX-License-Identifier: MIT */
/*
 * arena_unmap.h - taking mappings of ours out of a target; for arena*.c.
 */
#ifndef DINST_INJECT_ARENA_UNMAP_H
#define DINST_INJECT_ARENA_UNMAP_H

#include <sys/mman.h>

#include "inject/arena.h"
#include "inject/maps.h"

/*
 * munmap of both ranges by a remote call; one that starts at 0 is left out.
 * Looks at nothing: program counters and rseq_cs are the caller's business. What
 * the program has sealed stays (target_has_sealed()), and is no failure.
 */
int arena_munmap(struct stop *s, taddr_t code, size_t code_size, taddr_t data, size_t data_size,
		 struct dinst_error *e);

/*
 * DINST_BUSY if any thread's program counter is in [lo, hi); otherwise clears
 * every rseq_cs that points there. Changes nothing when it refuses.
 */
int arena_evict(struct stop *s, taddr_t lo, taddr_t hi, struct dinst_error *e);

/*
 * True if all of [threads, threads + size) is private memory as we map it, with
 * our number at its beginning. `unfinished`: nothing may have been written there yet.
 */
bool arena_is_threads(const struct target *t, const struct maps *m, taddr_t threads, size_t size,
		      bool unfinished);

/*
 * What may be done with a mapping, as far as it was asked for: in some processes all that can be read
 * can be executed (READ_IMPLIES_EXEC, personality(2)). Ours is never both written and executed.
 */
static inline int arena_rights(const struct maps_entry *entry)
{
	return entry->protection & PROT_WRITE ? entry->protection & ~PROT_EXEC : entry->protection;
}

#endif
