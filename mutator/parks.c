/* SPDX-License-Identifier: MIT */
/*
 * parks.c - programs that switch between tasks of their own by getcontext() and
 * its like, or by OpenSSL's jobs. If they do so in signal handlers, what was interrupted is in memory
 * that no thread's stack leads to. Those that have switches of their own making
 * are not known by anything.
 */
#include <stdlib.h>
#include <string.h>

#include "mutator/image_private.h"
#include "mutator/module.h"
#include "mutator/references_relocations.h"

/* What libucontext calls its own, beside the names that all have. */
static bool is_switch(const char *name)
{
	static const char prefix[] = "libucontext_";

	if (!strncmp(name, prefix, strlen(prefix)))
		name += strlen(prefix);
	return !strcmp(name, "swapcontext") || !strcmp(name, "setcontext") ||
	       !strcmp(name, "ASYNC_start_job") || !strcmp(name, "ASYNC_pause_job");
}

static void look_at_slot(void *arg, vaddr_t place, const char *name, vaddr_t value)
{
	bool *found = arg;

	(void)place;
	*found |= !value && is_switch(name);
}

/* In a static program they are functions of its own. */
static bool has_switch(const struct module *m)
{
	const struct image_function *functions;
	size_t count = m->main ? image_functions(m->image, &functions) : 0;
	bool found = false;

	slots_each(&m->image->file, look_at_slot, &found);
	for (size_t i = 0; i < count && !found; i++)
		found = is_switch(functions[i].name);
	return found;
}

/*
 * OpenSSL begins its jobs by it, and never in a signal handler of its own: whoever switches them
 * in one of theirs calls it.
 */
static bool is_openssl(const char *module)
{
	static const char *const names[] = {"libcrypto.so", "libssl.so"};

	return !strncmp(module, names[0], strlen(names[0])) ||
	       !strncmp(module, names[1], strlen(names[1]));
}

void modules_tell_parks(const struct module_list *l, struct target *t)
{
	for (size_t i = 0; i < module_count(l) && !target_parks(t); i++) {
		const struct module *m = module_get(l, i);

		if (m->image && !m->gone && !is_openssl(m->name) && has_switch(m))
			target_set_parks(t);
	}
}
