/* SPDX-License-Identifier: MIT */
/*
 * libslow_proc.c - preloaded: a listing of the directory that $DINST_SLOW_PROC names does not come, as where
 * the kernel waits for the memory of a process that somebody holds.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

DIR *opendir(const char *name)
{
	DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");
	const char *slow = getenv("DINST_SLOW_PROC");

	if (slow && strcmp(name, slow) == 0)
		pause();
	return real(name);
}
