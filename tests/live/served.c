/* SPDX-License-Identifier: MIT */
/*
 * served.c - a program of a file system that another program provides (FUSE), which hangs: what is in comes out
 * without it. The file system is the test's own, has one file, and lets nothing about it be remembered.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/live/harness_session.h"

enum { FILE_NODE = 2, READ_MAX = 1 << 17, REQUEST_MAX = READ_MAX + 4096, PATIENCE_S = 20 };

struct server {
	int device, file;
	struct stat st;
	char answer[READ_MAX];
};

static void reply(struct server *v, const struct fuse_in_header *in, int error, const void *data,
		  size_t size)
{
	struct fuse_out_header out = {
		.len = (uint32_t)(sizeof(out) + size), .error = -error, .unique = in->unique};
	char text[sizeof(out) + READ_MAX];

	memcpy(text, &out, sizeof(out));
	if (size)
		memcpy(text + sizeof(out), data, size);
	/* One that was interrupted meanwhile wants none. */
	if (write(v->device, text, sizeof(out) + size) < 0 && errno != ENOENT)
		_exit(1);
}

static struct fuse_attr attributes(const struct server *v, uint64_t node)
{
	return (struct fuse_attr){.ino = node,
				  .size = node == FILE_NODE ? (uint64_t)v->st.st_size : 0,
				  .blocks = node == FILE_NODE ? (uint64_t)v->st.st_blocks : 0,
				  .mtime = (uint64_t)v->st.st_mtime,
				  .mode = node == FILE_NODE ? S_IFREG | 0755 : S_IFDIR | 0755,
				  .nlink = 1,
				  .blksize = 4096};
}

static void answer(struct server *v, const struct fuse_in_header *in, const void *arg)
{
	const struct fuse_read_in *read_in = arg;
	struct fuse_init_out init = {.major = FUSE_KERNEL_VERSION,
				     .minor = FUSE_KERNEL_MINOR_VERSION,
				     .max_readahead = READ_MAX,
				     .max_write = 4096};
	struct fuse_attr_out attr = {.attr = attributes(v, in->nodeid)};
	struct fuse_entry_out entry = {.nodeid = FILE_NODE, .attr = attributes(v, FILE_NODE)};
	struct fuse_open_out open_out = {.open_flags = FOPEN_KEEP_CACHE};
	ssize_t n;

	switch (in->opcode) {
	case FUSE_INIT:
		reply(v, in, 0, &init, sizeof(init));
		break;
	case FUSE_LOOKUP:
		reply(v, in, strcmp(arg, "calls") ? ENOENT : 0, &entry,
		      strcmp(arg, "calls") ? 0 : sizeof(entry));
		break;
	case FUSE_GETATTR:
		reply(v, in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		reply(v, in, 0, &open_out, sizeof(open_out));
		break;
	case FUSE_READ:
		n = pread(v->file, v->answer, read_in->size, (off_t)read_in->offset);
		reply(v, in, n < 0 ? EIO : 0, v->answer, n < 0 ? 0 : (size_t)n);
		break;
	case FUSE_RELEASE:
		reply(v, in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break;
	default:
		reply(v, in, ENOSYS, NULL, 0);
	}
}

/* Serves until the test ends. */
static pid_t start_server(int device)
{
	static struct server v;
	static char request[REQUEST_MAX];
	const pid_t parent = getpid(), child = fork();
	ssize_t n;

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	v.device = device;
	v.file = open(harness_path("tests/live/targets/calls"), O_RDONLY | O_CLOEXEC);
	if (getppid() != parent || v.file < 0 || fstat(v.file, &v.st))
		_exit(1);
	for (;;) {
		n = read(device, request, sizeof(request) - 1);
		if (n < 0 && errno != EINTR && errno != ENOENT)
			_exit(errno != ENODEV);
		if (n < (ssize_t)sizeof(struct fuse_in_header))
			continue;
		request[n] = 0;
		answer(&v, (const void *)request, request + sizeof(struct fuse_in_header));
	}
}

/* Mounts it where nobody else sees it; its server, or 0 where that cannot be had. */
static pid_t serve(const char *directory)
{
	const int device = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	char options[96];
	pid_t server;

	if (device < 0)
		return 0;
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0", device);
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("dinst-test", directory, "fuse", MS_NOSUID | MS_NODEV, options)) {
		close(device);
		return 0;
	}
	server = start_server(device);
	close(device);
	assert_true(server > 0);
	return server;
}

/* Stops it, for PATIENCE_S at most; whoever waits for it then has waited too long. */
static pid_t hang(pid_t server)
{
	siginfo_t info;
	const pid_t watch = fork();

	if (watch == 0) {
		sleep(PATIENCE_S);
		_exit(kill(server, SIGCONT) != 0);
	}
	assert_true(watch > 0);
	kill(server, SIGSTOP);
	assert_int_equal(waitid(P_PID, (id_t)server, &info, WSTOPPED | WNOWAIT), 0);
	return watch;
}

/*
 * fear L1: the program is of a file system whose server (FUSE) hangs: what is in comes out, other things go in and count, and
 * detach leaves nothing, all without that server
 */
static void test_server_hangs(void **state)
{
	struct harness *h = *state;
	char directory[96], path[128];
	const char *argv[] = {path, "2", NULL};
	struct detach_result detached;
	struct dinst_error e = {0};
	struct session *s;
	pid_t server, watch;
	int status;
	unsigned id;

	snprintf(directory, sizeof(directory), "%s/served", h->directory);
	snprintf(path, sizeof(path), "%s/calls", directory);
	assert_int_equal(mkdir(directory, 0700), 0);
	server = serve(directory);
	if (!server) {
		rmdir(directory);
		skip();
	}
	harness_start_argv(h, argv, true);
	s = session_begin(h);
	id = session_insert(s, "leaf");
	session_go(h, 100);
	assert_true(session_value(s, id) > 0);
	watch = hang(server);
	session_remove(s, id);
	id = session_insert(s, "leaf");
	session_go(h, 100);
	assert_true(session_value(s, id) > 0);
	if (session_detach(s, 100, &detached, &e) < 0)
		fail_msg("detach: %s", e.text);
	assert_int_equal(detached.left, 0);
	/* It hangs still. */
	assert_int_equal(waitpid(watch, &status, WNOHANG), 0);
	kill(watch, SIGKILL);
	assert_int_equal(waitpid(watch, &status, 0), watch);
	session_free(s);
	kill(server, SIGCONT);
	harness_verify(h);
	harness_end(h, 0);
	assert_int_equal(umount2(directory, MNT_DETACH), 0);
	kill(server, SIGKILL);
	assert_int_equal(waitpid(server, &status, 0), server);
	rmdir(directory);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_server_hangs, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
