/* SPDX-License-Identifier: MIT */
/*
 * late_calls.c - a mutator dies in the middle of a system call that a thread makes
 * for it, a long one; the thread was interrupted in a trampoline, and goes on there.
 * Whoever comes meanwhile must leave all that it may go on in.
 */
#include "tests/live/harness_session.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/heap.h"
#include "inject/maps.h"
#include "inject/remote.h"

enum { SOON_MS = 300, CLEAN_MS = 60000, TRIES = 100000, SLEEP_MS = 4000, DESCRIPTORS = 64 };

/* What the mutator that is to die needs. */
struct doomed {
	struct session *session;
	struct arch_remote_call call;
	pid_t inside; /* the thread that is in a trampoline; 0: any will do */
};

static void ask(struct harness *h, const char *command, const char *answer)
{
	harness_send(h, command);
	assert_non_null(strstr(harness_line(h, HARNESS_ANSWER_MS), answer));
}

static bool pipe_of(pid_t pid, int fd, char *link, size_t size)
{
	char path[64];
	ssize_t got;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, fd);
	got = readlink(path, link, size - 1);
	link[got > 0 ? got : 0] = '\0';
	return got > 0 && !strncmp(link, "pipe:", 5);
}

/* What "unhold" of the program 'fragments' writes a byte to: it makes two pipes, and this last. */
static int release_pipe(pid_t pid)
{
	char links[4][64];
	int fds[4];
	size_t count = 0;

	for (int fd = STDERR_FILENO + 1; fd < DESCRIPTORS && count < 4; fd++)
		if (pipe_of(pid, fd, links[count], sizeof(links[count])))
			fds[count++] = fd;
	assert_int_equal(count, 4);
	assert_string_equal(links[0], links[1]);
	assert_string_equal(links[2], links[3]);
	return fds[2];
}

/* At the entry of the call, which it then makes by itself. */
static int die(struct stop *stop, size_t next, const long *results, void *arg,
	       struct dinst_error *e)
{
	const struct doomed *d = arg;

	(void)next;
	(void)results;
	if (d->inside && remote_victim(stop) != d->inside)
		return dinst_fail(e, DINST_REFUSED, "it is another thread that would make it");
	kill(getpid(), SIGKILL);
	return 0;
}

static int die_in_call(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct doomed *d = arg;
	const struct arch_remote_program program = {.calls = &d->call, .count = 1};
	long result;

	return remote_run(stop, &program, 0, NULL, die, d, &result, e);
}

/* Not before a thread is in a trampoline. */
static int die_inside(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct doomed *d = arg;
	const struct arena *a = d->session->places->arena;

	d->inside = 0;
	for (size_t i = 0; i < stop_thread_count(stop); i++)
		if (arch_pc(&stop_thread(stop, i)->regs) - a->code < a->code_size)
			d->inside = stop_thread(stop, i)->tid;
	return d->inside ? die_in_call(stop, d, e) : 0;
}

/* The mutator; in the child. */
static void insert_and_die(pid_t pid, int fd)
{
	struct dinst_error e = {0};
	struct doomed d = {.call = {.number = SYS_read}};
	taddr_t byte;

	if (session_attach(pid, "doomed", &d.session, &e) < 0)
		_exit(1);
	session_insert(d.session, "part_*");
	if (heap_alloc_words(d.session->places->heap, 1, &byte, &e) < 0)
		_exit(2);
	d.call.args[0].value = (uint64_t)fd;
	d.call.args[1].value = byte;
	d.call.args[2].value = 1;
	for (int i = 0; i < TRIES; i++) {
		dinst_error_clear(&e);
		target_stop(d.session->target, NULL, die_inside, &d, NULL, &e);
		usleep(100);
	}
	_exit(3);
}

static void expect_killed(pid_t mutator)
{
	int status;

	assert_int_equal(waitpid(mutator, &status, 0), mutator);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static struct target *open_target(pid_t pid)
{
	struct dinst_error e = {0};
	struct target *t;

	if (target_open(pid, &t, &e) < 0)
		fail_msg("%s", e.text);
	return t;
}

static void clean_all(struct target *t)
{
	struct dinst_error e = {0};
	struct leftovers left;

	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.arenas_left, 0);
	assert_false(remote_tails_dirty(t));
}

/*
 * fear J2, J1: a mutator dies in the middle of a long call that a thread makes for it which was
 * interrupted in a trampoline: who comes meanwhile is told so and leaves the code that it goes on
 * in, and whoever comes afterwards takes out everything
 */
static void test_dead_in_a_call(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t;
	pid_t mutator;
	int fd;

	harness_limit(600);
	harness_start(h, "fragments", "1", NULL);
	fd = release_pipe(h->pid);
	ask(h, "run\n", "running");
	fflush(NULL);
	mutator = fork();
	if (!mutator)
		insert_and_die(h->pid, fd);
	expect_killed(mutator);
	t = open_target(h->pid);
	for (int i = 0; i < 3; i++) {
		dinst_error_clear(&e);
		assert_int_equal(leftovers_clean(t, SOON_MS, &left, &e), DINST_BUSY);
	}
	assert_non_null(strstr(e.text, "dinst repair"));
	assert_true(remote_tails_dirty(t));
	ask(h, "unhold\n", "unheld");
	clean_all(t);
	target_close(t);
	ask(h, "stop\n", "done");
	harness_verify(h);
	harness_end(h, 0);
}

static int die_in_child(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct doomed *d = arg;

	return target_pid(stop_target(stop)) == d->session->pid ? 0 : die_in_call(stop, arg, e);
}

static void sleep_and_die(struct harness *h)
{
	struct dinst_error e = {0};
	struct doomed d = {.call = {.number = SYS_poll}};

	d.call.args[2].value = SLEEP_MS;
	if (session_attach(h->pid, "doomed", &d.session, &e) < 0)
		_exit(1);
	session_insert(d.session, "hit");
	harness_send(h, "linger\n");
	harness_line(h, HARNESS_ANSWER_MS);
	for (int i = 0; i < TRIES; i++) {
		dinst_error_clear(&e);
		family_stop(d.session, die_in_child, &d, NULL, &e);
	}
	_exit(3);
}

static pid_t only_child(pid_t pid)
{
	char path[64], line[64] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)pid);
	f = fopen(path, "r");
	assert_non_null(f);
	assert_non_null(fgets(line, sizeof(line), f));
	fclose(f);
	return (pid_t)strtol(line, NULL, 10);
}

/* fear J2, G1: the same in a child that runs through the same trampolines */
static void test_dead_in_a_call_of_a_child(void **state)
{
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct leftovers left;
	struct target *t, *child;
	pid_t mutator;

	harness_start(h, "forks", NULL);
	fflush(NULL);
	mutator = fork();
	if (!mutator)
		sleep_and_die(h);
	expect_killed(mutator);
	t = open_target(h->pid);
	child = open_target(only_child(h->pid));
	assert_int_equal(leftovers_clean(t, SOON_MS, &left, &e), 0);
	/* Where the machine was so busy that it has come back by now there was nothing to wait for. */
	if (remote_tails_dirty(child))
		assert_int_equal(left.arenas_left, 1);
	clean_all(t);
	assert_false(remote_tails_dirty(child));
	target_close(child);
	target_close(t);
	harness_send(h, "unlinger\n");
	assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "ended 7");
	harness_verify(h);
	harness_end(h, 0);
}

/* -------------------------------------------------- what cannot be compared */

/* Something behind the code of a library, and the thread that is sent there. */
struct behind {
	pid_t tid;
	taddr_t address;
	uint8_t bytes[ARCH_REMOTE_MAX];
	size_t size;
	struct arch_regs before;
};

/* Behind the last byte of the library's code: its segment does not fill its page. */
static taddr_t find_behind(struct target *t)
{
	struct dinst_error e = {0};
	const struct maps_entry *text = NULL;
	uint8_t page[4096];
	struct maps maps;
	size_t used = sizeof(page);
	taddr_t end;

	assert_int_equal(maps_read(target_pid(t), &maps, &e), 0);
	for (size_t i = 0; i < maps.count; i++)
		if (strstr(maps.entries[i].name, "memfd:plugin") &&
		    maps.entries[i].protection == (PROT_READ | PROT_EXEC))
			text = &maps.entries[i];
	assert_non_null(text);
	end = text->hi;
	maps_release(&maps);
	assert_int_equal(target_read(t, end - sizeof(page), page, sizeof(page), &e), 0);
	while (used && !page[used - 1])
		used--;
	assert_in_range(used, 1, sizeof(page) - ARCH_REMOTE_MAX - 16);
	return (end - sizeof(page) + used + 15) & ~(taddr_t)15;
}

/* A program as a mutator leaves it. */
static int leave_program(struct stop *stop, void *arg, struct dinst_error *e)
{
	const struct arch_remote_call call = {.number = SYS_getpid};
	const struct arch_remote_program program = {.calls = &call, .count = 1};
	struct behind *b = arg;
	struct arch_buf out = {.bytes = b->bytes, .size = sizeof(b->bytes), .pc = b->address};

	arch_emit_remote(&program, &stop_thread(stop, 0)->regs, &out);
	assert_int_equal(out.status, ARCH_OK);
	b->size = out.used;
	return stop_write(stop, b->address, b->bytes, b->size, e);
}

/* One that begins likewise and does not end, with the thread in it. */
static int send_thread(struct stop *stop, void *arg, struct dinst_error *e)
{
	static const uint8_t jump_to_itself[] = {0xeb, 0xfe};
	struct behind *b = arg;
	uint8_t bytes[4 + sizeof(jump_to_itself)];

	memcpy(bytes, b->bytes, 4);
	memcpy(bytes + 4, jump_to_itself, sizeof(jump_to_itself));
	for (size_t i = 0; i < stop_thread_count(stop); i++) {
		struct stop_thread *thread = stop_thread(stop, i);

		if (thread->tid != b->tid)
			continue;
		if (arch_in_syscall(&thread->regs))
			return dinst_fail(e, DINST_BUSY, "it is in a call");
		b->before = thread->regs;
		arch_set_pc(&thread->regs, b->address + 4);
		thread->changed = true;
		return stop_write(stop, b->address, bytes, sizeof(bytes), e);
	}
	return dinst_fail(e, DINST_FAILED, "it is not there");
}

static int bring_back(struct stop *stop, void *arg, struct dinst_error *e)
{
	static const uint8_t zeros[ARCH_REMOTE_MAX];
	const struct behind *b = arg;

	for (size_t i = 0; i < stop_thread_count(stop); i++)
		if (stop_thread(stop, i)->tid == b->tid) {
			stop_thread(stop, i)->regs = b->before;
			stop_thread(stop, i)->changed = true;
		}
	return stop_write(stop, b->address, zeros, b->size, e);
}

static void work_on(struct target *t, stop_work work, void *arg)
{
	struct dinst_error e = {0};

	while (target_stop(t, NULL, work, arg, NULL, &e)) {
		if (e.code != DINST_BUSY)
			fail_msg("%s", e.text);
		dinst_error_clear(&e);
	}
}

/* What opens files of others that have no name any more, or can lift what forbids it. */
static void may_open_all(bool may)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];

	assert_int_equal(syscall(SYS_capget, &header, data), 0);
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted;
	if (!may) {
		data[CAP_TO_INDEX(CAP_SYS_ADMIN)].effective &= ~CAP_TO_MASK(CAP_SYS_ADMIN);
		data[CAP_TO_INDEX(CAP_CHECKPOINT_RESTORE)].effective &=
			~CAP_TO_MASK(CAP_CHECKPOINT_RESTORE);
	}
	assert_int_equal(syscall(SYS_capset, &header, data), 0);
}

/*
 * fear J2, J4: what looks like system calls of an earlier session, behind code whose file cannot be
 * read: nothing is taken out while a thread is in it, and where nobody is it is left and told of
 */
static void test_file_not_readable(void **state)
{
	const char *const argv[] = {harness_path("tests/live/targets/pages-watched"), NULL};
	struct harness *h = *state;
	struct behind b = {0};
	struct dinst_error e = {0};
	struct leftovers left;
	uint8_t now[ARCH_REMOTE_MAX];
	char name[32];
	struct target *t;

	harness_start_argv(h, argv, false);
	assert_int_equal(sscanf(harness_line(h, HARNESS_ANSWER_MS), "ready %d", &b.tid), 1);
	h->before = harness_snapshot_settled(h->pid);
	t = open_target(h->pid);
	b.address = find_behind(t);
	work_on(t, leave_program, &b);
	assert_true(remote_tails_dirty(t));
	may_open_all(false);
	assert_true(remote_tails_dirty(t));
	if (leftovers_clean(t, CLEAN_MS, &left, &e) < 0)
		fail_msg("%s", e.text);
	assert_int_equal(left.unknown_tails, 1);
	assert_int_equal(target_read(t, b.address, now, b.size, &e), 0);
	assert_memory_equal(now, b.bytes, b.size);
	work_on(t, send_thread, &b);
	assert_int_equal(leftovers_clean(t, SOON_MS, &left, &e), DINST_BUSY);
	print_message("%s\n", e.text);
	snprintf(name, sizeof(name), "thread %d ", (int)b.tid);
	assert_non_null(strstr(e.text, name));
	work_on(t, bring_back, &b);
	may_open_all(true);
	assert_false(remote_tails_dirty(t));
	target_close(t);
	harness_verify(h);
	harness_end(h, 0);
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_dead_in_a_call),
		CASE(test_dead_in_a_call_of_a_child),
		CASE(test_file_not_readable),
	};

	return cmocka_run_group_tests_name("live/late_calls", tests, NULL, NULL);
}
