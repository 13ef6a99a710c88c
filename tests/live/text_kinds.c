/* SPDX-License-Identifier: MIT */
/*
 * text_kinds.c - text that is not a private mapping of a file, readable and
 * executable: from a memfd, execute-only, writable, shared, anonymous, on huge
 * pages; and text that the program maps anew while it is instrumented. It is
 * instrumented as any other, or refused; the file is never written to.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_pool.h"
#include "tests/live/harness_session.h"
#include "tests/live/harness_thread.h"

enum { ROUNDS = 5000, FILE_MAX = 1 << 20, CLEAN_MS = 60000 };

static void ask(struct harness *h, const char *command, const char *answer)
{
	char text[64];

	snprintf(text, sizeof(text), "%s\n", command);
	harness_send(h, text);
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), answer);
}

/* False if the program says that this cannot be had here. */
static bool begin(struct harness *h, const char *program, const char *how)
{
	const char *const argv[] = {harness_path(program), how, NULL};
	const char *line;

	harness_start_argv(h, argv, false);
	line = harness_line(h, HARNESS_ANSWER_MS);
	if (!strcmp(line, "ready"))
		return true;
	print_message("SKIP %s: %s\n", how, line);
	harness_end(h, 0);
	return false;
}

static size_t read_library(struct harness *h, uint8_t *bytes)
{
	char path[4096] = "";
	ssize_t size;
	int fd;

	harness_send(h, "file\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "file %4095s", path), 1);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	size = fd >= 0 ? read(fd, bytes, FILE_MAX) : -1;
	assert_true(size > 0);
	close(fd);
	return (size_t)size;
}

/* Entries and exits of the library's function, counted. */
static void count(struct harness *h, struct session *s)
{
	unsigned in = session_insert_kind(s, "plugin_work", POINT_ENTRY);
	unsigned out = session_insert_kind(s, "plugin_work", POINT_EXIT);

	ask(h, "go 5000", "done");
	assert_int_equal(session_value(s, in), ROUNDS);
	assert_int_equal(session_value(s, out), ROUNDS);
	session_remove(s, in);
	session_flush_all(s);
	ask(h, "go 5000", "done");
	assert_int_equal(session_value(s, out), 2 * ROUNDS);
}

static void run_counted(struct harness *h, const char *how)
{
	struct harness_snapshot *before;
	char text[4096];
	struct session *s;

	if (!begin(h, "tests/live/targets/text-kinds", how))
		skip();
	before = harness_snapshot_take(h->pid);
	s = session_begin(h);
	count(h, s);
	session_end(s);
	ask(h, "go 5000", "done");
	if (harness_differences(before, HARNESS_ALL, text, sizeof(text)))
		fail_msg("%s: %s", how, text);
	harness_snapshot_free(before);
	harness_end(h, 0);
}

/* fear B3: text of a file, as ever: what the other cases are compared with */
static void test_plain(void **state)
{
	run_counted(*state, "plain");
}

/* fear B3: a library that was loaded from a memfd is instrumented as any other */
static void test_memfd(void **state)
{
	run_counted(*state, "memfd");
}

/* fear B3: text of which there is a second mapping nearby, as libffi makes one of its trampolines */
static void test_twice(void **state)
{
	run_counted(*state, "twice");
}

/* fear B3, B8: text that may be executed and not read, by a protection key where there are some */
static void test_execute_only(void **state)
{
	run_counted(*state, "xonly");
}

/* fear B3: text that is writable too, as some programs leave it */
static void test_writable(void **state)
{
	run_counted(*state, "wx");
}

/* Refused, or not even seen; nothing is changed, the file least of all. */
static void run_refused(struct harness *h, const char *how)
{
	static uint8_t before[FILE_MAX], after[FILE_MAX];
	struct harness_snapshot *shot;
	struct dinst_error e = {0};
	char text[4096];
	struct session *s;
	unsigned id = 0;
	size_t size;
	int status;

	if (!begin(h, "tests/live/targets/text-kinds", how))
		skip();
	size = read_library(h, before);
	shot = harness_snapshot_take(h->pid);
	s = session_begin(h);
	for (int kind = POINT_ENTRY; kind <= POINT_EXIT; kind++) {
		status = session_try_insert_kind(s, "plugin_work", (enum point_kind)kind, &id, &e);
		if (status >= 0)
			fail_msg("%s: instrumented", how);
		print_message("%s: %s\n", how, e.text);
		assert_int_equal(e.code, DINST_NO_FUNCTION);
		assert_non_null(strstr(e.text, "no function matches 'plugin_work'"));
		dinst_error_clear(&e);
	}
	assert_int_equal(read_library(h, after), size);
	assert_memory_equal(before, after, size);
	ask(h, "go 5000", "done");
	session_end(s);
	ask(h, "go 5000", "done");
	if (harness_differences(shot, HARNESS_ALL & ~HARNESS_TEXT, text, sizeof(text)))
		fail_msg("%s: %s", how, text);
	harness_snapshot_free(shot);
	harness_end(h, 0);
}

/* fear B3: text mapped shared: a patch would be everybody's; refused */
static void test_shared(void **state)
{
	run_refused(*state, "shared");
}

/* fear B3: shared and writable: a patch would go into the file; refused, the file is as it was */
static void test_shared_writable(void **state)
{
	run_refused(*state, "writable");
}

/* fear B3, G5: text that was replaced by anonymous memory counts as made at run time; refused */
static void test_anonymous(void **state)
{
	run_refused(*state, "anon");
}

/* fear B3: the same by mremap(2) */
static void test_moved(void **state)
{
	run_refused(*state, "moved");
}

/*
 * The program maps its text anew while it is patched. Copies of it contain our
 * jumps, which lead where they led; or the file's bytes are back.
 */
static void run_remapped(struct harness *h, const char *how, bool copied)
{
	static uint8_t before[FILE_MAX], after[FILE_MAX];
	uint8_t code[64], now[64];
	char command[32];
	struct session *s;
	taddr_t at;
	unsigned id;
	size_t size;
	uint64_t value;

	if (!begin(h, "tests/live/targets/text-kinds", "plain"))
		skip();
	size = read_library(h, before);
	s = session_begin(h);
	id = session_insert_kind(s, "plugin_work", POINT_ENTRY);
	at = s->instances->links->site->key.start;
	thread_peek(h->pid, at, now, sizeof(now));
	session_remove(s, id);
	session_flush_all(s);
	thread_peek(h->pid, at, code, sizeof(code));
	assert_memory_not_equal(code, now, sizeof(code));
	id = session_insert_kind(s, "plugin_work", POINT_ENTRY);
	ask(h, "go 5000", "done");
	snprintf(command, sizeof(command), "map %s", how);
	ask(h, command, "mapped");
	ask(h, "go 5000", "done");
	value = session_value(s, id);
	assert_int_equal(value, copied ? 2 * ROUNDS : ROUNDS);
	/* Whatever is asked for now is answered, and harms nobody. */
	for (int kind = POINT_ENTRY; kind <= POINT_EXIT; kind++) {
		struct dinst_error e = {0};
		unsigned other;

		session_try_insert_kind(s, "plugin_work", (enum point_kind)kind, &other, &e);
		session_try_insert_kind(s, "plugin_leaf", (enum point_kind)kind, &other, &e);
		ask(h, "go 5000", "done");
	}
	session_end(s);
	ask(h, "go 5000", "done");
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_equal(code, now, sizeof(code));
	assert_int_equal(read_library(h, after), size);
	assert_memory_equal(before, after, size);
	harness_end(h, 0);
}

/* fear B3: text that becomes anonymous while it is patched: it is the original again afterwards */
static void test_becomes_anonymous(void **state)
{
	run_remapped(*state, "anon", true);
}

/* fear B3: the same by mremap(2) */
static void test_becomes_moved(void **state)
{
	run_remapped(*state, "moved", true);
}

/* fear B3: the same with text that becomes execute-only */
static void test_becomes_execute_only(void **state)
{
	run_remapped(*state, "xonly", true);
}

/* fear B3: text that is mapped shared while it is patched: the file is not written to */
static void test_becomes_shared(void **state)
{
	run_remapped(*state, "shared", false);
}

/* fear B3: the same with a mapping that could be written through */
static void test_becomes_shared_writable(void **state)
{
	run_remapped(*state, "writable", false);
}

/* From now on this process cannot read through /proc/PID/mem, which asks for no rights. */
static bool forbid_override(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pread64, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(*code), code};

	return !prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) &&
	       !prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

/* The exit status says how it went. */
static void remove_unreadable(struct harness *h)
{
	struct session *s = session_begin(h);
	struct flush_result result = {0};
	struct dinst_error e = {0};
	unsigned id = session_insert_kind(s, "plugin_work", POINT_ENTRY);

	ask(h, "go 5000", "done");
	ask(h, "map none", "mapped");
	if (!forbid_override())
		_exit(2);
	if (removal_remove(s, session_instance(s, id), &result, &e) < 0 ||
	    removal_flush(s, &result, &e) < 0)
		_exit(3);
	if (!result.queued)
		_exit(4);
	ask(h, "map text", "mapped");
	ask(h, "go 5000", "done");
	session_end(s);
	_exit(0);
}

/*
 * fear B3, J1: text that nobody can read just then, we neither: nothing that its jumps lead to is
 * freed before they are out
 */
static void test_unreadable(void **state)
{
	struct harness *h = *state;
	int status;
	pid_t child;

	if (!begin(h, "tests/live/targets/text-kinds", "plain"))
		skip();
	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0)
		remove_unreadable(h);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	ask(h, "go 5000", "done");
	harness_end(h, 0);
}

/* ------------------------------------------------------ nobody is there any more */

/* A mutator that has entries and exits of the function, and dies. */
static void leave(struct harness *h)
{
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (child == 0) {
		struct session *s = session_begin(h);

		session_insert_kind(s, "plugin_work", POINT_ENTRY);
		session_insert_kind(s, "plugin_work", POINT_EXIT);
		kill(getpid(), SIGKILL);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void clean(struct harness *h, size_t *arenas_left)
{
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;

	if (target_open(h->pid, &t, &e) < 0 || leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	*arenas_left = left.arenas_left;
	target_close(t);
}

/* The text is mapped anew with our jumps in it, and somebody else comes and takes them out. */
static void run_left(struct harness *h, const char *how)
{
	uint8_t code[64], now[64];
	char command[32];
	struct session *s;
	size_t arenas_left;
	taddr_t at;

	if (!begin(h, "tests/live/targets/text-kinds", "plain"))
		skip();
	s = session_begin(h);
	session_insert_kind(s, "plugin_work", POINT_ENTRY);
	at = s->instances->links->site->key.start;
	session_end(s);
	thread_peek(h->pid, at, code, sizeof(code));
	leave(h);
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_not_equal(code, now, sizeof(code));
	snprintf(command, sizeof(command), "map %s", how);
	ask(h, command, "mapped");
	clean(h, &arenas_left);
	ask(h, "map text", "mapped");
	ask(h, "go 5000", "done");
	thread_peek(h->pid, at, now, sizeof(now));
	assert_memory_equal(code, now, sizeof(code));
	assert_int_equal(arenas_left, 0);
	harness_end(h, 0);
}

/* fear J2, B3: a mutator dies, and text with its jumps becomes anonymous: they are taken out */
static void test_left_in_anonymous(void **state)
{
	run_left(*state, "anon");
}

/* fear J2, B3: the same by mremap(2) */
static void test_left_in_moved(void **state)
{
	run_left(*state, "moved");
}

/* fear J2, B3: the same with text that may be written, and not executed, just then */
static void test_left_in_data(void **state)
{
	run_left(*state, "data");
}

/* fear J2, B3: the same with text that nobody may touch just then */
static void test_left_in_nothing(void **state)
{
	run_left(*state, "none");
}

/* -------------------------------------------------------------- huge pages */

/* The pool's are huge for sure; of the others the kernel makes huge ones where it has them: false if not. */
static bool expect_huge(struct harness *h, const char *how)
{
	unsigned long kib = 0;

	harness_send(h, "pages\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "huge %lu KiB", &kib), 1);
	print_message("%s%s: %lu KiB on huge pages\n", kib || !strcmp(how, "small") ? "" : "SKIP ",
		      how, kib);
	assert_true(strcmp(how, "small") ? kib || strcmp(how, "hugetlb") : !kib);
	return kib || !strcmp(how, "small");
}

static void run_huge(struct harness *h, const char *how, bool while_patched)
{
	uint8_t before[2][16], after[16];
	taddr_t at[2] = {0};
	char command[32];
	struct session *s;
	unsigned ids[2];
	bool huge;

	if (!begin(h, "tests/live/targets/text-huge", while_patched ? "later" : how))
		skip();
	s = session_begin(h);
	for (int i = 0; i < 2; i++) {
		at[i] = session_address(s, i ? "huge_last" : "huge_first");
		thread_peek(h->pid, at[i], before[i], sizeof(before[i]));
	}
	if (while_patched) {
		ids[0] = session_insert_kind(s, "huge_first", POINT_ENTRY);
		ids[1] = session_insert_kind(s, "huge_last", POINT_EXIT);
		ask(h, "go 5000", "done");
		snprintf(command, sizeof(command), "map %s", how);
		ask(h, command, "mapped");
	} else {
		ids[0] = session_insert_kind(s, "huge_*", POINT_ENTRY);
		ids[1] = session_insert_kind(s, "huge_*", POINT_EXIT);
	}
	ask(h, "go 5000", "done");
	assert_int_equal(session_value(s, ids[0]), 2 * ROUNDS);
	assert_int_equal(session_value(s, ids[1]), 2 * ROUNDS);
	huge = expect_huge(h, how);
	session_end(s);
	ask(h, "go 5000", "done");
	expect_huge(h, how);
	for (int i = 0; i < 2; i++) {
		thread_peek(h->pid, at[i], after, sizeof(after));
		assert_memory_equal(before[i], after, sizeof(after));
	}
	harness_end(h, 0);
	/* All of it was right, but of ordinary pages, which is another case. */
	if (!huge)
		skip();
}

/* fear B3: text that a program has put on huge pages by itself counts exactly, and is restored */
static void test_huge(void **state)
{
	run_huge(*state, "huge", false);
}

/* fear B3: the same while it is patched: counts go on, and it comes out again */
static void test_becomes_huge(void **state)
{
	run_huge(*state, "huge", true);
}

/* fear B3: the same where the kernel has no huge page to give */
static void test_becomes_small(void **state)
{
	run_huge(*state, "small", true);
}

static bool has_pool;

static int setup_pool(void **state)
{
	const int err = harness_setup(state);

	has_pool = harness_pool_take();
	return err;
}

static int teardown_pool(void **state)
{
	const int err = harness_teardown(state);

	if (has_pool)
		harness_pool_give_back();
	return err;
}

static void run_reserved(void **state, bool while_patched)
{
	if (!has_pool) {
		print_message("SKIP hugetlb: no page can be reserved\n");
		skip();
	}
	if (!harness_pool_is_written()) {
		print_message("SKIP hugetlb: the kernel writes nothing there for us\n");
		skip();
	}
	run_huge(*state, "hugetlb", while_patched);
}

/* fear B3: the same on pages of hugetlb, which the kernel neither splits nor swaps */
static void test_hugetlb(void **state)
{
	run_reserved(state, false);
}

/* fear B3: text that comes to lie on pages of hugetlb while it is patched */
static void test_becomes_hugetlb(void **state)
{
	run_reserved(state, true);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_plain),
		CASE(test_memfd),
		CASE(test_twice),
		CASE(test_execute_only),
		CASE(test_writable),
		CASE(test_shared),
		CASE(test_shared_writable),
		CASE(test_anonymous),
		CASE(test_moved),
		CASE(test_becomes_anonymous),
		CASE(test_becomes_moved),
		CASE(test_becomes_execute_only),
		CASE(test_becomes_shared),
		CASE(test_becomes_shared_writable),
		CASE(test_unreadable),
		CASE(test_left_in_anonymous),
		CASE(test_left_in_moved),
		CASE(test_left_in_data),
		CASE(test_left_in_nothing),
		CASE(test_huge),
		CASE(test_becomes_huge),
		CASE(test_becomes_small),
		cmocka_unit_test_setup_teardown(test_hugetlb, setup_pool, teardown_pool),
		cmocka_unit_test_setup_teardown(test_becomes_hugetlb, setup_pool, teardown_pool),
	};

	return cmocka_run_group_tests_name("live/text_kinds", tests, NULL, NULL);
}
