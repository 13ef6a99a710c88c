/* SPDX-License-Identifier: MIT */
/*
 * fake-mutator.c - a mutator that speaks the protocol and touches nothing.
 *
 * For the tests of dinstd and dinst: answers every method with rows of the
 * right shape. A word anywhere in a request makes it misbehave:
 *   @crash    dies of SIGABRT          @exit     ends with status 7
 *   @slow     answers after 0.4 s      @silent   never answers
 *   @garbage  answers with garbage     @wrong    answers another id
 *   @truncated  half an answer, then ends
 *   @orphan   dies, and a child of its own has the connection for five minutes
 *   @huge     a listing of about 3 MB  @partial  partial, with notes
 *   @progress three progress notifications   @error  error no-such-function
 *   @leftovers  tells that something is left of an earlier session, and answers after 2 s
 *   @event    tells that the target has exited   @flood  a line of 70 MiB
 *   @unread   an error without a number, as of one that had no memory to read it
 * In the name of a session: @dying dies when it is detached, @tarries takes a second for it, @remains leaves something when it is detached, @blind says
 * of a second attach that the process has gone; @felled: what is to be executed is killed before;
 * @refuses: cannot be attached to; @lingers: ends 0.7 s after its connection, @stays: does not end.
 * FAKE_MUTATOR_LOG=FILE appends every request; read, sample and repair are answered
 * when FILE.held is gone; a repair leaves something while there is FILE.stays. FAKE_CRASH_ATTACH=N: the first N
 * mutators (counted in $FAKE_MUTATOR_LOG.crashes) die in attach.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTION = 3, LINE_MAX_BYTES = 1 << 21 };

static char line[LINE_MAX_BYTES];
static char session[80] = "fake";
static int pid;
static int next_id = 1; /* of an instance */
static int alive_ids[256];
static int removed, held;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

static void put(const char *text, size_t length)
{
	while (length > 0) {
		ssize_t n = write(CONNECTION, text, length);

		if (n <= 0)
			_exit(0);
		text += n;
		length -= (size_t)n;
	}
}

static void say(const char *format, ...)
{
	static char text[1 << 16];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	put(text, strlen(text));
}

#define OBJECT(id, format, ...) \
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":" format "}\n", id, __VA_ARGS__)

static void nap(int ms)
{
	struct timespec t = {ms / 1000, (ms % 1000) * 1000000L};

	nanosleep(&t, NULL);
}

static int number_after(const char *key, int otherwise)
{
	const char *at = strstr(line, key);

	return at ? atoi(at + strlen(key)) : otherwise;
}

static void string_after(const char *key, char *to, size_t size)
{
	const char *at = strstr(line, key);

	if (at)
		snprintf(to, size, "%.*s", (int)strcspn(at + strlen(key), "\""), at + strlen(key));
}

static int is(const char *method)
{
	char text[64];

	snprintf(text, sizeof(text), "\"method\":\"%s\"", method);
	return strstr(line, text) != NULL;
}

static void attach_answer(int id)
{
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"session\":\"%s\",\"pid\":%d,\"name\":\"x\","
	    "\"modules\":3,\"functions\":123,\"attach_ms\":7,\"stop_us\":42}}\n",
	    id, session, pid);
}

static void crash_in_attach(void)
{
	const char *limit = getenv("FAKE_CRASH_ATTACH"), *log = getenv("FAKE_MUTATOR_LOG");
	char path[4200];
	int fd;

	if (!limit || !log)
		return;
	snprintf(path, sizeof(path), "%s.crashes", log);
	fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600);
	if (fd >= 0 && lseek(fd, 0, SEEK_END) < atoi(limit)) {
		if (write(fd, "x", 1) == 1)
			abort();
	}
	close(fd);
}

/* A file tells the second one that it is the second. */
static int was_attached(void)
{
	const char *log = getenv("FAKE_MUTATOR_LOG");
	char path[4200];
	int fd;

	snprintf(path, sizeof(path), "%s.attached", log ? log : "");
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	if (fd >= 0)
		close(fd);
	return fd < 0;
}

static void attach(int id)
{
	pid = number_after("\"pid\":", 0);
	string_after("\"session\":\"", session, sizeof(session));
	crash_in_attach();
	if (strstr(session, "@blind") && was_attached())
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"it has "
		    "ended\",\"data\":{\"code\":\"gone\"}}}\n",
		    id);
	else if (kill(pid, 0) != 0 && errno == ESRCH)
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"there is no "
		    "process %d\",\"data\":{\"code\":\"no-such-process\"}}}\n",
		    id, pid);
	else if (strstr(session, "@refuses"))
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"not for "
		    "you\",\"data\":{\"code\":\"not-permitted\"}}}\n",
		    id);
	else
		attach_answer(id);
}

/* Takes the process at its exec and leaves it stopped. */
static void catch_exec(int id)
{
	int status;

	pid = number_after("\"pid\":", 0);
	string_after("\"session\":\"", session, sizeof(session));
	if (ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_TRACEEXEC) != 0) {
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"cannot seize\","
		    "\"data\":{\"code\":\"not-permitted\"}}}\n",
		    id);
		return;
	}
	if (strstr(session, "@felled")) {
		kill(pid, SIGKILL);
		nap(300);
	}
	say("{\"jsonrpc\":\"2.0\",\"method\":\"armed\"}\n");
	while (waitpid(pid, &status, __WALL) == pid) {
		if (WIFEXITED(status) || WIFSIGNALED(status))
			break;
		if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXEC << 8))) {
			kill(pid, SIGSTOP);
			ptrace(PTRACE_DETACH, pid, 0, 0);
			held = 1;
			attach_answer(id);
			return;
		}
		ptrace(PTRACE_CONT, pid, 0, WIFSTOPPED(status) ? WSTOPSIG(status) : 0);
	}
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"it ended before it was "
	    "executed\",\"data\":{\"code\":\"gone\"}}}\n",
	    id);
}

static void insert(int id)
{
	char metric[64] = "calls";

	string_after("\"metric\":\"", metric, sizeof(metric));
	if (strcmp(metric, "calls") != 0) {
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"there is no "
		    "metric '%s'\",\"data\":{\"code\":\"no-such-metric\"}}}\n",
		    id, metric);
		return;
	}
	alive_ids[next_id % 256] = 1;
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"rows\":[{\"id\":%d,\"metric\":\"%s\",\"focus\":"
	    "[\"/Code/x/y\"],\"points\":4,\"refused\":%d,\"pending\":0,\"stop_us\":99}]%s}}\n",
	    id, next_id, metric, strstr(line, "@partial") ? 1 : 0,
	    strstr(line, "@partial")
		    ? ",\"partial\":true,\"notes\":[\"y+0x10: the window is too short\"]"
		    : "");
	next_id++;
}

static int has_file(const char *suffix)
{
	const char *log = getenv("FAKE_MUTATOR_LOG");
	char path[4200];

	snprintf(path, sizeof(path), "%s.%s", log ? log : "", suffix);
	return access(path, F_OK) == 0;
}

static void wait_while_held(void)
{
	while (has_file("held"))
		nap(20);
}

static void read_values(int id)
{
	int first = 1;

	wait_while_held();
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"rows\":[", id);
	for (int i = 1; i < next_id && i < 256; i++) {
		if (!alive_ids[i])
			continue;
		say("%s{\"id\":%d,\"metric\":\"calls\",\"focus\":[\"/Code/x/y\"],\"value\":%d,"
		    "\"unit\":\"calls\"}",
		    first ? "" : ",", i, (int)(clock() / 10));
		first = 0;
	}
	say("]}}\n");
}

/* Value n * 100 at the n-th sample. */
static void sample(int id)
{
	static int told[256], samples;
	int first = 1, count = 0;

	wait_while_held();
	samples++;
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"rows\":[", id);
	for (int i = 1; i < next_id && i < 256; i++) {
		if (!alive_ids[i])
			continue;
		say("%s[%d,%d]", first ? "" : ",", i, samples * 100);
		first = 0;
		count++;
	}
	say("],\"new\":[");
	first = 1;
	for (int i = 1; i < next_id && i < 256; i++) {
		if (!alive_ids[i] || told[i])
			continue;
		told[i] = 1;
		say("%s{\"id\":%d,\"metric\":\"calls\",\"focus\":\"/Code/x/y\",\"unit\":\"calls\","
		    "\"style\":\"EventCounter\"}",
		    first ? "" : ",", i);
		first = 0;
	}
	say("],\"gone\":[],\"count\":%d}}\n", count);
}

static void load(int id)
{
	if (strstr(line, "wrong"))
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"x.mdl:1:1: "
		    "what is 'wrong'?\\n  wrong\\n  ^\\nx.mdl:2:1: and another\",\"data\":{\"code\":"
		    "\"usage\"}}}\n",
		    id);
	else
		OBJECT(id, "{\"name\":\"x.mdl\"%s}", "");
}

static void remove_ids(int id)
{
	int which = number_after("\"ids\":[", 0), first = 1;

	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"rows\":[", id);
	for (int i = 1; i < next_id && i < 256; i++)
		if (alive_ids[i] && (which == 0 || which == i)) {
			alive_ids[i] = 0;
			removed++;
			say("%s{\"id\":%d,\"freed\":1,\"queued\":0}", first ? "" : ",", i);
			first = 0;
		}
	say("]}}\n");
}

static void huge(int id)
{
	say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{\"rows\":[", id);
	for (int i = 0; i < 30000; i++)
		say("%s{\"module\":\"x\",\"function\":\"function_number_%d_of_many_functions\",\"address\":%d,"
		    "\"size\":16}",
		    i ? "," : "", i, 4096 + i);
	say("]}}\n");
}

/* Returns 1 if the request has been dealt with. */
static int misbehave(int id)
{
	if (strstr(line, "@slow"))
		nap(400);
	if (strstr(line, "@leftovers")) {
		say("{\"jsonrpc\":\"2.0\",\"method\":\"leftovers\",\"params\":{}}\n");
		nap(2000);
	}
	if (strstr(line, "@orphan") && fork() == 0) {
		nap(300000);
		_exit(0);
	}
	if (strstr(line, "@crash") || strstr(line, "@orphan"))
		abort();
	if (strstr(line, "@exit"))
		exit(7);
	if (strstr(line, "@silent"))
		return 1;
	if (strstr(line, "@unread")) {
		say("{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32000,\"message\":\"no memory\","
		    "\"data\":{\"code\":\"no-memory\"}}}\n");
		return 1;
	}
	if (strstr(line, "@garbage")) {
		say("this is {not JSON\n");
		return 1;
	}
	if (strstr(line, "@wrong")) {
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"result\":{}}\n", id + 1000);
		return 1;
	}
	if (strstr(line, "@truncated")) {
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"resu", id);
		exit(0);
	}
	if (strstr(line, "@flood")) {
		memset(line, 'x', 1 << 20);
		for (int i = 0; i < 70; i++)
			put(line, 1 << 20);
		say("\n");
		return 1;
	}
	if (strstr(line, "@event"))
		say("{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"kind\":\"exited\",\"text\":\"the "
		    "target has ended\"}}\n");
	for (int i = 1; strstr(line, "@progress") && i <= 3; i++)
		say("{\"jsonrpc\":\"2.0\",\"method\":\"progress\",\"params\":{\"text\":\"reading\",\"done\":%d,"
		    "\"total\":3}}\n",
		    i);
	if (strstr(line, "@error")) {
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32000,\"message\":\"there is no such "
		    "function\",\"data\":{\"code\":\"no-such-function\"}}}\n",
		    id);
		return 1;
	}
	if (strstr(line, "@huge")) {
		huge(id);
		return 1;
	}
	return 0;
}

static int remains(void)
{
	return strstr(line, "\"seconds\":77") || strstr(session, "@remains");
}

static void detach(int id)
{
	if (strstr(session, "@dying"))
		abort();
	if (strstr(session, "@tarries"))
		nap(1000);
	OBJECT(id, "{\"session\":\"%s\",\"restored\":%d,\"left\":%d,\"stop_us\":11%s}", session,
	       (next_id - 1) * 4, remains() ? 2 : 0,
	       remains() ? ",\"partial\":true,\"notes\":[\"2 trampolines stay\"]" : "");
}

static void listing(int id)
{
	if (is("modules"))
		OBJECT(id,
		       "{\"rows\":[{\"module\":\"x\",\"function\":null,\"address\":%d,\"size\":8192}]}",
		       65536);
	else if (is("funcs"))
		OBJECT(id,
		       "{\"rows\":[{\"module\":\"x\",\"function\":\"y\",\"address\":%d,\"size\":16}]}",
		       65600);
	else if (is("points") && strstr(line, "\"summary\":true"))
		OBJECT(id,
		       "{\"rows\":[{\"module\":\"x\",\"kind\":\"entry\",\"points\":%d,\"tactics\":{\"jump\":9},"
		       "\"refused\":1,\"reasons\":{\"too short\":1}}]}",
		       10);
	else if (is("points"))
		OBJECT(id,
		       "{\"rows\":[{\"module\":\"x\",\"function\":\"y\",\"kind\":\"entry\",\"address\":%d,"
		       "\"tactic\":\"jump\",\"refused\":null}]}",
		       65600);
	else if (is("cfg") && strstr(line, "\"dot\":true"))
		OBJECT(id,
		       "{\"module\":\"x\",\"function\":\"y\",\"dot\":\"digraph \\\"y\\\" {\\n\\tb%d;\\n}\\n\"}",
		       0);
	else if (is("cfg"))
		OBJECT(id,
		       "{\"rows\":[{\"module\":\"x\",\"function\":\"y\",\"block\":0,\"address\":%d,"
		       "\"size\":9,\"instructions\":3,\"flags\":[\"entry\"],\"loops\":[0],"
		       "\"edges\":[{\"kind\":\"branch\",\"block\":0,\"address\":65600,\"back\":true}],"
		       "\"dominator\":null}]}",
		       65600);
	else if (is("metrics"))
		OBJECT(id,
		       "{\"rows\":[{\"kind\":\"metric\",\"metric\":\"calls\",\"unit\":\"calls\",\"constraints\":[],"
		       "\"file\":%s,\"description\":\"\"}]}",
		       "null");
	else if (is("complete"))
		OBJECT(id, "{\"names\":[\"y%s\",\"yy\"]}", "");
	else
		say("{\"jsonrpc\":\"2.0\",\"id\":%d,\"error\":{\"code\":-32601,\"message\":\"no such method\"}}\n",
		    id);
}

static void serve(void)
{
	int id = number_after("\"id\":", 0);

	if (misbehave(id))
		return;
	if (is("attach"))
		attach(id);
	else if (is("catch_exec"))
		catch_exec(id);
	else if (is("release")) {
		if (held)
			kill(pid, SIGCONT);
		OBJECT(id, "{\"released\":%s}", held ? "true" : "false");
	} else if (is("status"))
		OBJECT(id,
		       "{\"session\":\"%s\",\"pid\":%d,\"name\":\"x\",\"state\":\"%s\",\"points\":%d,\"active\":"
		       "%d,\"queued\":0,\"heap_bytes\":4096,\"arena\":\"shared\"}",
		       session, pid, kill(pid, 0) ? "exited" : "running", (next_id - 1) * 4,
		       next_id - 1 - removed);
	else if (is("insert"))
		insert(id);
	else if (is("trace"))
		OBJECT(id,
		       "{\"rows\":[],\"functions\":1,\"partial\":true,\"notes\":[\"x:\\u001b[31my: "
		       "the window is too short\"],\"text\":\"%s\"}",
		       "");
	else if (is("events"))
		OBJECT(id, "{\"data\":\"%s\",\"dropped\":0,\"more\":false}", "");
	else if (is("read"))
		read_values(id);
	else if (is("sample"))
		sample(id);
	else if (is("load"))
		load(id);
	else if (is("remove"))
		remove_ids(id);
	else if (is("flush"))
		OBJECT(id, "{\"freed\":%d,\"queued\":0,\"stop_us\":5}", removed);
	else if (is("detach"))
		detach(id);
	else if (is("repair")) {
		wait_while_held();
		OBJECT(id, "{\"patches\":%d,\"restored\":3%s}", 3,
		       has_file("stays") ? ",\"partial\":true" : "");
	} else
		listing(id);
}

int main(void)
{
	const char *log = getenv("FAKE_MUTATOR_LOG");
	int fd = log ? open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
	size_t used = 0;
	ssize_t n;

	signal(SIGPIPE, SIG_DFL);
	while ((n = read(CONNECTION, line + used, 1)) == 1) {
		if (line[used] != '\n') {
			if (used < sizeof(line) - 2)
				used++;
			continue;
		}
		line[used + 1] = '\0';
		if (fd >= 0 && write(fd, line, used + 1) < 0)
			close(fd);
		line[used] = '\0';
		serve();
		used = 0;
	}
	if (strstr(session, "@lingers"))
		nap(700);
	while (strstr(session, "@stays"))
		nap(1000);
	return 0;
}
