/* SPDX-License-Identifier: MIT */
/*
 * page_files.h - the files of data/page, as they were when this was built.
 */
#ifndef DINST_DAEMON_PAGE_FILES_H
#define DINST_DAEMON_PAGE_FILES_H

#include <stddef.h>

extern const char page_index[], page_script[], page_draw[], page_style[];
extern const size_t page_index_size, page_script_size, page_draw_size, page_style_size;

#endif
