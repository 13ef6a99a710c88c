/* SPDX-License-Identifier: MIT */
/*
 * parked_unread.c - libraries that may switch between tasks and are not patched: whose code nobody
 * can read, since another file has taken its place, and whose code is mapped shared.
 */
#include "tests/live/harness.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/parks.h"

/* Gives up what opens /proc/PID/map_files, keeps what attaching takes. */
static bool drop_capabilities(void)
{
	struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct data[2] = {0};

	data[0].permitted = data[0].effective = 1u << CAP_SYS_PTRACE | 1u << CAP_DAC_READ_SEARCH;
	return !syscall(SYS_capset, &header, data);
}

struct plugin {
	char directory[32], path[64];
};

static bool copy_file(const char *from, const char *to)
{
	static char buffer[1 << 20];
	const int in = open(from, O_RDONLY | O_CLOEXEC);
	const int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	const ssize_t n = read(in, buffer, sizeof(buffer));
	const bool done = n > 0 && (size_t)n < sizeof(buffer) && write(out, buffer, n) == n;

	close(in);
	close(out);
	return done;
}

static void make_plugin(struct plugin *p, const char *library)
{
	snprintf(p->directory, sizeof(p->directory), "/tmp/dinst-unread-XXXXXX");
	assert_non_null(mkdtemp(p->directory));
	snprintf(p->path, sizeof(p->path), "%s/plugin", p->directory);
	assert_true(copy_file(harness_path(library), p->path));
}

/* Another file takes its name. */
static void replace_plugin(const struct plugin *p)
{
	char other[64];

	snprintf(other, sizeof(other), "%s/other", p->directory);
	assert_true(copy_file(harness_path("tests/live/targets/plain"), other));
	assert_int_equal(rename(other, p->path), 0);
}

/* In a child without the privilege: 0 as expected, else which step was not. `late`: replaced after the look. */
static int look_unprivileged(struct harness *h, bool late, bool switches)
{
	struct dinst_error e = {0};
	struct session s = {0};

	if (!drop_capabilities())
		return 99;
	if (target_open(h->pid, &s.target, &e) || module_list_read(s.target, &s.modules, &e))
		return 1;
	modules_tell_parks(s.modules, s.target);
	if (target_parks(s.target) != (!late && switches))
		return 2;
	if (!late)
		return 0;
	harness_send(h, "load\n");
	harness_line(h, HARNESS_ANSWER_MS);
	kill(getpid(), SIGSTOP);
	parks_learn(&s, s.target);
	return target_parks(s.target) == switches ? 0 : 3;
}

static void run_replaced(struct harness *h, const char *library, bool late, bool switches)
{
	struct plugin p;
	int status = 0;
	pid_t child;

	make_plugin(&p, library);
	harness_start(h, "image-loads", p.path, NULL);
	if (!late) {
		harness_send(h, "load\n");
		assert_string_equal(harness_line(h, HARNESS_ANSWER_MS), "done");
		replace_plugin(&p);
	}
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(look_unprivileged(h, late, switches));
	assert_int_equal(waitpid(child, &status, WUNTRACED), child);
	if (WIFSTOPPED(status)) {
		replace_plugin(&p);
		kill(child, SIGCONT);
		assert_int_equal(waitpid(child, &status, 0), child);
	}
	harness_end(h, 0);
	unlink(p.path);
	rmdir(p.directory);
	assert_true(WIFEXITED(status));
	if (WEXITSTATUS(status) == 99) {
		print_message("skipped: capabilities cannot be dropped here\n");
		skip();
	}
	assert_int_equal(WEXITSTATUS(status), 0);
}

static const char without[] = "tests/live/targets/libimage-plugin.so",
		  with[] = "tests/live/targets/libswitches.so";

/* fear C2, H5: a library was replaced, and may not be read: whether it switches between tasks is told by what is mapped of it */
static void test_replaced(void **state)
{
	run_replaced(*state, with, false, true);
}

static void test_other_replaced(void **state)
{
	run_replaced(*state, without, false, false);
}

/* fear C2, H5: one that has come since the modules were last looked at */
static void test_replaced_later(void **state)
{
	run_replaced(*state, with, true, true);
}

static void test_other_replaced_later(void **state)
{
	run_replaced(*state, without, true, false);
}

/* True if a process parks that maps the library's code shared. */
static bool parks_with_shared(const char *library)
{
	const char *path = harness_path(library);
	const int fd = open(path, O_RDONLY | O_CLOEXEC);
	const off_t size = lseek(fd, 0, SEEK_END);
	void *code = mmap(NULL, (size_t)size, PROT_READ | PROT_EXEC, MAP_SHARED, fd, 0);
	struct dinst_error e = {0};
	struct module_list *modules = NULL;
	struct target *t = NULL;
	const pid_t child = fork();
	const struct module *m;
	bool parks;

	if (!child)
		for (;;)
			pause();
	assert_true(child > 0 && code != MAP_FAILED);
	munmap(code, (size_t)size);
	close(fd);
	if (target_open(child, &t, &e) || module_list_read(t, &modules, &e))
		fail_msg("%s", e.text);
	m = module_named(modules, path);
	assert_true(m && m->shared && !m->image);
	modules_tell_parks(modules, t);
	parks = target_parks(t);
	module_list_free(modules);
	target_close(t);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return parks;
}

/* fear C2, H5: code that is mapped shared is not patched, and switches all the same */
static void test_shared(void **state)
{
	(void)state;
	assert_false(parks_with_shared(without));
	assert_true(parks_with_shared(with));
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, harness_setup, harness_teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		CASE(test_replaced),	   CASE(test_other_replaced),
		CASE(test_replaced_later), CASE(test_other_replaced_later),
		CASE(test_shared),
	};

	return cmocka_run_group_tests_name("live/parked_unread", tests, NULL, NULL);
}
