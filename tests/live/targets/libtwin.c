/* SPDX-License-Identifier: MIT */
/* build: -Wl,--build-id */
/*
 * libtwin.c - a shared object of the same shape as libplugin.so: what one of
 * them had at an address the other one has there afterwards; see life-code.c.
 */
__attribute__((noinline)) long twin_leaf(long n)
{
	return n * 13 + 5;
}

__attribute__((noinline)) long plugin_work(long n)
{
	return twin_leaf(n) - 1;
}
