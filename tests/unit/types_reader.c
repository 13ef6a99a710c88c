/* SPDX-License-Identifier: MIT */
/*
 * types_reader.c - debug information read by a confined child: the answers are those
 * that are got without one, the child can do nothing else, and its death is no more
 * than a lack of answers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/confine.h"
#include "mutator/image_private.h"
#include "mutator/types_reader.h"

static struct image *open_target(const char *name)
{
	const char *build = getenv("DINST_BUILD");
	struct dinst_error e = {0};
	struct image *img = NULL;
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%s/tests/live/targets/%s", build ? build : "build", name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	assert_true(fd >= 0);
	if (image_open(fd, path, NULL, &img, &e) < 0)
		fail_msg("%s", e.text);
	close(fd);
	return img;
}

/* ------------------------------------------------------------------- answers */

static void same_type(const struct type *a, const struct type *b, unsigned depth)
{
	struct type_name told[8];
	const char *names[8];
	struct type target[2];
	bool floats[2][2] = {{false, false}, {false, false}};
	size_t count;

	assert_int_equal(a->kind, b->kind);
	assert_int_equal(a->size, b->size);
	assert_int_equal(a->die, b->die);
	assert_int_equal(a->is_signed, b->is_signed);
	assert_int_equal(a->is_aligned, b->is_aligned);
	if (depth == 3 || !a->die)
		return;
	type_target(a, &target[0]);
	types_reader_enable(false);
	type_target(b, &target[1]);
	types_reader_enable(true);
	same_type(&target[0], &target[1], depth + 1);
	if (a->kind != TYPE_STRUCT)
		return;
	count = type_field_names(a, told, 8);
	assert_int_equal(type_words(a, floats[0]), read_words(b, floats[1]));
	assert_memory_equal(floats[0], floats[1], sizeof(floats[0]));
	assert_int_equal(count, read_field_names(b, names, 8));
	for (size_t i = 0; i < count; i++) {
		struct type_field f = {0}, g = {0};

		assert_string_equal(told[i].text, names[i]);
		assert_int_equal(type_field(a, told[i].text, &f), read_field(b, names[i], &g));
		assert_int_equal(f.offset, g.offset);
		assert_int_equal(f.bit_size, g.bit_size);
		assert_int_equal(f.bit_offset, g.bit_offset);
		same_type(&f.type, &g.type, depth + 1);
	}
}

/* fear L1: what it says of functions that were inlined is what is read without it; there is more than none */
static void test_inlined(void **state)
{
	static const struct {
		const char *target, *name, *caller;
	} known[] = {
		{"names", "names_inlined", "main"},
		{"names", "names_real", NULL},
		{"names", "inlined", NULL},
		{"names", "", NULL},
		{"classes", "made_of::add", "main"},
		{"classes", "add", "main"},
		{"classes", "made_of::add(int, made_of::parts const&)", "main"},
		{"classes", "made_of::add(int)", NULL},
		{"classes", "of::add", NULL},
		{"classes", "made_of::parts::get", "main"},
		{"classes", "made_of::parts::get() const", "main"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		struct image *img = open_target(known[i].target);
		struct type_name callers[2][3];
		size_t count[2];

		for (int n = 0; n < 2; n++) {
			types_reader_enable(n == 0);
			if (types_inlined(img, known[i].name, callers[n], 3, &count[n]) !=
			    (known[i].caller != NULL))
				fail_msg("%s in %s", known[i].name, known[i].target);
			assert_int_equal(count[n], known[i].caller ? 1 : 0);
			if (known[i].caller)
				assert_string_equal(callers[n][0].text, known[i].caller);
		}
		assert_true(types_reader_pid(img) > 0);
		image_close(img);
	}
}

/* fear L1: types that the confined child reads are those that are read without it */
static void test_answers(void **state)
{
	static const char *const names[] = {"typed", "classes"};

	(void)state;
	for (size_t n = 0; n < 2; n++) {
		struct image *img = open_target(names[n]);
		const struct image_function *functions;
		size_t count = image_functions(img, &functions), known = 0;
		pid_t reader;

		for (uint32_t i = 0; i < count; i++) {
			struct type_function a, b;

			types_reader_enable(true);
			types_of_function(img, i, &a);
			read_function(img, i, &b);
			assert_int_equal(a.known, b.known);
			assert_int_equal(a.variadic, b.variadic);
			assert_int_equal(a.argument_count, b.argument_count);
			same_type(&a.result, &b.result, 0);
			for (size_t k = 0; k < a.argument_count; k++)
				same_type(&a.arguments[k], &b.arguments[k], 0);
			known += a.known;
		}
		assert_true(known > 3);
		reader = types_reader_pid(img);
		assert_true(reader > 0);
		image_close(img);
		assert_int_equal(kill(reader, 0), -1);
	}
	types_reader_enable(false);
}

static long status_of(pid_t pid, const char *key)
{
	char path[64], line[256];
	long value = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	assert_non_null(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			value = strtol(line + strlen(key), NULL, 10);
	fclose(f);
	return value;
}

static unsigned descriptors_of(pid_t pid)
{
	const struct dirent *d;
	unsigned count = 0;
	char path[64];
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	assert_non_null(dir);
	while ((d = readdir(dir)))
		count += d->d_name[0] != '.';
	closedir(dir);
	return count;
}

/* fear L1: what reads debug information is under a filter and has one connection, and nothing else */
static void test_confined(void **state)
{
	struct image *img = open_target("typed");
	struct type_function f;
	struct rlimit memory;
	pid_t reader;

	(void)state;
	types_reader_enable(true);
	types_of_function(img, 0, &f);
	reader = types_reader_pid(img);
	assert_true(reader > 0);
	assert_int_equal(status_of(reader, "Seccomp:"), 2);
	assert_int_equal(status_of(reader, "NoNewPrivs:"), 1);
	assert_int_equal(descriptors_of(reader), 1);
	assert_int_equal(prlimit(reader, RLIMIT_DATA, NULL, &memory), 0);
	assert_true(memory.rlim_max >= CONFINED_BYTES && memory.rlim_max < 2 * CONFINED_BYTES);
	assert_int_equal(memory.rlim_cur, memory.rlim_max);
	/* we ourselves are not filtered: who is may not look into others' filters */
	assert_int_equal(status_of(getpid(), "Seccomp:"), 0);
	image_close(img);
	types_reader_enable(false);
}

static uint32_t function_named(struct image *img, const char *name)
{
	uint32_t *found, index;
	size_t count;

	assert_int_equal(image_match(img, name, &found, &count, NULL), 0);
	assert_int_equal(count, 1);
	index = found[0];
	free(found);
	return index;
}

/* fear L1: an enumeration that is of its own type is an integer, and nobody looks for its sign for ever */
static void test_endless(void **state)
{
	struct image *img = open_target("typed-hostile");
	const uint32_t function = function_named(img, "takes_endless");

	(void)state;
	for (int child = 0; child < 2; child++) {
		struct type_function f;

		types_reader_enable(child);
		types_of_function(img, function, &f);
		assert_true(f.known);
		assert_int_equal(f.argument_count, 1);
		assert_int_equal(f.arguments[0].kind, TYPE_INTEGER);
		assert_int_equal(f.arguments[0].size, 4);
		assert_false(f.arguments[0].is_signed);
	}
	assert_true(types_reader_pid(img) > 0);
	image_close(img);
	types_reader_enable(false);
}

/* fear L1: whoever asks for names again and again gets them, and nothing of us grows */
static void test_names_asked_again(void **state)
{
	enum { TIMES = 4000, MEMBERS = 6 };
	struct image *img = open_target("typed");
	const uint32_t function = function_named(img, "takes_node");
	const struct string_chunk *before;
	struct type_name names[8];
	struct type_function f;
	struct type node;

	(void)state;
	types_reader_enable(true);
	types_of_function(img, function, &f);
	assert_true(f.argument_count > 0);
	type_target(&f.arguments[0], &node);
	before = img->strings.chunks;
	for (int i = 0; i < TIMES; i++)
		assert_int_equal(type_field_names(&node, names, 8), MEMBERS);
	assert_ptr_equal(img->strings.chunks, before);
	assert_string_equal(names[0].text, "next");
	/* And one that has less room. */
	assert_int_equal(type_field_names(&node, names, 1), 1);
	image_close(img);
	types_reader_enable(false);
}

/* fear L1: a reader that an enemy's file has killed is an image without debug information */
static void test_death(void **state)
{
	struct image *img = open_target("typed");
	const struct image_function *functions;
	size_t count = image_functions(img, &functions);
	struct type_function f;
	uint32_t some = 0;
	struct type type;
	pid_t reader;

	(void)state;
	types_reader_enable(true);
	do {
		types_of_function(img, some, &f);
	} while (!(f.known && f.argument_count && f.arguments[0].die) && ++some < count);
	assert_true(some < count);
	reader = types_reader_pid(img);
	assert_int_equal(kill(reader, SIGKILL), 0);
	type = f.arguments[0];
	for (int i = 0; i < 2; i++) {
		types_of_function(img, some, &f);
		assert_false(f.known);
		type_target(&type, &f.result);
		assert_int_equal(f.result.kind, TYPE_UNKNOWN);
		assert_int_equal(types_reader_pid(img), 0);
	}
	assert_int_equal(waitpid(-1, NULL, 0), -1);
	assert_int_equal(errno, ECHILD);
	image_close(img);
	types_reader_enable(false);
}

/* ------------------------------------------------------------------ the filter */

static void try_exec(void)
{
	execl("/bin/true", "true", (char *)NULL);
}

static void try_socket(void)
{
	socket(AF_INET, SOCK_STREAM, 0);
}

static void try_unix_socket(void)
{
	int pair[2];

	socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
}

static void try_write(void)
{
	open("/dev/null", O_WRONLY | O_CLOEXEC);
}

static void try_create(void)
{
	open("/tmp/dinst-confined", O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static void try_exec_memory(void)
{
	mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void try_exec_protect(void)
{
	static char page[8192] __attribute__((aligned(4096)));

	mprotect(page, 4096, PROT_READ | PROT_WRITE | PROT_EXEC);
}

static void try_fork(void)
{
	syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
}

static void try_kill(void)
{
	syscall(SYS_kill, getppid(), 0);
}

static void try_ptrace(void)
{
	syscall(SYS_ptrace, PTRACE_SEIZE, getppid(), 0, 0);
}

static void try_peek(void)
{
	syscall(SYS_process_vm_readv, getppid(), NULL, 0, NULL, 0, 0);
}

static void try_unlink(void)
{
	unlink("/tmp/dinst-confined");
}

static void try_mount(void)
{
	syscall(SYS_mount, "none", "/tmp", "tmpfs", 0, NULL);
}

static void try_user(void)
{
	syscall(SYS_setuid, 0);
}

static void try_ring(void)
{
	syscall(SYS_io_uring_setup, 8, NULL);
}

static void try_unknown(void)
{
	syscall(4000);
}

/* What reading needs. */
static void use_what_is_allowed(void)
{
	char *memory = malloc(8 << 20);

	/* Libraries may ask, and do without. */
	if (!memory || open("/proc/self/stat", O_RDONLY | O_CLOEXEC) != -1 || errno != EPERM)
		_exit(1);
	memset(memory, 1, 8 << 20);
	memory = realloc(memory, 32 << 20);
	if (!memory || fcntl(0, F_GETFD) != -1 || errno != EPERM)
		_exit(2);
	free(memory);
}

/* How a confined child ends that does this: a signal, or -status. */
static int confined(void (*does)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		int error = confine_self();

		if (error)
			_exit(99);
		does();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? WTERMSIG(status) : -WEXITSTATUS(status);
}

/* fear L1: no program, socket, file, process, user or executable memory is to be had from there */
static void test_filter(void **state)
{
	static void (*const forbidden[])(void) = {
		try_exec,   try_socket,	     try_unix_socket,  try_write,
		try_create, try_exec_memory, try_exec_protect, try_fork,
		try_kill,   try_ptrace,	     try_peek,	       try_unlink,
		try_mount,  try_user,	     try_ring,	       try_unknown,
	};
	int ends = confined(use_what_is_allowed);

	(void)state;
	if (ends == -99) {
		print_message("skipped: this kernel has no filters of system calls\n");
		skip();
	}
	assert_int_equal(ends, 0);
	for (size_t i = 0; i < sizeof(forbidden) / sizeof(forbidden[0]); i++) {
		ends = confined(forbidden[i]);
		if (ends != SIGSYS)
			fail_msg("case %zu ended with %d", i, ends);
	}
	assert_int_equal(access("/tmp/dinst-confined", F_OK), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_filter),	cmocka_unit_test(test_answers),
		cmocka_unit_test(test_inlined), cmocka_unit_test(test_confined),
		cmocka_unit_test(test_endless), cmocka_unit_test(test_names_asked_again),
		cmocka_unit_test(test_death),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
