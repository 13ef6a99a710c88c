/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinst, the client: runs one command and exits as it says.
 */
#include <fcntl.h>
#include <langinfo.h>
#include <locale.h>
#include <stdio.h>
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

/* What the user's locale says of the terminal; a name that nobody has installed says nothing. */
static void learn_charset(void)
{
	const locale_t locale = newlocale(LC_CTYPE_MASK, "", (locale_t)0);

	if (locale == (locale_t)0)
		return;
	text_for_charset(nl_langinfo_l(CODESET, locale));
	freelocale(locale);
}

int main(int argc, char **argv)
{
	struct context context;
	int status;

	if (!open_standard())
		return EXIT_FAILED;
	learn_charset();
	memset(&context, 0, sizeof(context));
	link_init(&context.link);
	status = command_run(&context, argc - 1, argv + 1);
	link_close(&context.link);
	return status;
}
