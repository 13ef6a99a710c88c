/* SPDX-License-Identifier: MIT */
/*
 * why_facts.c - what /proc tells of a program: CPU time and waiting of its threads, its
 * memory, its disk. Touches nothing but files in /proc.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "daemon/client/why.h"
#include "daemon/common/process.h"
#include "inject/maps.h"
#include "inject/proc.h"
#include "inject/target.h"

static const uint64_t SECOND_NS = UINT64_C(1000000000);

uint64_t why_cpu_ns(pid_t pid)
{
	struct timespec t;
	clockid_t clock;

	if (clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &t))
		return 0;
	return (uint64_t)t.tv_sec * SECOND_NS + (uint64_t)t.tv_nsec;
}

static bool read_file(pid_t pid, const char *name, char *text, size_t size)
{
	char path[80];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)process_thread(pid), name);
	return proc_read(path, text, size) > 0;
}

/* The number behind "NAME:" at the beginning of a line; 0 if there is none. */
static uint64_t number_of(const char *text, const char *name)
{
	const size_t length = strlen(name);

	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, name, length) == 0 && line[length] == ':')
			return strtoull(line + length + 1, NULL, 10);
	}
	return 0;
}

static double memory_of(pid_t pid)
{
	char text[8192];

	if (!read_file(pid, "status", text, sizeof(text)))
		return 0;
	/* Without pages of files: what is mapped and read in is no growth of the program. */
	return ((double)number_of(text, "RssAnon") + (double)number_of(text, "VmSwap")) * 1024;
}

static void read_disk(pid_t pid, uint64_t *read, uint64_t *written)
{
	char text[1024] = "";

	read_file(pid, "io", text, sizeof(text));
	*read = number_of(text, "read_bytes");
	*written = number_of(text, "write_bytes");
}

static void read_stat(pid_t pid, uint64_t *user, uint64_t *system, uint64_t *faults)
{
	struct proc_stat stat;

	if (proc_stat_read(pid, &stat))
		stat = (struct proc_stat){0};
	*user = stat.user_ticks;
	*system = stat.system_ticks;
	*faults = stat.major_faults;
}

static void read_threads(struct why_facts *f)
{
	struct proc_ids tasks = {0};

	if (!proc_tasks(f->pid, &tasks))
		f->threads = calloc(tasks.count + 1, sizeof(*f->threads));
	for (size_t i = 0; f->threads && i < tasks.count && i < WHY_THREADS_MAX; i++) {
		struct proc_usage usage;

		proc_usage_read(tasks.ids[i], &usage);
		if (usage.known)
			f->threads[f->thread_count++] =
				(struct why_thread){.tid = tasks.ids[i],
						    .run_ns = usage.run_ns,
						    .wait_ns = usage.wait_ns};
	}
	proc_ids_release(&tasks);
}

void why_facts_begin(struct why_facts *f, pid_t pid)
{
	*f = (struct why_facts){.pid = pid, .begun_ns = clock_ns(), .cpu_ns = why_cpu_ns(pid)};
	read_stat(pid, &f->user, &f->system, &f->major_faults);
	read_disk(pid, &f->disk_read, &f->disk_written);
	f->memory_first = f->memory_last = memory_of(pid);
	f->second_ns = f->begun_ns;
	f->second_cpu = f->cpu_ns;
	read_threads(f);
}

void why_facts_step(struct why_facts *f)
{
	const uint64_t now = clock_ns();
	const double memory = memory_of(f->pid);

	f->steps++;
	f->rises += memory > f->memory_last;
	f->memory_last = memory;
	if (now - f->second_ns >= SECOND_NS && f->when_count < SEARCH_WHEN_MAX) {
		const uint64_t cpu = why_cpu_ns(f->pid);

		if (cpu >= f->second_cpu)
			f->when[f->when_count++] =
				(double)(cpu - f->second_cpu) / (double)(now - f->second_ns);
		f->second_ns = now;
		f->second_cpu = cpu;
	}
}

/* What came since. A number that went down is of somebody else, who began at 0. */
static uint64_t since(uint64_t now, uint64_t then)
{
	return now >= then ? now - then : now;
}

static const struct why_thread *known_thread(const struct why_facts *f, pid_t tid)
{
	for (size_t i = 0; i < f->thread_count; i++)
		if (f->threads[i].tid == tid)
			return &f->threads[i];
	return NULL;
}

static void keep_busiest(struct search_facts *out, const struct search_thread *t)
{
	unsigned at = out->busiest_count;

	while (at > 0 &&
	       out->busiest[at - 1].cpu + out->busiest[at - 1].waiting < t->cpu + t->waiting) {
		if (at < SEARCH_THREADS_MAX)
			out->busiest[at] = out->busiest[at - 1];
		at--;
	}
	if (at < SEARCH_THREADS_MAX)
		out->busiest[at] = *t;
	out->busiest_count += out->busiest_count < SEARCH_THREADS_MAX;
}

static void sum_threads(const struct why_facts *f, double ns, struct search_facts *out)
{
	struct proc_ids tasks = {0};

	if (proc_tasks(f->pid, &tasks))
		return;
	out->threads = (unsigned)tasks.count;
	for (size_t i = 0; i < tasks.count && i < WHY_THREADS_MAX; i++) {
		const struct why_thread *then = known_thread(f, tasks.ids[i]);
		struct search_thread t = {.tid = tasks.ids[i]};
		struct proc_usage usage;

		proc_usage_read(tasks.ids[i], &usage);
		if (!usage.known)
			continue;
		t.cpu = (double)since(usage.run_ns, then ? then->run_ns : 0) / ns;
		t.waiting = (double)since(usage.wait_ns, then ? then->wait_ns : 0) / ns;
		proc_word(t.tid, "comm", t.name, sizeof(t.name));
		out->starved += t.waiting;
		keep_busiest(out, &t);
	}
	proc_ids_release(&tasks);
}

void why_facts_sum(const struct why_facts *f, struct search_facts *out)
{
	const double ns = (double)(clock_ns() - f->begun_ns) + 1;
	const uint64_t cpu = why_cpu_ns(f->pid);
	uint64_t user, system, faults, read, written;

	*out = (struct search_facts){.seconds = ns / 1e9, .steps = f->steps, .rises = f->rises};
	out->cpu = cpu > f->cpu_ns ? (double)(cpu - f->cpu_ns) / ns : 0;
	read_stat(f->pid, &user, &system, &faults);
	read_disk(f->pid, &read, &written);
	user = since(user, f->user);
	system = since(system, f->system);
	/* Ticks are coarse: they only divide what was measured better. */
	out->user = user + system ? out->cpu * (double)user / (double)(user + system) : out->cpu;
	out->system = out->cpu - out->user;
	out->major_faults = (double)since(faults, f->major_faults) / out->seconds;
	out->disk_read = (double)since(read, f->disk_read) / out->seconds;
	out->disk_written = (double)since(written, f->disk_written) / out->seconds;
	out->memory = f->memory_last;
	out->growth = (f->memory_last - f->memory_first) / out->seconds;
	sum_threads(f, ns, out);
}

void why_facts_release(struct why_facts *f)
{
	free(f->threads);
	f->threads = NULL;
}

/* ------------------------------------------------------------------- names */

void why_descriptor(pid_t pid, const char *fd, char *text, size_t size, bool *is_file)
{
	char path[120];
	ssize_t n;

	*is_file = false;
	text[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", (int)process_thread(pid), fd);
	n = readlink(path, text, size - 1);
	if (n <= 0)
		return;
	text[n] = '\0';
	*is_file = text[0] == '/' && strncmp(text, "/dev/pts", 8) != 0 &&
		   strncmp(text, "/dev/tty", 8) != 0 && strcmp(text, "/dev/null") != 0;
}

void why_place(pid_t pid, uint64_t address, char *text, size_t size)
{
	struct dinst_error e = {0};
	struct maps maps;

	text[0] = '\0';
	if (maps_read(pid, &maps, &e)) {
		dinst_error_clear(&e);
		return;
	}
	for (size_t i = 0; i < maps.count; i++) {
		const struct maps_entry *m = &maps.entries[i];
		const char *slash = strrchr(m->name, '/');

		if (address < m->lo || address >= m->hi)
			continue;
		snprintf(text, size, "%s%s", m->name[0] == '/' ? "data of " : "",
			 slash ? slash + 1 : m->name);
		break;
	}
	maps_release(&maps);
}

/* ---------------------------------------------------------------- children */

void why_children(pid_t pid, char *text, size_t size)
{
	enum { LOOK_US = 300000, CHILDREN_MAX = 512 };
	static const double BUSY = 0.03;
	struct proc_ids children = {0};
	uint64_t *before = NULL;
	size_t best = 0;
	double most = 0;

	text[0] = '\0';
	/* Any thread may have made them. */
	proc_all_children(pid, &children);
	if (!children.count)
		goto out;
	if (children.count > CHILDREN_MAX)
		children.count = CHILDREN_MAX;
	before = calloc(children.count, sizeof(*before));
	if (!before)
		goto out;
	for (size_t i = 0; i < children.count; i++)
		before[i] = why_cpu_ns(children.ids[i]);
	usleep(LOOK_US);
	for (size_t i = 0; i < children.count; i++) {
		const uint64_t now = why_cpu_ns(children.ids[i]);
		double share = now > before[i] ? (double)(now - before[i]) / (LOOK_US * 1e3) : 0;

		if (share > most) {
			most = share;
			best = i;
		}
	}
	if (most >= BUSY) {
		char name[PROC_NAME_MAX];

		proc_word(children.ids[best], "comm", name, sizeof(name));
		snprintf(text, size,
			 "of its %zu child processes %d (%s) uses %.0f %% of a CPU: dinst why %d",
			 children.count, (int)children.ids[best], name, most * 100,
			 (int)children.ids[best]);
	}
out:
	free(before);
	proc_ids_release(&children);
}
