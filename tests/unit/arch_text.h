/* SPDX-License-Identifier: MIT */
/*
 * arch_text.h - the executable segments of the programs and libraries on which
 * the decoder is judged, as they are on this machine. For the arch tests only.
 */
#ifndef DINST_TESTS_ARCH_TEXT_H
#define DINST_TESTS_ARCH_TEXT_H

#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The first file that matches is taken; nothing depends on the versions. */
static const struct {
	const char *name, *pattern;
} text_files[] = {
	{"libc", "/lib/x86_64-linux-gnu/libc.so.6"},
	{"libcrypto", "/usr/lib/x86_64-linux-gnu/libcrypto.so.[1-9]*"},
	{"libstdc++", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6"},
	{"postgres", "/usr/lib/postgresql/*/bin/postgres"},
	{"mariadbd", "/usr/sbin/mariadbd"},
	{"node", "/usr/bin/node"},
};

enum { TEXT_FILES = sizeof(text_files) / sizeof(text_files[0]) };

/*
 * Calls `use` with the executable segments of file `number`; false if it is not
 * on this machine. Where the sanitizers make everything ten times slower it is
 * 64 KiB pieces from all over the file instead, some 2 MiB of each segment.
 */
static bool text_each(int number, void (*use)(const uint8_t *text, size_t size, uint64_t address))
{
	enum { PIECE = 1 << 16, MOST = 1 << 21 };
#ifdef __SANITIZE_ADDRESS__
	const bool whole = false;
#else
	const bool whole = true;
#endif
	const Elf64_Phdr *p;
	Elf64_Ehdr *file;
	struct stat st;
	glob_t found;
	int fd = -1;

	if (glob(text_files[number].pattern, 0, NULL, &found) != 0)
		return false;
	if (found.gl_pathc > 0)
		fd = open(found.gl_pathv[0], O_RDONLY | O_CLOEXEC);
	globfree(&found);
	if (fd < 0 || fstat(fd, &st) != 0)
		return false;
	file = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	close(fd);
	if (file == MAP_FAILED)
		return false;
	p = (const Elf64_Phdr *)((const uint8_t *)file + file->e_phoff);
	for (int i = 0; i < file->e_phnum; i++) {
		const uint8_t *text = (const uint8_t *)file + p[i].p_offset;
		size_t size = p[i].p_filesz, step = PIECE;

		if (p[i].p_type != PT_LOAD || !(p[i].p_flags & PF_X))
			continue;
		if (whole || size <= MOST) {
			use(text, size, p[i].p_vaddr);
			continue;
		}
		step = PIECE * (size / MOST + 1);
		for (size_t at = 0; at + PIECE <= size; at += step)
			use(text + at, PIECE, p[i].p_vaddr + at);
	}
	munmap(file, (size_t)st.st_size);
	return true;
}

#endif
