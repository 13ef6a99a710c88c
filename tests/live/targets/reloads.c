/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * reloads.c - a program whose plugin is built anew while it runs: a copy of libreload.so is
 * written in place, and loaded again to where it was. Prints "ready". Commands, each answered
 * with "done":
 *   open      loads it
 *   call N    calls reload_work() and reload_tiny() N times
 *   close     unloads it
 *   write     makes it another one: reload_work() has a loop
 *   disguise  the same, and gives the file the times that it had
 *   swell     makes the file a terabyte, of which nearly all is a hole
 *   shrink    makes it as large as it was
 *   renew     the same by a new file of its name
 *   recode    the same in place: reload_tiny() begins with other bytes that do the same
 *   replace   makes it another one by a new file of its name: reload_tiny() and reload_round() have
 *             other results
 *   become X  as recode with two bytes of reload_tiny(), hexadecimal; it is not called any more
 *   remove    deletes the file
 *   touch     makes the file look as if it had been written just now
 *   wide N    calls reload_wide() N times
 *   round N   calls reload_round() N times
 *   through N has reload_call() write nothing into a file N times
 *   edit      writes another number into it, in the file that is loaded, whose times stay
 *   copy      maps a copy of its code over it, which is a file of its own
 *   hold X    keeps a hexadecimal number on the stack
 *   keep      forks a child that has what is loaded now; answered with its number
 *   kept N    the child calls reload_work(), reload_tiny() and reload_round() N times
 *   spin      the child calls reload_work() and reload_tiny() until it is told something else
 *   leave     the child ends
 * Exits with 1 if a result was wrong, or if it was loaded elsewhere.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LIBRARY_MAX = 1 << 20 };

static int wrong, is_new, is_edited, is_replaced, to_child, from_child, null;
static pid_t child;
static void *plugin;
static int (*work)(int), (*tiny)(int), (*wide)(int), (*turn)(int, int), (*through)(int (*)(void));
static char path[] = "/tmp/dinst-reload.XXXXXX";
static char bytes[LIBRARY_MAX];
static size_t size;

static void store(int flags)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0700);

	if (fd < 0 || write(fd, bytes, size) != (ssize_t)size)
		exit(2);
	close(fd);
}

static void rebuild(void)
{
	static const char old[] = "\x83\xc0\x01\xa8\x03\x66\x90\xc3", new[] = "\x75\xf9";
	char *at = memmem(bytes, size, old, sizeof(old) - 1);

	if (!at)
		exit(2);
	memcpy(at + 5, new, sizeof(new) - 1);
	is_new = 1;
}

static void recode(unsigned first, unsigned second, int flags)
{
	static const char old[] = "\x89\xf8\x83\xc0\x01\xa8\x03\x75";
	char *at = memmem(bytes, size, old, sizeof(old) - 1);

	if (!at)
		exit(2);
	at[0] = (char)first;
	at[1] = (char)second;
	if (flags & O_EXCL)
		unlink(path);
	store(flags);
}

static void do_open(void)
{
	static void *before;

	plugin = dlopen(path, RTLD_NOW);
	*(void **)&work = plugin ? dlsym(plugin, "reload_work") : NULL;
	*(void **)&tiny = plugin ? dlsym(plugin, "reload_tiny") : NULL;
	*(void **)&wide = plugin ? dlsym(plugin, "reload_wide") : NULL;
	*(void **)&turn = plugin ? dlsym(plugin, "reload_round") : NULL;
	*(void **)&through = plugin ? dlsym(plugin, "reload_call") : NULL;
	if (!work || !tiny || !wide || !turn || !through || (before && before != *(void **)&work))
		wrong = 1;
	before = *(void **)&work;
}

static void do_call(int n)
{
	for (int i = 0; i < n; i++)
		if (work(i) != (is_new ? i / 4 * 4 + 4 : i + 1) ||
		    tiny(i) != (is_replaced ? 4 : i / 4 * 4 + 4))
			wrong = 1;
}

/* What is mapped of it follows. */
static void edit(void)
{
	static const char old[] = "\x89\xf8\x05\x01\x00\x01\x00\xc3";
	const char *at = memmem(bytes, size, old, sizeof(old) - 1);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	struct timespec times[2];
	struct stat st;

	if (!at || fstat(fd, &st) || pwrite(fd, "\x02", 1, at - bytes + 5) != 1)
		exit(2);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	futimens(fd, times);
	close(fd);
	is_edited = 1;
}

static void disguise(void)
{
	struct timespec times[2];
	struct stat st;

	if (stat(path, &st))
		exit(2);
	times[0] = st.st_atim;
	times[1] = st.st_mtim;
	rebuild();
	store(0);
	utimensat(AT_FDCWD, path, times, 0);
}

static void do_wide(int n)
{
	for (int i = 0; i < n; i++)
		if (wide(i) != i + (is_edited ? 0x20001 : 0x10001))
			wrong = 1;
}

static void do_round(int n)
{
	for (int i = 0; i < n; i++)
		if (turn(i, 3) != i + 3 * (is_replaced ? 0x201 : 0x101))
			wrong = 1;
}

static int write_nothing(void)
{
	return (int)write(null, "", 0);
}

static void do_through(int n)
{
	null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	for (int i = 0; i < n; i++)
		if (through(write_nothing))
			wrong = 1;
	close(null);
}

static void replace(void)
{
	static const char old[] = "\x81\xc7\x01\x01\x00\x00";
	char *at = memmem(bytes, size, old, sizeof(old) - 1);

	if (!at)
		exit(2);
	at[3] = 2;
	is_replaced = 1;
	recode(0x31, 0xc0, O_CREAT | O_EXCL);
}

static void do_copy(void)
{
	const uintptr_t places[] = {(uintptr_t)work, (uintptr_t)tiny, (uintptr_t)wide};
	uintptr_t lo = UINTPTR_MAX, hi = 0;
	int fd = memfd_create("copy", MFD_CLOEXEC);

	for (int i = 0; i < 3; i++) {
		lo = places[i] < lo ? places[i] : lo;
		hi = places[i] > hi ? places[i] : hi;
	}
	lo &= ~(uintptr_t)4095;
	hi = (hi + 4096) & ~(uintptr_t)4095;
	if (fd < 0 || write(fd, (void *)lo, hi - lo) != (ssize_t)(hi - lo) ||
	    mmap((void *)lo, hi - lo, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0) ==
		    MAP_FAILED)
		exit(2);
	close(fd);
}

static void keep(void)
{
	int commands[2], answers[2], n;

	if (pipe(commands) || pipe(answers))
		exit(2);
	child = fork();
	if (!child) {
		struct pollfd next = {.fd = commands[0], .events = POLLIN};

		while (read(commands[0], &n, sizeof(n)) == sizeof(n) && n >= 0) {
			do_call(n);
			do_round(n);
			if (write(answers[1], &wrong, sizeof(wrong)) != sizeof(wrong))
				break;
			while (!n && !poll(&next, 1, 0))
				do_call(1000);
		}
		_exit(0);
	}
	to_child = commands[1];
	from_child = answers[0];
	/* Its end is seen here. */
	close(answers[1]);
	close(commands[0]);
	printf("%d\n", (int)child);
}

static void do_kept(int n)
{
	int result = 1;

	if (write(to_child, &n, sizeof(n)) != sizeof(n) ||
	    (n >= 0 && read(from_child, &result, sizeof(result)) != sizeof(result)) ||
	    (n >= 0 && result))
		wrong = 1;
	if (n >= 0)
		return;
	waitpid(child, NULL, 0);
	close(to_child);
	close(from_child);
}

static void command(const char *line, volatile unsigned long *held)
{
	unsigned first, second;
	int n = 0;

	if (!strncmp(line, "open", 4)) {
		do_open();
	} else if (sscanf(line, "call %d", &n) == 1) {
		do_call(n);
	} else if (!strncmp(line, "close", 5)) {
		dlclose(plugin);
	} else if (!strncmp(line, "write", 5)) {
		rebuild();
		store(O_TRUNC);
	} else if (!strncmp(line, "renew", 5)) {
		rebuild();
		unlink(path);
		store(O_CREAT | O_EXCL);
	} else if (!strncmp(line, "recode", 6)) {
		recode(0x8b, 0xc7, O_TRUNC);
	} else if (!strncmp(line, "replace", 7)) {
		replace();
	} else if (sscanf(line, "become %2x%2x", &first, &second) == 2) {
		recode(first, second, O_TRUNC);
	} else if (!strncmp(line, "remove", 6)) {
		unlink(path);
	} else if (!strncmp(line, "disguise", 8)) {
		disguise();
	} else if (!strncmp(line, "swell", 5)) {
		if (truncate(path, (off_t)1 << 40))
			exit(2);
	} else if (!strncmp(line, "shrink", 6)) {
		if (truncate(path, (off_t)size))
			exit(2);
	} else if (!strncmp(line, "touch", 5)) {
		utimensat(AT_FDCWD, path, NULL, 0);
	} else if (sscanf(line, "wide %d", &n) == 1) {
		do_wide(n);
	} else if (sscanf(line, "round %d", &n) == 1) {
		do_round(n);
	} else if (sscanf(line, "through %d", &n) == 1) {
		do_through(n);
	} else if (!strncmp(line, "edit", 4)) {
		edit();
	} else if (!strncmp(line, "copy", 4)) {
		do_copy();
	} else if (!strncmp(line, "hold ", 5)) {
		*held = strtoul(line + 5, NULL, 16);
	} else if (sscanf(line, "kept %d", &n) == 1) {
		do_kept(n);
	} else if (!strncmp(line, "spin", 4)) {
		do_kept(0);
	} else if (!strncmp(line, "leave", 5)) {
		do_kept(-1);
	}
	if (!strncmp(line, "keep", 4))
		keep();
	else
		puts("done");
	fflush(stdout);
}

int main(void)
{
	char from[4096], line[64];
	volatile unsigned long held = 0;
	ssize_t length = readlink("/proc/self/exe", from, sizeof(from) - 32);
	int fd;

	from[length > 0 ? length : 0] = 0;
	snprintf(strrchr(from, '/') + 1, 32, "libreload.so");
	fd = open(from, O_RDONLY | O_CLOEXEC);
	length = read(fd, bytes, sizeof(bytes));
	close(fd);
	size = length > 0 ? (size_t)length : 0;
	close(mkstemp(path));
	store(O_TRUNC);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin))
		command(line, &held);
	unlink(path);
	return wrong;
}
