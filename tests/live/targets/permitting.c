/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * permitting.c - a program without which nobody may read its own file (fanotify(7), FAN_ACCESS_PERM), as
 * scanners are asked for all files. Prints "ready", or "cannot"; "go N" calls work() N times, and is
 * answered with "done".
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <unistd.h>

static volatile long sum;

__attribute__((noinline, noclone)) void work(long n)
{
	sum += n;
}

static void permit(int fd)
{
	static char events[4096];
	ssize_t length = read(fd, events, sizeof(events));
	struct fanotify_event_metadata *m = (struct fanotify_event_metadata *)events;

	for (; FAN_EVENT_OK(m, length); m = FAN_EVENT_NEXT(m, length)) {
		struct fanotify_response answer = {.fd = m->fd, .response = FAN_ALLOW};

		if (write(fd, &answer, sizeof(answer)) != sizeof(answer))
			exit(2);
		close(m->fd);
	}
}

int main(void)
{
	const int fd = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY | O_LARGEFILE);
	struct pollfd wait[2] = {{.fd = fd, .events = POLLIN}, {.fd = 0, .events = POLLIN}};
	char line[64];
	size_t used = 0;

	puts(fd < 0 || fanotify_mark(fd, FAN_MARK_ADD, FAN_ACCESS_PERM, AT_FDCWD, "/proc/self/exe")
		     ? "cannot"
		     : "ready");
	fflush(stdout);
	for (;;) {
		if (poll(wait, 2, -1) < 0)
			continue;
		if (wait[0].revents)
			permit(fd);
		if (!wait[1].revents)
			continue;
		if (read(0, line + used, 1) != 1)
			return 0;
		if (line[used++] != '\n')
			continue;
		used = 0;
		for (long n = atol(line + 3); n > 0; n--)
			work(n);
		puts("done");
		fflush(stdout);
	}
}
