/* SPDX-License-Identifier: MIT */
/* build: -O0 -shared -fPIC */
/*
 * libvariables-two.c - variables that libvariables-one.so has, too, by the same names.
 */
static int twin = 2;
int global_in_two = 20;
static int global_in_one = 200;

int variables_two(void);

int variables_two(void)
{
	return twin++ + global_in_one++;
}
