/* SPDX-License-Identifier: MIT */
/* build: -O2 -shared -fPIC */
/*
 * libswitches.c - a library that switches between tasks of its own: nothing but its
 * use of swapcontext() is looked at.
 */
#include <ucontext.h>

int library_switch(ucontext_t *from, const ucontext_t *to);

int library_switch(ucontext_t *from, const ucontext_t *to)
{
	return swapcontext(from, to);
}
