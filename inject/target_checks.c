/* SPDX-License-Identifier: MIT */
/*
 * target_checks.c - may we attach, can we, and if not, why not and what to do.
 *
 * Owns every text about permissions. Looks only: nothing here touches a
 * target. The rules are the kernel's (ptrace(2), "Ptrace access mode
 * checking"; Documentation/admin-guide/LSM/Yama.rst).
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "inject/control.h"

enum { CAPABILITY_PTRACE = 19 };

enum yama { YAMA_ABSENT = -1, YAMA_CLASSIC, YAMA_DESCENDANTS, YAMA_ADMIN, YAMA_NEVER };

/* Everything that the rules look at. */
struct facts {
	pid_t pid; /* 0: no process in particular */
	bool exists;
	struct proc_status status;
	struct proc_stat stat;
	struct proc_status own;
	bool alive_threads; /* a dead leader, but other threads live */
	int elf_class;	    /* 0: not known */
	unsigned elf_machine;
	bool dumpable;
	bool descendant;
	int yama;
	int access; /* 0 or errno of the kernel's own check */
};

static int number_in(const char *path, int otherwise)
{
	char text[32];

	return proc_read(path, text, sizeof(text)) > 0 ? (int)strtol(text, NULL, 10) : otherwise;
}

static bool have_ptrace_capability(const struct facts *f)
{
	return (f->own.capabilities >> CAPABILITY_PTRACE) & 1;
}

static void read_elf_header(struct facts *f)
{
	char path[64];
	Elf64_Ehdr header;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)f->pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return;
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

	snprintf(path, sizeof(path), "/proc/%d/status", (int)f->pid);
	return stat(path, &file) || file.st_uid == f->status.uid[1];
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

static bool has_living_thread(pid_t pid)
{
	struct proc_ids tasks = {0};
	struct proc_stat stat;
	bool found = false;

	if (!proc_tasks(pid, &tasks))
		for (size_t i = 0; i < tasks.count; i++)
			found |= !proc_stat_read(tasks.ids[i], &stat) && !strchr("ZXx", stat.state);
	proc_ids_release(&tasks);
	return found;
}

static int access_error(pid_t pid)
{
	char byte;
	struct iovec local = {&byte, 1};
	struct iovec remote = {NULL, 1};

	if (process_vm_readv(pid, &local, 1, &remote, 1, 0) >= 0 || errno == EFAULT)
		return 0;
	return errno;
}

static void facts_read(struct facts *f, pid_t pid)
{
	memset(f, 0, sizeof(*f));
	f->pid = pid;
	if (proc_status_read(getpid(), &f->own))
		f->own.uid[0] = f->own.uid[1] = getuid();
	f->yama = number_in("/proc/sys/kernel/yama/ptrace_scope", YAMA_ABSENT);
	if (pid <= 0)
		return;
	f->exists = !proc_status_read(pid, &f->status) && !proc_stat_read(pid, &f->stat);
	if (!f->exists)
		return;
	f->alive_threads = f->stat.state == 'Z' && has_living_thread(pid);
	f->dumpable = looks_dumpable(f);
	f->descendant = is_descendant(pid);
	f->access = access_error(pid);
	read_elf_header(f);
}

/* -------------------------------------------------------------- the checks */

typedef bool (*check_function)(const struct facts *f, struct target_check *c);

#define WHY(c, ...) snprintf((c)->why, sizeof((c)->why), __VA_ARGS__)
#define FIX(c, ...) snprintf((c)->fix, sizeof((c)->fix), __VA_ARGS__)

static bool check_exists(const struct facts *f, struct target_check *c)
{
	if (f->exists && f->status.tgid != f->pid) {
		WHY(c, "%d is a thread of process %d (%s)", (int)f->pid, (int)f->status.tgid,
		    f->status.name);
		FIX(c, "give the process's pid, %d", (int)f->status.tgid);
		return false;
	}
	if (f->exists) {
		WHY(c, "process %d is %s", (int)f->pid, f->stat.name);
		return true;
	}
	WHY(c, "no process has the pid %d", (int)f->pid);
	FIX(c, "look for it with ps or pgrep; in a container use the pid that the host sees");
	return false;
}

static bool check_zombie(const struct facts *f, struct target_check *c)
{
	if ((f->stat.state != 'Z' && f->stat.state != 'X') || f->alive_threads) {
		WHY(c,
		    f->alive_threads ? "its main thread has exited, others live" : "it is alive");
		return true;
	}
	WHY(c, "process %d (%s) has ended and is a zombie", (int)f->pid, f->stat.name);
	FIX(c, "its parent, process %d, has yet to collect it; nothing is left to attach to",
	    (int)f->stat.parent);
	return false;
}

static bool check_kernel_thread(const struct facts *f, struct target_check *c)
{
	if (!(f->stat.flags & PROC_KERNEL_THREAD)) {
		WHY(c, "it is a user process");
		return true;
	}
	WHY(c, "process %d (%s) is a kernel thread", (int)f->pid, f->stat.name);
	FIX(c, "only user processes can be instrumented");
	return false;
}

static bool check_bits(const struct facts *f, struct target_check *c)
{
	if (!f->elf_class) {
		WHY(c, "not known: its executable cannot be read");
		return true;
	}
	if (f->elf_class == ELFCLASS64 && f->elf_machine == arch_elf_machine) {
		WHY(c, "it is a 64-bit %s program", arch_name);
		return true;
	}
	if (f->elf_class == ELFCLASS32)
		WHY(c, "process %d (%s) is a 32-bit program%s", (int)f->pid, f->stat.name,
		    f->elf_machine == arch_elf_machine ? " (x32)" : "");
	else
		WHY(c, "process %d (%s) is a program for another processor (ELF machine %u)",
		    (int)f->pid, f->stat.name, f->elf_machine);
	FIX(c, "run a 64-bit %s build of it", arch_name);
	return false;
}

static bool check_tracer(const struct facts *f, struct target_check *c)
{
	struct proc_status tracer;

	if (!f->status.tracer) {
		WHY(c, "nobody traces it");
		return true;
	}
	if (proc_status_read(f->status.tracer, &tracer))
		snprintf(tracer.name, sizeof(tracer.name), "?");
	WHY(c, "process %d (%s) is already traced by process %d (%s)", (int)f->pid, f->stat.name,
	    (int)f->status.tracer, tracer.name);
	FIX(c, "detach or end process %d", (int)f->status.tracer);
	return false;
}

static bool check_seccomp(const struct facts *f, struct target_check *c)
{
	if (f->status.seccomp != PROC_SECCOMP_STRICT) {
		WHY(c, f->status.seccomp == PROC_SECCOMP_FILTER ? "it runs under a seccomp filter"
								: "no seccomp filter");
		return true;
	}
	WHY(c, "process %d (%s) is in strict seccomp mode, where only four system calls exist",
	    (int)f->pid, f->stat.name);
	FIX(c, "run it with a seccomp filter instead of the strict mode");
	return false;
}

static bool same_ids(const struct facts *f)
{
	for (int i = 0; i < 3; i++)
		if (f->status.uid[i] != f->own.uid[0] || f->status.gid[i] != f->own.gid[0])
			return false;
	return true;
}

static bool check_uid(const struct facts *f, struct target_check *c)
{
	if (have_ptrace_capability(f)) {
		WHY(c, "we have CAP_SYS_PTRACE");
		return true;
	}
	if (!f->exists) {
		WHY(c, "we are uid %u without CAP_SYS_PTRACE: our own processes only",
		    (unsigned)f->own.uid[0]);
		return true;
	}
	if (!same_ids(f)) {
		WHY(c,
		    "it belongs to uid %u and gid %u (effective %u, %u), and you are uid %u, gid %u",
		    (unsigned)f->status.uid[0], (unsigned)f->status.gid[0],
		    (unsigned)f->status.uid[1], (unsigned)f->status.gid[1], (unsigned)f->own.uid[0],
		    (unsigned)f->own.gid[0]);
		FIX(c, "run dinst as that user or as root");
		return false;
	}
	if (f->status.capabilities & ~f->own.capabilities) {
		WHY(c, "it has capabilities that you have not (0x%llx)",
		    (unsigned long long)(f->status.capabilities & ~f->own.capabilities));
		FIX(c, "run dinst as root");
		return false;
	}
	WHY(c, "it belongs to uid %u, as you do", (unsigned)f->own.uid[0]);
	return true;
}

static bool check_dumpable(const struct facts *f, struct target_check *c)
{
	if (f->dumpable || have_ptrace_capability(f)) {
		WHY(c,
		    f->dumpable ? "it is dumpable" : "it is not dumpable, but we may all the same");
		return true;
	}
	WHY(c,
	    "it is not dumpable: it was started set-uid, changed its uid, or asked for it (PR_SET_DUMPABLE)");
	FIX(c, "run dinst as root");
	return false;
}

static bool check_yama(const struct facts *f, struct target_check *c)
{
	switch (f->yama) {
	case YAMA_ABSENT:
	case YAMA_CLASSIC:
		WHY(c, f->yama ? "Yama is not there" : "kernel.yama.ptrace_scope is 0");
		return true;
	case YAMA_DESCENDANTS:
		if (have_ptrace_capability(f) || f->descendant || (f->exists && !f->access)) {
			WHY(c, "kernel.yama.ptrace_scope is 1, and we may all the same");
			return true;
		}
		WHY(c,
		    "kernel.yama.ptrace_scope is 1: only a process's own ancestors may trace it");
		FIX(c,
		    "run dinst as root, or start the program with `dinst exec`, or `sysctl kernel.yama.ptrace_scope=0`");
		return false;
	case YAMA_ADMIN:
		if (have_ptrace_capability(f)) {
			WHY(c, "kernel.yama.ptrace_scope is 2, and we have CAP_SYS_PTRACE");
			return true;
		}
		WHY(c, "kernel.yama.ptrace_scope is 2: only with CAP_SYS_PTRACE");
		FIX(c, "run dinst as root, or `sysctl kernel.yama.ptrace_scope=0`");
		return false;
	default:
		WHY(c, "kernel.yama.ptrace_scope is %d: nobody may trace anything", f->yama);
		FIX(c,
		    "set kernel.yama.ptrace_scope to 0, 1 or 2 in /etc/sysctl.d and reboot: it cannot be lowered while the system runs");
		return false;
	}
}

/* One of the checks above says no, and what to do. */
static bool explained(const struct facts *f)
{
	struct target_check unused;

	return !check_uid(f, &unused) || !check_dumpable(f, &unused) || !check_yama(f, &unused);
}

/* The kernel's own word; where no rule above explains a no, another module said it. */
static bool check_access(const struct facts *f, struct target_check *c)
{
	char label[64];

	if (f->access == EPERM && explained(f)) {
		WHY(c, "the kernel does not permit it, as is to be expected");
		return false;
	}
	if (f->access == EPERM) {
		proc_word(f->pid, "attr/current", label, sizeof(label));
		WHY(c,
		    "the kernel does not permit it: a security module, a user namespace or a container forbids ptrace (its security label: %s)",
		    label);
		FIX(c, "look into the audit log; in a container add the capability SYS_PTRACE");
		return false;
	}
	if (f->access && f->access != ESRCH) {
		WHY(c, "process_vm_readv: %s", strerror(f->access));
		FIX(c, "dinst works without it, more slowly");
		return f->access == ENOSYS;
	}
	WHY(c, "the kernel permits it");
	return true;
}

static bool check_pidfd(const struct facts *f, struct target_check *c)
{
	(void)f;
	if (syscall(SYS_pidfd_getfd, -1, 0, 0) < 0 && errno != ENOSYS) {
		WHY(c, "pidfd_getfd is there");
		return true;
	}
	WHY(c, "this kernel has no pidfd_getfd");
	FIX(c, "use Linux 5.6 or later");
	return false;
}

static bool check_memfd(const struct facts *f, struct target_check *c)
{
	int level = number_in("/proc/sys/vm/memfd_noexec", 0);

	(void)f;
	if (level < 2) {
		WHY(c, "vm.memfd_noexec is %d", level);
		return true;
	}
	WHY(c, "vm.memfd_noexec is %d: executable memfds are forbidden", level);
	FIX(c,
	    "`sysctl vm.memfd_noexec=1`; without it arenas are private memory, and slower to read");
	return false;
}

static bool check_kernel(const struct facts *f, struct target_check *c)
{
	char path[64];

	(void)f;
	snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)gettid());
	if (!access(path, R_OK) && syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0) == 0) {
		WHY(c, "the kernel tells which processes share memory (children, kcmp)");
		return true;
	}
	WHY(c,
	    "this kernel does not tell which processes share memory (CONFIG_PROC_CHILDREN, CONFIG_KCMP)");
	FIX(c, "do not attach to programs that use clone(CLONE_VM) for processes of their own");
	return false;
}

static const struct {
	const char *name;
	check_function check;
	int code; /* what target_open() answers when it fails; 0: it does not matter there */
	bool needs_target;
	bool denial; /* explains why the kernel said no */
} checks[] = {
	{"exists", check_exists, DINST_NO_PROCESS, true, false},
	{"zombie", check_zombie, DINST_GONE, true, false},
	{"kernel-thread", check_kernel_thread, DINST_UNSUPPORTED, true, false},
	{"tracer", check_tracer, DINST_TRACED, true, false},
	{"uid", check_uid, 0, false, true},
	{"dumpable", check_dumpable, 0, true, true},
	{"yama", check_yama, 0, false, true},
	{"access", check_access, 0, true, true},
	{"bits", check_bits, DINST_UNSUPPORTED, true, false},
	{"seccomp", check_seccomp, DINST_UNSUPPORTED, true, false},
	{"pidfd", check_pidfd, 0, false, false},
	{"memfd", check_memfd, 0, false, false},
	{"sharing", check_kernel, 0, false, false},
};

enum { CHECK_COUNT = sizeof(checks) / sizeof(checks[0]) };

static void run_check(const struct facts *f, size_t i, struct target_check *out)
{
	memset(out, 0, sizeof(*out));
	out->check = checks[i].name;
	out->ok = checks[i].check(f, out);
}

size_t target_checks(pid_t pid, struct target_check *out, size_t max)
{
	struct facts f;
	size_t count = 0;

	facts_read(&f, pid);
	for (size_t i = 0; i < CHECK_COUNT && count < max; i++) {
		/* Without a process the first line says so, and the rest has no subject. */
		if (checks[i].needs_target && (pid <= 0 || (count && !f.exists)))
			continue;
		run_check(&f, i, &out[count++]);
	}
	return count;
}

int target_find_obstacle(pid_t pid, struct dinst_error *e)
{
	struct target_check c;
	struct facts f;

	facts_read(&f, pid);
	for (size_t i = 0; i < CHECK_COUNT; i++) {
		if (!checks[i].code)
			continue;
		run_check(&f, i, &c);
		if (!c.ok)
			return dinst_fail(e, checks[i].code, "cannot attach to %d%s%s%s: %s; %s",
					  (int)pid, f.exists ? " (" : "",
					  f.exists ? f.stat.name : "", f.exists ? ")" : "", c.why,
					  c.fix);
	}
	return 0;
}

int target_explain_denial(pid_t pid, struct dinst_error *e)
{
	struct target_check c;
	struct facts f;

	facts_read(&f, pid);
	for (size_t i = 0; i < CHECK_COUNT; i++) {
		if (!checks[i].denial)
			continue;
		run_check(&f, i, &c);
		if (!c.ok)
			return dinst_fail(e, DINST_NOT_PERMITTED,
					  "cannot attach to %d (%s): %s; %s", (int)pid, f.stat.name,
					  c.why, c.fix);
	}
	return dinst_fail(
		e, DINST_NOT_PERMITTED,
		"cannot attach to %d (%s): the kernel does not permit it; run dinst as root",
		(int)pid, f.stat.name);
}
