/* SPDX-License-Identifier: MIT */
/*
 * main.c - dinst, the client: runs one command and exits as it says.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "daemon/client/command.h"

int main(int argc, char **argv)
{
	struct context context;
	int status;

	memset(&context, 0, sizeof(context));
	link_init(&context.link);
	status = command_run(&context, argc - 1, argv + 1);
	link_close(&context.link);
	return status;
}
