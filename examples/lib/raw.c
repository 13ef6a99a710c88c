/* SPDX-License-Identifier: MIT */
/*
 * raw.c - any method of the protocol, as JSON text.
 *
 *   raw attach '{"target":"redis-server"}'
 *   raw funcs '{"pattern":"process*"}'
 *
 * What comes before the answer (progress, events) goes to standard error.
 */
#include <dinst.h>
#include <stdio.h>

static void notice(void *arg, const char *kind, const char *text)
{
	(void)arg;
	fprintf(stderr, "%s: %s\n", kind, text);
}

int main(int argc, char **argv)
{
	struct dinst_failure f = {0, ""};
	struct dinst *d = NULL;
	char *result = NULL;

	if (argc < 2) {
		fprintf(stderr, "usage: raw METHOD [PARAMS]\n");
		return 2;
	}
	if (dinst_open(&d, NULL, DINST_START, &f) == 0) {
		dinst_on_notice(d, notice, NULL);
		if (dinst_call(d, argv[1], argc > 2 ? argv[2] : NULL, &result, &f) == 0)
			puts(result);
	}
	if (f.code)
		fprintf(stderr, "raw: %s (%s)\n", f.text, dinst_word(f.code));
	dinst_free(result);
	dinst_close(d);
	return f.code ? 1 : 0;
}
