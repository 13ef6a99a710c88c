/* SPDX-License-Identifier: MIT */
/*
 * libpatterns.c - a shared object with a function that a name of patterns.c matches as a pattern.
 */
long lock_library(long n) __asm__("\"sync.(*LibraryMutex).Lock\"");

long lock_library(long n)
{
	return n * 7 + 1;
}
