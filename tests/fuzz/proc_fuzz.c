/* SPDX-License-Identifier: MIT */
/*
 * proc_fuzz.c - any bytes as files of /proc: maps, stat, status, syscall, auxv,
 * comm. The kernel writes them, but the names in them are the target's.
 *
 * The readers open their files by path; here open(2) gives them the input.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/fuzz/fuzz.h"

static const uint8_t *input;
static size_t input_size;

static int fuzz_open(const char *path, int flags, ...)
{
	int fd = memfd_create("fuzz", MFD_CLOEXEC);

	(void)path;
	(void)flags;
	require(fd >= 0);
	require(write(fd, input, input_size) == (ssize_t)input_size);
	require(lseek(fd, 0, SEEK_SET) == 0);
	return fd;
}

#define open fuzz_open
#include "inject/proc.c"
#include "inject/tasks.c"
#include "daemon/common/process.c"
#undef open

#include "inject/maps.h"

static void read_maps(void)
{
	char *text = malloc(input_size + 1);
	struct dinst_error e = {0};
	struct maps m;

	require(text);
	memcpy(text, input, input_size);
	if (maps_parse(text, input_size, &m, &e)) {
		require(e.code < 0 && e.text[0]);
		return;
	}
	for (size_t i = 0; i < m.count; i++) {
		require(m.entries[i].lo < m.entries[i].hi);
		require(!i || m.entries[i - 1].hi <= m.entries[i].lo);
		require(maps_find(&m, m.entries[i].lo) == &m.entries[i]);
		require(strlen(m.entries[i].name) <= input_size);
	}
	maps_release(&m);
}

/* fear L1: whatever a thread or a mapping is called, the files of /proc are read within their bounds */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct proc_usage usage;
	struct proc_status status;
	struct proc_stat stat;
	char text[64];
	taddr_t sp;

	input = bytes;
	input_size = size;
	read_maps();
	if (!proc_stat_read(1, &stat))
		require(strlen(stat.name) < sizeof(stat.name));
	if (!proc_status_read(1, &status))
		require(strlen(status.name) < sizeof(status.name));
	proc_word(1, "comm", text, sizeof(text));
	require(text[0] && strlen(text) < sizeof(text));
	proc_usage_read(1, &usage);
	task_own_id(1, 1);
	task_waits_at(1, 1, &sp);
	task_start_stack(1);
	if (!process_name(1, text, NULL)) {
		session_name_clean(text);
		require(session_name_ok(text));
	}
	process_start(1);
	process_alive(1);
	return 0;
}

FUZZ_MAIN(proc, 8000);
