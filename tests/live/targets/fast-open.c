/* SPDX-License-Identifier: MIT */
/* build: -O2 -lpthread */
/*
 * fast-open.c - a program that connects to itself, which does not accept yet: its listener lets nobody in, so that
 * whoever connects waits for the handshake, with his data queued already where he uses TCP Fast Open.
 *
 * Prints "ready". Commands (all but the last may say "cannot": no TCP Fast Open here):
 *   sendto   a thread connects and sends "HELLO;" by one call (MSG_FASTOPEN); prints its id
 *   write    the same by a write() after TCP_FASTOPEN_CONNECT
 *   connect  the same by connect() and a write()
 *   accept   lets it in; prints "got TEXT", all that came from it
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#ifndef TCP_FASTOPEN_NO_COOKIE
#define TCP_FASTOPEN_NO_COOKIE 34
#endif

static const char text[] = "HELLO;";
enum { SIZE = sizeof(text) - 1 };

static struct sockaddr_in there = {.sin_family = AF_INET};
static char how[16];
static pid_t sender;

static void *run_sender(void *arg)
{
	const int *fd = arg;

	__atomic_store_n(&sender, gettid(), __ATOMIC_SEQ_CST);
	if (!strcmp(how, "sendto")) {
		sendto(*fd, text, SIZE, MSG_FASTOPEN, (struct sockaddr *)&there, sizeof(there));
	} else if (!connect(*fd, (struct sockaddr *)&there, sizeof(there))) {
		if (write(*fd, text, SIZE) != SIZE)
			perror("write");
	}
	close(*fd);
	return NULL;
}

static int new_sender(void)
{
	const int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;

	if (!strcmp(how, "write"))
		setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, &on, sizeof(on));
	return setsockopt(fd, IPPROTO_TCP, TCP_FASTOPEN_NO_COOKIE, &on, sizeof(on)) ? -1 : fd;
}

/* Everything that the sender has sent: the first one who is let in is only there to be in its way. */
static void print_received(int listener, int first)
{
	char got[256];
	size_t size = 0;
	ssize_t n;
	int fd;

	close(accept(listener, NULL, NULL));
	close(first);
	fd = accept(listener, NULL, NULL);
	while ((n = read(fd, got + size, sizeof(got) - 1 - size)) > 0)
		size += (size_t)n;
	got[size] = '\0';
	close(fd);
	printf("got %s\n", got);
}

/* Takes the only place that there is for those who wait to be accepted. */
static int fill(void)
{
	const int fd = socket(AF_INET, SOCK_STREAM, 0);

	return connect(fd, (struct sockaddr *)&there, sizeof(there)) ? -1 : fd;
}

/* The kernel's setting for clients (tcp_fastopen in ip-sysctl.rst). */
static bool is_permitted(void)
{
	FILE *f = fopen("/proc/sys/net/ipv4/tcp_fastopen", "r");
	int value = 0;

	if (f && fscanf(f, "%d", &value) != 1)
		value = 0;
	if (f)
		fclose(f);
	return value & 1;
}

int main(void)
{
	const int listener = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t size = sizeof(there);
	int first = -1, fd = -1;
	pthread_t thread;
	char line[16];

	there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(listener, (struct sockaddr *)&there, sizeof(there)) || listen(listener, 0) ||
	    getsockname(listener, (struct sockaddr *)&there, &size))
		return 1;
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		if (!strncmp(line, "accept", 6)) {
			print_received(listener, first);
			pthread_join(thread, NULL);
		} else if (!is_permitted()) {
			puts("cannot");
		} else {
			line[strcspn(line, "\n")] = '\0';
			snprintf(how, sizeof(how), "%s", line);
			first = fill();
			fd = new_sender();
			sender = 0;
			if (first < 0 || fd < 0 || pthread_create(&thread, NULL, run_sender, &fd))
				return 1;
			while (!__atomic_load_n(&sender, __ATOMIC_SEQ_CST))
				usleep(100);
			printf("%d\n", (int)sender);
		}
		fflush(stdout);
	}
	return 0;
}
