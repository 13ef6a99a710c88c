/* SPDX-License-Identifier: MIT */
/*
 * target_checks.c - may we attach, can we, and if not, why not and what to do.
 *
 * Owns every text about permissions. Judges facts (target_facts.h) and looks at
 * nothing itself. The rules are the kernel's (ptrace(2), "Ptrace access mode
 * checking"; Documentation/admin-guide/LSM/Yama.rst).
 */
#include <elf.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "inject/target_facts.h"

/* Less than this is soon used up: a patched page of text takes one of its own. */
static const uint64_t ROOM_MIN = (uint64_t)1 << 20;

typedef bool (*check_function)(const struct facts *f, struct target_check *c);

#define WHY(c, ...) snprintf((c)->why, sizeof((c)->why), __VA_ARGS__)
#define FIX(c, ...) snprintf((c)->fix, sizeof((c)->fix), __VA_ARGS__)

static bool has_capability(uint64_t set, int number)
{
	return (set >> number) & 1;
}

/*
 * A capability counts for processes of our own user namespace and of those
 * within it. Whether a process is in one of these the kernel does not tell who
 * may not look at it.
 */
static bool have_ptrace_capability(const struct facts *f)
{
	if (!has_capability(f->own.capabilities, CAPABILITY_PTRACE))
		return false;
	return !f->inner_user || !f->exists || !f->access || f->user_namespace == RELATION_SAME;
}

static bool is_forbidden(const struct facts *f, enum own_call call)
{
	return f->own_calls[call] != 0;
}

/* ------------------------------------------------------ can it be seen at all */

static bool check_proc(const struct facts *f, struct target_check *c)
{
	if (f->proc == PROC_MISSING) {
		WHY(c, "/proc is not mounted");
		FIX(c, "mount it: `mount -t proc proc /proc`");
		return false;
	}
	if (f->proc == PROC_FOREIGN) {
		WHY(c,
		    "/proc shows another pid namespace than ours: its pids are not those that we mean");
		FIX(c,
		    "mount one of our own: `mount -t proc proc /proc`, or enter the pid namespace that it shows (nsenter)");
		return false;
	}
	WHY(c, "/proc is there");
	return true;
}

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
	if (f->hidden) {
		WHY(c,
		    "there is a process %d, but /proc does not show it to us (mounted with hidepid)",
		    (int)f->pid);
		FIX(c,
		    "run dinst as that process's user or as root, or `mount -o remount,hidepid=0 /proc`");
		return false;
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

static bool check_tracer(const struct facts *f, struct target_check *c)
{
	if (!f->status.tracer) {
		WHY(c, "nobody that can be seen from here traces it");
		return true;
	}
	WHY(c, "process %d (%s) is already traced by process %d (%s)", (int)f->pid, f->stat.name,
	    (int)f->status.tracer, f->tracer);
	FIX(c, "detach or end process %d", (int)f->status.tracer);
	return false;
}

/* ------------------------------------------------------------- what we may do */

/* What nothing else can stand in for, and what we would die of. */
static bool check_calls(const struct facts *f, struct target_check *c)
{
	static const char *const names[OWN_CALLS] = {
		[OWN_PTRACE] = "ptrace",    [OWN_READ] = "process_vm_readv",
		[OWN_PIDFD] = "pidfd_open", [OWN_DESCRIPTOR] = "pidfd_getfd",
		[OWN_COMPARE] = "kcmp",
	};

	for (int i = 0; i < OWN_CALLS; i++) {
		const bool kills = f->own_calls[i] == PROBE_KILLED;

		if (!kills && (!is_forbidden(f, i) || (i != OWN_PTRACE && i != OWN_PIDFD)))
			continue;
		WHY(c, "the seccomp filter that dinst itself runs under %s %s()",
		    kills ? "kills for" : "forbids", names[i]);
		FIX(c,
		    "run dinst outside of the container or sandbox, or with a profile that allows %s (with docker: --cap-add SYS_PTRACE, or --security-opt seccomp=...)",
		    names[i]);
		return false;
	}
	WHY(c, f->own.seccomp == PROC_SECCOMP_FILTER
		       ? "the seccomp filter that we run under allows what we need"
		       : "no seccomp filter forbids us anything");
	return true;
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
	const uint64_t more = f->status.permitted & ~f->own.permitted;

	if (have_ptrace_capability(f)) {
		WHY(c, "we have CAP_SYS_PTRACE");
		return true;
	}
	if (!f->exists) {
		WHY(c, "we are uid %u without CAP_SYS_PTRACE: our own processes only",
		    (unsigned)f->own.uid[0]);
		return true;
	}
	/* Whoever made a user namespace has all capabilities there, and needs none of them here. */
	if (!f->access) {
		WHY(c, "it belongs to uid %u, and we may look into it", (unsigned)f->status.uid[0]);
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
	if (f->inner_user && f->user_namespace != RELATION_SAME) {
		WHY(c,
		    "it seems to run outside of our user namespace, where our uid and capabilities do not count");
		FIX(c,
		    "run dinst outside of the container, as root or as the user who runs the process");
		return false;
	}
	if (more) {
		WHY(c, "it has capabilities that you have not (0x%llx)", (unsigned long long)more);
		FIX(c,
		    "run dinst as root, or give it CAP_SYS_PTRACE (a container: --cap-add SYS_PTRACE)");
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
	    "it is not dumpable: it was started set-uid or from a file that its user may not read, changed its uid, or asked for it (PR_SET_DUMPABLE)");
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
		    "run dinst as root, or start the program with `dinst exec`, or `sysctl kernel.yama.ptrace_scope=0`, or let the program permit it (prctl PR_SET_PTRACER)");
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

	return !check_calls(f, &unused) || !check_uid(f, &unused) || !check_dumpable(f, &unused) ||
	       !check_yama(f, &unused);
}

/* A label is "user:role:type:level" by SELinux, "profile (mode)" by AppArmor. */
static void blame_module(const struct facts *f, struct target_check *c)
{
	const size_t length = strlen(f->label);

	if (strchr(f->label, ':')) {
		WHY(c, "the kernel does not permit it: SELinux, which runs it as %.100s", f->label);
		FIX(c,
		    "`setsebool deny_ptrace 0`, or allow ptrace between the two domains: `ausearch -m avc` tells which");
	} else if (length > 2 && f->label[length - 1] == ')') {
		WHY(c, "the kernel does not permit it: AppArmor, by the profile %.100s", f->label);
		FIX(c,
		    "add `ptrace (trace,read),` to the profile, or run dinst and the program under the same one");
	} else {
		WHY(c,
		    "the kernel does not permit it, and does not tell why: a security module, another user namespace, or %s",
		    f->status.uid[1] ? "a container" : "a process of root's that is not dumpable");
		FIX(c, "look into the audit log; in a container add the capability SYS_PTRACE");
	}
}

/* The kernel's own word; where no rule above explains a no, another module said it. */
static bool check_access(const struct facts *f, struct target_check *c)
{
	if (f->access == EPERM && explained(f)) {
		WHY(c, "the kernel does not permit it, as is to be expected");
		return false;
	}
	if (f->access == EPERM) {
		blame_module(f, c);
		return false;
	}
	if (f->own_calls[OWN_READ] == PROBE_KILLED) {
		WHY(c, "not asked: process_vm_readv would kill us");
		return false;
	}
	WHY(c, is_forbidden(f, OWN_READ)
		       ? "the kernel permits it, without process_vm_readv: more slowly"
		       : "the kernel permits it");
	return true;
}

/* ----------------------------------------------------- what can be done to it */

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

/* Code is read where it is in the file, and run elsewhere: memory that we map is none to Valgrind. */
static bool check_translated(const struct facts *f, struct target_check *c)
{
	if (f->maps_unseen) {
		WHY(c, "whether it runs under Valgrind cannot be seen now: %.180s", f->unseen.text);
		FIX(c, "try again when dinst has more descriptors or memory");
		return false;
	}
	if (!f->translated) {
		WHY(c, "it runs its own code, as far as can be seen");
		return true;
	}
	WHY(c,
	    "it runs under Valgrind, which executes translations of its code, and would crash where one leads to ours");
	FIX(c, "run it without Valgrind");
	return false;
}

static bool check_strict(const struct facts *f, struct target_check *c)
{
	if (f->status.seccomp != PROC_SECCOMP_STRICT) {
		WHY(c, "it is not in the strict seccomp mode");
		return true;
	}
	WHY(c, "process %d (%s) is in strict seccomp mode, where only four system calls exist",
	    (int)f->pid, f->stat.name);
	FIX(c, "run it with a seccomp filter instead of the strict mode");
	return false;
}

/* PTRACE_O_SUSPEND_SECCOMP: kernel/ptrace.c, check_ptrace_options(). */
static bool check_filter(const struct facts *f, struct target_check *c)
{
	if (!f->all_filtered) {
		WHY(c, f->status.seccomp == PROC_SECCOMP_FILTER
			       ? "a seccomp filter binds some of its threads"
			       : "no seccomp filter binds it");
		return true;
	}
	if (f->own.seccomp > 0) {
		WHY(c,
		    "it runs under a seccomp filter, and so do we: who is filtered cannot suspend a filter, so that nothing can be inserted");
		FIX(c, "run dinst as root outside of the container or sandbox");
		return false;
	}
	if (!has_capability(f->own.capabilities, CAPABILITY_ADMIN) || f->inner_user) {
		WHY(c,
		    "it runs under a seccomp filter, which only CAP_SYS_ADMIN%s can suspend while we make system calls in it: nothing can be inserted",
		    f->inner_user ? " outside of a user namespace" : "");
		FIX(c, "run dinst with CAP_SYS_ADMIN (as root%s)",
		    f->inner_user ? " outside of the container" : "");
		return false;
	}
	WHY(c,
	    "it runs under a seccomp filter, which is suspended while we make system calls in it");
	return true;
}

static bool check_frozen(const struct facts *f, struct target_check *c)
{
	if (!f->frozen) {
		WHY(c, "its control group is not frozen");
		return true;
	}
	WHY(c, "its control group is frozen (%.160s)", f->frozen_by);
	FIX(c,
	    "thaw it: docker unpause, systemctl thaw, or 0 into its cgroup.freeze (THAWED into freezer.state)");
	return false;
}

static bool check_memory(const struct facts *f, struct target_check *c)
{
	if (f->room_unseen) {
		WHY(c, "how much memory it may take cannot be seen now: %.180s", f->unseen.text);
		FIX(c, "try again when dinst has more descriptors or memory");
		return false;
	}
	if (!f->limited) {
		WHY(c, "no control group limits its memory, as far as can be seen");
		return true;
	}
	WHY(c, "its control group may take %llu KiB more (%.160s)",
	    (unsigned long long)(f->memory_room >> 10), f->limited_by);
	if (f->memory_room >= ROOM_MIN)
		return true;
	FIX(c,
	    "raise the limit of its memory: a page of its code that is patched takes 4 KiB, and where there is no room it is refused");
	return false;
}

/* No obstacle: a probe that was there first is left alone, and the mapping outlives the probe. */
bool facts_check_uprobes(const struct facts *f, struct target_check *c)
{
	static const char fix[] =
		"let nobody set uprobes on its files while dinst is in it: one on an instruction that dinst has moved may crash it";

	if (f->maps_unseen) {
		WHY(c, "whether a kernel uprobe (perf, bpftrace) was hit in it cannot be seen now");
		FIX(c, "%s", fix);
		return true;
	}
	if (!f->uprobed) {
		WHY(c, "no kernel uprobe was hit in it, as far as can be seen");
		return true;
	}
	WHY(c, "a kernel uprobe (perf, bpftrace) was hit in it since it began");
	FIX(c, "%s", fix);
	return true;
}

static bool check_processor(const struct facts *f, struct target_check *c)
{
	WHY(c,
	    f->flags_missing
		    ? "this processor, as the first x86-64 ones, has no LAHF and SAHF in 64-bit mode"
		    : "the processor has all that inserted code needs");
	if (f->flags_missing) /* inserted code would die of it */
		FIX(c, "use a later one, or let the virtual machine have them (qemu: lahf-lm=on)");
	return !f->flags_missing;
}

static bool check_pidfd(const struct facts *f, struct target_check *c)
{
	if (f->getfd_missing) {
		WHY(c, "this kernel has no pidfd_getfd");
		FIX(c, "use Linux 5.6 or later");
		return false;
	}
	WHY(c, is_forbidden(f, OWN_DESCRIPTOR)
		       ? "pidfd_getfd is forbidden to us; /proc serves instead"
		       : "pidfd_getfd is there");
	return true;
}

static bool check_memfd(const struct facts *f, struct target_check *c)
{
	if (f->memfd_noexec < 2) {
		WHY(c, "vm.memfd_noexec is %d", f->memfd_noexec);
		return true;
	}
	WHY(c, "vm.memfd_noexec is %d: executable memfds are forbidden", f->memfd_noexec);
	FIX(c,
	    "`sysctl vm.memfd_noexec=1`; without it arenas are private memory, and slower to read");
	return false;
}

static bool check_sharing(const struct facts *f, struct target_check *c)
{
	if (f->children_told && f->compare_ok) {
		WHY(c, "the kernel tells which processes share memory (children, kcmp)");
		return true;
	}
	if (f->children_told && is_forbidden(f, OWN_COMPARE)) {
		WHY(c,
		    "kcmp is forbidden to us: whether a child shares memory is judged by its size");
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
	{"proc", check_proc, DINST_UNSUPPORTED, false, false},
	{"exists", check_exists, DINST_NO_PROCESS, true, false},
	{"zombie", check_zombie, DINST_GONE, true, false},
	{"kernel-thread", check_kernel_thread, DINST_UNSUPPORTED, true, false},
	{"tracer", check_tracer, DINST_TRACED, true, false},
	{"calls", check_calls, DINST_NOT_PERMITTED, false, true},
	{"uid", check_uid, 0, false, true},
	{"dumpable", check_dumpable, 0, true, true},
	{"yama", check_yama, 0, false, true},
	{"access", check_access, 0, true, true},
	{"bits", check_bits, DINST_UNSUPPORTED, true, false},
	{"translated", check_translated, DINST_UNSUPPORTED, true, false},
	{"strict", check_strict, DINST_UNSUPPORTED, true, false},
	{"seccomp", check_filter, 0, true, false},
	{"frozen", check_frozen, DINST_BUSY, true, false},
	{"memory", check_memory, 0, true, false},
	{"uprobes", facts_check_uprobes, 0, true, false},
	{"processor", check_processor, DINST_UNSUPPORTED, false, false},
	{"pidfd", check_pidfd, 0, false, false},
	{"memfd", check_memfd, 0, false, false},
	{"sharing", check_sharing, 0, false, false},
};

enum { CHECK_COUNT = sizeof(checks) / sizeof(checks[0]) };

static void run_check(const struct facts *f, size_t i, struct target_check *out)
{
	memset(out, 0, sizeof(*out));
	out->check = checks[i].name;
	out->ok = checks[i].check(f, out);
}

size_t facts_checks(const struct facts *f, struct target_check *out, size_t max)
{
	size_t count = 0;
	bool shown = false;

	for (size_t i = 0; i < CHECK_COUNT && count < max; i++) {
		/* Without a process the first line about it says so, and the rest has no subject. */
		if (checks[i].needs_target &&
		    (f->pid <= 0 || f->proc != PROC_FINE || (shown && !f->exists)))
			continue;
		shown |= checks[i].needs_target;
		run_check(f, i, &out[count++]);
	}
	return count;
}

static int cannot_attach(const struct facts *f, int code, const char *why, const char *fix,
			 struct dinst_error *e)
{
	return dinst_fail(e, code, "cannot attach to %d%s%s%s: %s%s%s", (int)f->pid,
			  f->exists ? " (" : "", f->exists ? f->stat.name : "",
			  f->exists ? ")" : "", why, fix[0] ? "; " : "", fix);
}

int facts_obstacle(const struct facts *f, struct dinst_error *e)
{
	struct target_check c;

	for (size_t i = 0; i < CHECK_COUNT; i++) {
		if (!checks[i].code)
			continue;
		/* Another dinst in a stop: the claim tells who has the process, the stop who stays. */
		if (checks[i].code == DINST_TRACED && !strcmp(f->tracer, "dinst-mutator"))
			continue;
		run_check(f, i, &c);
		if (!c.ok)
			return cannot_attach(f, checks[i].code, c.why, c.fix, e);
	}
	return 0;
}

int facts_denial(const struct facts *f, struct dinst_error *e)
{
	struct target_check c;

	for (size_t i = 0; i < CHECK_COUNT; i++) {
		if (!checks[i].denial)
			continue;
		run_check(f, i, &c);
		if (!c.ok)
			return cannot_attach(f, DINST_NOT_PERMITTED, c.why, c.fix, e);
	}
	/* Of a tracer that is outside of our pid namespace /proc says that there is none. */
	return cannot_attach(
		f, DINST_NOT_PERMITTED,
		"the kernel does not permit it, though nothing that can be seen from here forbids it: a tracer outside of this container (strace, gdb, a profiler of the host) or a security module does",
		"end that tracer, which TracerPid in the process's /proc/PID/status tells on the host, and try again",
		e);
}

int facts_filter(const struct facts *f, struct dinst_error *e)
{
	struct target_check c = {0};

	if (check_filter(f, &c))
		return dinst_fail(
			e, DINST_REFUSED,
			"process %d (%s) runs under a seccomp filter that cannot be suspended: this kernel does not do it (CONFIG_CHECKPOINT_RESTORE)",
			(int)f->pid, f->stat.name);
	return dinst_fail(e, DINST_REFUSED, "process %d (%s): %s; %s", (int)f->pid, f->stat.name,
			  c.why, c.fix);
}
