/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -ldl */
/*
 * text-kinds.c - a program whose library's text is mapped in unusual ways.
 *
 * text-kinds HOW: loads a copy of libplugin.so, then maps its text anew:
 *   plain    not at all
 *   memfd    the library was loaded from a memfd
 *   twice    once more, right below the library
 *   shared   MAP_SHARED, from a descriptor that can only be read
 *   writable MAP_SHARED and writable: what is written there goes into the file
 *   xonly    PROT_EXEC alone (a protection key where the processor has them)
 *   wx       private, writable and executable
 *   anon     anonymous memory with the same bytes at the same place
 *   moved    the same by mremap(2)
 *   data     private and writable, not executable; not to be called until it is "text" again
 *   none     the same without any right
 *   text     readable and executable
 *   gone     the library is unloaded, and there is other code where its text was; never to be called again
 * Prints "ready", or "no WHY" and ends. Commands:
 *   go N     calls the library's function N times; "done"
 *   map HOW  maps the text anew, as above; "mapped"
 *   file     "file PATH" of the library
 * Exits with 1 if a result was wrong.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static int wrong;
static void *plugin;
static long (*work)(long);
static char path[4096]; /* the copy that is loaded */
static int library;	/* descriptor of it */

struct range {
	uintptr_t lo, hi, offset;
};

/* The mapping that `address` lies in. */
static struct range find(uintptr_t address)
{
	struct range r = {0};
	char line[4096];
	FILE *maps = fopen("/proc/self/maps", "re");

	while (maps && fgets(line, sizeof(line), maps)) {
		unsigned long lo, hi, offset;

		if (sscanf(line, "%lx-%lx %*s %lx", &lo, &hi, &offset) == 3 && address >= lo &&
		    address < hi)
			r = (struct range){lo, hi, offset};
	}
	if (maps)
		fclose(maps);
	return r;
}

static void give_up(const char *why)
{
	printf("no %s\n", why);
	fflush(stdout);
	unlink(path);
	exit(0);
}

/* A copy of the library, in a file or in memory. */
static void copy_library(int to_memory)
{
	char from[4096], *slash, *bytes = malloc(1 << 20);
	ssize_t size = readlink("/proc/self/exe", from, sizeof(from) - 32);
	int fd;

	from[size > 0 ? size : 0] = '\0';
	slash = strrchr(from, '/');
	snprintf(slash + 1, 32, "libplugin.so");
	fd = open(from, O_RDONLY | O_CLOEXEC);
	size = read(fd, bytes, 1 << 20);
	close(fd);
	if (to_memory) {
		library = memfd_create("plugin", 0);
		snprintf(path, sizeof(path), "/proc/self/fd/%d", library);
	} else {
		snprintf(path, sizeof(path), "/tmp/dinst-text.XXXXXX");
		library = mkostemp(path, 0);
		fchmod(library, 0700);
	}
	if (size <= 0 || write(library, bytes, size) != size)
		exit(2);
	free(bytes);
}

/* The same bytes at the same place, in memory of another kind. */
static void *fresh(const struct range *r, int flags)
{
	size_t size = r->hi - r->lo;
	void *copy = malloc(size), *at;

	memcpy(copy, (void *)r->lo, size);
	at = mmap(flags & MAP_FIXED ? (void *)r->lo : NULL, size,
		  PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
	if (at == MAP_FAILED)
		exit(3);
	memcpy(at, copy, size);
	mprotect(at, size, PROT_READ | PROT_EXEC);
	free(copy);
	return at;
}

static void map_shared(const struct range *r, int writable)
{
	int fd = open(path, (writable ? O_RDWR : O_RDONLY) | O_CLOEXEC);

	if (mmap((void *)r->lo, r->hi - r->lo, PROT_READ | PROT_EXEC | (writable ? PROT_WRITE : 0),
		 MAP_SHARED | MAP_FIXED, fd, (off_t)r->offset) == MAP_FAILED)
		give_up("shared mapping of text");
	close(fd);
}

/* Its text is the second of its pages: right below the first. */
static void map_again(const struct range *r)
{
	const size_t size = r->hi - r->lo;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (mmap((char *)r->lo - 2 * size, size, PROT_READ | PROT_EXEC,
		 MAP_PRIVATE | MAP_FIXED_NOREPLACE, fd, (off_t)r->offset) == MAP_FAILED)
		give_up("room below the library");
	close(fd);
}

static void replace(const struct range *r)
{
	const size_t size = r->hi - r->lo;

	if (dlclose(plugin) ||
	    mmap((void *)r->lo, size, PROT_READ | PROT_WRITE | PROT_EXEC,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED)
		exit(3);
	memset((void *)r->lo, 0xcc, size);
}

static void map_anew(const char *how)
{
	struct range r = find((uintptr_t)work);
	size_t size = r.hi - r.lo;

	if (!strcmp(how, "twice")) {
		map_again(&r);
	} else if (!strcmp(how, "shared") || !strcmp(how, "writable")) {
		map_shared(&r, *how == 'w');
	} else if (!strcmp(how, "xonly")) {
		mprotect((void *)r.lo, size, PROT_EXEC);
	} else if (!strcmp(how, "wx")) {
		mprotect((void *)r.lo, size, PROT_READ | PROT_WRITE | PROT_EXEC);
	} else if (!strcmp(how, "data")) {
		mprotect((void *)r.lo, size, PROT_READ | PROT_WRITE);
	} else if (!strcmp(how, "none")) {
		mprotect((void *)r.lo, size, PROT_NONE);
	} else if (!strcmp(how, "text")) {
		mprotect((void *)r.lo, size, PROT_READ | PROT_EXEC);
	} else if (!strcmp(how, "gone")) {
		replace(&r);
	} else if (!strcmp(how, "anon")) {
		fresh(&r, MAP_FIXED);
	} else if (!strcmp(how, "moved")) {
		void *at = fresh(&r, 0);

		if (mremap(at, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, (void *)r.lo) ==
		    MAP_FAILED)
			exit(3);
	}
}

static void go(long n)
{
	for (long i = 0; i < n; i++)
		if (work(i) != i * 11 + 3)
			wrong = 1;
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "plain";
	char line[64];

	copy_library(!strcmp(how, "memfd"));
	plugin = dlopen(path, RTLD_NOW);
	*(void **)&work = plugin ? dlsym(plugin, "plugin_work") : NULL;
	if (!work)
		return 2;
	if (strcmp(how, "memfd")) {
		/* Running text cannot be opened for writing while this is. */
		close(library);
	}
	map_anew(how);
	go(10);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		if (!strncmp(line, "go ", 3)) {
			go(atol(line + 3));
			puts("done");
		} else if (!strncmp(line, "map ", 4)) {
			map_anew(line + 4);
			puts("mapped");
		} else if (!strcmp(line, "file")) {
			printf("file %s\n", path);
		}
		fflush(stdout);
	}
	if (strcmp(how, "memfd"))
		unlink(path);
	return wrong;
}
