/* SPDX-License-Identifier: MIT */
/*
 * mdl_library.c - the metrics that ship: each is loaded, has a description and
 * few lines, and can be asked for with every focus that it promises; and each
 * goes in and out of a running program.
 */
#include "tests/live/mdl_help.h"

enum { LINES_MAX = 22 };

struct question {
	const char *metric, *focus;
};

/* On mdl_mutexes, which has threads, mutexes and descriptors. */
static const struct question questions[] = {
	{"calls", NULL},
	{"calls", "/Code/mdl_mutexes"},
	{"calls", "/Code/mdl_mutexes/lock_all"},
	{"calls", "/Code/mdl_mutexes/*"},
	{"calls", "/Code/mdl_mutexes/lock_all /Process/{T}"},
	{"calls", "/SyncObject/Mutex/*"},
	{"calls", "/SyncObject/Mutex/0x1000"},
	{"calls", "/Code/mdl_mutexes/lock_all /Machine/{P}"},
	{"call_rate", "/Code/mdl_mutexes/lock_all"},
	{"call_rate", "/Code/mdl_mutexes"},
	{"latency", "/Code/mdl_mutexes"},
	{"latency", "/Code/mdl_mutexes/waiter"},
	{"latency", "/Code/mdl_mutexes/waiter /Process/*"},
	{"active", NULL},
	{"active", "/Code/mdl_mutexes"},
	{"active", "/Code/mdl_mutexes/waiter"},
	{"cpu", NULL},
	{"cpu", "/Code/mdl_mutexes"},
	{"cpu", "/Code/mdl_mutexes/waiter"},
	{"cpu", "/Process/{T}"},
	{"cpu", "/Process/*"},
	{"cpu_inclusive", NULL},
	{"cpu_inclusive", "/Code/mdl_mutexes"},
	{"cpu_inclusive", "/Code/mdl_mutexes/waiter"},
	{"wall", NULL},
	{"wall", "/Code/mdl_mutexes"},
	{"wall", "/Code/mdl_mutexes/waiter"},
	{"wall_inclusive", NULL},
	{"wall_inclusive", "/Code/mdl_mutexes"},
	{"wall_inclusive", "/Code/mdl_mutexes/waiter"},
	{"io_ops", NULL},
	{"io_ops", "/File/0"},
	{"io_ops", "/File/Socket/*"},
	{"io_bytes", NULL},
	{"io_bytes", "/File/*"},
	{"io_bytes", "/Code/mdl_mutexes/main"},
	{"io_bytes", "/Code/mdl_mutexes/main /File/*"},
	{"io_bytes", "/Code/mdl_mutexes/main /Process/{T} /File/0"},
	{"io_wait", NULL},
	{"io_wait", "/File/*"},
	{"io_wait", "/Code/mdl_mutexes"},
	{"sync_ops", NULL},
	{"sync_ops", "/SyncObject/Mutex/*"},
	{"sync_ops", "/Code/mdl_mutexes/waiter"},
	{"sync_wait", NULL},
	{"sync_wait", "/SyncObject/Mutex/*"},
	{"sync_wait", "/Code/mdl_mutexes/waiter /SyncObject/Mutex/*"},
	{"sync_wait", "/Code/mdl_mutexes"},
	{"locks_held", NULL},
	{"locks_held", "/SyncObject/Mutex/*"},
	{"alloc_calls", NULL},
	{"alloc_calls", "/Code/mdl_mutexes"},
	{"alloc_bytes", NULL},
	{"alloc_bytes", "/Code/mdl_mutexes/main"},
	{"alloc_live", NULL},
	{"syscall_wrappers", NULL},
	{"syscall_wrappers", "/Process/*"},
};

/* The words of a focus, with {T} for the first thread's id and {P} for the process's. */
static size_t words_of(struct harness *h, const char *focus, char *text, size_t size,
		       const char **words)
{
	size_t used = 0, count = 0;

	for (const char *p = focus; p && *p && used < size - 24; p++) {
		if (!strncmp(p, "{T}", 3) || !strncmp(p, "{P}", 3)) {
			used += (size_t)snprintf(text + used, size - used, "%d", h->pid);
			p += 2;
		} else {
			text[used++] = *p;
		}
	}
	text[used] = '\0';
	for (char *rest = text, *p = strsep(&rest, " "); p && *p; p = strsep(&rest, " "))
		words[count++] = p;
	words[count] = NULL;
	return count;
}

static void test_questions(void **state)
{
	struct harness *h = *state;

	harness_start(h, "mdl_mutexes", "50", NULL);
	mdl_attach(h, NULL);
	for (size_t i = 0; i < sizeof(questions) / sizeof(questions[0]); i++) {
		const char *words[8] = {questions[i].metric};
		char text[200];
		json_t *rows;

		words_of(h, questions[i].focus, text, sizeof(text), words + 1);
		print_message("%s %s\n", questions[i].metric,
			      questions[i].focus ? questions[i].focus : "");
		/* a few of all functions cannot be entered through a patch */
		rows = mdl_insert_rows(h, true, words);
		mdl_ask(h, "go 2");
		json_decref(mdl_rows(h, (unsigned)harness_integer(rows, "id")));
		mdl_remove(h, (unsigned)harness_integer(rows, "id"));
		json_decref(rows);
	}
	mdl_end(h);
}

/* All at once, with work going on meanwhile: however much meets at single functions, it fits. */
static void test_together(void **state)
{
	const size_t count = sizeof(questions) / sizeof(questions[0]);
	struct harness *h = *state;
	size_t full = 0;

	harness_start(h, "mdl_mutexes", "50", NULL);
	mdl_attach(h, NULL);
	for (size_t i = 0; i < count; i++) {
		const char *words[10] = {"insert", "-p", harness_number(h->pid),
					 questions[i].metric};
		char text[200];
		int status;

		/* the whole of libraries is not for here */
		if (!questions[i].focus && !strncmp(questions[i].metric, "calls", 5))
			continue;
		words_of(h, questions[i].focus, text, sizeof(text), words + 4);
		status = harness_dinst_argv(h, NULL, words);
		if (status == 1 && strstr(h->messages, "than one program can hold"))
			full++;
		else if (status != 0 && status != 3)
			fail_msg("%s %s: status %d: %s", questions[i].metric,
				 questions[i].focus ? questions[i].focus : "", status, h->messages);
		if (i % 8 == 0)
			mdl_ask(h, "go 5");
	}
	print_message("%zu of %zu did not fit\n", full, count);
	assert_int_equal(full, 0);
	mdl_ask(h, "go 50");
	mdl_ask(h, "wait 2 5");
	assert_int_equal(harness_dinst(h, NULL, "read", "-p", harness_number(h->pid)), 0);
	mdl_end(h);
}

static void test_listing(void **state)
{
	static const char *const names[] = {
		"calls",      "call_rate",	  "cpu",	"cpu_inclusive", "wall",
		"latency",    "wall_inclusive",	  "active",	"io_ops",	 "io_bytes",
		"io_wait",    "sync_ops",	  "sync_wait",	"alloc_calls",	 "alloc_bytes",
		"alloc_live", "syscall_wrappers", "exceptions", "locks_held",
	};
	struct harness *h = *state;
	json_t *rows = NULL, *row;
	size_t i;

	assert_int_equal(harness_dinst(h, &rows, "metrics"), 0);
	for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++) {
		bool found = false;

		json_array_foreach(rows, i, row)
		{
			const char *name = json_string_value(json_object_get(row, "metric"));

			if (!name || strcmp(name, names[k]) != 0)
				continue;
			found = true;
			assert_true(json_is_string(json_object_get(row, "unit")));
			assert_true(json_is_string(json_object_get(row, "file")));
		}
		if (!found)
			fail_msg("there is no metric '%s'", names[k]);
	}
	json_decref(rows);
}

/* Users learn from these texts: none may be long, each says what it is. */
static void test_texts(void **state)
{
	static const char *const files[] = {"code", "io", "memory", "sync", "syscalls", "time"};

	(void)state;
	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char file[40], line[512], name[64] = "";
		int lines = 0;
		bool described = true;
		FILE *f;

		snprintf(file, sizeof(file), "metrics/%s.mdl", files[i]);
		f = fopen(harness_path(file), "r");
		if (!f)
			fail_msg("%s cannot be opened", file);
		while (fgets(line, sizeof(line), f)) {
			if (sscanf(line, "metric %63s {", name) == 1) {
				lines = 0;
				described = false;
			}
			lines += name[0] != '\0';
			described |= strstr(line, "\tdescription \"") != NULL;
			if (line[0] == '}' && name[0]) {
				if (lines > LINES_MAX || !described)
					fail_msg("%s: %d lines, %s", name, lines,
						 described ? "described" : "not described");
				name[0] = '\0';
			}
		}
		fclose(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_texts),
		cmocka_unit_test_setup_teardown(test_listing, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_questions, harness_setup, harness_teardown),
		cmocka_unit_test_setup_teardown(test_together, harness_setup, harness_teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
