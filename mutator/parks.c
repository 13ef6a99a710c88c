/* SPDX-License-Identifier: MIT */
/*
 * parks.c - programs that switch between tasks of their own by getcontext() and
 * its like, or by OpenSSL's jobs. If they do so in signal handlers, what was interrupted is in memory
 * that no thread's stack leads to. Those that have switches of their own making
 * are not known by anything.
 */
#include "mutator/parks.h"

#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "mutator/image_private.h"
#include "mutator/module_private.h"
#include "mutator/references_relocations.h"

static const char switches[][PARKS_NAME_MAX] = {"swapcontext", "setcontext", "ASYNC_start_job",
						"ASYNC_pause_job"};
enum { SWITCHES = sizeof(switches) / sizeof(switches[0]) };

/* What libucontext calls its own, beside the names that all have. */
static bool is_switch(const char *name)
{
	static const char prefix[] = "libucontext_";

	if (!strncmp(name, prefix, strlen(prefix)))
		name += strlen(prefix);
	for (size_t i = 0; i < SWITCHES; i++)
		if (!strcmp(name, switches[i]))
			return true;
	return false;
}

bool parks_are_named(const uint8_t *bytes, size_t size)
{
	for (size_t i = 0; i < SWITCHES; i++)
		if (memmem(bytes, size, switches[i], strlen(switches[i])))
			return true;
	return false;
}

static void look_at_slot(void *arg, vaddr_t place, const char *name, vaddr_t value)
{
	bool *found = arg;

	(void)place;
	*found |= !value && is_switch(name);
}

/* In a static program they are functions of its own. */
static bool has_switch(struct image *img, bool main)
{
	const struct image_function *functions;
	size_t count = main ? image_functions(img, &functions) : 0;
	bool found = false;

	slots_each(&img->file, look_at_slot, &found);
	for (size_t i = 0; i < count && !found; i++)
		found = is_switch(functions[i].name);
	return found;
}

/*
 * OpenSSL begins its jobs by it, and never in a signal handler of its own, and the C library has it
 * for others: whoever switches in one of theirs calls it.
 */
static bool is_for_others(const char *module)
{
	static const char *const names[] = {"libcrypto.so", "libssl.so", "libc.so"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(module, names[i], strlen(names[i])))
			return true;
	return false;
}

void modules_tell_parks(const struct module_list *l, struct target *t)
{
	for (size_t i = 0; i < module_count(l) && !target_parks(t); i++) {
		const struct module *m = module_get(l, i);

		if (!m->gone && !is_for_others(m->name) &&
		    (m->may_switch || (m->mapped && has_switch(m->mapped, m->main))))
			target_set_parks(t);
	}
}

/* Code that a program has made itself, of files that may be new at each look, begins with no header. */
static bool may_be_library(const struct target *t, const struct maps *maps,
			   const struct maps_entry *m)
{
	const struct maps_entry *start = maps_file_start(maps, m);
	char magic[SELFMAG];

	return !start || target_read_some(t, start->lo, magic, sizeof(magic)) != sizeof(magic) ||
	       !memcmp(magic, ELFMAG, sizeof(magic));
}

/* True if there is code of a file that nobody has looked at: a library has been loaded since. */
static bool has_unknown(struct module_list *l, const struct target *t, const struct maps *maps)
{
	for (size_t i = 0; i < maps->count; i++)
		if (module_file_is_code(&maps->entries[i]) &&
		    !module_file_find(l, &maps->entries[i]) &&
		    may_be_library(t, maps, &maps->entries[i]))
			return true;
	return false;
}

int parks_snapshot(struct session *s, struct stop *stop, struct snapshot **out,
		   struct dinst_error *e)
{
	int status;

	if (target_parks(s->target))
		target_set_parks(stop_target(stop));
	status = snapshot_take(stop, out, e);
	if (status < 0 || target_parks(stop_target(stop)) ||
	    !has_unknown(s->modules, stop_target(stop), snapshot_maps(*out)))
		return status;
	s->unknown_code = true;
	snapshot_doubt(*out);
	return status;
}

static bool learn_switch(struct reading *r, const struct maps_entry *m)
{
	char *path = module_plain_path(m->name);
	const struct file_image *f = path ? module_file_of(r, m, path) : NULL;
	bool found = f && !f->none && !is_for_others(path_base(path)) &&
		     (module_file_shows(r, f, m) ? has_switch(f->image, false)
						 : module_may_switch(r, m));

	free(path);
	return found;
}

void parks_learn(struct session *s, const struct target *member)
{
	struct reading *r = calloc(1, sizeof(*r));
	struct dinst_error ignored = {0};

	if (!r || maps_read(target_pid(member), &r->maps, &ignored)) {
		free(r);
		return;
	}
	r->list = s->modules;
	r->target = member;
	r->e = &ignored;
	main_root_find(member, r->root);
	for (size_t i = 0; i < r->maps.count; i++) {
		const struct maps_entry *m = &r->maps.entries[i];

		if (module_file_is_code(m) && !module_file_find(s->modules, m) &&
		    may_be_library(member, &r->maps, m) && learn_switch(r, m))
			target_set_parks(s->target);
	}
	maps_release(&r->maps);
	free(r->mounts);
	free(r);
}
