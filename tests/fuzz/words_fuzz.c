/* SPDX-License-Identifier: MIT */
/*
 * words_fuzz.c - any bytes as lines of a script and as words of a command:
 * cut into words, told apart into options and arguments, or refused.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/client/options.h"
#include "daemon/common/process.h"
#include "daemon/common/rpc.h"
#include "daemon/common/words.h"
#include "tests/fuzz/fuzz.h"

static const struct option_spec specs[] = {
	{'n', "name", "NAME", "a value"},
	{'x', "extra", NULL, "a switch"},
	{OPTION_EACH, "each", NULL, "without a letter"},
	{OPTION_LIMIT, "limit", "PERCENT", "a value without a letter"},
	{0, NULL, NULL, NULL},
};

static void try_line(const char *line, bool first_word_ends)
{
	struct dinst_error e = {0, ""};
	unsigned long long number;
	struct arguments a;
	char **argv;
	struct words w;

	if (words_split(line, &w, &e)) {
		require(e.code == DINST_USAGE && e.text[0]);
		return;
	}
	require(w.count >= 0 && !w.word[w.count]);
	for (int i = 0; i < w.count; i++) {
		char name[PROCESS_NAME_MAX];

		require(strlen(w.word[i]) <= strlen(line));
		if (parse_number(w.word[i], 1000, &number))
			require(number <= 1000);
		snprintf(name, sizeof(name), "%s", w.word[i]);
		session_name_clean(name);
		require(session_name_ok(name));
	}
	/* they are put into another order, and some are left out */
	argv = malloc(((size_t)w.count + 1) * sizeof(*argv));
	require(argv);
	memcpy(argv, w.word, ((size_t)w.count + 1) * sizeof(*argv));
	if (!arguments_parse(&a, w.count, argv, specs, first_word_ends, &e)) {
		require(a.word_count <= w.count && a.given_count <= OPTIONS_MAX);
		for (int i = 0; i < a.word_count; i++)
			require(a.word[i]);
		arguments_get(&a, 'n');
	} else {
		require(e.code == DINST_USAGE && e.text[0]);
	}
	free(argv);
	words_release(&w);
}

/* fear L3: no line of a script, and no words of a command, do more than be refused */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	char *text = malloc(size + 1);

	require(text);
	memcpy(text, bytes, size);
	text[size] = '\0';
	for (char *rest = text, *line; (line = strsep(&rest, "\n"));) {
		try_line(line, false);
		try_line(line, true);
	}
	free(text);
	return 0;
}

FUZZ_MAIN(words, 40000);
