/* SPDX-License-Identifier: MIT */
/*
 * check.h - names, types and places of what was parsed.
 */
#ifndef DINST_MUTATOR_MDL_CHECK_H
#define DINST_MUTATOR_MDL_CHECK_H

#include "mutator/mdl/private.h"

/* Checks p->unit against itself and the library; errors go to p->messages. */
void check_unit(struct parser *p);

#endif
