/* SPDX-License-Identifier: MIT */
/* build: -O2 -rdynamic -fno-inline */
/*
 * mdl_ends.cc - functions that never return but by an exception or longjmp(), and such that call what
 * returns twice.
 *
 * Prints "ready". Commands are "NAME ROUNDS", each answered with "done":
 *   fail    ROUNDS times fail_with(), which calls op() once and throws; the catcher calls op() twice
 *   leap    the same with leap_with() and longjmp()
 *   twice   ROUNDS times lander(): setjmp(), and a function that comes back there; it works on
 *   vfork   ROUNDS times parent(): vfork(), whose child ends by _exit(); it works on
 */
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <sys/wait.h>
#include <unistd.h>

#define KEEP extern "C" __attribute__((noinline, noclone))

static volatile long sink;
static jmp_buf back;

KEEP void op()
{
	sink = sink + 1;
}

KEEP __attribute__((noreturn)) void fail_with(long n)
{
	op();
	throw std::runtime_error(n ? "some" : "none");
}

KEEP __attribute__((noreturn)) void leap_with(long n)
{
	op();
	longjmp(back, (int)n + 1);
}

KEEP void request(long n)
{
	try {
		fail_with(n);
	} catch (const std::runtime_error &) {
		op();
	}
	op();
}

KEEP void leaping(long n)
{
	if (!setjmp(back))
		leap_with(n);
	op();
	op();
}

KEEP void come_back(long n)
{
	longjmp(back, (int)n + 1);
}

KEEP void lander(long n)
{
	if (!setjmp(back))
		come_back(n);
	for (int i = 0; i < 1000; i++)
		sink = sink + i;
}

KEEP void parent(long n)
{
	pid_t child = vfork();

	if (child == 0)
		_exit((int)n & 7);
	waitpid(child, nullptr, 0);
	for (int i = 0; i < 1000; i++)
		sink = sink + i;
}

int main()
{
	static const struct {
		const char *name;
		void (*function)(long n);
	} commands[] = {{"fail ", request}, {"leap ", leaping}, {"twice ", lander}, {"vfork ", parent}};
	char line[64];

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (const auto &c : commands)
			if (!strncmp(line, c.name, strlen(c.name)))
				for (long n = 0; n < atol(line + strlen(c.name)); n++)
					c.function(n);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
