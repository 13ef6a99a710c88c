/* SPDX-License-Identifier: MIT */
/*
 * target_facts.c - looking at everything that decides whether we may attach.
 *
 * Looks only: nothing here touches a target, and nothing is judged. Where a
 * filter on us may kill for a system call, a child of ours makes it first.
 */
#include "inject/target_facts.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "inject/maps.h"
#include "inject/proc_open.h"

enum {
	FILTERED_LOOKS = 64, /* threads that are asked for their filters, at most */
	TRACERS_MAX = 100,   /* that end one after the other while we look */
	PARENT_LOOKS = 10,   /* that have to show the parent as the tracer */
	PARENT_PAUSE_NS = 10000000,
};

static int number_in(const char *path, int otherwise)
{
	char text[32];
	const char *at = text;
	uint64_t value;

	/* Negative ones wrap around, to and fro. */
	if (proc_read(path, text, sizeof(text)) <= 0 || !proc_number(&at, 10, &value))
		return otherwise;
	return (int)value;
}

/* Returns `error`, and keeps it where it says no more than that we have too little of something. */
static int note_lack(struct facts *f, int error)
{
	if (proc_is_lack(error))
		dinst_fail_errno(&f->unseen, DINST_BUSY, -error, "cannot look at process %d",
				 (int)f->pid);
	return error;
}

/* ------------------------------------------------------------ about ourselves */

/* A pid means something to /proc only if it is that of our own pid namespace. */
static enum proc_state look_at_proc(struct facts *f)
{
	char text[8192], *line, *end;
	struct statfs fs;

	if (statfs("/proc", &fs) || fs.f_type != PROC_SUPER_MAGIC)
		return PROC_MISSING;
	if (note_lack(f, (int)proc_read("/proc/self/status", text, sizeof(text))) <= 0)
		return PROC_FOREIGN;
	line = strstr(text, "\nNSpid:");
	if (!line)
		return PROC_FINE; /* a kernel without pid namespaces */
	/* One number for each namespace, that of /proc first and our own last. */
	return strtol(line + strlen("\nNSpid:"), &end, 10) == getpid() && *end == '\n'
		       ? PROC_FINE
		       : PROC_FOREIGN;
}

static int refusal(long result, int when_allowed)
{
	return result >= 0 || errno == when_allowed ? 0 : -errno;
}

/* Each of these fails for its arguments, after a filter had its say. */
static int ask_ptrace(void)
{
	int error = tracer_ask();

	return error == -ESRCH ? 0 : error;
}

static int ask_read(void)
{
	return refusal(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, ~0ul), EINVAL);
}

static int ask_pidfd(void)
{
	return refusal(syscall(SYS_pidfd_open, 0, 0), EINVAL);
}

static int ask_descriptor(void)
{
	return refusal(syscall(SYS_pidfd_getfd, -1, 0, ~0u), EINVAL);
}

static int ask_compare(void)
{
	return refusal(syscall(SYS_kcmp, getpid(), getpid(), 1 << 20, 0, 0), EINVAL);
}

static void ask_for_calls(struct facts *f)
{
	static int (*const asks[OWN_CALLS])(void) = {
		[OWN_PTRACE] = ask_ptrace,   [OWN_READ] = ask_read,
		[OWN_PIDFD] = ask_pidfd,     [OWN_DESCRIPTOR] = ask_descriptor,
		[OWN_COMPARE] = ask_compare,
	};

	for (size_t i = 0; i < OWN_CALLS; i++)
		f->own_calls[i] = probe_in_child(asks[i]);
}

/* The first user namespace shows each id as itself. */
static bool in_inner_user_namespace(void)
{
	uint64_t inner, outer, count;
	char text[256];
	const char *at = text;

	return proc_read("/proc/self/uid_map", text, sizeof(text)) > 0 &&
	       proc_number(&at, 10, &inner) && proc_number(&at, 10, &outer) &&
	       proc_number(&at, 10, &count) && (inner || outer || count != UINT32_MAX);
}

static void read_own(struct facts *f)
{
	char path[64];

	f->proc = look_at_proc(f);
	if (f->proc != PROC_FINE || note_lack(f, proc_status_read(getpid(), &f->own))) {
		memset(&f->own, 0, sizeof(f->own));
		f->own.uid[0] = f->own.uid[1] = getuid();
		f->own.gid[0] = f->own.gid[1] = getgid();
	}
	if (f->own.seccomp == PROC_SECCOMP_FILTER)
		ask_for_calls(f);
	f->inner_user = in_inner_user_namespace();
	f->yama = number_in("/proc/sys/kernel/yama/ptrace_scope", YAMA_ABSENT);
	f->memfd_noexec = number_in("/proc/sys/vm/memfd_noexec", 0);
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)gettid());
	f->children_told = !proc_access(path, R_OK);
	/* What would kill us is not done. */
	f->compare_ok =
		!f->own_calls[OWN_COMPARE] && syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0) == 0;
	f->getfd_missing = !f->own_calls[OWN_DESCRIPTOR] &&
			   syscall(SYS_pidfd_getfd, -1, 0, 0) < 0 && errno == ENOSYS;
	/* Virtual ones say so, too, of a processor that has them (kvm64). */
	f->flags_missing = !arch_keeps_flags() && probe_in_child(arch_try_flags) == PROBE_KILLED;
}

/* ---------------------------------------------------------- about the target */

static void read_elf_header(struct facts *f)
{
	char path[64];
	Elf64_Ehdr header;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)f->tid);
	fd = proc_open(path, O_RDONLY);
	if (fd < 0) {
		note_lack(f, -errno);
		return;
	}
	if (read(fd, &header, sizeof(header)) == (ssize_t)sizeof(header) &&
	    !memcmp(header.e_ident, ELFMAG, SELFMAG)) {
		f->elf_class = header.e_ident[EI_CLASS];
		f->elf_machine = header.e_machine; /* same place in both classes */
	}
	close(fd);
}

/* A process that is not dumpable has its /proc files owned by root. */
static bool looks_dumpable(const struct facts *f)
{
	char path[64];
	struct stat file;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)f->tid);
	return proc_stat_file(path, &file) || file.st_uid == f->status.uid[1];
}

static bool is_descendant(pid_t pid)
{
	struct proc_stat stat;

	for (int depth = 0; depth < 64 && pid > 1; depth++) {
		if (pid == getpid())
			return true;
		if (proc_stat_read(pid, &stat))
			return false;
		pid = stat.parent;
	}
	return false;
}

/* Who speaks for the process: a leader that has exited has neither memory nor a tracer. */
static void find_living_thread(struct facts *f)
{
	if (f->stat.state != 'Z')
		return;
	if (note_lack(f, proc_memory_look(f->pid, NULL, &f->tid)))
		f->tid = 0;
	if (!f->tid || f->tid == f->pid || note_lack(f, proc_status_read(f->tid, &f->status))) {
		/* A thread that executed a program meanwhile has become the leader. */
		f->tid = f->pid;
		note_lack(f, proc_stat_read(f->pid, &f->stat));
		note_lack(f, proc_status_read(f->pid, &f->status));
	} else {
		f->alive_threads = true;
	}
}

/* Is one without a filter? */
static void look_at_filters(struct facts *f)
{
	struct proc_ids tasks = {0};
	struct proc_status status;

	f->all_filtered = f->status.seccomp > 0;
	if (!f->all_filtered)
		return;
	if (!note_lack(f, proc_tasks(f->pid, &tasks)))
		for (size_t i = 0; i < tasks.count && i < FILTERED_LOOKS; i++)
			if (!note_lack(f, proc_status_read(tasks.ids[i], &status)) &&
			    !strchr("ZXx", status.state))
				f->all_filtered &= status.seccomp > 0;
	proc_ids_release(&tasks);
}

static enum relation compare_user_namespaces(pid_t pid)
{
	char path[64], ours[64], theirs[64];
	ssize_t n = readlink("/proc/self/ns/user", ours, sizeof(ours)), m;

	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	m = proc_readlink(path, theirs, sizeof(theirs));
	if (n <= 0 || m <= 0)
		return RELATION_UNKNOWN;
	return n == m && !memcmp(ours, theirs, (size_t)n) ? RELATION_SAME : RELATION_OTHER;
}

int target_test_access(pid_t pid)
{
	char path[64], byte;
	struct iovec local = {&byte, 1};
	struct iovec remote = {NULL, 1};
	int error = 0, fd;

	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) < 0 && errno != EFAULT)
		error = -errno;
	if (error != -EPERM && error != -ENOSYS)
		return error;
	/* A filter on us may say that, too; the same check is made for this file. */
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)pid);
	fd = proc_open(path, O_RDONLY);
	if (fd < 0 && proc_is_lack(-errno))
		return -errno;
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? -EPERM : error;
	close(fd);
	return 0;
}

bool facts_is_valgrind(const char *name)
{
	static const char preloaded[] = "vgpreload_core-", system[] = "-linux";
	const char *base = strrchr(name, '/');
	const size_t length = strlen(name);

	if (!base)
		return false;
	/* Of a static program there is the tool itself only, .../valgrind/memcheck-amd64-linux. */
	return !strncmp(base + 1, preloaded, sizeof(preloaded) - 1) ||
	       (strstr(name, "/valgrind/") && length >= sizeof(system) &&
		!strcmp(name + length - (sizeof(system) - 1), system));
}

/*
 * The kernel maps [uprobes] where the first uprobe is hit whose instruction it has to execute
 * elsewhere, and leaves it there (kernel/events/uprobes.c, xol_add_vma()).
 */
void facts_read_maps(struct facts *f)
{
	struct dinst_error why = {0};
	struct maps m;
	const int code = maps_read(f->pid, &m, &why);

	/* To others' processes they are closed for good. */
	f->maps_unseen = code && code != DINST_GONE && code != DINST_NOT_PERMITTED;
	if (f->maps_unseen)
		dinst_fail(&f->unseen, DINST_BUSY, "%s; try again later", why.text);
	if (code)
		return;
	f->uprobed = maps_named(&m, "[uprobes]") != NULL;
	for (size_t i = 0; i < m.count && !f->translated; i++)
		f->translated = facts_is_valgrind(m.entries[i].name);
	maps_release(&m);
}

/* Without /proc there is still one way to know that somebody has this pid. */
static bool is_somebody(struct facts *f)
{
	int pidfd;

	if (f->own_calls[OWN_PIDFD])
		return false;
	pidfd = (int)syscall(SYS_pidfd_open, f->pid, 0);
	if (pidfd >= 0)
		close(pidfd);
	else
		note_lack(f, -errno);
	return pidfd >= 0;
}

/*
 * Who traces it: the same one twice. The thread of another dinst's stop may end between two looks,
 * and where a tracer comes or goes the kernel shows the parent for a moment (ptrace_link(),
 * __ptrace_unlink(): `ptrace` and `parent` are not set at once). A processor that a hypervisor takes
 * away just then makes the moment a long one, so the parent has to be seen for a while.
 */
static void read_tracer(struct facts *f)
{
	const struct timespec pause = {0, PARENT_PAUSE_NS};
	struct proc_status tracer, again;
	int parent_looks = 0;
	bool there, named;

	snprintf(f->tracer, sizeof(f->tracer), "?");
	for (int tries = 0; f->status.tracer && tries < TRACERS_MAX; tries++) {
		const pid_t seen = f->status.tracer;

		named = !proc_status_read(seen, &tracer);
		/* It may be hidden from us. */
		there = named || !kill(seen, 0) || errno != ESRCH;
		if (note_lack(f, proc_status_read(f->tid, &again)))
			return;
		f->status = again;
		if (!there || again.tracer != seen) {
			parent_looks = 0;
			continue;
		}
		if (named && tracer.tgid == again.parent && ++parent_looks < PARENT_LOOKS) {
			clock_nanosleep(CLOCK_MONOTONIC, 0, &pause, NULL);
			continue;
		}
		if (named)
			snprintf(f->tracer, sizeof(f->tracer), "%s", tracer.name);
		return;
	}
}

static void read_state(struct facts *f)
{
	read_tracer(f);
	look_at_filters(f);
	f->dumpable = looks_dumpable(f);
	f->descendant = is_descendant(f->pid);
	f->user_namespace = compare_user_namespaces(f->pid);
	proc_word(f->tid, "attr/current", f->label, sizeof(f->label));
	if (f->own_calls[OWN_READ] != PROBE_KILLED)
		f->access = -note_lack(f, target_test_access(f->tid));
	f->frozen = cgroup_is_frozen(f->tid, f->frozen_by, sizeof(f->frozen_by));
}

static void read_program(struct facts *f)
{
	facts_read_maps(f);
	read_elf_header(f);
	f->room_unseen = cgroup_memory_room(f->tid, &f->memory_room, f->limited_by,
					    sizeof(f->limited_by), &f->unseen) != 0;
	f->limited = !f->room_unseen && f->memory_room != UINT64_MAX;
}

static void read_target(struct facts *f, unsigned parts)
{
	f->exists = f->proc == PROC_FINE && !note_lack(f, proc_status_read(f->pid, &f->status)) &&
		    !note_lack(f, proc_stat_read(f->pid, &f->stat));
	if (!f->exists) {
		f->hidden = f->proc == PROC_FINE && is_somebody(f);
		return;
	}
	find_living_thread(f);
	if (parts & FACTS_STATE)
		read_state(f);
	else
		f->status.tracer = 0; /* not looked for */
	if (parts & FACTS_PROGRAM)
		read_program(f);
}

void facts_read(struct facts *f, pid_t pid, unsigned parts)
{
	memset(f, 0, sizeof(*f));
	f->pid = f->tid = pid;
	if (parts & FACTS_OWN)
		read_own(f);
	if (pid > 0)
		read_target(f, parts);
}

/* --------------------------------------------------- the same, of a process */

size_t target_checks(pid_t pid, struct target_check *out, size_t max)
{
	struct facts f;

	facts_read(&f, pid, FACTS_ALL);
	return facts_checks(&f, out, max);
}

int target_find_obstacle(pid_t pid, enum target_origin origin, struct dinst_error *e)
{
	static const unsigned parts[] = {
		[TARGET_ANY] = FACTS_ALL, [TARGET_FORKED] = FACTS_STATE, [TARGET_BORN] = 0};
	struct dinst_error why = {0};
	struct facts f;
	int code;

	facts_read(&f, pid, parts[origin]);
	/* Who runs through what is inserted is given its own code back in whatever mode it is. */
	if (origin != TARGET_ANY && f.status.seccomp == PROC_SECCOMP_STRICT)
		f.status.seccomp = 0;
	code = facts_obstacle(&f, &why);
	/* What was not seen for want of descriptors says nothing of it, neither for nor against. */
	if (f.unseen.code)
		return dinst_fail(e, f.unseen.code, "%s", f.unseen.text);
	if (code && e && !e->code)
		*e = why;
	return code;
}

int target_explain_denial(pid_t pid, struct dinst_error *e)
{
	struct facts f;

	/* Also asked in a stop. */
	facts_read(&f, pid, FACTS_OWN | FACTS_STATE);
	return facts_denial(&f, e);
}

int target_explain_filter(pid_t pid, struct dinst_error *e)
{
	struct facts f;

	facts_read(&f, pid, FACTS_OWN | FACTS_STATE);
	return facts_filter(&f, e);
}

bool target_warns_of_uprobes(pid_t pid, struct target_check *c)
{
	struct facts f = {.pid = pid};

	facts_read_maps(&f);
	memset(c, 0, sizeof(*c));
	c->check = "uprobes";
	c->ok = facts_check_uprobes(&f, c);
	return f.uprobed || f.maps_unseen;
}
