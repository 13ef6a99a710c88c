/* SPDX-License-Identifier: MIT */
/*
 * unread.c - what could not be looked at is not taken for an answer.
 *
 * One call after the other of those that look fails (mishaps.h), once and in ways in which the kernel can
 * let it fail. Whoever asked is then told the truth all the same, or that it cannot be told now; never "no".
 */
#include <sys/prctl.h>

#include "inject/maps.h"
#include "inject/proc.h"
#include "inject/remote_private.h"
#include "inject/shadow.h"
#include "inject/target.h"
#include "inject/arena_place.h"
#include "mutator/leftovers.h"
#include "mutator/request.h"
#include "mutator/owners.h"
#include "tests/live/harness_session.h"
#include "tests/live/inject_help.h"
#include "tests/live/mishaps.h"

enum { LOCKED_MOST = 5 << 20 };

/* ------------------------------------------------- what there is to beware of */

/* A process that Valgrind seems to run, by what is mapped there. */
static pid_t start_translated(struct harness *h)
{
	char path[128];
	pid_t child;
	int fd;

	snprintf(path, sizeof(path), "%s/vgpreload_core-amd64-linux.so", h->directory);
	fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, 4096), 0);
	assert_true(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, fd, 0) != MAP_FAILED);
	close(fd);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	return child;
}

/*
 * fear A12, B3: whether a program runs under Valgrind, whether a uprobe was hit in it, whether it is there at all,
 * cannot be seen for want of a descriptor or memory: nobody attaches, and that is what is said
 */
static void test_obstacles(void **state)
{
	static const struct mishap kinds[] = {{.kind = MISHAP_OPEN, .error = EMFILE},
					      {.kind = MISHAP_READ, .error = ENOMEM},
					      {.kind = MISHAP_MEMORY, .error = ENOMEM}};
	const pid_t translated = start_translated(*state);
	struct dinst_error e = {0};
	struct target_check check;
	struct target *t = NULL;
	int status;

	assert_int_equal(target_open(translated, &t, &e), DINST_UNSUPPORTED);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			dinst_error_clear(&e);
			status = target_open(translated, &t, &e);
			mishap_end();
			if (status != DINST_BUSY && status != DINST_UNSUPPORTED &&
			    status != DINST_NO_MEMORY)
				fail_msg("%s %lu: %d, %s", mishap_name(m.kind), m.at, status,
					 e.text);
		}
	assert_false(target_warns_of_uprobes(translated, &check));
	for (size_t i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		for (struct mishap m = kinds[i]; next_mishap(&m);) {
			const bool warns = target_warns_of_uprobes(translated, &check);

			mishap_end();
			if (mishap_calls(m.kind) >= m.at && !warns)
				fail_msg("%s %lu: %s", mishap_name(m.kind), m.at, check.why);
		}
	kill(translated, SIGKILL);
	assert_int_equal(waitpid(translated, NULL, 0), translated);
}

/* --------------------------------------------------- lists that are cut off */

static void *wait_for_ever(void *unused)
{
	for (;;)
		pause();
	return unused;
}

/* With a thread and a child of its own; or its first thread ends, and that one lives. */
static pid_t start_process(bool leader_exits)
{
	int made[2];
	pid_t child;
	char byte;

	assert_int_equal(pipe(made), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		pthread_t thread;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (memfd_create("dinst", 0) < 0)
			abort();
		if (!leader_exits && !fork()) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			wait_for_ever(NULL);
		}
		pthread_create(&thread, NULL, wait_for_ever, NULL);
		if (write(made[1], "", 1) != 1)
			abort();
		if (leader_exits)
			pthread_exit(NULL);
		pause();
	}
	assert_int_equal(__real_read(made[0], &byte, 1), 1);
	close(made[0]);
	close(made[1]);
	return child;
}

static void end_process(pid_t pid)
{
	struct proc_ids children = {0};

	assert_int_equal(proc_children(pid, pid, &children), 0);
	for (size_t i = 0; i < children.count; i++)
		kill(children.ids[i], SIGKILL);
	proc_ids_release(&children);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* True if the Nth name was not had, whatever the question. */
static bool asks(const char *question, pid_t pid)
{
	struct proc_ids ids = {0};
	size_t count = 0;
	int status = 0, expected = 0;

	if (!strcmp(question, "tasks")) {
		status = proc_tasks(pid, &ids);
		count = ids.count;
		expected = 2;
	} else if (!strcmp(question, "children")) {
		status = proc_children(pid, pid, &ids);
		count = ids.count;
		expected = 1;
	} else if (!strcmp(question, "pages")) {
		status = proc_provides_pages(pid) ? -1 : 0;
	} else if (!strcmp(question, "shadow stacks")) {
		status = shadow_is_on("/proc", pid) ? -1 : 0;
	} else {
		const int lowest = leftovers_descriptor(pid);

		status = lowest == LEFTOVERS_UNSEEN ? -1 : 0;
		expected = 1;
		count = lowest >= 0;
	}
	mishap_end();
	proc_ids_release(&ids);
	if (status >= 0 && count != (size_t)expected)
		fail_msg("%s: %zu, and there are %d", question, count, expected);
	return status < 0;
}

/*
 * fear C1, C9, J3: a list of threads, children or descriptors is cut off by an error in the middle of it: that is
 * said, or taken for the worst, and the rest is not taken for all there is
 */
static void test_lists(void **state)
{
	static const char *const questions[] = {"tasks", "children", "pages", "shadow stacks",
						"descriptors"};
	const pid_t pid = start_process(false);

	(void)state;
	for (size_t i = 0; i < sizeof(questions) / sizeof(*questions); i++) {
		assert_false(asks(questions[i], pid));
		for (struct mishap m = {.kind = MISHAP_LIST, .error = ENOMEM}; next_mishap(&m);)
			if (!asks(questions[i], pid) && mishap_calls(m.kind) >= m.at)
				fail_msg("%s: nothing is said of error %lu", questions[i], m.at);
	}
	end_process(pid);
}

/* fear A13: of the threads that have the memory of a process whose first one has exited none is listed: it has not ended */
static void test_exited_leader(void **state)
{
	const pid_t pid = start_process(true);
	struct dinst_error e = {0};
	struct proc_stat stat;
	struct maps maps;
	int status;

	(void)state;
	harness_until(!proc_stat_read(pid, &stat) && stat.state == 'Z');
	for (struct mishap m = {MISHAP_LIST, 0, CALLS_MOST, ENOMEM}; next_mishap(&m);) {
		dinst_error_clear(&e);
		status = maps_read(pid, &maps, &e);
		mishap_end();
		if (status == DINST_GONE)
			fail_msg("%lu: %s", m.at, e.text);
		if (!status)
			maps_release(&maps);
	}
	end_process(pid);
}

static pid_t linger(struct harness *h)
{
	pid_t child = 0;

	harness_send(h, "linger\n");
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "child %d", &child), 1);
	return child;
}

/*
 * fear G1, G8, J7: the list of all processes is cut off while a forked child runs through what is inserted: nobody
 * takes what was seen for all, and nothing is freed under it
 */
static void test_family(void **state)
{
	struct harness *h = *state;
	struct arena_found found[4];
	struct dinst_error e = {0};
	struct proc_ids none = {0};
	struct owners owners = {.found = found};
	struct session *s;
	size_t count;
	pid_t *pids;
	int status;

	harness_start(h, "forks", NULL);
	s = session_begin(h);
	session_insert(s, "hit");
	linger(h);
	assert_int_equal(arena_find(s->target, found, 4, &e), 1);
	for (struct mishap m = {.kind = MISHAP_LIST, .error = EIO}; next_mishap(&m);) {
		status = arena_sharers(s->places->arena, h->pid, &pids, &count);
		mishap_end();
		if (!status && count != 1)
			fail_msg("%zu sharers at %lu", count, m.at);
		free(status ? NULL : pids);
	}
	for (struct mishap m = {.kind = MISHAP_LIST, .error = EIO}; next_mishap(&m);) {
		dinst_error_clear(&e);
		status = find_owners(&owners, h->pid, &e);
		mishap_end();
		if (status >= 0 && owners.sharers.count != 1)
			fail_msg("%zu owners at %lu", owners.sharers.count, m.at);
		assert_true(status >= 0 || e.text[0]);
	}
	for (struct mishap m = {.kind = MISHAP_LIST, .error = EIO}; next_mishap(&m);) {
		dinst_error_clear(&e);
		status = target_find_sharers(s->target, &none, &e);
		mishap_end();
		if (status >= 0 && mishap_calls(m.kind) >= m.at)
			fail_msg("nobody else is in its memory, was said at %lu", m.at);
	}
	owners_release(&owners);
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
}

/*
 * fear G1, J7: the header of what a dead mutator has left cannot be read for a moment: nobody takes it for one that was
 * never finished, and unmaps what windows lead to
 */
static void test_headers(void **state)
{
	struct harness *h = *state;
	struct arena_found found[4];
	struct dinst_error e = {0};
	struct leftovers left;
	struct session *s;
	struct target *t;

	harness_start(h, "calls", "1", NULL);
	s = session_begin(h);
	session_insert(s, "leaf");
	session_free(s);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	mishap_no_call = true;
	for (struct mishap m = {.kind = MISHAP_OPEN, .error = EMFILE}; next_mishap(&m);) {
		int count;

		dinst_error_clear(&e);
		count = arena_find(t, found, 4, &e);
		mishap_end();
		assert_true(count == 1 || (count < 0 && e.text[0]));
		if (count == 1 && !found[0].header_valid)
			fail_msg("no header of it is seen at %lu", m.at);
	}
	mishap_no_call = false;
	dinst_error_clear(&e);
	assert_int_equal(leftovers_clean(t, HARNESS_ANSWER_MS, &left, &e), 0);
	assert_int_equal(left.arenas_left, 0);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* A child that has had one, which has ended and stays as it is; both go with us. */
static pid_t start_parent_of_ended(pid_t *ended)
{
	struct proc_ids children = {0};
	const pid_t parent = fork();

	assert_true(parent >= 0);
	if (!parent) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!fork())
			_exit(0);
		for (;;)
			pause();
	}
	for (int ms = 0; ms < HARNESS_ANSWER_MS && !children.count; ms++, usleep(1000))
		assert_int_equal(proc_children(parent, parent, &children), 0);
	assert_int_equal(children.count, 1);
	*ended = children.ids[0];
	proc_ids_release(&children);
	return parent;
}

/*
 * fear G1: who comes of nobody of the target's any more, as its own parent has left it, has been seen to have an arena:
 * whom it makes, and who has ended already, may have left one that has it
 */
static void test_earlier(void **state)
{
	struct harness *h = *state;
	struct owners owners = {0};
	pid_t parent, ended;

	harness_start(h, "calls", "1", NULL);
	parent = start_parent_of_ended(&ended);
	assert_false(owners_may_have_had(&owners, ended, h->pid));
	assert_true(owners_may_have_had(&owners, ended, parent));
	assert_int_equal(proc_ids_add(&owners.earlier, parent), 0);
	assert_true(owners_may_have_had(&owners, ended, h->pid));
	kill(parent, SIGKILL);
	assert_int_equal(waitpid(parent, NULL, 0), parent);
	owners_release(&owners);
	harness_end(h, 0);
}

/* fear J6: the kernel has no room for the lock that says who works on a process: that is not taken for having it */
static void test_claim(void **state)
{
	const struct mishap no_locks = {MISHAP_WAIT, 1, 1, ENOLCK};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	int status;

	harness_start(h, "calls", "1", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	mishap_set(&no_locks);
	mishap_begin();
	status = target_claim(t, 0, &e);
	mishap_end();
	assert_int_equal(status, DINST_BUSY);
	dinst_error_clear(&e);
	assert_int_equal(target_claim(t, 0, &e), 0);
	target_close(t);
	harness_end(h, 0);
}

/* ------------------------------------------------------ while they stand still */

/*
 * fear G2: whether a process has yet to execute its program, and its maker waits for that in vfork(), cannot be looked at:
 * it is not stopped, which might take privileges from the program
 */
static void test_vfork(void **state)
{
	const struct stop_options once = {.tries = 1};
	struct harness *h = *state;
	struct proc_ids children = {0};
	struct dinst_error e = {0};
	struct target *t;
	int status;

	harness_start(h, "forks", NULL);
	harness_send(h, "held\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "held");
	harness_until(!proc_children(h->pid, h->pid, &children) && children.count);
	assert_int_equal(target_open(children.ids[0], &t, &e), 0);
	for (struct mishap m = {MISHAP_OPEN, 0, 1, EMFILE}; next_mishap(&m);) {
		dinst_error_clear(&e);
		status = target_stop(t, &once, help_nothing, NULL, NULL, &e);
		mishap_end();
		assert_int_equal(status, DINST_BUSY);
		if (!strstr(e.text, "in vfork()") && !strstr(e.text, strerror(EMFILE)))
			fail_msg("at %lu: %s", m.at, e.text);
	}
	proc_ids_release(&children);
	target_close(t);
	harness_send(h, "\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
	harness_end(h, 0);
}

static int ask_for_sequence(struct stop *s, void *arg, struct dinst_error *e)
{
	const struct mishap all = {MISHAP_READ, 1, CALLS_MOST, ENOMEM};
	struct stop_thread *thread = stop_thread(s, 0);
	const struct arch_regs before = thread->regs;
	int *unread = arg, told, left, chosen;
	struct held *victim;
	taddr_t abort_pc;
	long harmless;

	assert_true(thread->rseq != 0);
	mishap_set(&all);
	mishap_begin();
	told = stop_in_sequence(s, thread, &abort_pc);
	left = stop_leave_sequence(s, thread);
	/* It is the only one that could make it. */
	chosen = told < 0 ? remote_choose_victim(s, &victim, &harmless, e) : DINST_BUSY;
	mishap_end();
	assert_int_equal(chosen, DINST_BUSY);
	dinst_error_clear(e);
	assert_memory_equal(&before, &thread->regs, sizeof(before));
	assert_int_equal(told, left);
	if (!arch_in_syscall(&thread->regs) && told >= 0)
		fail_msg("a thread that runs is in no sequence, was said without looking");
	*unread += told < 0;
	return 0;
}

/*
 * fear B6: whether a thread is inside a restartable sequence cannot be read: it is not said to be outside,
 * its registers stay, and where there is no other one a call of ours can be tried again
 */
static void test_sequence(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct target *t;
	int unread = 0;

	harness_start(h, "remote-registers", "sequence", NULL);
	assert_int_equal(target_open(h->pid, &t, &e), 0);
	for (int i = 0; i < 1000 && unread < 5; i++) {
		dinst_error_clear(&e);
		if (target_stop(t, NULL, ask_for_sequence, &unread, NULL, &e) < 0)
			assert_int_equal(e.code, DINST_BUSY);
	}
	assert_int_equal(unread, 5);
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

/* ------------------------------------------------------- what was not looked at */

static __attribute__((noinline, noclone)) void unread_work(void)
{
	__asm__ volatile("" ::: "memory");
	usleep(1000);
}

static void work_for_ever(void)
{
	for (;;)
		unread_work();
}

static uint64_t locked_bytes(pid_t pid)
{
	uint64_t bytes;

	assert_int_equal(arena_locked_bytes(pid, &bytes, NULL), 0);
	return bytes;
}

static volatile bool *all_is_locked; /* shared: mlockall() counts one mapping after the other */

/* Once told, the process forks a child, and locks its memory. */
static void fork_locked(int signal)
{
	(void)signal;
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work_for_ever();
	}
	*all_is_locked = !mlockall(MCL_CURRENT | MCL_FUTURE);
}

/*
 * fear I3: of a program and a child that it has forked one locks its memory, and it is not the first that is asked: what
 * is kept for each thread is not mapped there, where all of it would be made to exist at once
 */
static void test_locked_child(void **state)
{
	struct proc_ids children = {0};
	struct dinst_error e = {0};
	struct session *s;
	pid_t parent;
	const char *focus = "unread_work";
	struct insert_result result;
	uint64_t locked;
	int status;

	(void)state;
#ifdef __SANITIZE_ADDRESS__
	print_message("skipped: the address sanitizer lets no memory be locked\n");
	skip();
#endif
	all_is_locked = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(all_is_locked != MAP_FAILED);
	parent = fork();
	assert_true(parent >= 0);
	if (!parent) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		signal(SIGUSR1, fork_locked);
		work_for_ever();
	}
	assert_true(session_attach(parent, "locked", &s, &e) >= 0);
	session_insert(s, focus);
	kill(parent, SIGUSR1);
	harness_until(!proc_children(parent, parent, &children) && children.count);
	harness_until(*all_is_locked);
	locked = locked_bytes(parent);
	assert_true(locked > LOCKED_MOST);
	status = request_insert(s, "latency", &focus, 1, &(struct insert_options){0}, &result, &e);
	locked = locked_bytes(parent) - locked;
	if (status >= 0 || locked > LOCKED_MOST)
		fail_msg("%d: it has locked %llu KiB more", status,
			 (unsigned long long)locked >> 10);
	assert_non_null(strstr(e.text, "locks its memory"));
	kill(children.ids[0], SIGKILL);
	session_end(s);
	end_process(parent);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, harness_setup, harness_teardown)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_locked_child),  TEST(test_obstacles), TEST(test_lists),
		TEST(test_exited_leader), TEST(test_family),	TEST(test_earlier),
		TEST(test_headers),	  TEST(test_claim),	TEST(test_vfork),
		TEST(test_sequence),
	};

	mishaps_open();
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests_name("live/unread", tests, NULL, NULL);
}
