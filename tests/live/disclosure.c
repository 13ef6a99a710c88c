/* SPDX-License-Identifier: MIT */
/*
 * disclosure.c - what of the mutator's own memory can be read in the target: nothing. Everything that
 * we write there is looked through for addresses of ours, of which each would tell an enemy
 * where to aim.
 *
 * Read askew, a few words of code look like addresses (`cmp $2, %al; jae .+0x7f0e` is 0x7f08830f023c), and once in
 * thousands of times ours are there. Then new mutators look, whose memory is elsewhere: none of them may find
 * one.
 */
#include "tests/live/harness_session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/maps.h"

enum { PAGE = 4096, NEW_MUTATORS = 3 };

static bool is_new_mutator;

/*
 * The address sanitizer has its shadow (LLVM, AddressSanitizerAlgorithm: offset 0x7fff8000), heaps that begin
 * at multiples of 4 GiB, and terabytes set apart for more of them, where nothing is: many a
 * number, read askew, is an address there.
 */
static bool is_sanitizers(const struct maps_entry *at, uint64_t word)
{
#ifdef __SANITIZE_ADDRESS__
	return (word >= 0x7fff8000 && word < 0x10007fff8000) || !(uint32_t)word || !at->protection;
#else
	(void)at;
	(void)word;
	return false;
#endif
}

/* Mappings of ours, and where the target's memory is among them. */
struct own {
	struct maps maps;
	taddr_t arena, arena_end;
	size_t pages; /* that were looked through */
	size_t found;
};

static bool is_own_address(const struct own *o, uint64_t word)
{
	const struct maps_entry *at;

	if (word < PAGE || (word >= o->arena && word < o->arena_end))
		return false;
	at = maps_find(&o->maps, word);
	return at && !is_sanitizers(at, word) && strcmp(at->name, "[vsyscall]") != 0;
}

/* At every byte: addresses in code are not aligned. */
static void look_through(struct own *o, const uint8_t *bytes, size_t size, const char *what)
{
	uint64_t word;

	for (size_t i = 0; i + sizeof(word) <= size; i++) {
		memcpy(&word, bytes + i, sizeof(word));
		if (!is_own_address(o, word))
			continue;
		print_error("%#llx is an address of ours, at %zu of %s\n", (unsigned long long)word,
			    i, what);
		o->found++;
	}
	o->pages += (size + PAGE - 1) / PAGE;
}

/* What exists of the arena's file. */
static void look_through_arena(struct own *o, const struct arena *a)
{
	const off_t end = (off_t)(a->code_size + a->data_size);
	off_t at = 0, hole;

	while ((at = lseek(a->fd, at, SEEK_DATA)) >= 0 && at < end) {
		hole = lseek(a->fd, at, SEEK_HOLE);
		assert_true(hole > at);
		look_through(o, a->code_map + at, (size_t)(hole - at),
			     (size_t)at < a->code_size ? "code" : "data");
		at = hole;
	}
}

static void look_through_threads(struct own *o, const struct session *s, const struct arena *a)
{
	uint8_t *bytes = malloc(a->threads_size);
	struct dinst_error e = {0};

	assert_non_null(bytes);
	assert_int_equal(target_read(s->target, a->threads, bytes, a->threads_size, &e), 0);
	look_through(o, bytes, a->threads_size, "state of threads");
	free(bytes);
}

/* Pages of text that were patched. */
static void look_through_text(struct own *o, const struct session *s)
{
	uint8_t bytes[PAGE];
	struct dinst_error e = {0};

	assert_true(s->page_count > 0);
	for (size_t i = 0; i < s->page_count; i++) {
		assert_int_equal(target_read(s->target, s->pages[i] / PAGE * PAGE, bytes,
					     sizeof(bytes), &e),
				 0);
		look_through(o, bytes, sizeof(bytes), "text");
	}
}

/* True if a new mutator, in a process with other addresses, finds none. */
static bool new_one_finds_none(void)
{
	int status;
	pid_t child = fork();

	assert_true(child >= 0);
	if (child == 0) {
		if (freopen("/dev/null", "w", stdout))
			execl("/proc/self/exe", "disclosure", "again", NULL);
		_exit(127);
	}
	assert_int_equal(waitpid(child, &status, 0), child);
	return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* fear L1: the target's memory holds no address of the mutator's: not in code, journal, values or text */
static void test_no_address_of_ours(void **state)
{
	static const char *const metrics[] = {"calls", "latency", "wall", "active"};
	struct harness *h = *state;
	struct dinst_error e = {0};
	struct own o = {0};
	struct session *s;
	bool threads = false;

	harness_start(h, "calls", "2", NULL);
	s = session_begin(h);
	for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++)
		session_insert_metric(s, metrics[i], "/Code/calls/*", NULL);
	session_go(h, 1000);
	assert_int_equal(maps_read(getpid(), &o.maps, &e), 0);
	for (const struct place *p = s->places; p; p = p->next) {
		const struct arena *a = p->arena;

		assert_int_equal(a->mode, ARENA_SHARED);
		o.arena = (uintptr_t)a->code_map;
		o.arena_end = o.arena + a->code_size + a->data_size;
		/* What is looked for can be found. */
		assert_true(is_own_address(&o, (uintptr_t)s) && is_own_address(&o, (uintptr_t)&o));
		look_through_arena(&o, a);
		threads |= a->threads != 0;
		if (a->threads)
			look_through_threads(&o, s, a);
	}
	look_through_text(&o, s);
	assert_true(threads);
	print_message("%zu pages\n", o.pages);
	maps_release(&o.maps);
	session_end(s);
	harness_verify(h);
	harness_end(h, 0);
	assert_true(!o.found || !is_new_mutator);
	for (int i = 0; o.found && i < NEW_MUTATORS; i++)
		assert_true(new_one_finds_none());
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_no_address_of_ours, harness_setup,
						harness_teardown),
	};

	is_new_mutator = argc > 1 && strcmp(argv[1], "again") == 0;
	return cmocka_run_group_tests_name("live/disclosure", tests, NULL, NULL);
}
