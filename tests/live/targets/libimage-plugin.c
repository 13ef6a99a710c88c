/* SPDX-License-Identifier: MIT */
/* libimage-plugin.c - a shared object that image-loads brings in and drops. */

int plugin_work(int n);

__attribute__((noinline)) int plugin_work(int n)
{
	return n * 7 + 3;
}
