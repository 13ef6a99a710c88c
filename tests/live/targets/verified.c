/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * verified.c - loads a long BPF program, which the kernel takes some time to verify and gives up at any
 * signal (bpf(2), EAGAIN).
 *
 * Prints "ready". "load" loads once: prints "loaded", or why not, or "cannot" where nobody may.
 */
#include <errno.h>
#include <linux/bpf.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { LENGTH = 900000 };

static struct bpf_insn *program;

static int load(unsigned length)
{
	union bpf_attr attributes;
	int fd;

	program[length - 1] = (struct bpf_insn){.code = BPF_JMP | BPF_EXIT};
	memset(&attributes, 0, sizeof(attributes));
	attributes.prog_type = BPF_PROG_TYPE_SOCKET_FILTER;
	attributes.insns = (uintptr_t)program;
	attributes.insn_cnt = length;
	attributes.license = (uintptr_t) "GPL";
	fd = (int)syscall(SYS_bpf, BPF_PROG_LOAD, &attributes, sizeof(attributes));
	program[length - 1] = program[1];
	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

int main(void)
{
	char line[64];
	int error;

	program = calloc(LENGTH, sizeof(*program));
	if (!program)
		return 1;
	program[0] = (struct bpf_insn){.code = BPF_ALU64 | BPF_MOV | BPF_K};
	for (int i = 1; i < LENGTH; i++)
		program[i] = (struct bpf_insn){.code = BPF_ALU64 | BPF_ADD | BPF_K, .imm = 1};
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		error = load(100);
		if (!error)
			error = load(LENGTH);
		puts(error == -EPERM || error == -ENOSYS ? "cannot"
		     : error				 ? strerror(-error)
							 : "loaded");
		fflush(stdout);
	}
	return 0;
}
