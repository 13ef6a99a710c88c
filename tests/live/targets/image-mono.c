/* SPDX-License-Identifier: MIT */
/* build: -shared -fPIC -nostartfiles */
/*
 * image-mono.c - what Mono compiles ahead of time has this one name for others.
 */
int mono_aot_file_info[4] = {1};
