/* SPDX-License-Identifier: MIT */
/*
 * doctor.h - what `dinst doctor` looks at besides the target.
 */
#ifndef DINST_DAEMON_DOCTOR_H
#define DINST_DAEMON_DOCTOR_H

#include <stddef.h>

#include "inject/target.h"

enum { INSTALL_CHECKS = 5 };

/* Fills at most INSTALL_CHECKS of `checks`; returns how many (0 where there is no room for all). */
size_t install_checks(struct target_check *checks, size_t max);

#endif
