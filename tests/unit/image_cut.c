/* SPDX-License-Identifier: MIT */
/*
 * image_cut.c - files that are cut short or overwritten while they are read: what
 * has gone reads as zeros, whoever reads it finds a damaged file at worst, and a
 * bus error that has another reason still ends us.
 *
 * cmocka has a handler of its own for bus errors, so that each case is in a child,
 * which is the first to map something: the guard is installed once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mutator/image_private.h"

enum { PAGE = 4096, CUTS = 24, RACES = 200 };

/* In the child: a status that says where. */
static void check(bool ok, int line)
{
	if (ok)
		return;
	fprintf(stderr, "image_cut.c:%d\n", line);
	_exit(1);
}

#define must(condition) check(condition, __LINE__)

/* How the child ended in which the case is. */
static int status_of(void (*work)(void))
{
	const struct rlimit no_core = {0, 0};
	pid_t child;
	int status;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child) {
		signal(SIGBUS, SIG_DFL);
		signal(SIGSEGV, SIG_DFL);
		setrlimit(RLIMIT_CORE, &no_core);
		alarm(100);
		work();
		_exit(0);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return status;
}

/* A copy of ourselves: a program with symbols, unwind data and much code. */
static int copy_of_us(off_t *size)
{
	int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	int to = memfd_create("copy", MFD_CLOEXEC);
	static char bytes[1 << 16];
	struct stat st;
	ssize_t got;

	must(from >= 0 && to >= 0);
	while ((got = read(from, bytes, sizeof(bytes))) > 0)
		must(write(to, bytes, (size_t)got) == got);
	must(!got);
	close(from);
	must(!fstat(to, &st));
	*size = st.st_size;
	return to;
}

/* Reads all that can be asked of an image; the answers may be anything. */
static size_t use(struct image *img)
{
	const struct image_function *functions;
	struct dinst_error e = {0};
	size_t count = image_functions(img, &functions), sum = 0;

	for (size_t i = 0; i < count; i++)
		sum += strlen(functions[i].name) +
		       strlen(image_readable_name(img, functions[i].name));
	image_references(img, &e);
	return sum;
}

static void cut_pages(void)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	const volatile uint8_t *bytes;
	size_t zeros = 0;
	uint8_t *map;

	must(!ftruncate(fd, 5 * PAGE + 100));
	for (off_t at = 0; at < 5 * PAGE + 100; at += 4)
		must(pwrite(fd, "abcd", 4, at) == 4);
	map = file_map(fd, 5 * PAGE + 100);
	must(map != NULL);
	bytes = map;
	must(bytes[4 * PAGE] == 'a');
	must(!ftruncate(fd, 2 * PAGE));
	for (size_t i = 0; i < 6 * PAGE; i++)
		zeros += bytes[i] == 0;
	must(zeros == 4 * PAGE && bytes[2 * PAGE - 1] == 'd');
	/* Behind each lies a page of zeros. */
	must(!bytes[6 * PAGE] && !bytes[7 * PAGE - 1]);
	file_unmap(map, 5 * PAGE + 100);
}

/* fear F6: a mapped file is cut short: what has gone reads as zeros, the rest as before */
static void test_cut_pages(void **state)
{
	(void)state;
	assert_int_equal(status_of(cut_pages), 0);
}

static void cut_image(void)
{
	struct dinst_error e = {0};
	struct image *img;
	off_t size;

	for (int cut = 0; cut < CUTS; cut++) {
		int fd = copy_of_us(&size);

		must(!image_open(fd, "copy", NULL, &img, &e));
		must(!ftruncate(fd, size / CUTS * cut));
		use(img);
		image_close(img);
		close(fd);
	}
}

/* fear F6: a program is cut off after it was opened, at any size: it is read to its end, and we live */
static void test_cut_image(void **state)
{
	(void)state;
	assert_int_equal(status_of(cut_image), 0);
}

struct race {
	int fd;
	off_t size;
	atomic_bool over;
};

/* Cuts the file off, now here, now there, and puts zeros in the place of what has gone. */
static void *cut_and_grow(void *arg)
{
	struct race *race = arg;
	unsigned seed = 5;

	/* Zeros from the end on, so that not all is gone at once. */
	for (off_t left = race->size; !race->over; left -= left / 64) {
		if (ftruncate(race->fd, left - rand_r(&seed) % (left / 64 + 1)) ||
		    ftruncate(race->fd, race->size))
			break;
	}
	return NULL;
}

static void race_once(bool first, unsigned *opened)
{
	struct race race = {.over = false};
	struct dinst_error e = {0};
	struct image *img = NULL;
	pthread_t thread;

	race.fd = copy_of_us(&race.size);
	must(!pthread_create(&thread, NULL, cut_and_grow, &race));
	if (first)
		usleep(200);
	if (!image_open(race.fd, "copy", NULL, &img, &e)) {
		use(img);
		image_close(img);
		++*opened;
	}
	race.over = true;
	pthread_join(thread, NULL);
	close(race.fd);
}

static void race_often(void)
{
	unsigned opened = 0;

	for (int i = 0; i < RACES; i++)
		race_once(i % 2, &opened);
	printf("%u of %d opened\n", opened, RACES);
	fflush(stdout);
	must(opened > 0);
}

/* fear F6, L1: the same at any moment, also while it is being opened: refused or read, and we live */
static void test_race(void **state)
{
	(void)state;
	assert_int_equal(status_of(race_often), 0);
}

static void fault_elsewhere(void)
{
	int fd = memfd_create("file", MFD_CLOEXEC);
	const volatile uint8_t *other;

	must(!ftruncate(fd, PAGE));
	must(file_map(fd, PAGE) != NULL);
	other = mmap(NULL, 2 * PAGE, PROT_READ, MAP_SHARED, fd, 0);
	must(other != MAP_FAILED);
	_exit(other[PAGE]);
}

/* A bus error outside of our mappings is none of the guard's business. */
static void test_another_bus_error(void **state)
{
	const int status = status_of(fault_elsewhere);

	(void)state;
	assert_true(WIFSIGNALED(status));
	assert_int_equal(WTERMSIG(status), SIGBUS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cut_pages),
		cmocka_unit_test(test_cut_image),
		cmocka_unit_test(test_race),
		cmocka_unit_test(test_another_bus_error),
	};

	return cmocka_run_group_tests_name("unit/image_cut", tests, NULL, NULL);
}
