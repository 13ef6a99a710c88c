/* SPDX-License-Identifier: MIT */
/*
 * stopping.c - a program that stops itself once, before main(): where the loader asks it which "chosen" is
 * meant, which is before its entry point. Says "went on" and exits with 0 when it is let go.
 */
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Nothing of libc can be called there yet. */
static long system_call(long number, long a, long b)
{
#ifdef __x86_64__
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b)
			 : "rcx", "r11", "memory");
	return result;
#else
	register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;

	__asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1) : "memory");
	return x0;
#endif
}

static int work(void)
{
	return 0;
}

static int (*choose(void))(void)
{
	system_call(SYS_kill, system_call(SYS_getpid, 0, 0), SIGSTOP);
	return work;
}

int chosen(void) __attribute__((ifunc("choose")));

int main(void)
{
	if (write(STDOUT_FILENO, "went on\n", 8) != 8)
		return 1;
	return chosen();
}
