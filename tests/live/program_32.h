/* SPDX-License-Identifier: MIT */
/*
 * program_32.h - a program of 32 bits, for which nothing of 32 bits is needed to build it.
 */
#ifndef DINST_TESTS_LIVE_PROGRAM_32_H
#define DINST_TESTS_LIVE_PROGRAM_32_H

#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness.h"

/* Some kernels and machines have no calls of 32-bit programs: SIGSEGV. */
static inline bool has_compat_calls(void)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		long number = 20; /* getpid */

		__asm__ volatile("int $0x80" : "+a"(number) : : "memory", "r8", "r9", "r10", "r11");
		_exit(number != getpid());
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status == 0;
}

/* A program of 32 bits: pause() for ever, by int $0x80. */
static inline void write_32_bit_program(const char *path)
{
	static const uint8_t code[] = {0xb8, 29, 0, 0, 0, 0xcd, 0x80, 0xeb, 0xf7};
	struct {
		Elf32_Ehdr file;
		Elf32_Phdr segment;
		uint8_t code[sizeof(code)];
	} program;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0700);

	memset(&program, 0, sizeof(program));
	memcpy(program.file.e_ident, ELFMAG, SELFMAG);
	program.file.e_ident[EI_CLASS] = ELFCLASS32;
	program.file.e_ident[EI_DATA] = ELFDATA2LSB;
	program.file.e_ident[EI_VERSION] = EV_CURRENT;
	program.file.e_type = ET_EXEC;
	program.file.e_machine = EM_386;
	program.file.e_version = EV_CURRENT;
	program.file.e_entry = 0x10000 + sizeof(program.file) + sizeof(program.segment);
	program.file.e_phoff = sizeof(program.file);
	program.file.e_ehsize = sizeof(program.file);
	program.file.e_phentsize = sizeof(program.segment);
	program.file.e_phnum = 1;
	program.segment.p_type = PT_LOAD;
	program.segment.p_vaddr = program.segment.p_paddr = 0x10000;
	program.segment.p_filesz = program.segment.p_memsz = sizeof(program);
	program.segment.p_flags = PF_R | PF_X;
	program.segment.p_align = 0x1000;
	memcpy(program.code, code, sizeof(code));
	assert_true(fd >= 0);
	assert_int_equal(write(fd, &program, sizeof(program)), (ssize_t)sizeof(program));
	assert_int_equal(fchmod(fd, 0700), 0);
	close(fd);
}

#endif
