/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * served-files.c - a program that uses a file system in user space (FUSE) whose server gives up what it is
 * told is interrupted, though it is done: as those do that hand each request on over a network. The server is
 * its child and reads the input.
 *
 * Prints "ready", and "cannot" where it may not mount. Commands:
 *   call    the program makes a directory; prints "asked" when the server has been asked
 *   answer  the server answers, if it has not given up; prints "result R interrupted N", R: 0 or errno
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#define PLACE "/mnt"

enum { NAMES_MAX = 64, REQUEST_MAX = 1 << 18 };

static int device = -1;
static char made[NAMES_MAX][16];
static size_t made_count;
static uint64_t pending; /* the request that waits for "answer", or 0 */
static int interrupted;
static union {
	struct fuse_in_header header;
	char bytes[REQUEST_MAX];
} request;

static void answer(uint64_t unique, int error, const void *data, size_t size)
{
	struct fuse_out_header header = {(uint32_t)(sizeof(header) + size), -error, unique};
	struct iovec parts[] = {{&header, sizeof(header)}, {(void *)data, size}};

	if (writev(device, parts, size ? 2 : 1) < 0 && errno != ENOENT)
		_exit(2);
}

static struct fuse_attr attributes(uint64_t node)
{
	return (struct fuse_attr){.ino = node, .mode = S_IFDIR | 0755, .nlink = 2};
}

static void answer_entry(uint64_t unique, size_t index)
{
	struct fuse_entry_out entry = {.nodeid = index + 2, .attr = attributes(index + 2)};

	answer(unique, 0, &entry, sizeof(entry));
}

static void look_up(const char *name)
{
	for (size_t i = 0; i < made_count; i++)
		if (!strcmp(made[i], name)) {
			answer_entry(request.header.unique, i);
			return;
		}
	answer(request.header.unique, ENOENT, NULL, 0);
}

static void make(const char *name)
{
	if (made_count == NAMES_MAX)
		_exit(3);
	snprintf(made[made_count++], sizeof(made[0]), "%.15s", name);
	pending = request.header.unique;
	puts("asked");
	fflush(stdout);
}

static void interrupt(const struct fuse_interrupt_in *in)
{
	if (!pending || in->unique != pending)
		return;
	interrupted++;
	answer(pending, EINTR, NULL, 0);
	pending = 0;
}

static void serve(void)
{
	const char *arguments = request.bytes + sizeof(request.header);
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION, .minor = 31, .max_write = 4096};
	struct fuse_attr_out attr = {.attr = attributes(request.header.nodeid)};

	if (read(device, request.bytes, sizeof(request)) < 0)
		return;
	switch (request.header.opcode) {
	case FUSE_INIT:
		answer(request.header.unique, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		look_up(arguments);
		break;
	case FUSE_GETATTR:
		attr.attr = attributes(request.header.nodeid);
		answer(request.header.unique, 0, &attr, sizeof(attr));
		break;
	case FUSE_MKDIR:
		make(arguments + sizeof(struct fuse_mkdir_in));
		break;
	case FUSE_INTERRUPT:
		interrupt((const struct fuse_interrupt_in *)arguments);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
		break;
	default:
		answer(request.header.unique, ENOSYS, NULL, 0);
	}
}

static void obey(int tell, int hear)
{
	char line[64];
	int result;

	if (!fgets(line, sizeof(line), stdin))
		_exit(0);
	if (!strncmp(line, "call", 4)) {
		interrupted = 0;
		if (write(tell, "c", 1) != 1)
			_exit(4);
		return;
	}
	if (pending)
		answer_entry(pending, made_count - 1);
	pending = 0;
	if (read(hear, &result, sizeof(result)) != sizeof(result))
		_exit(5);
	printf("result %d interrupted %d\n", result, interrupted);
	fflush(stdout);
}

static void run_server(int tell, int hear)
{
	struct pollfd asked[] = {{.fd = device, .events = POLLIN}, {.fd = 0, .events = POLLIN}};

	setvbuf(stdin, NULL, _IONBF, 0);
	while (poll(asked, 2, -1) > 0) {
		if (asked[0].revents & POLLIN)
			serve();
		else if (asked[1].revents)
			obey(tell, hear);
	}
	_exit(6);
}

static int mount_here(void)
{
	char options[128];

	device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (device < 0 || unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL))
		return -1;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	return mount("served", PLACE, "fuse", MS_NOSUID | MS_NODEV, options);
}

int main(void)
{
	int to[2], from[2], result;
	char byte, path[64];
	bool mounted;

	if (pipe(to) || pipe(from))
		return 1;
	mounted = mount_here() == 0;
	puts("ready");
	fflush(stdout);
	if (!mounted) {
		puts("cannot");
		fflush(stdout);
		while (getchar() != EOF)
			continue;
		return 0;
	}
	if (fork() == 0) {
		close(to[0]);
		close(from[1]);
		run_server(to[1], from[0]);
	}
	close(device);
	close(to[1]);
	for (int i = 0; read(to[0], &byte, 1) == 1; i++) {
		snprintf(path, sizeof(path), PLACE "/new%d", i);
		result = mkdir(path, 0700) ? errno : 0;
		if (write(from[1], &result, sizeof(result)) != sizeof(result))
			return 1;
	}
	return 0;
}
