/* SPDX-License-Identifier: MIT */
/*
 * libplugin.c - a shared object that comes and goes; see loads.c.
 */
__attribute__((noinline)) long plugin_leaf(long n)
{
	return n * 11 + 2;
}

__attribute__((noinline)) long plugin_work(long n)
{
	return plugin_leaf(n) + 1;
}
