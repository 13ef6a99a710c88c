/* SPDX-License-Identifier: MIT */
/*
 * daemon_prompt.c - the prompt on a terminal: what is typed, and what must
 * then be seen, one line a case, all in one prompt.
 */
#include <termios.h>
#include <pty.h>

#include "tests/live/daemon_fixture.h"

static char screen[1 << 18];
static size_t screen_used, screen_seen;

/* Reads until `text` is on the screen behind what was seen before; false after two minutes. */
static int see(int terminal, const char *text)
{
	struct pollfd p = {terminal, POLLIN, 0};

	for (int waited = 0; waited < 2400; waited++) {
		char *at = strstr(screen + screen_seen, text);
		ssize_t n;

		if (at) {
			screen_seen = (size_t)(at - screen) + strlen(text);
			return 1;
		}
		if (poll(&p, 1, 50) <= 0)
			continue;
		n = read(terminal, screen + screen_used, sizeof(screen) - 1 - screen_used);
		if (n <= 0)
			return 0;
		for (ssize_t i = 0; i < n; i++)
			if (!screen[screen_used + (size_t)i])
				screen[screen_used + (size_t)i] = '?';
		screen_used += (size_t)n;
		screen[screen_used] = '\0';
	}
	return 0;
}

static const struct {
	const char *type;
	const char *see;
} steps[] = {
	{"", "dinst prompted> "},
	{"ins\t", "ert "},
	{"ca\t", "lls "},
	{"/C\t", "ode/"},
	{"\t", "x"},
	{"y\t", "yy"},
	{"\n", "/Code/x/y\r\n"},
	{"", "dinst prompted> "},
	{"read\n", " 1  calls"},
	{"", "dinst prompted> "},
	{"bogus\n", "there is no command 'bogus'"},
	{"", "dinst prompted> "},
	{"insert calls 'open\n", "a ' quote is not closed"},
	{"", "dinst prompted> "},
	{"watch -i 0.05\n", "\033["}, /* draws in place */
	{"\003", "dinst prompted> "}, /* and is interrupted */
	{"hist -p zq\t", "^[[31m"},   /* processes call themselves what they like */
	{"\t", "zq?[31ma  zq?[31mb"},
	{"\003", "\r\ndinst prompted> "}, /* the other one is of the line before */
	{"remove \t", "1"},
	{"\n", "FREED"},
	{"", "dinst prompted> "},
	{"half a line\003", "dinst prompted> "},
	{"funcs @crash\n", "died of signal 6"},
	{"", "dinst prompted> "},
	{"funcs\n", "FUNCTION"},
	{"", "dinst prompted> "},
	{"# a comment\n", "dinst prompted> "},
	{"exec -n child -- /bin/echo from the program\n", "from the program"},
	{"", "dinst child> "},
	{"exec -n third -- /bin/echo a third one\n", "a third one"},
	{"", "dinst third> "},
	{"detach child\n", "child: "}, /* another one than that of the prompt */
	{"", "dinst third> "},
	{"detach\n", "third: "},
	{"", "dinst> "},
	{"ls\n", "prompted"},
	{"", "dinst> "},
	{"detach\n", "prompted: "},
	{"", "dinst> "},
	{"quit\n", ""},
};

static void typing(void **state)
{
	char pid_text[20], path[100];
	struct stat st;
	int terminal, status = -1;
	pid_t pid, strange[2];

	(void)state;
	setenv("TERM", "xterm", 1);
	/* el_end() does not free the names that EL_ADDFN copied */
	setenv("ASAN_OPTIONS", "detect_leaks=0", 0);
	setenv("XDG_STATE_HOME", fixture_directory, 1);
	snprintf(pid_text, sizeof(pid_text), "%d", (int)fixture_target);
	for (size_t i = 0; i < 2; i++)
		strange[i] = start_target(i ? "zq\033[31mb" : "zq\033[31ma");
	pid = forkpty(&terminal, NULL, NULL, NULL);
	if (pid == 0) {
		execl(fixture_dinst, "dinst", "attach", "-n", "prompted", pid_text, (char *)NULL);
		_exit(126);
	}
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		size_t length = strlen(steps[i].type);

		assert_int_equal(write(terminal, steps[i].type, length), length);
		if (!see(terminal, steps[i].see))
			fail_msg("step %zu, '%s': '%s' is not seen: %s", i, steps[i].type,
				 steps[i].see,
				 screen + (screen_used > 600 ? screen_used - 600 : 0));
	}
	for (int i = 0; i < 12000 && waitpid(pid, &status, WNOHANG) == 0; i++)
		nap_ms(10);
	if (status)
		fail_msg("status %d: %s", status, screen + screen_seen);
	assert_int_equal(status, 0);
	close(terminal);
	for (size_t i = 0; i < 2; i++)
		end_target(strange[i]);
	/* the history is kept, and for nobody else */
	snprintf(path, sizeof(path), "%s/dinst/history", fixture_directory);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(st.st_size > 20);
}

/* What is typed while it reads no keys goes through the terminal's own editing, and is another thing then. */
static void wait_for_keys(int terminal)
{
	struct termios t;

	for (int i = 0; i < 6000; i++) {
		if (!tcgetattr(terminal, &t) && !(t.c_lflag & ICANON))
			return;
		nap_ms(10);
	}
	fail_msg("it does not read keys: %s", screen);
}

/*
 * fear L3: root's prompt, started with another user's home as sudo -E leaves it, keeps no history there,
 * and takes no keys from there
 */
static void home_of_another(void **state)
{
	struct output *o = malloc(sizeof(*o));
	const char *typed;
	char path[200], pid_text[20];
	int terminal, status = -1;
	FILE *f;
	pid_t pid;

	(void)state;
	if (geteuid() != 0) {
		print_message("only root can be somebody else\n");
		skip();
	}
	snprintf(path, sizeof(path), "%s/home", fixture_directory);
	assert_int_equal(mkdir(path, 0755), 0);
	setenv("HOME", path, 1);
	unsetenv("XDG_STATE_HOME");
	snprintf(path, sizeof(path), "%s/home/.editrc", fixture_directory);
	f = fopen(path, "w");
	assert_non_null(f);
	fputs("bind -s q \"version\"\n", f);
	fclose(f);
	snprintf(path, sizeof(path), "%s/home", fixture_directory);
	snprintf(pid_text, sizeof(pid_text), "%d", (int)fixture_target);
	for (int own = 1; own >= 0; own--) {
		struct stat st;

		assert_int_equal(chown(path, own ? 0 : 65534, own ? 0 : 65534), 0);
		screen_used = screen_seen = 0;
		screen[0] = '\0';
		pid = forkpty(&terminal, NULL, NULL, NULL);
		if (pid == 0) {
			execl(fixture_dinst, "dinst", "attach", "-n", "homely", pid_text,
			      (char *)NULL);
			_exit(126);
		}
		if (!see(terminal, "dinst homely> "))
			fail_msg("no prompt: %s", screen);
		/* With the keys of that home there is no way to type it. */
		typed = own ? "ls\n" : "quit\n";
		wait_for_keys(terminal);
		assert_int_equal(write(terminal, typed, strlen(typed)), strlen(typed));
		if (own) {
			if (!see(terminal, "running"))
				fail_msg("no answer to ls: %s", screen);
			wait_for_keys(terminal);
			assert_int_equal(write(terminal, "\004", 1), 1);
		}
		for (int i = 0; i < 3000 && waitpid(pid, &status, WNOHANG) == 0; i++)
			nap_ms(10);
		assert_int_equal(status, 0);
		close(terminal);
		snprintf(path, sizeof(path), "%s/home/.local/state/dinst/history",
			 fixture_directory);
		assert_int_equal(stat(path, &st), own ? 0 : -1);
		assert_true(!own || unlink(path) == 0);
		snprintf(path, sizeof(path), "%s/home", fixture_directory);
		run_dinst(o, "detach homely");
	}
	free(o);
}

/* More instances than lines: the busiest are shown, and how many are not. */
static void small_screen(void **state)
{
	struct winsize size = {.ws_row = 8, .ws_col = 40};
	struct output *o = malloc(sizeof(*o));
	char pid_text[20];
	int terminal, status = -1;
	pid_t pid;

	(void)state;
	snprintf(pid_text, sizeof(pid_text), "%d", (int)fixture_target);
	run_dinst(o, "attach %s -n small", pid_text);
	for (int i = 0; i < 12; i++)
		run_dinst(o, "insert calls /Code/x/y -p small");
	screen_used = screen_seen = 0;
	screen[0] = '\0';
	pid = forkpty(&terminal, NULL, NULL, &size);
	if (pid == 0) {
		execl(fixture_dinst, "dinst", "watch", "-p", "small", "-c", "2", "-i", "0.1",
		      (char *)NULL);
		_exit(126);
	}
	assert_true(see(terminal, "and 7 more"));
	assert_true(see(terminal, "\033[7A"));
	assert_true(see(terminal, "and 7 more"));
	for (int i = 0; i < 12000 && waitpid(pid, &status, WNOHANG) == 0; i++)
		nap_ms(10);
	assert_int_equal(status, 0);
	close(terminal);
	run_dinst(o, "detach small");
	free(o);
}

/*
 * Ctrl-C ends the command, drops those behind it, and leads to the prompt; another signal, which ends a command
 * there, ends the prompt as well.
 */
static void signals(void **state)
{
	struct output *o = malloc(sizeof(*o));
	char pid_text[20];
	int terminal, status = -1;
	pid_t pid;

	(void)state;
	snprintf(pid_text, sizeof(pid_text), "%d", (int)fixture_target);
	screen_used = screen_seen = 0;
	screen[0] = '\0';
	pid = forkpty(&terminal, NULL, NULL, NULL);
	if (pid == 0) {
		execl(fixture_dinst, "dinst", "attach", "-n", "signalled", pid_text, "-e",
		      "trace y", "-e", "insert calls z", (char *)NULL);
		_exit(126);
	}
	if (!see(terminal, "Ctrl-C ends it"))
		fail_msg("it does not begin: '%s'", screen);
	assert_int_equal(write(terminal, "\003", 1), 1);
	if (!see(terminal, "what follows is not run") || !see(terminal, "dinst signalled> "))
		fail_msg("no prompt behind Ctrl-C: '%s'", screen);
	run_dinst(o, "read -p signalled --json");
	assert_string_equal(o->out, "");
	assert_int_equal(write(terminal, "trace y\r", 8), 8);
	if (!see(terminal, "Ctrl-C ends it"))
		fail_msg("it does not begin: '%s'", screen);
	assert_int_equal(kill(pid, SIGTERM), 0);
	assert_false(see(terminal, "dinst signalled> "));
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(terminal);
	run_dinst(o, "detach signalled");
	free(o);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(typing),
		cmocka_unit_test(small_screen),
		cmocka_unit_test(home_of_another),
		cmocka_unit_test(signals),
	};

	return cmocka_run_group_tests_name("daemon_prompt", tests, fixture_setup, fixture_teardown);
}
