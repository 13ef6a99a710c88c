/* SPDX-License-Identifier: MIT */
/*
 * daemon_export.c - exports by OTLP to a receiver of our own: since when a value is counted where its
 * mutator died in between, and a receiver's host with several addresses. The mutator is the fake one.
 */
#include "tests/live/daemon_fixture.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/mount.h>

enum { BODY_MAX = 1 << 20, EXPORTS_MOST = 60 };

static int receiver = -1;
static uint16_t port;

static uint64_t real_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Listens at 127.0.0.2 only, at any port. */
static int listen_there(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	struct timeval limit = {ANSWER_MS / 1000, 0};
	socklen_t size = sizeof(a);

	inet_pton(AF_INET, "127.0.0.2", &a.sin_addr);
	receiver = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (bind(receiver, (struct sockaddr *)&a, sizeof(a)) || listen(receiver, 8) ||
	    getsockname(receiver, (struct sockaddr *)&a, &size))
		return -1;
	port = ntohs(a.sin_port);
	return 0;
}

/* The next export, which is accepted; NULL if none comes. */
static json_t *next_export(void)
{
	static char text[BODY_MAX];
	int fd = accept(receiver, NULL, NULL);
	struct timeval limit = {ANSWER_MS / 1000, 0};
	const char *length, *body = NULL;
	size_t used = 0;
	ssize_t n;

	if (fd < 0)
		return NULL;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	while ((n = recv(fd, text + used, sizeof(text) - 1 - used, 0)) > 0) {
		used += (size_t)n;
		text[used] = '\0';
		length = strstr(text, "Content-Length: ");
		body = strstr(text, "\r\n\r\n");
		if (length && body && strlen(body + 4) >= strtoul(length + 16, NULL, 10))
			break;
	}
	raw_say(fd, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
	close(fd);
	return body ? json_loads(body + 4, 0, NULL) : NULL;
}

/* The first value of that name in any resource; NULL: none. */
static json_t *point_of(json_t *export, const char *name)
{
	json_t *resource, *metric;
	size_t i, j;

	json_array_foreach(json_object_get(export, "resourceMetrics"), i, resource)
	{
		json_t *scope = json_array_get(json_object_get(resource, "scopeMetrics"), 0);

		json_array_foreach(
			json_object_get(scope, "metrics"), j,
			metric) if (strcmp(json_string_value(json_object_get(metric, "name")),
					   name) ==
				    0) return json_array_get(json_object_get(json_object_get(metric,
											     "sum"),
									     "dataPoints"),
							     0);
	}
	return NULL;
}

static uint64_t time_of(json_t *point, const char *key)
{
	const char *text = json_string_value(json_object_get(point, key));

	return text ? strtoull(text, NULL, 10) : 0;
}

/* Since when calls are counted, by an export that was made after that moment. */
static uint64_t start_after(uint64_t moment)
{
	for (int i = 0; i < EXPORTS_MOST; i++) {
		json_t *export = next_export(), *point;
		uint64_t start = 0;

		assert_non_null(export);
		point = point_of(export, "dinst_calls_total");
		if (point && time_of(point, "timeUnixNano") > moment)
			start = time_of(point, "startTimeUnixNano");
		json_decref(export);
		if (start)
			return start;
	}
	return 0;
}

/* `hosts`: the file of names that it has, or NULL. */
static pid_t start_exporting(const char *socket, const char *host, const char *hosts)
{
	char url[100], log[100];
	pid_t pid;

	snprintf(url, sizeof(url), "http://%s:%d", host, port);
	snprintf(log, sizeof(log), "%s/d.log", fixture_directory);
	pid = fork();
	if (pid)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (hosts && (unshare(CLONE_NEWNS) || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		      mount(hosts, "/etc/hosts", NULL, MS_BIND, NULL)))
		_exit(99);
	dup2(open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600), STDERR_FILENO);
	execl(fixture_dinstd, "dinstd", "-s", socket, "--otlp", url, "--otlp-interval", "1", NULL);
	_exit(98);
}

static int setup(void **state)
{
	struct output *o = malloc(sizeof(*o));
	int status = -1;

	if (fixture_setup(state) == 0 && listen_there() == 0 &&
	    start_exporting(fixture_socket, "127.0.0.2", NULL) > 0) {
		for (int ms = 0; access(fixture_socket, F_OK) && ms < ANSWER_MS; ms += 10)
			nap_ms(10);
		run_dinst(o, "attach %d -n base", (int)fixture_target);
		status = o->status;
	}
	free(o);
	return status;
}

/*
 * A mutator dies, and what is inserted anew counts from nothing: with the start of what was
 * there before, a receiver would take it for that, and for fewer calls than there were.
 */
static void what_is_anew_starts_anew(void **state)
{
	static const char params[] = "{\"session\":\"base\",\"metric\":\"calls\",\"focus\":[]}";
	uint64_t first, alive;

	(void)state;
	expect_word("insert", params, "");
	first = start_after(real_ns());
	assert_true(first > 0 && first < real_ns());
	assert_int_equal(start_after(real_ns()), first);
	alive = real_ns();
	/* of two clocks one may be put right meanwhile */
	nap_ms(200);
	expect_word("funcs", "{\"session\":\"base\",\"pattern\":\"@crash\"}", "daemon");
	expect_word("insert", params, "");
	assert_true(start_after(real_ns()) > alive);
	still_well();
}

/* A host that has several addresses, where only one that is not the first is served. */
static void another_address_is_tried(void **state)
{
	char hosts[100], socket[100];
	json_t *export;
	FILE *f;
	pid_t pid;
	int status;

	(void)state;
	snprintf(hosts, sizeof(hosts), "%s/hosts", fixture_directory);
	snprintf(socket, sizeof(socket), "%s/e.sock", fixture_directory);
	f = fopen(hosts, "w");
	assert_non_null(f);
	fputs("127.0.0.1 twofold\n127.0.0.2 twofold\n", f);
	fclose(f);
	/* the other one's exports have no place */
	close(receiver);
	assert_int_equal(listen_there(), 0);
	pid = start_exporting(socket, "twofold", hosts);
	nap_ms(100);
	if (waitpid(pid, &status, WNOHANG) == pid && WEXITSTATUS(status) == 99) {
		print_message("skipped: no mounts of our own\n");
		skip();
	}
	export = next_export();
	assert_non_null(export);
	assert_non_null(point_of(export, "dinst_otlp_failures_total"));
	json_decref(export);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

/* In place: the daemon has this very file. `first`: the address in vain comes first. */
static void write_hosts(const char *path, bool first)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	fprintf(f, "127.0.0.%d twofold\n127.0.0.%d twofold\n", first ? 3 : 2, first ? 2 : 3);
	fclose(f);
}

/* A host's addresses come in another order each time, as of many servers of names: so that the one in vain has its turn. */
static void in_whatever_order_they_come(void **state)
{
	struct sockaddr_in a = {.sin_family = AF_INET};
	char hosts[100], socket_path[100];
	int vain = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, status;
	struct pollfd both[2];
	bool first = true;
	pid_t pid;

	(void)state;
	snprintf(hosts, sizeof(hosts), "%s/turns", fixture_directory);
	snprintf(socket_path, sizeof(socket_path), "%s/f.sock", fixture_directory);
	write_hosts(hosts, first);
	close(receiver);
	assert_int_equal(listen_there(), 0);
	inet_pton(AF_INET, "127.0.0.3", &a.sin_addr);
	a.sin_port = htons(port);
	assert_int_equal(bind(vain, (struct sockaddr *)&a, sizeof(a)), 0);
	assert_int_equal(listen(vain, 8), 0);
	pid = start_exporting(socket_path, "twofold", hosts);
	nap_ms(100);
	if (waitpid(pid, &status, WNOHANG) == pid && WEXITSTATUS(status) == 99) {
		print_message("skipped: no mounts of our own\n");
		skip();
	}
	both[0] = (struct pollfd){.fd = receiver, .events = POLLIN};
	both[1] = (struct pollfd){.fd = vain, .events = POLLIN};
	for (int tries = 0; !(both[0].revents & POLLIN); tries++) {
		assert_true(tries < 4);
		assert_true(poll(both, 2, ANSWER_MS) > 0);
		if (!(both[1].revents & POLLIN))
			continue;
		fd = accept(vain, NULL, NULL);
		first = !first;
		write_hosts(hosts, first);
		close(fd);
	}
	json_decref(next_export());
	close(vain);
	kill(pid, SIGTERM);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_is_anew_starts_anew),
		cmocka_unit_test(another_address_is_tried),
		cmocka_unit_test(in_whatever_order_they_come),
	};

	return cmocka_run_group_tests(tests, setup, fixture_teardown);
}
