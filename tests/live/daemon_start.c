/* SPDX-License-Identifier: MIT */
/*
 * daemon_start.c - how a daemon begins and ends: exactly one, on a socket that
 * nobody else could have put there, and never leaving anything behind.
 */
#include <grp.h>
#include <stdbool.h>
#include <sys/resource.h>

#include "tests/live/daemon_fixture.h"

static struct output *o;

static int setup(void **state)
{
	o = malloc(sizeof(*o));
	return fixture_setup(state);
}

static int teardown(void **state)
{
	int status = fixture_teardown(state);

	free(o);
	return status;
}

static void run_dinstd(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void run_dinstd(const char *format, ...)
{
	struct dinst_error e = {0, ""};
	char line[300];
	struct words w;
	va_list args;

	va_start(args, format);
	vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	assert_int_equal(words_split(line, &w, &e), 0);
	run_words(fixture_dinstd, w.word, o);
	words_release(&w);
}

static int file_has(const char *name, const char *text, int *count)
{
	static char all[1 << 18];
	char path[200];
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "%s/%s", fixture_directory, name);
	f = fopen(path, "r");
	if (!f)
		return 0;
	n = fread(all, 1, sizeof(all) - 1, f);
	fclose(f);
	all[n] = '\0';
	*count = 0;
	for (const char *p = all; (p = strstr(p, text)) != NULL; p++)
		(*count)++;
	return *count > 0;
}

static void stop(void)
{
	pid_t pid = daemon_pid();

	run_dinst(o, "stop -q");
	assert_int_equal(o->status, 0);
	assert_int_equal(access(fixture_socket, F_OK), -1);
	assert_true(wait_gone(pid, ANSWER_MS));
}

/* Many clients that find no daemon start one, not many. */
static void started_once(void **state)
{
	enum { CLIENTS = 12 };
	pid_t clients[CLIENTS];
	char name[20];
	int status, count = 0;

	(void)state;
	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < CLIENTS; i++) {
			clients[i] = fork();
			if (clients[i] == 0) {
				dup2(open("/dev/null", O_WRONLY), 1);
				snprintf(name, sizeof(name), "%d", (int)getppid());
				execl(fixture_dinst, "dinst", "repair", "-q", "--json", name,
				      (char *)NULL);
				_exit(126);
			}
		}
		for (int i = 0; i < CLIENTS; i++) {
			assert_int_equal(waitpid(clients[i], &status, 0), clients[i]);
			assert_int_equal(status, 0);
		}
		assert_true(file_has("d.log", "dinstd: version", &count));
		assert_int_equal(count, round + 1);
		stop();
	}
}

/* A client that comes while a daemon leaves gets the next one. */
static void stop_and_start(void **state)
{
	(void)state;
	for (int i = 0; i < 15; i++) {
		run_dinst(o, "attach %d -q --json", (int)fixture_target);
		if (o->status)
			fail_msg("%s", o->err);
		run_dinst(o, "stop -q");
		assert_int_equal(o->status, 0);
	}
}

static void modes(void **state)
{
	struct stat st;
	char path[100];

	(void)state;
	start_daemon_by_client();
	assert_int_equal(stat(fixture_socket, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	snprintf(path, sizeof(path), "%s/d.log", fixture_directory);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	stop();
	/* below XDG_RUNTIME_DIR, the directory is made, and only for us */
	unsetenv("DINST_SOCKET");
	setenv("XDG_RUNTIME_DIR", fixture_directory, 1);
	start_daemon_by_client();
	snprintf(path, sizeof(path), "%s/dinst", fixture_directory);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	run_dinst(o, "stop -q");
	assert_int_equal(o->status, 0);
	/* opened to others, it is refused */
	chmod(path, 0755);
	run_dinst(o, "attach %d", (int)fixture_target);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "chmod 700"));
	snprintf(path, sizeof(path), "rm -rf %s/dinst; ln -s /tmp %s/dinst", fixture_directory,
		 fixture_directory);
	assert_int_equal(system(path), 0);
	run_dinst(o, "attach %d", (int)fixture_target);
	assert_int_equal(o->status, 1);
	snprintf(path, sizeof(path), "%s/dinst", fixture_directory);
	unlink(path);
	setenv("DINST_SOCKET", fixture_socket, 1);
}

/* After kill -9 the socket is dead: it is replaced; the mutators have ended. */
static void killed_daemon(void **state)
{
	pid_t daemon, mutator = 0;
	char path[100], line[64];
	FILE *children;

	(void)state;
	run_dinst(o, "attach %d -q", (int)fixture_target);
	assert_int_equal(o->status, 0);
	daemon = daemon_pid();
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)daemon, (int)daemon);
	children = fopen(path, "r");
	if (children && fgets(line, sizeof(line), children))
		mutator = atoi(line);
	if (children)
		fclose(children);
	kill(daemon, SIGKILL);
	assert_true(wait_gone(daemon, ANSWER_MS));
	assert_true(mutator > 0 && wait_gone(mutator, ANSWER_MS));
	assert_int_equal(access(fixture_socket, F_OK), 0);
	run_dinst(o, "ls");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->err, "no daemon"));
	run_dinst(o, "attach %d --json", (int)fixture_target);
	assert_int_equal(o->status, 0);
	assert_null(strstr(o->out, "joined"));
	stop();
}

static void second_daemon(void **state)
{
	(void)state;
	start_daemon_by_client();
	run_dinstd("-s %s", fixture_socket);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "another dinstd (pid"));
	run_dinst(o, "ls -q");
	assert_int_equal(o->status, 0);
	stop();
}

/* Somebody else's socket, and what is no socket at all, are left alone. */
static void place_is_taken(void **state)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0), file;

	(void)state;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
	assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	assert_int_equal(listen(fd, 5), 0);
	run_dinstd("-s %s", fixture_socket);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "in use by another program (pid"));
	assert_int_equal(access(fixture_socket, F_OK), 0);
	close(fd);
	unlink(fixture_socket);
	file = open(fixture_socket, O_CREAT | O_WRONLY, 0600);
	close(file);
	run_dinst(o, "attach %d", (int)fixture_target);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "not a socket"));
	assert_int_equal(access(fixture_socket, F_OK), 0);
	unlink(fixture_socket);
}

static pid_t spawn_dinstd(const char *option, const char *value)
{
	pid_t pid = fork();

	if (pid == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 2);
		execl(fixture_dinstd, "dinstd", "-s", fixture_socket, option, value, (char *)NULL);
		_exit(126);
	}
	for (int i = 0; i < 12000 && access(fixture_socket, F_OK) != 0; i++)
		nap_ms(10);
	return pid;
}

/* SIGTERM: everything is detached first. */
static void signalled(void **state)
{
	pid_t pid = spawn_dinstd("-i", "0");
	int status, before = 0, after = 0;

	(void)state;
	run_dinst(o, "attach %d -q", (int)fixture_target);
	assert_int_equal(o->status, 0);
	file_has("requests", "\"method\":\"detach\"", &before);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	file_has("requests", "\"method\":\"detach\"", &after);
	assert_int_equal(after, before + 1);
	assert_int_equal(access(fixture_socket, F_OK), -1);
}

/* Waits until the socket is another file than `old`, which may be 0. */
static bool made_anew(const char *path, ino_t old)
{
	struct stat st;

	for (int ms = 0; ms < ANSWER_MS; ms += 10) {
		if (stat(path, &st) == 0 && st.st_ino != old)
			return true;
		nap_ms(10);
	}
	return false;
}

static ino_t inode_of(const char *path)
{
	struct stat st;

	assert_int_equal(stat(path, &st), 0);
	return st.st_ino;
}

/*
 * A user logs out, and what XDG_RUNTIME_DIR names goes; he logs in, and it comes back
 * empty: the daemon that went on is reached again, with its session.
 */
static void directory_is_lost(void **state)
{
	pid_t pid = spawn_dinstd("-i", "0");
	char aside[100], bound[400];
	int status, fd;
	ino_t old;

	(void)state;
	run_dinst(o, "attach %d -q", (int)fixture_target);
	assert_int_equal(o->status, 0);
	/* the socket alone is removed: as things are in /tmp */
	old = inode_of(fixture_socket);
	snprintf(bound, sizeof(bound), "%s/bound", fixture_directory);
	assert_int_equal(link(fixture_socket, bound), 0); /* so that its number is not used again */
	assert_int_equal(unlink(fixture_socket), 0);
	assert_true(made_anew(fixture_socket, old));
	run_dinst(o, "ls --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"state\""));
	/* the directory, for longer than one look */
	snprintf(aside, sizeof(aside), "%s.aside", fixture_directory);
	assert_int_equal(rename(fixture_directory, aside), 0);
	fd = open(fixture_directory, O_CREAT | O_EXCL | O_WRONLY, 0600);
	assert_true(fd >= 0);
	close(fd);
	nap_ms(2500);
	assert_int_equal(unlink(fixture_directory), 0);
	assert_true(made_anew(fixture_socket, 0));
	assert_int_equal(daemon_pid(), pid);
	run_dinst(o, "ls --json");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "\"state\""));
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(access(fixture_socket, F_OK), -1);
	/* back to where the fake mutator writes */
	snprintf(bound, sizeof(bound), "rm -rf %s && mv %s %s && rm -f %s/bound %s/d.sock",
		 fixture_directory, aside, fixture_directory, fixture_directory, fixture_directory);
	assert_int_equal(system(bound), 0);
}

/* Another daemon has come in the place of one whose socket and lock were removed. */
static void another_came(void **state)
{
	pid_t pid = spawn_dinstd("-i", "0"), second;
	char path[100];
	int status;
	ino_t old;

	(void)state;
	kill(pid, SIGSTOP); /* so that it cannot look meanwhile */
	snprintf(path, sizeof(path), "%s/d.lock", fixture_directory);
	assert_int_equal(unlink(path), 0);
	assert_int_equal(unlink(fixture_socket), 0);
	second = spawn_dinstd("-i", "0");
	old = inode_of(fixture_socket);
	kill(pid, SIGCONT);
	nap_ms(2500);
	assert_int_equal(inode_of(fixture_socket), old);
	assert_int_equal(daemon_pid(), second);
	/* which goes on when the first ends */
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal(inode_of(fixture_socket), old);
	run_dinst(o, "ls -q");
	assert_int_equal(o->status, 0);
	kill(second, SIGTERM);
	assert_int_equal(waitpid(second, &status, 0), second);
	assert_int_equal(status, 0);
	assert_int_equal(access(fixture_socket, F_OK), -1);
}

/* One that ends has its lock for a moment longer than its socket: the next one waits for that. */
static void another_leaves(void **state)
{
	char command[200];
	int status;
	pid_t pid;

	(void)state;
	snprintf(command, sizeof(command), "flock %s/d.lock sleep 0.5 & sleep 0.1",
		 fixture_directory);
	assert_int_equal(system(command), 0);
	pid = spawn_dinstd("-i", "0");
	assert_int_equal(daemon_pid(), pid);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* fear L3: nobody takes the daemon's log (a full pipe, a disk that is busy): its clients are served, and it ends */
static void log_nobody_takes(void **state)
{
	enum { PIPE = 4096 };
	static char text[PIPE + 1];
	int log[2], status;
	ssize_t n;
	pid_t pid;

	(void)state;
	assert_int_equal(pipe2(log, O_CLOEXEC), 0);
	assert_int_equal(fcntl(log[1], F_SETPIPE_SZ, PIPE), PIPE);
	pid = fork();
	if (pid == 0) {
		dup2(log[1], 2);
		execl(fixture_dinstd, "dinstd", "-s", fixture_socket, (char *)NULL);
		_exit(126);
	}
	close(log[1]);
	for (int i = 0; i < 12000 && access(fixture_socket, F_OK) != 0; i++)
		nap_ms(10);
	/* two lines each time */
	for (int i = 0; i < 60; i++) {
		run_dinst(o, "attach %d -q", (int)fixture_target);
		assert_int_equal(o->status, 0);
		run_dinst(o, "detach -q");
		assert_int_equal(o->status, 0);
	}
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	n = read(log[0], text, PIPE);
	assert_true(n > PIPE / 2);
	assert_non_null(strstr(text, "dinstd: version"));
	close(log[0]);
}

static long long thread_count(pid_t pid)
{
	char path[40];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	assert_int_equal(stat(path, &st), 0);
	return (long long)st.st_nlink - 2;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Its stack finds no room. */
static void no_thread_can_be_made(void)
{
	struct rlimit stack, space, small;

	assert_int_equal(getrlimit(RLIMIT_STACK, &stack), 0);
	assert_int_equal(getrlimit(RLIMIT_AS, &space), 0);
	small = (struct rlimit){(rlim_t)1 << 30, stack.rlim_max};
	if (setrlimit(RLIMIT_STACK, &small) != 0)
		skip();
	small = (struct rlimit){(rlim_t)900 << 20, space.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_AS, &small), 0);
	run_dinstd("-s %s", fixture_socket);
	setrlimit(RLIMIT_AS, &space);
	setrlimit(RLIMIT_STACK, &stack);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "cannot make threads"));
	assert_int_equal(access(fixture_socket, F_OK), -1);
}
#endif

/* What libuv would abort for want of later is there, or missed, before the first session */
static void threads_at_the_start(void **state)
{
	enum { THREADS = 4 }; /* the loop, the log, two for names */

	(void)state;
	start_daemon_by_client();
	assert_true(thread_count(daemon_pid()) >= THREADS);
	stop();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	no_thread_can_be_made();
#endif
}

/* A daemon that lives long does not fill a small file system: mutators write to its log, too. */
static void log_is_bounded(void **state)
{
	enum { MIB = 1 << 20 };
	static char line[10000];
	char path[100];
	struct stat st;
	int fd, count;

	(void)state;
	snprintf(path, sizeof(path), "%s/d.log", fixture_directory);
	start_daemon_by_client();
	fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
	assert_true(fd >= 0);
	memset(line, 'x', sizeof(line));
	line[sizeof(line) - 1] = '\n';
	/* It may be cut while we write. */
	do {
		assert_int_equal(write(fd, line, sizeof(line)), sizeof(line));
		assert_int_equal(fstat(fd, &st), 0);
	} while (st.st_size <= 4 * MIB + 50 * (off_t)sizeof(line));
	assert_int_equal(write(fd, "the end\n", 8), 8);
	for (int ms = 0; ms < ANSWER_MS && !fstat(fd, &st) && st.st_size > MIB + 100; ms += 20)
		nap_ms(20);
	close(fd);
	/* its line, which comes first, and whole lines up to the last one */
	for (int ms = 0; ms < ANSWER_MS && !stat(path, &st) && st.st_size < MIB - 20000; ms += 20)
		nap_ms(20);
	assert_in_range(st.st_size, MIB - 20000, MIB + 4000);
	assert_true(file_has("d.log", "dinstd: this log was longer than 4 MiB", &count));
	stop();
	/* the daemon has gone on below */
	snprintf(path, sizeof(path), "tail -c 4000 %s/d.log | grep -q 'dinstd: end'",
		 fixture_directory);
	assert_int_equal(system(path), 0);
	snprintf(path, sizeof(path), "tail -n 20 %s/d.log | grep -qx 'the end'", fixture_directory);
	assert_int_equal(system(path), 0);
}

/* Without sessions it leaves by itself; with one it stays. */
static void idle(void **state)
{
	pid_t pid = spawn_dinstd("-i", "4");
	int status;

	(void)state;
	run_dinst(o, "attach %d -q", (int)fixture_target);
	assert_int_equal(o->status, 0);
	nap_ms(6000);
	assert_int_equal(waitpid(pid, &status, WNOHANG), 0);
	run_dinst(o, "detach");
	assert_int_equal(o->status, 0);
	for (int i = 0; i < 12000 && waitpid(pid, &status, WNOHANG) == 0; i++)
		nap_ms(10);
	assert_int_equal(waitpid(pid, &status, WNOHANG), -1);
	assert_int_equal(status, 0);
	assert_int_equal(access(fixture_socket, F_OK), -1);
}

static void no_mutator(void **state)
{
	(void)state;
	setenv("DINST_MUTATOR", "/nonexistent", 1);
	run_dinst(o, "attach %d --json", (int)fixture_target);
	assert_int_equal(o->status, 1);
	assert_non_null(strstr(o->err, "DINST_MUTATOR=/nonexistent is not a program"));
	setenv("DINST_MUTATOR", fixture_fake, 1);
}

/* The socket's mode keeps other users out, and so does the check behind it. */
static void other_users(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	if (geteuid() != 0) {
		print_message("SKIP other_users: only root can be somebody else\n");
		skip();
	}
	start_daemon_by_client();
	chmod(fixture_directory, 0711);
	chmod(fixture_socket, 0666);
	pid = fork();
	if (pid == 0) {
		struct sockaddr_un address = {.sun_family = AF_UNIX};
		int fd = socket(AF_UNIX, SOCK_STREAM, 0);
		char byte;

		if (setgroups(0, NULL) || setgid(65534) || setuid(65534))
			_exit(2);
		snprintf(address.sun_path, sizeof(address.sun_path), "%s", fixture_socket);
		if (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
			_exit(3);
		send(fd, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}\n", 41, MSG_NOSIGNAL);
		alarm(100);
		_exit(read(fd, &byte, 1) > 0 ? 4 : 0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	chmod(fixture_directory, 0700);
	stop();
}

static void bad_options(void **state)
{
	(void)state;
	run_dinstd("--bogus");
	assert_int_equal(o->status, 2);
	run_dinstd("-i x");
	assert_int_equal(o->status, 2);
	run_dinstd("extra");
	assert_int_equal(o->status, 2);
	run_dinstd("--help");
	assert_int_equal(o->status, 0);
	assert_non_null(strstr(o->out, "usage: dinstd"));
	run_dinstd("--version");
	assert_int_equal(o->status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(started_once),
		cmocka_unit_test(stop_and_start),
		cmocka_unit_test(modes),
		cmocka_unit_test(killed_daemon),
		cmocka_unit_test(second_daemon),
		cmocka_unit_test(place_is_taken),
		cmocka_unit_test(signalled),
		cmocka_unit_test(directory_is_lost),
		cmocka_unit_test(another_came),
		cmocka_unit_test(another_leaves),
		cmocka_unit_test(log_nobody_takes),
		cmocka_unit_test(threads_at_the_start),
		cmocka_unit_test(log_is_bounded),
		cmocka_unit_test(idle),
		cmocka_unit_test(no_mutator),
		cmocka_unit_test(other_users),
		cmocka_unit_test(bad_options),
	};

	return cmocka_run_group_tests_name("daemon_start", tests, setup, teardown);
}
