/* SPDX-License-Identifier: MIT */
/* build: -g0 -Wl,--build-id */
/*
 * typed-shared-types.S - the types of typed-shared.S.
 */
#define TYPES
#include "typed-shared.S"
