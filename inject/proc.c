/* SPDX-License-Identifier: MIT */
/*
 * proc.c - parsing of /proc/PID/{stat,status,schedstat} and of what the kernel says of all.
 *
 * The text is the kernel's but the names in it are the target's: a thread may
 * be called ") R 1 (", so stat is parsed from its last parenthesis. Decides
 * nothing.
 */
#include "inject/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "inject/proc_open.h"

enum {
	PROC_TEXT_MAX = 64 << 20,
	MEMORY_LOOKS = 64, /* at threads that come and go, behind a main thread that has ended */
};

ssize_t proc_read(const char *path, char *text, size_t size)
{
	size_t used = 0;
	ssize_t got = 0;
	int error = 0;
	int fd = proc_open(path, O_RDONLY);

	if (fd < 0)
		return -errno;
	while (used + 1 < size) {
		got = read(fd, text + used, size - 1 - used);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			break;
		used += (size_t)got;
	}
	if (got < 0)
		error = -errno;
	text[used] = '\0';
	close(fd);
	return error ? error : (ssize_t)used;
}

/* Thousands of groups make a status long, and what stands behind them is what we need. */
char *proc_read_long(const char *path, size_t size)
{
	char *text = NULL, *more;
	ssize_t got = -EFBIG;

	for (; size <= PROC_TEXT_MAX; size *= 4) {
		more = realloc(text, size);
		got = more ? 0 : -ENOMEM;
		if (!more)
			break;
		text = more;
		got = proc_read(path, text, size);
		if (got < 0)
			break;
		if ((size_t)got + 1 < size)
			return text;
		got = -EFBIG;
	}
	free(text);
	errno = (int)-got;
	return NULL;
}

char *proc_status_text(pid_t pid, pid_t tid, char *text, size_t size)
{
	char path[64];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", (int)pid, (int)tid);
	got = proc_read(path, text, size);
	if (got <= 0) {
		errno = got ? (int)-got : ESRCH;
		return NULL;
	}
	return (size_t)got + 1 < size ? text : proc_read_long(path, size * 4);
}

uint64_t proc_bytes(const char *text, const char *name)
{
	const char *at = strstr(text, name);

	return at ? strtoull(at + strlen(name), NULL, 10) << 10 : 0;
}

static ssize_t read_of(pid_t tid, const char *name, char *text, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)tid, name);
	return proc_read(path, text, size);
}

static void copy_name(char *to, const char *from, size_t length)
{
	if (length >= PROC_NAME_MAX)
		length = PROC_NAME_MAX - 1;
	memcpy(to, from, length);
	to[length] = '\0';
}

bool proc_number(const char **at, int base, uint64_t *value)
{
	char *end;

	errno = 0;
	*value = strtoull(*at, &end, base);
	if (end == *at || errno)
		return false;
	*at = end;
	return true;
}

/* Of /proc/PID/stat (proc(5)): those behind the state, from the fourth on. */
enum {
	STAT_PARENT = 4 - 4,
	STAT_FLAGS = 9 - 4,
	STAT_MAJOR_FAULTS = 12 - 4,
	STAT_USER = 14 - 4,
	STAT_SYSTEM = 15 - 4,
	STAT_START = 22 - 4,
	STAT_RESIDENT = 24 - 4,
	STAT_PENDING = 31 - 4,
	STAT_FIELDS
};

static int read_stat(const char *path, struct proc_stat *stat)
{
	char text[1024];
	ssize_t got = proc_read(path, text, sizeof(text));
	uint64_t fields[STAT_FIELDS];
	char *open_at, *close_at;
	const char *at;
	char state;

	if (got < 0)
		return (int)got;
	open_at = strchr(text, '(');
	close_at = strrchr(text, ')');
	if (!open_at || !close_at || close_at < open_at)
		return got == 0 ? -ESRCH : -EINVAL;
	at = close_at + 1;
	at += strspn(at, " ");
	state = *at;
	if (!state)
		return -EINVAL;
	at++;
	for (size_t i = 0; i < STAT_FIELDS; i++)
		if (!proc_number(&at, 10, &fields[i]))
			return -EINVAL;
	copy_name(stat->name, open_at + 1, (size_t)(close_at - open_at - 1));
	stat->state = state;
	stat->parent = (pid_t)fields[STAT_PARENT];
	stat->flags = (unsigned)fields[STAT_FLAGS];
	stat->start_time = fields[STAT_START];
	stat->major_faults = fields[STAT_MAJOR_FAULTS];
	stat->user_ticks = fields[STAT_USER];
	stat->system_ticks = fields[STAT_SYSTEM];
	stat->resident_pages = fields[STAT_RESIDENT];
	stat->pending = fields[STAT_PENDING];
	return 0;
}

int proc_stat_read(pid_t pid, struct proc_stat *stat)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	return read_stat(path, stat);
}

int proc_thread_stat_read(pid_t pid, pid_t tid, struct proc_stat *stat)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)tid);
	return read_stat(path, stat);
}

/* SIGKILL of a process is sent to each of its threads (complete_signal(), kernel/signal.c). */
bool proc_has_to_end(const struct proc_stat *stat)
{
	return strchr("ZXx", stat->state) || (stat->flags & PROC_EXITING) ||
	       (stat->pending & UINT64_C(1) << (SIGKILL - 1));
}

unsigned proc_worker_flags(const char *release)
{
	char *dot, *end;
	const unsigned long major = strtoul(release, &dot, 10);
	const unsigned long minor = *dot == '.' ? strtoul(dot + 1, &end, 10) : 0;

	if (dot == release || *dot != '.' || end == dot + 1)
		return PROC_IO_WORKER | PROC_USER_WORKER;
	return (major > 5 || (major == 5 && minor >= 10) ? PROC_IO_WORKER : 0) |
	       (major > 6 || (major == 6 && minor >= 4) ? PROC_USER_WORKER : 0);
}

static pthread_once_t once = PTHREAD_ONCE_INIT;
static unsigned worker_flags;

static void ask_for_release(void)
{
	struct utsname name;

	worker_flags = proc_worker_flags(uname(&name) ? "" : name.release);
}

bool proc_is_worker(const struct proc_stat *stat)
{
	pthread_once(&once, ask_for_release);
	return stat->flags & worker_flags;
}

static void parse_ids(const char *text, unsigned ids[4])
{
	char *end;

	for (int i = 0; i < 4; i++, text = end)
		ids[i] = (unsigned)strtoul(text, &end, 10);
}

pid_t proc_own_id(const char *list)
{
	pid_t id = 0;

	while (*list && *list != '\n') {
		char *end;
		const long number = strtol(list, &end, 10);

		if (end == list)
			break;
		id = (pid_t)number;
		list = end;
	}
	return id;
}

/* One line of status: "Key:\tvalue". */
static void parse_status_line(const char *key, const char *value, struct proc_status *status)
{
	if (!strcmp(key, "Name"))
		copy_name(status->name, value, strlen(value));
	else if (!strcmp(key, "State"))
		status->state = value[0];
	else if (!strcmp(key, "Tgid"))
		status->tgid = (pid_t)strtol(value, NULL, 10);
	else if (!strcmp(key, "PPid"))
		status->parent = (pid_t)strtol(value, NULL, 10);
	else if (!strcmp(key, "TracerPid"))
		status->tracer = (pid_t)strtol(value, NULL, 10);
	else if (!strcmp(key, "Uid"))
		parse_ids(value, status->uid);
	else if (!strcmp(key, "Gid"))
		parse_ids(value, status->gid);
	else if (!strcmp(key, "Threads"))
		status->threads = (unsigned)strtoul(value, NULL, 10);
	else if (!strcmp(key, "VmExe"))
		status->text_kib = strtoull(value, NULL, 10);
	else if (!strcmp(key, "SigCgt"))
		status->caught = strtoull(value, NULL, 16);
	else if (!strcmp(key, "SigPnd") || !strcmp(key, "ShdPnd"))
		status->pending |= strtoull(value, NULL, 16);
	else if (!strcmp(key, "SigBlk"))
		status->blocked = strtoull(value, NULL, 16);
	else if (!strcmp(key, "CapEff"))
		status->capabilities = strtoull(value, NULL, 16);
	else if (!strcmp(key, "CapPrm"))
		status->permitted = strtoull(value, NULL, 16);
	else if (!strcmp(key, "Seccomp"))
		status->seccomp = (int)strtol(value, NULL, 10);
	else if (!strcmp(key, "Seccomp_filters"))
		status->filters = (unsigned)strtoul(value, NULL, 10);
	else if (!strcmp(key, "NSpid"))
		status->own_id = proc_own_id(value);
}

int proc_status_read(pid_t tid, struct proc_status *status)
{
	char small[8192], path[64], *text = small;
	ssize_t got = read_of(tid, "status", small, sizeof(small));
	char *line, *colon, *rest;

	if (got < 0)
		return (int)got;
	if ((size_t)got + 1 == sizeof(small)) {
		snprintf(path, sizeof(path), "/proc/%d/status", (int)tid);
		text = proc_read_long(path, sizeof(small) * 4);
		if (!text)
			return -ENOMEM;
	}
	rest = text;
	memset(status, 0, sizeof(*status));
	status->seccomp = -1;
	while ((line = strsep(&rest, "\n"))) {
		colon = strchr(line, ':');
		if (!colon)
			continue;
		*colon = '\0';
		parse_status_line(line, colon + 1 + (colon[1] == '\t'), status);
	}
	if (text != small)
		free(text);
	return status->tgid ? 0 : -EINVAL;
}

void proc_word(pid_t tid, const char *name, char *text, size_t size)
{
	ssize_t got = read_of(tid, name, text, size);

	if (got > 0)
		text[strcspn(text, "\n")] = '\0';
	if (got <= 0 || !text[0])
		snprintf(text, size, "?");
}

int proc_call_read(pid_t tid, struct proc_call *call)
{
	char text[256];
	const ssize_t got = read_of(tid, "syscall", text, sizeof(text));
	const char *at = text;
	uint64_t number;

	if (got < 0)
		return (int)got;
	if (!proc_number(&at, 10, &number))
		return -EAGAIN;
	call->number = (long)number;
	for (size_t i = 0; i < 6; i++)
		if (!proc_number(&at, 16, &call->arguments[i]))
			return -EINVAL;
	return call->number < 0 ? -ENOENT : 0;
}

void proc_usage_read(pid_t tid, struct proc_usage *usage)
{
	char text[8192];
	static const char switches[] = "\nvoluntary_ctxt_switches:";
	uint64_t run, wait, sleeps;
	const char *at = text;

	usage->known = false;
	if (read_of(tid, "schedstat", text, sizeof(text)) <= 0 || !proc_number(&at, 10, &run) ||
	    !proc_number(&at, 10, &wait) || read_of(tid, "status", text, sizeof(text)) <= 0)
		return;
	at = strstr(text, switches);
	if (!at)
		return;
	at += sizeof(switches) - 1;
	if (!proc_number(&at, 10, &sleeps))
		return;
	usage->run_ns = run;
	usage->wait_ns = wait;
	usage->sleeps = sleeps;
	usage->known = true;
}

/* schedstat (Documentation/scheduler/sched-stats.rst): false if it cannot be read. */
static bool read_schedstat(pid_t tid, uint64_t numbers[3])
{
	char text[100];
	const char *at = text;

	return read_of(tid, "schedstat", text, sizeof(text)) > 0 &&
	       proc_number(&at, 10, &numbers[0]) && proc_number(&at, 10, &numbers[1]) &&
	       proc_number(&at, 10, &numbers[2]);
}

uint64_t proc_switches(pid_t tid)
{
	uint64_t numbers[3];

	return read_schedstat(tid, numbers) ? numbers[2] : 0;
}

uint64_t proc_run_ns(pid_t tid)
{
	uint64_t numbers[3];

	return read_schedstat(tid, numbers) ? numbers[0] : 0;
}

/* What the kernel says of one that is no more (fs/proc/base.c); anything else keeps us from looking. */
int proc_unless_gone(int error)
{
	return error == -ENOENT || error == -ESRCH ? 0 : error;
}

int proc_unless_kept(int error)
{
	return error == -EACCES || error == -EPERM ? 0 : proc_unless_gone(error);
}

bool proc_is_lack(int error)
{
	return error == -EMFILE || error == -ENFILE || error == -ENOMEM;
}

void proc_note_lack(int *lack, int error)
{
	if (proc_is_lack(error))
		*lack = error;
}

/*
 * 1 or 0, or why it cannot be told. A thread gives up its memory, files and root when it
 * begins to exit (do_exit(), kernel/exit.c).
 */
static int has_memory(pid_t pid, pid_t tid, struct proc_stat *stat)
{
	const int error = proc_thread_stat_read(pid, tid, stat);

	if (error)
		return proc_unless_gone(error);
	return !strchr("ZXx", stat->state) && !(stat->flags & (PROC_EXITING | PROC_KERNEL));
}

/*
 * One look at those of its threads that earlier ones have not told. The id of the first that has memory, or 0, or why
 * it cannot be told; *fresh: there was somebody to be looked at.
 */
static int look_for_memory(pid_t pid, struct proc_ids *seen, bool *fresh, struct proc_stat *stat)
{
	struct proc_ids tasks = {0};
	int has = has_memory(pid, pid, stat), error = has < 0 ? has : 0, found = has > 0 ? pid : 0;

	*fresh = false;
	if (!found && !error)
		error = proc_unless_gone(proc_tasks(pid, &tasks));
	for (size_t i = 0; i < tasks.count && !found && !error; i++) {
		if (tasks.ids[i] == pid || proc_ids_have(seen, tasks.ids[i]))
			continue;
		*fresh = true;
		error = proc_ids_add(seen, tasks.ids[i]);
		has = error ? 0 : has_memory(pid, tasks.ids[i], stat);
		if (has > 0)
			found = tasks.ids[i];
		else if (has < 0)
			error = has;
	}
	proc_ids_release(&tasks);
	return found ? found : error;
}

/*
 * A thread that has ended may have made another one before it did; and one that executes a program has the leader's
 * number from then on. So nobody has any memory where a look at all threads shows none that was not seen to have none.
 */
int proc_memory_look(pid_t pid, struct proc_stat *stat, pid_t *tid)
{
	struct proc_ids seen = {0};
	struct proc_stat own;
	bool fresh = true;
	int found = 0;

	for (int look = 0; look < MEMORY_LOOKS && (look < 2 || fresh) && !found; look++)
		found = look_for_memory(pid, &seen, &fresh, stat ? stat : &own);
	proc_ids_release(&seen);
	if (!found && fresh)
		return -EAGAIN;
	if (found < 0)
		return found;
	*tid = found;
	return 0;
}

pid_t proc_memory_tid(pid_t pid, struct proc_stat *stat)
{
	pid_t tid = 0;

	return proc_memory_look(pid, stat, &tid) ? 0 : tid;
}

/* The task directory has a link for each (fs/proc/base.c, proc_task_getattr). */
long proc_thread_count(pid_t pid)
{
	char path[64];
	struct stat file;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	return proc_stat_file(path, &file) ? -1 : (long)file.st_nlink - 2;
}

/* In some containers a file system of its own (lxcfs) stands there, with older numbers. */
int proc_births_open(void)
{
	struct statfs fs;
	int fd = open("/proc/loadavg", O_RDONLY | O_CLOEXEC);

	if (fd >= 0 && (fstatfs(fd, &fs) || fs.f_type != PROC_SUPER_MAGIC)) {
		close(fd);
		fd = -1;
	}
	return fd;
}

/* The fifth field (proc_loadavg(5)). */
long proc_births(int fd)
{
	char text[128];
	const char *last;
	ssize_t got;

	if (fd < 0)
		return -1;
	got = pread(fd, text, sizeof(text) - 1, 0);
	if (got <= 0)
		return -1;
	text[got] = '\0';
	last = strrchr(text, ' ');
	return last ? strtol(last, NULL, 10) : -1;
}

static bool namespace_of(const char *who, const char *name, struct stat *st)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%s/ns/%s", who, name);
	return !proc_stat_file(path, st);
}

static bool is_same_namespace(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* Of the namespace that it is in: the file is about the one that its children will be in. */
static bool monotonic_offset(const char *who, int64_t *ns)
{
	static const char word[] = "monotonic";
	struct stat own, children;
	char path[64], text[256], *second, *end;
	long long seconds, rest;

	if (!namespace_of(who, "time", &own) ||
	    !namespace_of(who, "time_for_children", &children) ||
	    !is_same_namespace(&own, &children))
		return false;
	snprintf(path, sizeof(path), "/proc/%s/timens_offsets", who);
	if (proc_read(path, text, sizeof(text)) <= 0 || strncmp(text, word, sizeof(word) - 1) != 0)
		return false;
	/* signed, as proc_number() is not */
	seconds = strtoll(text + sizeof(word) - 1, &second, 10);
	rest = strtoll(second, &end, 10);
	if (second == text + sizeof(word) - 1 || end == second)
		return false;
	*ns = (int64_t)seconds * 1000000000 + rest;
	return true;
}

int64_t proc_clock_offset(pid_t pid)
{
	int64_t its, ours;
	struct stat a, b;
	char who[16];

	snprintf(who, sizeof(who), "%d", (int)pid);
	if (!namespace_of(who, "time", &a) || !namespace_of("self", "time", &b) ||
	    is_same_namespace(&a, &b) || !monotonic_offset(who, &its) ||
	    !monotonic_offset("self", &ours))
		return 0;
	return its - ours;
}
