/* SPDX-License-Identifier: MIT */
/*
 * views.cc - functions for views of who calls them: "go N" makes N rounds, in each of which
 * outer() calls inner(), and leaps() is called, which never returns; "vfork N" waits N ms for a
 * child that has its memory. Prints "ready" first, and "done" behind each. Ends with its input.
 */
#include <csetjmp>
#include <cstdio>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone, used))

namespace views
{
static std::jmp_buf back;

int KEEP inner(int a)
{
	__asm__ volatile("");
	return a * 3 + 1;
}

int KEEP outer(int a)
{
	return inner(a) + 2;
}

[[noreturn]] void KEEP leaps()
{
	std::longjmp(back, 1);
}

static void KEEP round(int a)
{
	if (outer(a) == a * 3 + 3 && !setjmp(back))
		leaps();
}
} /* namespace views */

int main()
{
	char line[64];
	int rounds, ms;

	setvbuf(stdout, nullptr, _IOLBF, 0);
	puts("ready");
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "vfork %d", &ms) == 1) {
			if (vfork() == 0) {
				usleep(static_cast<useconds_t>(ms) * 1000);
				_exit(0);
			}
			rounds = 0;
		} else if (sscanf(line, "go %d", &rounds) != 1) {
			return 1;
		}
		for (int i = 0; i < rounds; i++)
			views::round(i);
		puts("done");
	}
	return 0;
}
