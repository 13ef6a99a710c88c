/* SPDX-License-Identifier: MIT */
/*
 * confine.c - runs a program in narrow circumstances, for the scripts of tests/hostile.
 *
 *   confine [OPTION...] -- PROGRAM [ARGUMENT...]
 *
 *   filter=container          system calls as container engines allow them by default, none for
 *                             looking into other processes; whatever is not listed is EPERM
 *   filter=ACTION:CALL,...    errno (EPERM), nosys, kill or trap for these calls, and no others
 *   mdwe                      no memory that was writable becomes executable (PR_SET_MDWE)
 *   no-new-privs
 *   tracer=any                whoever may may trace it (PR_SET_PTRACER, Yama)
 *   user=UID                  uid and gid
 *   caps=ptrace               of all capabilities only CAP_SYS_PTRACE, also as an ordinary user
 *   caps=none                 none of them
 *   cgroup=DIRECTORY          joins this control group first; may be given several times
 *
 * They take effect in this order, whatever the order in which they are given. Ends with 125 if
 * anything does not work, with what is missing on standard error.
 */
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef PR_SET_MDWE
#define PR_SET_MDWE		 65
#define PR_MDWE_REFUSE_EXEC_GAIN 1
#endif

enum { CALLS_LISTED = 470, PROGRAM_MAX = 2 * CALLS_LISTED + 16, CGROUPS_MAX = 8, TROUBLE = 125 };

/* What an engine gives to no container, or only with a capability that it does not give. */
static const int forbidden[] = {
	SYS_acct,
	SYS_add_key,
	SYS_bpf,
	SYS_clock_adjtime,
	SYS_clock_settime,
	SYS_delete_module,
	SYS_fanotify_init,
	SYS_finit_module,
	SYS_fsconfig,
	SYS_fsmount,
	SYS_fsopen,
	SYS_fspick,
	SYS_get_mempolicy,
	SYS_init_module,
	SYS_io_uring_enter,
	SYS_io_uring_setup,
	SYS_io_uring_register,
	SYS_ioperm,
	SYS_iopl,
	SYS_kcmp,
	SYS_kexec_file_load,
	SYS_kexec_load,
	SYS_keyctl,
	SYS_lookup_dcookie,
	SYS_mbind,
	SYS_migrate_pages,
	SYS_mount,
	SYS_mount_setattr,
	SYS_move_mount,
	SYS_move_pages,
	SYS_open_by_handle_at,
	SYS_open_tree,
	SYS_perf_event_open,
	SYS_pidfd_getfd,
	SYS_pivot_root,
	SYS_process_madvise,
	SYS_process_vm_readv,
	SYS_process_vm_writev,
	SYS_ptrace,
	SYS_quotactl,
	SYS_reboot,
	SYS_request_key,
	SYS_set_mempolicy,
	SYS_setns,
	SYS_settimeofday,
	SYS_swapoff,
	SYS_swapon,
	SYS_syslog,
	SYS_umount2,
	SYS_unshare,
	SYS_userfaultfd,
	SYS_vhangup,
};

static const struct {
	const char *name;
	int number;
} calls[] = {
	{"close", SYS_close},
	{"kcmp", SYS_kcmp},
	{"madvise", SYS_madvise},
	{"memfd_create", SYS_memfd_create},
	{"mmap", SYS_mmap},
	{"mprotect", SYS_mprotect},
	{"munmap", SYS_munmap},
	{"pidfd_getfd", SYS_pidfd_getfd},
	{"pidfd_open", SYS_pidfd_open},
	{"process_vm_readv", SYS_process_vm_readv},
	{"ptrace", SYS_ptrace},
	{"restart_syscall", SYS_restart_syscall},
};

static const struct {
	const char *name;
	uint32_t verdict;
} actions[] = {
	{"errno", SECCOMP_RET_ERRNO | EPERM},
	{"nosys", SECCOMP_RET_ERRNO | ENOSYS},
	{"kill", SECCOMP_RET_KILL_PROCESS},
	{"trap", SECCOMP_RET_TRAP},
};

struct wishes {
	const char *filter;
	const char *cgroups[CGROUPS_MAX];
	size_t cgroup_count;
	bool mdwe, no_new_privs, any_tracer, keep_ptrace, no_caps;
	long user; /* -1: stays */
};

static void trouble(const char *what, const char *name)
{
	fprintf(stderr, "confine: %s%s%s: %s\n", what, name ? " " : "", name ? name : "",
		strerror(errno));
	exit(TROUBLE);
}

/* ----------------------------------------------------------------- filters */

struct program {
	struct sock_filter code[PROGRAM_MAX];
	size_t count;
};

static void put(struct program *p, struct sock_filter insn)
{
	p->code[p->count++] = insn;
}

static void begin_program(struct program *p)
{
	p->count = 0;
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					    offsetof(struct seccomp_data, arch)));
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
	put(p, (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
					    offsetof(struct seccomp_data, nr)));
}

static void put_verdict(struct program *p, int number, uint32_t verdict)
{
	put(p, (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)number, 0, 1));
	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, verdict));
}

static void install(struct program *p, uint32_t otherwise)
{
	struct sock_fprog whole = {.filter = p->code};

	put(p, (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, otherwise));
	whole.len = (unsigned short)p->count;
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole))
		trouble("cannot install the filter", NULL);
}

static bool is_forbidden(int number)
{
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++)
		if (forbidden[i] == number)
			return true;
	return false;
}

/* A list of what is allowed, so that calls newer than it are not. */
static void filter_container(void)
{
	struct program p;

	begin_program(&p);
	for (int number = 0; number < CALLS_LISTED; number++)
		if (!is_forbidden(number))
			put_verdict(&p, number, SECCOMP_RET_ALLOW);
	install(&p, SECCOMP_RET_ERRNO | EPERM);
}

static int call_named(const char *name, size_t length)
{
	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++)
		if (strlen(calls[i].name) == length && !memcmp(calls[i].name, name, length))
			return calls[i].number;
	errno = EINVAL;
	trouble("no such call", name);
	return -1;
}

/* "ACTION:CALL,CALL" */
static void filter_some(const char *text)
{
	const char *colon = strchr(text, ':');
	struct program p;
	uint32_t verdict = 0;
	size_t length;

	for (size_t i = 0; colon && i < sizeof(actions) / sizeof(actions[0]); i++)
		if (strlen(actions[i].name) == (size_t)(colon - text) &&
		    !strncmp(text, actions[i].name, (size_t)(colon - text)))
			verdict = actions[i].verdict;
	errno = EINVAL;
	if (!colon)
		trouble("no such filter", text);
	begin_program(&p);
	for (const char *at = colon + 1; *at; at += length + (at[length] == ',')) {
		length = strcspn(at, ",");
		put_verdict(&p, call_named(at, length), verdict);
	}
	install(&p, SECCOMP_RET_ALLOW);
}

/* ------------------------------------------------------- who we are, where */

static void join(const char *cgroup)
{
	char path[4096], number[32];
	int fd, length;

	snprintf(path, sizeof(path), "%s/cgroup.procs", cgroup);
	length = snprintf(number, sizeof(number), "%d", (int)getpid());
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0 || write(fd, number, (size_t)length) != length)
		trouble("cannot join", cgroup);
	close(fd);
}

static void drop_bounding_set(bool keep_ptrace)
{
	for (unsigned long cap = 0; prctl(PR_CAPBSET_READ, cap, 0, 0, 0) >= 0; cap++)
		if ((!keep_ptrace || cap != CAP_SYS_PTRACE) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0))
			trouble("cannot drop a capability", NULL);
}

static void set_caps(bool keep_ptrace)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2];
	uint32_t kept = keep_ptrace ? 1u << CAP_SYS_PTRACE : 0;

	memset(data, 0, sizeof(data));
	data[0].effective = data[0].permitted = data[0].inheritable = kept;
	if (syscall(SYS_capset, &header, data) ||
	    (keep_ptrace && prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_PTRACE, 0, 0)))
		trouble("cannot set the capabilities", NULL);
}

static void become(const struct wishes *w)
{
	const bool caps = w->keep_ptrace || w->no_caps;

	if (caps) {
		drop_bounding_set(w->keep_ptrace);
		prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0);
	}
	if (w->user >= 0) {
		uid_t id = (uid_t)w->user;

		if (setgroups(0, NULL) || setresgid(id, id, id) || setresuid(id, id, id))
			trouble("cannot become another user", NULL);
	}
	if (caps)
		set_caps(w->keep_ptrace);
}

/* ------------------------------------------------------------------- main */

static bool take(struct wishes *w, const char *word)
{
	if (!strncmp(word, "filter=", 7))
		w->filter = word + 7;
	else if (!strcmp(word, "mdwe"))
		w->mdwe = true;
	else if (!strcmp(word, "no-new-privs"))
		w->no_new_privs = true;
	else if (!strcmp(word, "tracer=any"))
		w->any_tracer = true;
	else if (!strncmp(word, "user=", 5))
		w->user = atol(word + 5);
	else if (!strcmp(word, "caps=ptrace"))
		w->keep_ptrace = true;
	else if (!strcmp(word, "caps=none"))
		w->no_caps = true;
	else if (!strncmp(word, "cgroup=", 7) && w->cgroup_count < CGROUPS_MAX)
		w->cgroups[w->cgroup_count++] = word + 7;
	else
		return false;
	return true;
}

int main(int argc, char **argv)
{
	struct wishes w = {.user = -1};
	int at = 1;

	while (at < argc && strcmp(argv[at], "--") != 0 && take(&w, argv[at]))
		at++;
	if (at >= argc - 1 || strcmp(argv[at], "--") != 0) {
		fprintf(stderr, "usage: confine [OPTION...] -- PROGRAM [ARGUMENT...]\n");
		return TROUBLE;
	}
	for (size_t i = 0; i < w.cgroup_count; i++)
		join(w.cgroups[i]);
	become(&w);
	if (w.any_tracer)
		prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	/* Without privileges a filter takes it. */
	if ((w.no_new_privs || (w.filter && (w.user > 0 || w.no_caps))) &&
	    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
		trouble("cannot set no_new_privs", NULL);
	if (w.mdwe && prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0))
		trouble("PR_SET_MDWE", NULL);
	if (w.filter && !strcmp(w.filter, "container"))
		filter_container();
	else if (w.filter)
		filter_some(w.filter);
	execvp(argv[at + 1], argv + at + 1);
	trouble("cannot run", argv[at + 1]);
	return TROUBLE;
}
