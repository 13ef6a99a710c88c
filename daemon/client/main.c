/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinst, the client: runs one command and exits as it says.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/command.h"

/*
 * Whoever closed our standard files must not find our output in the socket or the
 * log, which would get their numbers. False if they cannot be opened.
 */
static bool open_standard(void)
{
	int fd;

	do {
		fd = open("/dev/null", O_RDWR);
	} while (fd >= 0 && fd <= STDERR_FILENO);
	return fd >= 0 && close(fd) == 0;
}

/* The first of them that is set and not empty, as setlocale(3) has it. */
static const char *locale_of_characters(void)
{
	static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (value && *value)
			return value;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	struct context context;
	int status;

	if (!open_standard())
		return EXIT_FAILED;
	text_for_locale(locale_of_characters());
	memset(&context, 0, sizeof(context));
	link_init(&context.link);
	status = command_run(&context, argc - 1, argv + 1);
	link_close(&context.link);
	return status;
}
