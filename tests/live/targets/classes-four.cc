/* SPDX-License-Identifier: MIT */
/* build: -gdwarf-4 */
/*
 * classes-four.cc - classes.cc with debug information of version 4, which does say "= default".
 */
#include "classes.cc"
