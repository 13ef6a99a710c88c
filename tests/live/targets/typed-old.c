/* SPDX-License-Identifier: MIT */
/* build: -gdwarf-4 -gstrict-dwarf -fdebug-types-section -gz -Wno-psabi */
/*
 * typed-old.c - typed.c with debug information of another form: an older version,
 * types in a section of their own, compressed.
 */
#include "typed.c"
