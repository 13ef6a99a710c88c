/* SPDX-License-Identifier: MIT */
/*
 * flame_script.h - what makes the drawing of flame.c answer to clicks and keys: style and
 * script as texts, for nobody else.
 */
#ifndef DINST_DAEMON_REPORT_FLAME_SCRIPT_H
#define DINST_DAEMON_REPORT_FLAME_SCRIPT_H

/* Sizes that both the drawing and the script know, px. */
enum { FLAME_TOP = 104, FLAME_LINE = 19, FLAME_BOX = 18 };

extern const char flame_style[];
extern const char flame_bar[];
extern const char flame_script[];

#endif
