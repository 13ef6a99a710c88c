/* SPDX-License-Identifier: MIT */
/*
 * exec.c - starting a program under a session, before its first instruction.
 *
 * Owns the child between fork and execve: it waits on a pipe until the mutator
 * has hold of it ("armed"), then executes the program with the client's own
 * standard files, and with the signals ignored and blocked that are so for the client
 * (nohup). Never leaves it standing: a client that fails kills it, one that dies has it
 * released by the daemon.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "daemon/client/command.h"

struct launch {
	struct context *context;
	pid_t pid;
	int go[2];		   /* a byte lets the child call execve */
	int failed[2];		   /* receives errno if execve fails; closed by its success */
	struct sigaction children; /* what the program does about them: as we were started */
};

/* The child's side; never returns. */
static void launch_child(struct launch *l, char **argv, pid_t daemon, bool own_group)
{
	struct sigaction action;
	char byte;
	int err;

	/* where Yama is restrictive, the daemon's mutator may trace us only if we say so */
	prctl(PR_SET_PTRACER, (unsigned long)daemon, 0, 0, 0);
	if (own_group)
		setpgid(0, 0);
	/* our handlers are not the program's, also until it is executed */
	for (int sig = 1; sig < NSIG; sig++)
		if (sigaction(sig, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
			signal(sig, SIG_DFL);
	sigaction(SIGCHLD, &l->children, NULL);
	close(l->go[1]);
	if (read(l->go[0], &byte, 1) != 1)
		_exit(127);
	execvp(argv[0], argv);
	err = errno;
	if (write(l->failed[1], &err, sizeof(err)) != sizeof(err))
		_exit(126);
	_exit(127);
}

static int launch_start(struct launch *l, char **argv, bool own_group, struct dinst_error *e)
{
	const struct sigaction usual = {.sa_handler = SIG_DFL};

	fflush(NULL);
	/* who ignores his children is not told how they end */
	sigaction(SIGCHLD, &usual, &l->children);
	if (pipe2(l->go, O_CLOEXEC) != 0 || pipe2(l->failed, O_CLOEXEC) != 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot make a pipe");
	l->pid = fork();
	if (l->pid < 0)
		return dinst_fail_errno(e, DINST_FAILED, errno, "cannot fork");
	if (l->pid == 0)
		launch_child(l, argv, l->context->link.daemon_pid, own_group);
	close(l->go[0]);
	close(l->failed[1]);
	l->go[0] = l->failed[1] = -1;
	return 0;
}

static void launch_close(struct launch *l)
{
	int *fds[] = {&l->go[0], &l->go[1], &l->failed[0], &l->failed[1]};

	for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++) {
		if (*fds[i] >= 0)
			close(*fds[i]);
		*fds[i] = -1;
	}
}

/* Reaps the child; returns its exit status as a shell gives it. */
static int launch_wait(struct launch *l)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	while (waitid(P_PID, (id_t)l->pid, &info, WEXITED) != 0)
		if (errno != EINTR)
			return EXIT_FAILED;
	l->pid = -1;
	return info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
}

/* It did not come to a session: the child is not left behind. Names execve's own error. */
static void launch_abort(struct launch *l, const char *program, struct dinst_error *e)
{
	int err = 0;

	if (l->pid <= 0)
		return;
	kill(l->pid, SIGKILL);
	launch_wait(l);
	if (read(l->failed[0], &err, sizeof(err)) == sizeof(err)) {
		dinst_error_clear(e);
		dinst_fail_errno(e, DINST_FAILED, err, "cannot execute %s", program);
	}
}

static void launch_notified(void *arg, const char *method, json_t *params)
{
	const struct sigaction ignore = {.sa_handler = SIG_IGN};
	struct launch *l = arg;
	struct sigaction usual;

	if (strcmp(method, "armed") != 0) {
		show_notification(l->context, method, params);
		return;
	}
	/* it may have been killed meanwhile: nobody reads, and that is no end of ours */
	sigaction(SIGPIPE, &ignore, &usual);
	if (l->go[1] >= 0 && write(l->go[1], "g", 1) != 1)
		note(l->context, "the program ended before it was executed");
	sigaction(SIGPIPE, &usual, NULL);
	if (l->go[1] >= 0)
		close(l->go[1]);
	l->go[1] = -1;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static int launch_catch(struct launch *l, const struct arguments *a, json_t **answer,
			struct dinst_error *e)
{
	struct context *c = l->context;
	json_t *params = json_pack("{s:i,s:o}", "pid", (int)l->pid, "program",
				   rpc_text(base_name(a->word[0])));
	int err;

	if (arguments_get(a, 'n'))
		json_object_set_new(params, "name", rpc_text(arguments_get(a, 'n')));
	err = call_daemon(c, true, "catch_exec", params, launch_notified, l, answer, e);
	json_decref(params);
	return err;
}

/* execve(2): who is traced then, by one who may not do everything, gets no privileges of the file's. */
static void tell_privileges(const struct launch *l)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof(path), "/proc/%d/exe", (int)l->pid);
	if (geteuid() == 0 || stat(path, &st))
		return;
	if (((st.st_mode & S_ISUID) && st.st_uid != geteuid()) ||
	    ((st.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP) && st.st_gid != getegid()) ||
	    getxattr(path, "security.capability", NULL, 0) > 0)
		note(l->context,
		     "it runs without the privileges that its file would give it (set-uid, "
		     "set-gid, capabilities), since it was traced as it was executed");
}

/* The program stands before its first instruction: the commands, then off it goes. */
static int launch_run(struct launch *l, json_t *answer, const struct arguments *a, json_t *files)
{
	struct context *c = l->context;
	const char *name = json_string_value(json_object_get(answer, "session"));
	const pid_t daemon = c->link.daemon_pid;
	struct dinst_error e = {0, ""};
	json_t *released = NULL;
	int status, given, err;

	snprintf(c->session, sizeof(c->session), "%s", name ? name : "");
	c->target = NULL;
	status = print_object(c, answer, attach_format);
	tell_privileges(l);
	given = load_send(c, files) ?: run_given(c, a);
	if (given)
		status = given;
	fflush(stdout);
	c->target = name;
	err = call(c, "release", NULL, &released, &e);
	/* a command may have detached it already, which lets it go */
	if (err && e.code != DINST_NO_SESSION)
		status = report(c, &e);
	/* else nobody may be left who knows that it is held; one that was let go may have stopped by itself */
	if (err && (e.code != DINST_NO_SESSION || c->link.daemon_pid != daemon))
		kill(l->pid, SIGCONT);
	c->target = NULL;
	json_decref(released);
	return status;
}

/* As system(3): the terminal's signals are the program's. */
static int launch_wait_program(struct launch *l, int status)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN}, interrupt, quit;
	int program;

	sigaction(SIGINT, &ignore, &interrupt);
	sigaction(SIGQUIT, &ignore, &quit);
	program = launch_wait(l);
	sigaction(SIGINT, &interrupt, NULL);
	sigaction(SIGQUIT, &quit, NULL);
	return program ? program : status;
}

int exec_run(struct context *c, const struct arguments *a)
{
	struct launch l = {.context = c, .pid = -1, .go = {-1, -1}, .failed = {-1, -1}};
	bool wait = arguments_get(a, OPTION_WAIT) != NULL;
	bool prompt = !wait && prompt_wanted(c);
	struct dinst_error e = {0, ""};
	json_t *files = load_read(a, &e), *answer = NULL;
	int status;

	if (!files)
		return report(c, &e);
	/* the daemon first: the child wants to know its pid */
	if (link_open(&c->link, true, &e) != 0) {
		json_decref(files);
		return report(c, &e);
	}
	/* at a prompt, the terminal's interrupt is for us and not for the program */
	if (launch_start(&l, a->word, prompt || c->prompt, &e) != 0 ||
	    launch_catch(&l, a, &answer, &e) != 0) {
		launch_abort(&l, a->word[0], &e);
		status = report(c, &e);
	} else {
		status = launch_run(&l, answer, a, files);
		if (told_to_end(c))
			status = wait ? report_ended(c, "the program is not waited for") : status;
		else if (wait)
			status = launch_wait_program(&l, status);
		else if (prompt && (status == EXIT_DONE || c->ended_by == SIGINT))
			status = prompt_loop(c);
	}
	launch_close(&l);
	json_decref(files);
	json_decref(answer);
	return status;
}
