/* SPDX-License-Identifier: MIT */
/*
 * module_private.h - what module.c and module_find.c share.
 */
#ifndef DINST_MUTATOR_MODULE_PRIVATE_H
#define DINST_MUTATOR_MODULE_PRIVATE_H

#include "mutator/module.h"

enum { PATH_MAX_TEXT = 4096 + 64 };

/* True if `name` is the module's base name, path or soname. */
bool module_has_name(const struct module *m, const char *name);

#endif
