/* SPDX-License-Identifier: MIT */
/* build: -O2 -shared -fPIC */
/*
 * libswitches.c - a library that switches between tasks of its own: nothing but its
 * use of swapcontext() is looked at. As a plugin it works as libimage-plugin.c does.
 */
#include <ucontext.h>

int library_switch(ucontext_t *from, const ucontext_t *to);
int plugin_work(int x);

int plugin_work(int x)
{
	return x * 7 + 3;
}

int library_switch(ucontext_t *from, const ucontext_t *to)
{
	return swapcontext(from, to);
}
