/* SPDX-License-Identifier: MIT */
/*
 * libslow_proc.c - preloaded: a listing of /proc does not come, as where the kernel waits for the memory
 * of a process that somebody holds.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>

DIR *opendir(const char *name)
{
	DIR *(*real)(const char *) = (DIR * (*)(const char *)) dlsym(RTLD_NEXT, "opendir");

	if (strcmp(name, "/proc") == 0)
		pause();
	return real(name);
}
