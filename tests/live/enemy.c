/* SPDX-License-Identifier: MIT */
/*
 * enemy.c - a target that does what it can to lead dinst astray (targets/enemy.c).
 *
 * Whatever it forges: the process that works on it comes to its end by itself, in
 * bounded time and memory; what it can do it does, and the program's own code is
 * as its file has it. Everything is done in a child, whose death would be the failure.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "inject/arena.h"
#include "inject/maps.h"
#include "inject/stack.h"
#include "tests/live/harness_session.h"

/* The address sanitizer's shadow is an eighth, and what is freed is not given back at once. */
#ifdef __SANITIZE_ADDRESS__
enum { SANITIZERS = 2 };
#else
enum { SANITIZERS = 1 };
#endif

enum { SECONDS_MOST = 30, KIB_MOST = SANITIZERS * 800 * 1024, CLEAN_MS = 1000 };

/* What the child tells; shared memory. */
struct account {
	int status, done; /* of the last step; how many steps were done */
	int tries;	  /* for each step, of those that are busy */
	size_t arenas, restored, left, frames, threads;
	char text[DINST_ERROR_TEXT];
};

static struct account *account;

/* ------------------------------------------------------------ in the child */

static int clean(pid_t pid, struct dinst_error *e)
{
	struct leftovers left = {0};
	struct target *t;
	int status = target_open(pid, &t, e);

	if (status < 0)
		return status;
	status = leftovers_clean(t, CLEAN_MS, &left, e);
	/* Of both times: what the first one has done the second one does not see any more. */
	account->arenas += left.arenas;
	account->restored += left.restored;
	account->left = left.arenas_left;
	target_close(t);
	return status;
}

struct walking {
	struct snapshot *shot;
	pid_t tids[2048];
	size_t count;
};

static int take(struct stop *stop, void *arg, struct dinst_error *e)
{
	struct walking *w = arg;

	for (size_t i = 0; i < stop_thread_count(stop) && w->count < 2048; i++)
		w->tids[w->count++] = stop_thread(stop, i)->tid;
	return snapshot_take(stop, &w->shot, e);
}

/* By its unwind tables, and word by word. */
static int walk(pid_t pid, struct dinst_error *e)
{
	struct stack_range ranges[] = {{.lo = 0x1000, .hi = 0x2000}};
	struct walking w = {0};
	taddr_t pcs[64];
	struct target *t;
	bool complete;
	int status = target_open(pid, &t, e);

	if (status < 0)
		return status;
	status = target_stop(t, NULL, take, &w, NULL, e);
	if (status >= 0) {
		for (size_t i = 0; i < w.count; i++)
			account->frames += snapshot_backtrace(w.shot, w.tids[i], NULL, NULL, pcs,
							      64, &complete);
		snapshot_walk(w.shot, NULL, NULL, ranges, 1);
		snapshot_scan(w.shot, ranges, 1);
		account->threads = w.count;
		snapshot_free(w.shot);
	}
	target_close(t);
	return status;
}

static int instrument(pid_t pid, struct dinst_error *e)
{
	static const struct raw_metric entries = {
		.name = "entries", .unit = "", .constraints = "/Code", .kind = POINT_ENTRY};
	const char *const foci[] = {"work"};
	struct detach_result detached = {0};
	struct insert_result result = {0};
	struct session *s;
	int status = session_attach(pid, "enemy", &s, e);

	if (status < 0)
		return status;
	status = request_insert_raw(s, &entries, foci, 1, false, &result, e);
	free(result.instances);
	if (status >= 0)
		status = session_detach(s, 3, &detached, e);
	session_free(s);
	return status;
}

static void deal_with(pid_t pid)
{
	int (*const steps[])(pid_t, struct dinst_error *) = {clean, walk, instrument, clean};
	struct rlimit none = {0, 0};

	setrlimit(RLIMIT_CORE, &none);
	for (int i = 0; i < 4; i++) {
		struct dinst_error e = {0};

		/* A machine that is busy lets a stop fail: then it is tried again, as a user would. */
		for (int tries = 0; tries < account->tries; tries++) {
			dinst_error_clear(&e);
			account->status = steps[i](pid, &e);
			if (account->status != DINST_BUSY)
				break;
		}
		memcpy(account->text, e.text, sizeof(e.text));
		if (account->status < 0)
			break;
		account->done++;
	}
	_exit(0);
}

/* ------------------------------------------------------------- afterwards */

static void setup_mode(struct harness *h, const char *mode)
{
	memset(account, 0, sizeof(*account));
	account->tries = 1;
	harness_limit(600);
	/* Of the stacks fewer with sanitizers: a stop may take ten seconds of a processor, not more. */
	harness_start(h, "enemy", mode, SLOWER > 1 ? "12" : "64", NULL);
}

/*
 * Fails unless the child ends by itself, soon, and has not taken the memory of the machine.
 * Returns the seconds of CPU time that it took.
 */
static long run_child(struct harness *h)
{
	struct rusage usage;
	time_t begun = time(NULL);
	int status;
	pid_t child;

	fflush(NULL);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		deal_with(h->pid);
	assert_int_equal(wait4(child, &status, 0, &usage), child);
	if (!WIFEXITED(status) || WEXITSTATUS(status))
		fail_msg("it led us astray after %d steps: status %x", account->done,
			 (unsigned)status);
	print_message(
		"%d s, %d steps (%d: %s), %zu arenas, %zu left, %zu frames of %zu threads, %ld MiB\n",
		(int)(time(NULL) - begun), account->done, account->status, account->text,
		account->arenas, account->left, account->frames, account->threads,
		usage.ru_maxrss / 1024);
	/* Of CPU time: how long it had to wait for that says nothing. */
	assert_in_range(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec, 0, SECONDS_MOST);
	assert_in_range(usage.ru_maxrss, 0, KIB_MOST);
	return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec;
}

/* What of a mapping of a file is not as in the file. */
static size_t differing(const struct target *t, const struct maps_entry *entry)
{
	const size_t size = entry->hi - entry->lo;
	uint8_t *now = calloc(1, size), *file = calloc(1, size);
	int fd = open(entry->name, O_RDONLY | O_CLOEXEC);
	size_t count = 0;

	assert_non_null(now);
	assert_non_null(file);
	assert_true(fd >= 0);
	assert_true(pread(fd, file, size, (off_t)entry->offset) > 0);
	assert_int_equal(target_read_some(t, entry->lo, now, size), size);
	for (size_t i = 0; i < size; i++)
		count += now[i] != file[i];
	close(fd);
	free(file);
	free(now);
	return count;
}

/* Of all files; what was forged may have been taken from it. */
static void expect_text(pid_t pid)
{
	struct dinst_error e = {0};
	size_t files = 0;
	struct target *t;
	struct maps m;

	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(maps_read(pid, &m, &e), 0);
	for (size_t i = 0; i < m.count; i++) {
		const struct maps_entry *entry = &m.entries[i];

		if (!(entry->protection & PROT_EXEC) || entry->shared || entry->name[0] != '/' ||
		    !strncmp(entry->name, "/memfd:", 7))
			continue;
		if (differing(t, entry))
			fail_msg("%zu bytes of %s differ", differing(t, entry), entry->name);
		files++;
	}
	assert_true(files >= 2);
	maps_release(&m);
	target_close(t);
}

/* Its code is as in its files; it goes on, and its sums are right. */
static void expect_well(struct harness *h)
{
	expect_text(h->pid);
	harness_verify_what(h, HARNESS_SIGNALS | HARNESS_FDS);
	session_go(h, 1000);
	harness_end(h, 0);
}

static void all_steps(struct harness *h, const char *mode)
{
	setup_mode(h, mode);
	account->tries = 20;
	session_go(h, 100);
	run_child(h);
	if (account->done != 4)
		fail_msg("%s: only %d steps: %s", mode, account->done, account->text);
	expect_well(h);
}

/* The others mean something only if this works. */
static void test_nothing(void **state)
{
	all_steps(*state, "nothing");
	assert_int_equal(account->arenas, 0);
	assert_true(account->frames > 0);
}

/*
 * fear J5, L1: a forged arena whose journal names kernel addresses, the vdso, stacks, the arena
 * itself, the end of all addresses, overlapping and endless windows, and other memory as its own
 * parts: nothing is written anywhere, and the program can be instrumented all the same
 */
static void test_wild_journal(void **state)
{
	all_steps(*state, "wild");
	assert_true(account->arenas > 0);
	assert_int_equal(account->restored, 0);
}

/* fear J5: the same in private memory, which nothing but the header tells from any other */
static void test_private_journal(void **state)
{
	all_steps(*state, "private");
	assert_true(account->arenas > 0);
	assert_int_equal(account->restored, 0);
}

/* fear J5, L1: an arena whose file was cut off: looking through a mapping would be SIGBUS */
static void test_cut_off(void **state)
{
	all_steps(*state, "cut-off");
	assert_true(account->arenas > 0);
}

/*
 * fear J5, L1: header and entries change all the time, checksums right or wrong: what was
 * checked is what is used
 */
static void test_flipping(void **state)
{
	struct harness *h = *state;
	int rounds = getenv("DINST_SHORT") ? 4 : 40, whole = 0;

	setup_mode(h, "flipping");
	for (int i = 0; i < rounds; i++) {
		account->done = 0;
		run_child(h);
		whole += account->done == 4;
	}
	assert_true(whole > 0);
	assert_true(account->arenas > 0);
	expect_well(h);
}

/* fear J5: more arenas than are ever made; those that are not looked at are left */
static void test_crowd(void **state)
{
	struct harness *h = *state;

	setup_mode(h, "crowd");
	for (int i = 0; i < 3 && account->done < 4; i++) {
		account->done = 0;
		run_child(h);
	}
	assert_int_equal(account->done, 4);
	expect_well(h);
}

/*
 * fear J5, L1: hundreds of thousands of entries, short jumps with their holes, and a stack
 * that says that threads come back to all of them: cleaning comes to an end
 */
static void test_full_journal(void **state)
{
	struct harness *h = *state;

	setup_mode(h, "full");
	run_child(h);
	assert_true(account->arenas > 0);
	expect_well(h);
}

/*
 * fear L1, E6: unwind tables that divide INT64_MIN by -1, jump to themselves, call themselves
 * for ever, remember 300,000 states: walking the stacks ends, and not with us
 */
static void test_unwinding(void **state)
{
	all_steps(*state, "unwinding");
	assert_true(account->threads >= 7);
}

/* fear L1: threads whose stacks reach over gigabytes: they are not copied, and not missed */
static void test_stacks(void **state)
{
	struct harness *h = *state;

	setup_mode(h, "stacks");
	run_child(h);
	assert_true(account->done >= 2);
	expect_well(h);
}

/* fear L1, H5: two thousand stacks in one mapping, below tens of thousands of signal frames: they are looked at once */
static void test_shared(void **state)
{
	struct harness *h = *state;

	setup_mode(h, "shared");
	/* 2 s; 20 and more where each thread's stack is looked at by itself */
	assert_in_range(run_child(h), 0, 8 * SLOWER);
	assert_true(account->done >= 2);
	assert_in_range(account->threads, 2000, 2001);
	expect_well(h);
}

/* fear L1: 12,000 mappings, half of them executable */
static void test_mappings(void **state)
{
	all_steps(*state, "mappings");
}

/* More executable memory of nobody's than anybody would search, which costs nothing, and then some more. */
static void have_endless_memory(void)
{
	const size_t searched = (size_t)9 << 30, more = (size_t)2 << 20;
	char *all = mmap(NULL, searched + 2 * more, PROT_NONE,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (all == MAP_FAILED || mprotect(all, searched, PROT_READ | PROT_EXEC) ||
	    mprotect(all + searched + more, more, PROT_READ | PROT_EXEC))
		_exit(1);
	kill(getpid(), SIGSTOP);
	_exit(2);
}

/* fear L1: 9 GiB of private executable memory, of which no page exists, and some more behind it */
static void test_endless_memory(void **state)
{
	struct arena_found found[4];
	struct dinst_error e = {0};
	struct target *t;
	int status;
	pid_t pid;

	(void)state;
	/* Pictures of all its memory are not for it: it is no harness's. */
	harness_limit(60);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid)
		have_endless_memory();
	assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
	assert_true(WIFSTOPPED(status));
	assert_int_equal(target_open(pid, &t, &e), 0);
	assert_int_equal(arena_find(t, found, 4, &e), 0);
	target_close(t);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* fear L1: names of threads and files that would write on the user's terminal */
static void test_names(void **state)
{
	/* `fails`: it says so, with names; the others show what they were asked for. */
	static const struct {
		const char *command;
		bool fails;
	} commands[] = {
		{"attach %d", false},	 {"ls", false},	      {"modules -p %d", false},
		{"doctor %d", false},	 {"repair %d", true}, {"funcs 'nosuch*' -p %d", true},
		{"detach -p %d", false},
	};
	struct harness *h = *state;
	char command[256], line[512];

	setup_mode(h, "names");
	/* Starts the daemon, the same that is asked without --json: another one would know no session. */
	assert_int_equal(harness_dinst(h, NULL, "ls"), 0);
	snprintf(line, sizeof(line), "%s/dinstd.sock", h->directory);
	setenv("DINST_SOCKET", line, 1);
	for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
		size_t used =
			(size_t)snprintf(command, sizeof(command), "%s ", harness_path("dinst"));
		FILE *out;

		snprintf(line, sizeof(line), commands[i].command, (int)h->pid);
		snprintf(command + used, sizeof(command) - used, "%s 2>&1", line);
		out = popen(command, "re");
		assert_non_null(out);
		while (fgets(line, sizeof(line), out))
			for (const char *p = line; *p; p++)
				if (((unsigned char)*p < 0x20 && *p != '\n' && *p != '\t') ||
				    *p == 0x7f ||
				    (p > line && (unsigned char)p[-1] == 0xc2 &&
				     (unsigned char)*p < 0xa0))
					fail_msg("%s: writes %#x on the terminal: %s",
						 commands[i].command, (unsigned char)*p, line);
		if ((pclose(out) != 0) != commands[i].fails)
			fail_msg("%s %s", commands[i].command,
				 commands[i].fails ? "succeeds" : "fails");
	}
	unsetenv("DINST_SOCKET");
	expect_well(h);
}

static int setup(void **state)
{
	account = mmap(NULL, sizeof(*account), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
		       -1, 0);
	return account == MAP_FAILED ? -1 : harness_setup(state);
}

static int teardown(void **state)
{
	munmap(account, sizeof(*account));
	return harness_teardown(state);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(test_nothing),	   TEST(test_wild_journal), TEST(test_private_journal),
		TEST(test_cut_off),	   TEST(test_flipping),	    TEST(test_crowd),
		TEST(test_full_journal),   TEST(test_unwinding),    TEST(test_stacks),
		TEST(test_shared),	   TEST(test_mappings),	    TEST(test_names),
		TEST(test_endless_memory),
	};

	return cmocka_run_group_tests_name("live/enemy", tests, NULL, NULL);
}
