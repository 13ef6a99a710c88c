/* SPDX-License-Identifier: MIT */
/*
 * rseqwords.c - looks at rseq_cs of all threads of processes.
 *
 *   rseqwords PID...
 *
 * The kernel reads the descriptor that rseq_cs points to when the thread is
 * next preempted, and kills the thread where nothing is there. Exits with 1,
 * and says which, if a word leads to memory that is not mapped, or to ours
 * (a memfd named dinst). Each thread is stopped for a moment. Stands alone on
 * purpose: it shares no code with what it checks.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/rseq.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { GET_RSEQ_CONFIGURATION = 0x420f, WAIT_MS = 5000 };

/* include/uapi/linux/ptrace.h: struct ptrace_rseq_configuration */
struct configuration {
	uint64_t address;
	uint32_t size, signature, flags, padding;
};

static unsigned seen, set, bad;

/* False if it does not stop. *signal: what it was about to get, which detaching must pass on. */
static bool is_stopped(pid_t tid, int *signal)
{
	for (int i = 0; i < WAIT_MS; i++) {
		const struct timespec ms = {0, 1000000};
		int status;

		if (waitpid(tid, &status, __WALL | WNOHANG) == tid) {
			if (WIFSTOPPED(status) && !(status >> 16))
				*signal = WSTOPSIG(status);
			return WIFSTOPPED(status);
		}
		nanosleep(&ms, NULL);
	}
	return false;
}

/* Appends what /proc/PID/maps says about an address; "" if nothing is there. */
static void describe(pid_t pid, uint64_t address, char *text, size_t size)
{
	char path[64], line[512];
	FILE *f;

	text[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f)) {
		uint64_t lo, hi;

		line[strcspn(line, "\n")] = '\0';
		if (sscanf(line, "%" SCNx64 "-%" SCNx64, &lo, &hi) == 2 && address >= lo &&
		    address < hi)
			snprintf(text, size, "%s", line);
	}
	if (f)
		fclose(f);
}

static void look(pid_t pid, pid_t tid, int memory)
{
	struct configuration c = {0};
	uint64_t word = 0;
	char text[512];

	if (ptrace((enum __ptrace_request)GET_RSEQ_CONFIGURATION, tid, (void *)sizeof(c), &c) < 0 ||
	    !c.address)
		return;
	if (pread(memory, &word, sizeof(word),
		  (off_t)(c.address + offsetof(struct rseq, rseq_cs))) != sizeof(word)) {
		printf("thread %d: rseq at %#" PRIx64 " cannot be read\n", (int)tid, c.address);
		bad++;
		return;
	}
	seen++;
	if (!word)
		return;
	set++;
	describe(pid, word, text, sizeof(text));
	if (!text[0] || strstr(text, "memfd:dinst")) {
		printf("thread %d of %d: rseq_cs is %#" PRIx64 ": %s\n", (int)tid, (int)pid, word,
		       text[0] ? text : "nothing is mapped there");
		bad++;
	}
}

static void look_at_thread(pid_t pid, pid_t tid, int memory)
{
	int signal = 0;

	if (ptrace(PTRACE_SEIZE, tid, NULL, NULL) < 0) {
		/* It has ended; anything else is worth telling. */
		if (errno != ESRCH && kill(tid, 0) == 0) {
			printf("thread %d of %d: seize: %s\n", (int)tid, (int)pid, strerror(errno));
			bad++;
		}
		return;
	}
	if (ptrace(PTRACE_INTERRUPT, tid, NULL, NULL) == 0 && is_stopped(tid, &signal))
		look(pid, tid, memory);
	ptrace(PTRACE_DETACH, tid, NULL, (void *)(intptr_t)signal);
}

static void look_at_process(pid_t pid)
{
	char path[64];
	struct dirent *entry;
	int memory;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	memory = open(path, O_RDONLY | O_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && memory >= 0 && (entry = readdir(dir)))
		if (entry->d_name[0] >= '0' && entry->d_name[0] <= '9')
			look_at_thread(pid, (pid_t)strtol(entry->d_name, NULL, 10), memory);
	if (dir)
		closedir(dir);
	if (memory >= 0)
		close(memory);
}

int main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		look_at_process((pid_t)strtol(argv[i], NULL, 10));
	printf("%u threads, %u with a descriptor, %u wrong\n", seen, set, bad);
	return bad != 0;
}
