/* SPDX-License-Identifier: MIT */
/* build: -O0 -shared -fPIC */
/*
 * libvariables-one.c - variables that libvariables-two.so has, too, by the same names.
 */
static int twin = 1;
static int global_in_two = 10;
int global_in_one = 100;

int variables_one(void);

int variables_one(void)
{
	return twin++ + global_in_two++;
}
