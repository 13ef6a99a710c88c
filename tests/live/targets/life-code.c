/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * life-code.c - a program that guards its own code, and one whose libraries
 * take each other's place.
 *
 * Prints "ready". Commands, each answered with "done" unless said otherwise:
 *   sum           hashes all of its own code; "same" or "changed" against the first time
 *   seal          seals its code (mseal); "none" where the kernel has no such call
 *   seal all      seals everything that it has mapped, but for its heap, stacks and the vsyscall page
 *   key           puts its code under a protection key that forbids data access to it;
 *                 "none" where there are no keys
 *   work N        calls work() N times
 *   twins N       N times: libplugin.so is loaded, called a hundred times and unloaded, then
 *                 libtwin.so, at the same address; "done HITS" with how often they met there
 *   load NAME     loads this one, and keeps it; "at ADDRESS"
 *   unload        the one that is loaded
 *   call N        calls plugin_work() of the one that is loaded
 * Exits with 1 if a result was wrong.
 */
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

enum { SYS_MSEAL = 462, PAGE = 4096 };

static int wrong;
static uint64_t first_sum;
static uintptr_t text_lo, text_hi;
static void *library;
static long (*library_work)(long);

KEEP long work(long n)
{
	return n * 17 + 9;
}

/* ------------------------------------------------------------- own code */

static int find_text(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			text_lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			text_hi = text_lo + info->dlpi_phdr[i].p_memsz;
		}
	return 1; /* the program is the first */
}

KEEP uint64_t sum(void)
{
	uint64_t hash = 14695981039346656037u;

	for (uintptr_t at = text_lo; at < text_hi; at++)
		hash = (hash ^ *(const volatile uint8_t *)at) * 1099511628211u;
	return hash;
}

static void seal(void)
{
	uintptr_t lo = text_lo & -(uintptr_t)PAGE, hi = (text_hi + PAGE - 1) & -(uintptr_t)PAGE;

	puts(syscall(SYS_MSEAL, lo, hi - lo, 0) ? "none" : "done");
}

static void seal_all(void)
{
	unsigned long lo[512], hi[512];
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int count = 0, sealed = 0;

	while (maps && count < 512 && fgets(line, sizeof(line), maps))
		count += sscanf(line, "%lx-%lx", &lo[count], &hi[count]) == 2 &&
			 !strstr(line, "[heap]") && !strstr(line, "[stack]") &&
			 !strstr(line, "[vsyscall]");
	if (maps)
		fclose(maps);
	for (int i = 0; i < count; i++)
		sealed += !syscall(SYS_MSEAL, lo[i], hi[i] - lo[i], 0);
	puts(sealed ? "done" : "none");
}

static void guard(void)
{
	uintptr_t lo = text_lo & -(uintptr_t)PAGE, hi = (text_hi + PAGE - 1) & -(uintptr_t)PAGE;
	int key = pkey_alloc(0, PKEY_DISABLE_ACCESS);

	puts(key < 0 || pkey_mprotect((void *)lo, hi - lo, PROT_READ | PROT_EXEC, key) ? "none"
										       : "done");
}

static void work_often(long n)
{
	for (long i = 0; i < n; i++)
		if (work(i) != i * 17 + 9)
			wrong = 1;
	puts("done");
}

/* -------------------------------------------------------------- libraries */

static uintptr_t load(const char *name)
{
	char path[4096];
	Dl_info info;
	ssize_t size = readlink("/proc/self/exe", path, sizeof(path) - 64);
	char *slash;

	path[size > 0 ? size : 0] = '\0';
	slash = strrchr(path, '/');
	if (!slash)
		return 0;
	snprintf(slash + 1, 64, "%s", name);
	library = dlopen(path, RTLD_NOW);
	*(void **)&library_work = library ? dlsym(library, "plugin_work") : NULL;
	if (!library_work || !dladdr(*(void **)&library_work, &info)) {
		wrong = 1;
		return 0;
	}
	return (uintptr_t)info.dli_fbase;
}

static void call(long n, const char *name)
{
	int is_twin = strstr(name, "twin") != NULL;

	for (long i = 0; i < n; i++)
		if (library_work(i) != (is_twin ? i * 13 + 4 : i * 11 + 3))
			wrong = 1;
}

static void unload(void)
{
	if (dlclose(library))
		wrong = 1;
	library = NULL;
}

static void twins(long n)
{
	uintptr_t one, other;
	long met = 0;

	for (long i = 0; i < n; i++) {
		one = load("libplugin.so");
		call(100, "plugin");
		unload();
		other = load("libtwin.so");
		call(100, "twin");
		unload();
		met += one == other;
	}
	printf("done %ld\n", met);
}

int main(void)
{
	char line[128], name[64] = "";
	long n;

	setvbuf(stdin, NULL, _IONBF, 0);
	dl_iterate_phdr(find_text, NULL);
	first_sum = sum();
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strcmp(line, "sum\n")) {
			puts(sum() == first_sum ? "same" : "changed");
		} else if (!strcmp(line, "seal\n")) {
			seal();
		} else if (!strcmp(line, "seal all\n")) {
			seal_all();
		} else if (!strcmp(line, "key\n")) {
			guard();
		} else if (sscanf(line, "work %ld", &n) == 1) {
			work_often(n);
		} else if (sscanf(line, "twins %ld", &n) == 1) {
			twins(n);
		} else if (sscanf(line, "load %63s", name) == 1) {
			printf("at %lx\n", (unsigned long)load(name));
		} else if (!strcmp(line, "unload\n")) {
			unload();
			puts("done");
		} else if (sscanf(line, "call %ld", &n) == 1) {
			call(n, name);
			puts("done");
		}
		fflush(stdout);
	}
	return wrong;
}
