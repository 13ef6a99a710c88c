/* SPDX-License-Identifier: MIT */
/*
 * module.h - what is mapped in the target: its maps, and the ELF files among
 * them, as modules with an image each.
 *
 * Files are opened through /proc/PID/map_files or /proc/PID/root, so containers
 * and deleted files work; the build id in memory is compared with the file's
 * before the file is believed.
 */
#ifndef DINST_MUTATOR_MODULE_H
#define DINST_MUTATOR_MODULE_H

#include "inject/maps.h"
#include "inject/target.h"
#include "mutator/image.h"

struct site; /* site.h */

/* What has become of it under instances, and was not told yet (reloads.h). */
enum module_news { MODULE_IS_OLD, MODULE_IS_RELOADED, MODULE_IS_UNLOADED };

struct module {
	char name[64];	     /* base name of the file: libc.so.6, [vdso]; of the executable the
				name that it was started by: redis-server */
	char *path;	     /* as the target sees it */
	struct image *image; /* NULL if it could not be read: `problem` says why */
	char problem[160];
	struct image *
		mapped; /* what is there, though it may not be patched; NULL if that is not known */
	bool unread;	/* what is there may be a library that nobody has read */
	bool may_switch; /* then: and may switch between tasks, by what is mapped of it */
	taddr_t bias;	 /* address in the target = vaddr + bias */
	taddr_t lo, hi;	 /* span of its mappings */
	bool main;	 /* the executable */
	bool gone;	 /* unmapped since */
	bool shared; /* some of its code is a shared mapping: what is written may go into the file */
	/* Of reloads.c: */
	enum module_news news;
	bool missing;	    /* at the last look nothing was where a window of ours is */
	struct site *probe; /* during a look: a window that stands for all of it */
};

struct module_list; /* opaque */

/* Reads the maps and opens every file that is mapped executable. Opened while the target runs. */
int module_list_read(const struct target *t, struct module_list **out, struct dinst_error *e);
/*
 * Looks again: marks modules `gone`, adds new ones at the end. One that was not what its file says, and is now,
 * is a new one. *changed tells if anything did.
 */
int module_list_update(struct module_list *l, const struct target *t, bool *changed,
		       struct dinst_error *e);
void module_list_free(struct module_list *l);

size_t module_count(const struct module_list *l);
struct module *module_get(const struct module_list *l, size_t index);
struct module *module_at(const struct module_list *l, taddr_t address); /* NULL if none */
/*
 * Where the window begins that a thread comes to which goes to `at` in the module: there, or behind the
 * landing pad that stands there, which is never in a window.
 */
taddr_t module_window_at(const struct module *m, taddr_t at);
/*
 * parks.c: tells the target if a module of it switches between stacks of its own
 * by the C library's means, or may and cannot be read, so that an interrupted task may be anywhere.
 */
void modules_tell_parks(const struct module_list *l, struct target *t);
/*
 * True if these maps, of whatever process, show the module at `address`, one of its own: its file, or memory that
 * the program has put in its place while other parts of the module are still mapped (text on huge pages).
 */
bool module_is_mapped(const struct module *m, const struct maps *maps, taddr_t address);
/* By base name, soname or path; NULL if none. */
struct module *module_named(const struct module_list *l, const char *name);

/* One function of one module. */
struct function_ref {
	struct module *module;
	uint32_t index; /* into image_functions() */
};

/*
 * Finds functions: a name or glob (readable or not) in all modules,
 * MODULE:NAME, MODULE+0xOFFSET (offset from the module's lowest address), or
 * 0xADDRESS. *out is malloc'ed. No match is DINST_NO_FUNCTION (with the nearest
 * names) or DINST_NO_MODULE (with the modules there are).
 */
int find_functions(const struct module_list *l, const char *pattern, struct function_ref **out,
		   size_t *count, struct dinst_error *e);

/* False if the pattern is a glob: it looks like one, and no function has literally this name. */
bool find_is_name(const struct module_list *l, const char *pattern);

/* The colon of MODULE:NAME; NULL if the pattern has none. */
const char *module_colon(const char *pattern);

/*
 * Functions of a name, or glob, in the modules of another (NULL: in all). Nothing found is no failure;
 * *any: there is such a module.
 */
int match_functions(const struct module_list *l, const char *modules, const char *name, bool *any,
		    struct function_ref **out, size_t *count, struct dinst_error *e);

/*
 * The same for a resource name: /Code, /Code/MODULE, /Code/MODULE/NAME, with
 * globs in either part.
 */
int find_resource(const struct module_list *l, const char *resource, struct function_ref **out,
		  size_t *count, struct dinst_error *e);

#endif
