/* SPDX-License-Identifier: MIT */
/*
 * patch.h - changing bytes of the target's own code, inside a stop.
 *
 * Bytes are compared before they are written: what is not what we expect is
 * somebody else's and is left alone. Each write is complete in itself: the
 * mutator may die between any two. Patches that share a page are written
 * together; of a patch whose bytes lie in two pages the second one must be dead
 * padding but for the end of our jump: it is written first, and last when the
 * jump goes, so that it is right in between.
 */
#ifndef DINST_INJECT_PATCH_H
#define DINST_INJECT_PATCH_H

#include "inject/target.h"

enum patch_outcome {
	PATCH_DONE,
	PATCH_ALREADY,	/* the new bytes were there */
	PATCH_FOREIGN,	/* neither old nor new: left alone */
	PATCH_UNMAPPED, /* nothing is mapped there any more */
	PATCH_FAILED,	/* could not be written; the old bytes are there */
};

struct patch {
	taddr_t address;
	uint8_t length; /* 1 .. ARCH_PATCH_MAX */
	/*
	 * `after` is what is in the file. One breakpoint, or bytes of the file, that stand among the
	 * bytes of `before` then stay, and all else goes. In a stop no debugger has the target, so
	 * it is the kernel's (uprobes), which knows the file's instructions only: it goes on
	 * behind it, where the rest of our jump would be.
	 */
	bool removal;
	uint8_t before[ARCH_PATCH_MAX];
	uint8_t after[ARCH_PATCH_MAX];
	enum patch_outcome outcome; /* set by patch_apply */
};

/*
 * For a removal: true if each byte is ours, the file's, or part of one breakpoint. Fills `wanted` with
 * what shall be there. More than one is no uprobe's doing, but a hook's, who may put ours back.
 */
bool patch_is_shared(const struct patch *p, const uint8_t *now, uint8_t *wanted);

/* True if `now` are these bytes, at most ARCH_PATCH_MAX of them, of which a breakpoint may stand on some. */
bool patch_is_there(const uint8_t *bytes, size_t length, const uint8_t *now);

/*
 * In a process with forked children, or one itself, a page that was patched before the fork is everybody's
 * until it is written to: then it is copied, and the target's control group has to have room for that, or the
 * kernel kills somebody there. DINST_REFUSED with the group's name where it has not; nothing is written.
 */
int patch_check_room(struct stop *s, const struct patch *patches, size_t count,
		     struct dinst_error *e);

/*
 * Applies the patches in the order of the array (sorted by address within a
 * page is fastest). Patches that overlap see each other's bytes in that order.
 * Returns an error only when the target could not be accessed at all, or has no memory for it
 * (patch_check_room()); otherwise each patch's outcome says what became of it.
 */
int patch_apply(struct stop *s, struct patch *patches, size_t count, struct dinst_error *e);

/*
 * The files that are mapped at these pages, while the target runs: in a stop nothing is opened. Those
 * that somebody may have to provide (mounts.h) are left out, as is what cannot be opened, or is one too
 * many. NULL where there are no pages, or no memory, which is as good as none; given back with patch_files_close().
 */
struct maps;
struct patch_files;
struct patch_files *patch_files_open(const struct target *t, const taddr_t *pages, size_t count);
void patch_files_close(struct patch_files *files);

/*
 * What the file that is mapped at `address` has there, up to ARCH_PATCH_MAX bytes of one mapping of `maps`.
 * False if that cannot be told, or is not one of `files` (NULL: none).
 */
bool patch_files_read(const struct patch_files *files, const struct maps *maps, taddr_t address,
		      uint8_t *bytes, size_t size);

/*
 * Gives back private copies of the text pages given (any address in the page,
 * in any order) that equal the mapped file again, which is one of `files`: MADV_DONTNEED by remote
 * calls, through `scratch` as remote_run() has it. Bounded to a few
 * milliseconds. Returns how many of the pages stay private copies (0: all were
 * given back or never were copies; more is no failure), or a negative code if
 * the machinery failed.
 */
int patch_drop_private_pages(struct stop *s, const taddr_t *pages, size_t count,
			     const struct patch_files *files, taddr_t scratch, void *scratch_map,
			     struct dinst_error *e);

#endif
