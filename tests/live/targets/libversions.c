/* SPDX-License-Identifier: MIT */
/* build: -Wl,--version-script=tests/live/targets/versions.map */
/*
 * libversions.c - a function in two versions, which have the version in their names.
 */
int first_pick(int a);
int second_pick(int a);

__asm__(".symver first_pick, pick@FIRST");
__asm__(".symver second_pick, pick@@SECOND");

int first_pick(int a)
{
	return a + 1;
}

int second_pick(int a)
{
	return a * 3;
}
