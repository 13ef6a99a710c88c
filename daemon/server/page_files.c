/* SPDX-License-Identifier: MIT */
/*
 * page_files.c - the files of data/page, which the assembler takes in as they are: nothing
 * to install, nothing that could be missing or exchanged.
 */
#include "daemon/server/page_files.h"

#define INCLUDE(name, path)                                                                   \
	__asm__(".section .rodata\n"                                                          \
		".balign 8\n"                                                                 \
		".global " #name "\n.type " #name ", STT_OBJECT\n" #name ":\n"                \
		".incbin \"" path "\"\n"                                                      \
		"9:\n"                                                                        \
		".size " #name ", 9b - " #name "\n"                                           \
		".balign 8\n"                                                                 \
		".global " #name "_size\n.type " #name "_size, STT_OBJECT\n" #name "_size:\n" \
		".quad 9b - " #name "\n"                                                      \
		".size " #name "_size, 8\n"                                                   \
		".previous\n")

INCLUDE(page_index, "data/page/index.html");
INCLUDE(page_script, "data/page/page.js");
INCLUDE(page_draw, "data/page/draw.js");
INCLUDE(page_style, "data/page/page.css");
