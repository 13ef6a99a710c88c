/* SPDX-License-Identifier: MIT */
/*
 * inject_checks.c - what stands in the way of attaching, by facts that are made
 * up: kernels with Yama, SELinux, AppArmor, user namespaces and filters are not
 * at hand everywhere. Each obstacle is told by its own line of `dinst doctor`, with
 * a fix, and by no other one; and target_open() says the same.
 */
#include <elf.h>
#include <errno.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "inject/ptrace.h"
#include "inject/target_facts.h"

enum { CHECKS_MAX = 40, USER = 1000 };

static const uint64_t PTRACE_ONLY = 1ull << CAPABILITY_PTRACE;
static const uint64_t ALL = (1ull << 41) - 1;

/* A process of our own that nothing forbids us, on a kernel without Yama. */
static struct facts fine(void)
{
	struct facts f = {
		.pid = 4711,
		.exists = true,
		.status = {.name = "server",
			   .state = 'S',
			   .tgid = 4711,
			   .uid = {USER, USER, USER, USER},
			   .gid = {USER, USER, USER, USER}},
		.stat = {.name = "server", .state = 'S'},
		.elf_class = ELFCLASS64,
		.elf_machine = arch_elf_machine,
		.dumpable = true,
		.user_namespace = RELATION_SAME,
		.label = "?",
		.own = {.uid = {USER, USER, USER, USER}, .gid = {USER, USER, USER, USER}},
		.yama = YAMA_ABSENT,
		.children_told = true,
		.compare_ok = true,
	};

	return f;
}

static const struct target_check *find(const struct target_check *checks, size_t count,
				       const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(checks[i].check, name))
			return &checks[i];
	fail_msg("there is no check %s", name);
	return NULL;
}

/* All checks are passed. */
static void assert_fine(const struct facts *f)
{
	struct target_check checks[CHECKS_MAX];
	struct dinst_error e = {0};
	size_t count = facts_checks(f, checks, CHECKS_MAX);

	assert_true(count > 12);
	for (size_t i = 0; i < count; i++)
		if (!checks[i].ok || !checks[i].why[0] || checks[i].fix[0])
			fail_msg("%s: %s; %s", checks[i].check, checks[i].why, checks[i].fix);
	if (facts_obstacle(f, &e))
		fail_msg("%s", e.text);
}

/* Only `name` fails (and "access", where the kernel said no), with these words. */
static void assert_fails(const struct facts *f, const char *name, const char *why, const char *fix)
{
	struct target_check checks[CHECKS_MAX];
	size_t count = facts_checks(f, checks, CHECKS_MAX);
	const struct target_check *c = find(checks, count, name);

	if (c->ok || !strstr(c->why, why) || !strstr(c->fix, fix))
		fail_msg("%s is %s: \"%s\", \"%s\", without \"%s\" or \"%s\"", name,
			 c->ok ? "ok" : "not ok", c->why, c->fix, why, fix);
	if (strlen(c->why) + 1 == sizeof(c->why) || strlen(c->fix) + 1 == sizeof(c->fix))
		fail_msg("%s does not fit: \"%s\" \"%s\"", name, c->why, c->fix);
	for (size_t i = 0; i < count; i++)
		if (!checks[i].ok && &checks[i] != c && strcmp(checks[i].check, "access") != 0)
			fail_msg("%s fails as well: %s", checks[i].check, checks[i].why);
}

/* It is passed, with a word of warning, and so is everything else. */
static void assert_warns(const struct facts *f, const char *name, const char *why, const char *fix)
{
	struct target_check checks[CHECKS_MAX];
	size_t count = facts_checks(f, checks, CHECKS_MAX);
	const struct target_check *c = find(checks, count, name);
	struct dinst_error e = {0};

	if (!c->ok || !strstr(c->why, why) || !strstr(c->fix, fix))
		fail_msg("%s: %d \"%s\", \"%s\"", name, c->ok, c->why, c->fix);
	if (strlen(c->why) + 1 == sizeof(c->why) || strlen(c->fix) + 1 == sizeof(c->fix))
		fail_msg("%s does not fit: \"%s\" \"%s\"", name, c->why, c->fix);
	for (size_t i = 0; i < count; i++)
		if (!checks[i].ok || (checks[i].fix[0] && &checks[i] != c))
			fail_msg("%s: %s; %s", checks[i].check, checks[i].why, checks[i].fix);
	if (facts_obstacle(f, &e))
		fail_msg("%s", e.text);
}

/* target_open() answers `code` because of it, with the reason and the fix. */
static void assert_obstacle(const struct facts *f, int code, const char *words)
{
	struct dinst_error e = {0};
	int got = facts_obstacle(f, &e);

	if (got != code || e.code != code || !strstr(e.text, words))
		fail_msg("%d (%s) instead of %d with \"%s\"", got, e.text, code, words);
}

/* The kernel's no is explained by these words, and stands in nobody's way before it was said. */
static void assert_denial(const struct facts *f, const char *words, const char *fix)
{
	struct dinst_error e = {0};

	if (facts_obstacle(f, &e))
		fail_msg("refused before it was tried: %s", e.text);
	assert_int_equal(facts_denial(f, &e), DINST_NOT_PERMITTED);
	if (!strstr(e.text, words) || !strstr(e.text, fix) || !strstr(e.text, "4711 (server)"))
		fail_msg("\"%s\" has not \"%s\" and \"%s\"", e.text, words, fix);
}

static void test_fine(void **state)
{
	struct facts f = fine();

	(void)state;
	assert_fine(&f);
	f.own.capabilities = f.own.permitted = ALL;
	f.status.uid[0] = f.status.uid[1] = 0;
	assert_fine(&f);
}

/* ------------------------------------------------------------------- Yama */

/*
 * fear A12: Yama's modes 0 to 3, each for the own user, an ancestor, one whom the process permits,
 * and CAP_SYS_PTRACE: who may, who may not, and the setting and the way out are named.
 */
static void test_yama(void **state)
{
	static const struct {
		int scope;
		bool capable, ancestor, permitted;
		bool may;
		const char *why, *fix;
	} cases[] = {
		{YAMA_ABSENT, false, false, true, true, "Yama is not there", ""},
		{YAMA_CLASSIC, false, false, true, true, "ptrace_scope is 0", ""},
		{YAMA_DESCENDANTS, false, false, false, false, "ptrace_scope is 1", "dinst exec"},
		{YAMA_DESCENDANTS, false, false, false, false, "ptrace_scope is 1",
		 "PR_SET_PTRACER"},
		{YAMA_DESCENDANTS, false, true, true, true, "we may all the same", ""},
		{YAMA_DESCENDANTS, false, false, true, true, "we may all the same", ""},
		{YAMA_DESCENDANTS, true, false, true, true, "we may all the same", ""},
		{YAMA_ADMIN, false, true, false, false, "ptrace_scope is 2",
		 "sysctl kernel.yama.ptrace_scope=0"},
		{YAMA_ADMIN, true, false, true, true, "we have CAP_SYS_PTRACE", ""},
		{YAMA_NEVER, false, true, false, false, "ptrace_scope is 3", "reboot"},
		{YAMA_NEVER, true, true, false, false, "nobody may trace anything", "reboot"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct target_check checks[CHECKS_MAX];
		struct facts f = fine();
		size_t count;

		f.yama = cases[i].scope;
		f.descendant = cases[i].ancestor;
		f.access = cases[i].permitted ? 0 : EPERM;
		f.own.capabilities = cases[i].capable ? PTRACE_ONLY : 0;
		if (cases[i].may) {
			assert_fine(&f);
			count = facts_checks(&f, checks, CHECKS_MAX);
			assert_non_null(strstr(find(checks, count, "yama")->why, cases[i].why));
		} else {
			assert_fails(&f, "yama", cases[i].why, cases[i].fix);
			assert_denial(&f, cases[i].why, cases[i].fix);
		}
	}
}

/* ------------------------------------------------------------ who belongs to whom */

/*
 * fear A12: another user, more capabilities than ours (those that it may take, not only those that
 * it uses), not dumpable: told apart, each with what to do.
 */
static void test_users(void **state)
{
	struct facts f = fine();

	(void)state;
	f.access = EPERM;
	f.status.uid[2] = 0; /* the saved one is enough */
	assert_fails(&f, "uid", "belongs to uid 1000", "as root");
	assert_denial(&f, "and you are uid 1000", "as that user or as root");

	f = fine();
	f.access = EPERM;
	f.status.gid[1] = 5;
	assert_denial(&f, "(effective 1000, 5)", "as that user");

	f = fine();
	f.access = EPERM;
	f.status.permitted = 1ull << 10;
	assert_fails(&f, "uid", "capabilities that you have not (0x400)", "CAP_SYS_PTRACE");
	f.own.permitted = f.own.capabilities = 1ull << 10 | 1ull << 3;
	f.access = 0;
	assert_fine(&f);

	f = fine();
	f.access = EPERM;
	f.dumpable = false;
	assert_fails(&f, "dumpable", "PR_SET_DUMPABLE", "as root");
	assert_denial(&f, "may not read", "run dinst as root");
	f.own.capabilities = PTRACE_ONLY;
	f.access = 0;
	assert_fine(&f);
}

/*
 * fear A12, I1: user namespaces: who made one may look into it whatever uids and capabilities its
 * processes have; root within one has no rights over what runs outside.
 */
static void test_user_namespaces(void **state)
{
	struct facts f = fine();

	(void)state;
	f.status.uid[0] = f.status.uid[1] = f.status.uid[2] = 100000;
	f.status.permitted = f.status.capabilities = ALL;
	f.user_namespace = RELATION_OTHER;
	assert_fine(&f);

	f = fine();
	f.inner_user = true;
	f.own.capabilities = f.own.permitted = ALL;
	f.user_namespace = RELATION_UNKNOWN;
	f.access = EPERM;
	assert_fails(&f, "uid", "outside of our user namespace", "outside of the container");
	assert_denial(&f, "do not count", "as root or as the user");
	f.user_namespace = RELATION_SAME;
	f.access = 0;
	assert_fine(&f);
}

/* fear A12: SELinux and AppArmor are named with the label that the process runs under. */
static void test_security_modules(void **state)
{
	static const struct {
		const char *label, *why, *fix;
	} cases[] = {
		{"system_u:system_r:container_t:s0:c1,c2",
		 "SELinux, which runs it as system_u:", "ausearch -m avc"},
		{"docker-default (enforce)", "AppArmor, by the profile docker-default",
		 "ptrace (trace,read)"},
		{"unconfined", "a security module, another user namespace", "audit log"},
		{"?", "does not tell why", "SYS_PTRACE"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct facts f = fine();

		f.access = EPERM;
		snprintf(f.label, sizeof(f.label), "%s", cases[i].label);
		assert_fails(&f, "access", cases[i].why, cases[i].fix);
		assert_denial(&f, cases[i].why, cases[i].fix);
	}
}

/* fear A11: the other tracer is named with its pid and its name, with an error code of its own. */
static void test_tracer(void **state)
{
	struct dinst_error e = {0};
	struct facts f = fine();

	(void)state;
	f.status.tracer = 815;
	snprintf(f.tracer, sizeof(f.tracer), "strace");
	assert_fails(&f, "tracer", "process 815 (strace)", "end process 815");
	assert_obstacle(&f, DINST_TRACED,
			"4711 (server) is already traced by process 815 (strace)");
	assert_string_equal(dinst_code_name(DINST_TRACED), "already-traced");
	/* Another dinst in its stop: the claim says who has the process. */
	snprintf(f.tracer, sizeof(f.tracer), "dinst-mutator");
	assert_fails(&f, "tracer", "process 815 (dinst-mutator)", "end process 815");
	assert_int_equal(facts_obstacle(&f, &e), 0);
}

/*
 * fear A11, I1: the kernel said no to a process of which all that can be seen permits it: that
 * a tracer outside of our pid namespace is one that nobody sees, and where to look for it. What
 * can be seen to forbid it is told first.
 */
static void test_hidden_tracer(void **state)
{
	struct target_check checks[CHECKS_MAX];
	struct facts f = fine();
	size_t count = facts_checks(&f, checks, CHECKS_MAX);

	(void)state;
	assert_non_null(strstr(find(checks, count, "tracer")->why, "nobody that can be seen"));
	assert_denial(&f, "outside of this container", "TracerPid");
	assert_denial(&f, "a security module", "try again");
	f.own.capabilities = f.own.permitted = ALL;
	assert_denial(&f, "strace, gdb, a profiler of the host", "on the host");
	f.access = EPERM;
	assert_denial(&f, "does not tell why", "audit log");
	f.own.capabilities = f.own.permitted = 0;
	f.status.uid[0] = 0;
	assert_denial(&f, "belongs to uid 0", "as that user or as root");
}

/* ------------------------------------------------------------- where we are */

/*
 * fear I1: a /proc that is missing, or of another pid namespace, where pid 5 is somebody else; and
 * one that hides processes of others: said before anybody is touched.
 */
static void test_proc(void **state)
{
	struct target_check checks[CHECKS_MAX];
	struct facts f = fine();

	(void)state;
	f.exists = false;
	f.proc = PROC_MISSING;
	assert_fails(&f, "proc", "not mounted", "mount -t proc");
	assert_obstacle(&f, DINST_UNSUPPORTED, "/proc is not mounted");
	f.proc = PROC_FOREIGN;
	assert_fails(&f, "proc", "another pid namespace", "nsenter");
	assert_obstacle(&f, DINST_UNSUPPORTED, "another pid namespace");
	f.proc = PROC_FINE;
	f.hidden = true;
	assert_fails(&f, "exists", "hidepid", "as root");
	assert_obstacle(&f, DINST_NO_PROCESS, "hidepid");
	f.hidden = false;
	assert_fails(&f, "exists", "no process has the pid 4711", "pgrep");
	/* Nothing else is said of what is not there. */
	for (size_t i = facts_checks(&f, checks, CHECKS_MAX); i-- > 0;)
		assert_true(strcmp(checks[i].check, "tracer") && strcmp(checks[i].check, "bits"));
}

/* fear A9, A12: a filter on ourselves: which call it forbids or kills for, and what serves instead. */
static void test_own_filter(void **state)
{
	struct facts f = fine();

	(void)state;
	f.own.seccomp = PROC_SECCOMP_FILTER;
	assert_fine(&f);
	f.own_calls[OWN_READ] = f.own_calls[OWN_DESCRIPTOR] = f.own_calls[OWN_COMPARE] = -EPERM;
	f.compare_ok = false;
	assert_fine(&f);
	f.own_calls[OWN_PTRACE] = -ENOSYS;
	assert_fails(&f, "calls", "forbids ptrace()", "--cap-add SYS_PTRACE");
	assert_obstacle(&f, DINST_NOT_PERMITTED, "seccomp filter that dinst itself runs under");
	f.own_calls[OWN_PTRACE] = 0;
	f.own_calls[OWN_READ] = PROBE_KILLED;
	assert_fails(&f, "calls", "kills for process_vm_readv()", "profile");
	assert_obstacle(&f, DINST_NOT_PERMITTED, "kills for process_vm_readv()");
	f = fine();
	f.own_calls[OWN_PIDFD] = -EPERM;
	assert_obstacle(&f, DINST_NOT_PERMITTED, "forbids pidfd_open()");
}

/* fear A9: who can suspend the target's filter, and who cannot: then nothing is inserted. */
static void test_target_filter(void **state)
{
	struct dinst_error e = {0};
	struct facts f = fine();

	(void)state;
	f.status.seccomp = PROC_SECCOMP_FILTER;
	assert_fine(&f); /* a thread without one can do it */
	f.all_filtered = true;
	assert_fails(&f, "seccomp", "only CAP_SYS_ADMIN can suspend", "as root");
	assert_int_equal(facts_obstacle(&f, &e), 0);
	assert_int_equal(facts_filter(&f, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "seccomp filter"));
	f.own.capabilities = ALL;
	assert_fine(&f);
	f.inner_user = true;
	assert_fails(&f, "seccomp", "outside of a user namespace", "outside of the container");
	f.inner_user = false;
	f.own.seccomp = PROC_SECCOMP_FILTER;
	assert_fails(&f, "seccomp", "and so do we", "outside of the container");
	f.own.seccomp = 0;
	f.status.seccomp = PROC_SECCOMP_STRICT;
	assert_fails(&f, "strict", "strict seccomp mode", "filter");
	assert_obstacle(&f, DINST_UNSUPPORTED, "strict seccomp mode");
}

/* fear I3: a frozen control group, and one that has no memory left. */
static void test_groups(void **state)
{
	struct facts f = fine();

	(void)state;
	f.frozen = true;
	snprintf(f.frozen_by, sizeof(f.frozen_by), "/sys/fs/cgroup/shop");
	assert_fails(&f, "frozen", "/sys/fs/cgroup/shop", "unpause");
	assert_obstacle(&f, DINST_BUSY, "frozen (/sys/fs/cgroup/shop)");
	f.frozen = false;
	f.limited = true;
	f.memory_room = 5 << 20;
	snprintf(f.limited_by, sizeof(f.limited_by), "/sys/fs/cgroup/shop");
	assert_fine(&f);
	f.memory_room = 100 << 10;
	assert_fails(&f, "memory", "100 KiB more", "raise the limit");
	f.room_unseen = true;
	f.limited = false;
	assert_fails(&f, "memory", "cannot be seen now", "try again");
}

/* fear B8: what makes work slower, or unsure, on a machine as a whole. */
static void test_machine(void **state)
{
	struct facts f = fine();

	(void)state;
	f.memfd_noexec = 2;
	assert_fails(&f, "memfd", "executable memfds are forbidden", "vm.memfd_noexec=1");
	f = fine();
	f.getfd_missing = true;
	assert_fails(&f, "pidfd", "no pidfd_getfd", "5.6");
	f = fine();
	f.compare_ok = false;
	assert_fails(&f, "sharing", "CONFIG_KCMP", "CLONE_VM");
	f = fine();
	f.flags_missing = true;
	assert_fails(&f, "processor", "no LAHF and SAHF", "lahf-lm=on");
	assert_obstacle(&f, DINST_UNSUPPORTED, "no LAHF and SAHF");
	f = fine();
	f.elf_class = ELFCLASS32;
	assert_obstacle(&f, DINST_UNSUPPORTED, "32-bit");
	/* Long names of groups are cut, the rest stays readable. */
	f = fine();
	f.frozen = true;
	memset(f.frozen_by, 'x', sizeof(f.frozen_by) - 1);
	assert_fails(&f, "frozen", "frozen (xxx", "thaw it");
}

/* fear G5: a program under Valgrind, which is not at hand everywhere, is refused with the reason */
static void test_valgrind(void **state)
{
	struct facts f = fine();

	(void)state;
	f.translated = true;
	assert_fails(&f, "translated", "under Valgrind", "without Valgrind");
	assert_obstacle(&f, DINST_UNSUPPORTED, "under Valgrind");
	assert_true(facts_is_valgrind("/usr/libexec/valgrind/vgpreload_core-amd64-linux.so"));
	assert_true(facts_is_valgrind("/src/valgrind-3/.in_place/vgpreload_core-arm64-linux.so"));
	assert_true(facts_is_valgrind("/usr/lib/valgrind/memcheck-amd64-linux"));
	assert_false(facts_is_valgrind("/usr/bin/valgrind"));
	assert_false(facts_is_valgrind("/opt/valgrind/server"));
	assert_false(facts_is_valgrind("/opt/exporter-amd64-linux"));
	assert_false(facts_is_valgrind("/valgrind/x-linux.so"));
	assert_false(facts_is_valgrind("[vdso]"));
	assert_false(facts_is_valgrind(""));
}

/* fear J4: where a kernel uprobe was hit, that is told with what to beware of, and is no obstacle. */
static void test_uprobes(void **state)
{
	struct facts f = fine();

	(void)state;
	f.uprobed = true;
	assert_warns(&f, "uprobes", "kernel uprobe (perf, bpftrace) was hit", "let nobody set");
}

/* Without a process: what is said of the machine and of ourselves. */
static void test_no_target(void **state)
{
	struct target_check checks[CHECKS_MAX];
	struct facts f = fine();
	size_t count;

	(void)state;
	f.pid = 0;
	f.exists = false;
	count = facts_checks(&f, checks, CHECKS_MAX);
	assert_true(count >= 6);
	for (size_t i = 0; i < count; i++) {
		assert_true(checks[i].ok);
		assert_true(strcmp(checks[i].check, "exists") != 0);
	}
	assert_non_null(strstr(find(checks, count, "uid")->why, "our own processes only"));
}

/* ------------------------------------------------------------- the real thing */

/* What is read of a real process agrees with what it is. */
static void test_reading(void **state)
{
	struct facts f;
	pid_t child = fork();

	(void)state;
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pause();
		_exit(0);
	}
	facts_read(&f, child, FACTS_ALL);
	assert_true(f.exists && !f.hidden && f.proc == PROC_FINE);
	assert_int_equal(f.status.tgid, child);
	assert_int_equal(f.elf_class, ELFCLASS64);
	assert_int_equal(f.access, 0);
	assert_int_equal(f.user_namespace, RELATION_SAME);
	assert_true(f.dumpable && f.descendant && !f.all_filtered && !f.frozen);
	assert_true(f.children_told);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	facts_read(&f, child, FACTS_ALL);
	assert_true(!f.exists && !f.hidden);
}

static int never_return(void)
{
	while (pause())
		continue;
	return 0;
}

/* fear A12: a filter whose supervisor never answers counts as one that kills, also for a thread that blocks signals */
static void test_probe_that_hangs(void **state)
{
	sigset_t all, before;

	(void)state;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &before);
	assert_int_equal(probe_in_child(never_return), PROBE_KILLED);
	sigprocmask(SIG_SETMASK, &before, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_fine),
		cmocka_unit_test(test_yama),
		cmocka_unit_test(test_users),
		cmocka_unit_test(test_user_namespaces),
		cmocka_unit_test(test_security_modules),
		cmocka_unit_test(test_tracer),
		cmocka_unit_test(test_hidden_tracer),
		cmocka_unit_test(test_proc),
		cmocka_unit_test(test_own_filter),
		cmocka_unit_test(test_target_filter),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_machine),
		cmocka_unit_test(test_uprobes),
		cmocka_unit_test(test_valgrind),
		cmocka_unit_test(test_no_target),
		cmocka_unit_test(test_reading),
		cmocka_unit_test(test_probe_that_hangs),
	};

	return cmocka_run_group_tests_name("unit/inject_checks", tests, NULL, NULL);
}
