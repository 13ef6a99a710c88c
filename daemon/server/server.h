/* SPDX-License-Identifier: MIT */
/*
 * server.h - what the parts of dinstd know of each other.
 *
 *   listen.c   the socket, its directory, the lock
 *   guard.c    one daemon per socket, also where the directory has gone
 *   peer.c     one connected client: requests in, answers out
 *   session.c  the table of sessions: names, states, their mutators' deaths
 *   choose.c   which of them a client means
 *   detach.c   a session that goes without a mutator's help
 *   orphan.c   a process whose mutator died while it attached
 *   mutator.c  one dinst-mutator process and the queue of calls to it
 *   reply.c    what it has answered, passed on; at once, or when it has ended
 *   texts.c    files of metrics of a session
 *   hold.c     what lasts no longer than a client's connection
 *   sampler.c  histories of values, and when mutators are asked for them
 *   methods.c  what each method of a client does
 *   find.c     the process of a name
 *   pool.c     the threads that look for it
 *   gather.c   what asks all mutators at once: `sessions` and `stop`
 *   snapshot.c, heat.c, recording.c   what scrapes, exports and the page are told
 *   expose.c, exposition.c, prometheus.c, otlp_json.c   the same in others' words
 *   http.c, page.c, otlp.c   who serves it, and who sends it
 *   server.c   signals, the end
 *   log.c      the log
 *   stalls.c   tells when the loop stood still
 *   main.c     options and the start
 *
 * Everything runs on one loop in one thread, but for what would have to wait: the log's
 * writing and looking for a process by name. Ownership: the server owns
 * sessions and peers, a session owns its mutator, a mutator owns the calls in
 * its queue; a request belongs to whoever has to answer it next, and answering
 * it frees it.
 */
#ifndef DINST_DAEMON_SERVER_H
#define DINST_DAEMON_SERVER_H

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

#include "daemon/common/paths.h"
#include "daemon/common/process.h"
#include "daemon/common/rpc.h"
#include "daemon/server/snapshot_waits.h"
#include "daemon/server/stream.h"

enum {
	PEER_MAX = 256,	       /* clients at once */
	PEER_PENDING_MAX = 64, /* unanswered requests of one client; then it is not read */
	RESTARTS_MAX = 3,      /* new mutators for a session within RESTART_SPAN_MS */
	RESTART_SPAN_MS = 60 * 1000,
	TEXTS_MAX = 64,		  /* files of metrics of a session */
	TEXT_MAX = 128 << 10,	  /* bytes of each */
	STATUS_WAIT_MS = 500,	  /* `sessions` waits so long for a mutator's status */
	STOP_WAIT_MS = 60 * 1000, /* `stop` waits so long for detaches */
};

/* Bytes not yet taken by a client: above the first it is not read, above the second it is dropped. */
#define PEER_UNWRITTEN_PAUSE ((size_t)256 << 10)
#define PEER_UNWRITTEN_MAX   ((size_t)256 << 20)
/* Of all clients: above it, the one that has taken least is dropped. */
#define SERVER_UNWRITTEN_MAX ((size_t)512 << 20)
/* Bytes of a client's unanswered requests; then it is not read. */
#define PEER_ASKED_MAX ((size_t)2 << 20)

/* One turn of the loop. */
struct stalls {
	uv_prepare_t prepare;
	uv_check_t check;
	uint64_t began_ns, own_ns;  /* of the turn: uv_hrtime(), the processor time of all of us */
	const char *step, *longest; /* static texts; NULL: none */
	uint64_t step_ns, longest_ns;
	unsigned steps;
};

struct server {
	uv_loop_t loop;
	struct stalls stalls;
	uv_pipe_t listener;
	uv_timer_t idle;
	struct orphan *orphans;	  /* processes that are to be repaired: orphan.c */
	struct mutator *mutators; /* that live */
	uv_timer_t last;	  /* at the end: what does not end is not waited for */
	uv_timer_t resume;	  /* of clients whose lines wait: peers_resume() */
	uv_signal_t sigterm, sigint;
	struct socket_place place;
	char mutator_path[PATH_MAX];
	int lock_fd;
	int guard_fd;	       /* -1: none */
	uint64_t idle_ms;      /* leave after so long without sessions; 0: never */
	uint64_t busy_at;      /* loop time at which there was work last */
	uint64_t signalled_at; /* and at which a signal to end came */
	struct session *sessions;
	struct peer *peers;
	struct snapshot_waits snapshots;
	struct http *http; /* NULL: nothing is served */
	struct otlp *otlp; /* NULL: nothing is exported */
	unsigned peer_count;
	dev_t socket_device; /* of the socket that is bound */
	ino_t socket_inode;
	bool listening, bound;
	bool crowded;	   /* bound, but not listening: there was no descriptor for a client */
	bool crowded_told; /* and that is told in the log */
	bool unreachable;  /* it is told in the log that the socket cannot be made anew */
	bool stopping;	   /* no new sessions; the end is near */
	bool ending;	   /* handles are being closed */
};

/* ---------------------------------------------------------------- server.c */

/* Makes the loop, its signals and timers. */
int server_init(struct server *s, struct dinst_error *e);

/* Notes that there is work, which puts off leaving. */
void server_busy(struct server *s);
/* Closes everything; the loop then ends. Unwritten answers have been waited for. */
void server_end(struct server *s);

/* ------------------------------------------------------------------ pool.c */

/* Makes the threads that uv_queue_work() and uv_getaddrinfo() use; nothing that can fail is left for later. */
int pool_start(struct dinst_error *e);

/* ------------------------------------------------------------------- log.c */

/* One line of the log; never waits once log_start() was called. */
void server_log(const char *format, ...) __attribute__((format(printf, 1, 2)));
/*
 * From now on a thread writes it; call it where no other thread logs. `bounded`: it is a file of
 * ours alone, which does not become longer than a few MiB.
 */
void log_start(bool bounded);
/* Waits until it is written, but not for long. */
void log_end(void);

/* ---------------------------------------------------------------- stalls.c */

/* From now on a turn of the loop that takes long is told in the log. */
void stalls_watch(struct server *s);
void stalls_end(struct server *s);
/* What the loop does from here on (a static text), for that line. */
void stalls_step(struct server *s, const char *what);

/* ---------------------------------------------------------------- listen.c */

/*
 * Takes the lock and binds the socket. DINST_BUSY: another dinstd has the lock; one that is about
 * to end is waited for, some seconds at most, unless this one `serves` already.
 */
int server_listen(struct server *s, bool serves, struct dinst_error *e);
/* Makes the socket anew, with its directory and lock, if it is no more where it was bound. */
void server_look_after_socket(struct server *s);
/* Removes the socket; the lock goes with the process. */
void server_unlisten(struct server *s);

/* ----------------------------------------------------------------- guard.c */

/* DINST_BUSY: another daemon of this user serves the same path, also where it has just made the socket anew. */
int guard_take(struct server *s, struct dinst_error *e);
/* Who has asked for the name need not be kept. */
void guard_look(struct server *s);
void guard_release(struct server *s);

/* ------------------------------------------------------------------ peer.c */

struct peer {
	struct server *server;
	struct peer *next;
	struct stream stream;
	struct request *requests;
	struct session *session; /* used last: whose events it is told; may be NULL */
	unsigned pending;	 /* requests that wait for an answer */
	size_t asked;		 /* bytes of them */
	uid_t uid;
	pid_t pid;
	bool input_ended; /* it sends no more, but wants its answers */
};

/* A client's request that is to be answered exactly once. */
struct request {
	struct request *next; /* of the peer's */
	struct peer *peer;    /* NULL once the client is gone */
	json_t *id;	      /* NULL for a notification: no answer is sent */
	size_t size;	      /* of its line */
};

/* UV_ENOMEM: the connection is not accepted. */
int peer_accept(struct server *s);
void peer_close(struct peer *p);
/* At the end of the server: closes as soon as everything is written. */
void peer_finish(struct peer *p);
/* Lines of clients that waited until a request was answered. */
void peers_resume(uv_timer_t *timer);
/* Tells the clients of a session (NULL: all) something; returns how many were told. */
unsigned peers_notify(struct server *s, struct session *session, const char *method,
		      json_t *params);

/* The answers. Each frees the request. */
void request_result(struct request *r, json_t *result); /* takes `result` over */
void request_result_text(struct request *r, struct rpc_span result);
void request_error(struct request *r, int code, const char *text);
void request_error_from(struct request *r, const struct dinst_error *e);
void request_error_text(struct request *r, struct rpc_span error);
void request_error_rpc(struct request *r, int rpc_code, const char *text);
/* A notification about a request that is not answered yet. */
void request_notify(struct request *r, const char *method, json_t *params);

/* --------------------------------------------------------------- mutator.c */

/* What a call came to: a result's text, an error's text, or an error of ours. */
struct reply {
	struct rpc_span result;
	struct rpc_span error;
	struct dinst_error failure; /* .code is 0 unless the mutator did not answer */
};

typedef void (*call_done)(void *arg, const struct reply *reply);

struct mutator; /* opaque */

/* Who a mutator is, also when it has ended: what it made is known by that. */
struct maker {
	pid_t pid;	/* 0: nobody */
	uint64_t start; /* process_start() */
};

struct mutator_events {
	/* It ended without being released; its calls have been answered. */
	void (*died)(void *owner, const char *why);
	/* A notification that is not about the current call, or "armed". */
	void (*notified)(void *owner, const char *method, json_t *params);
};

/* Starts a mutator. NULL with *e filled (DINST_DAEMON). */
struct mutator *mutator_start(struct server *s, const struct mutator_events *events, void *owner,
			      struct dinst_error *e);

/*
 * Queues a call; done(arg) is called exactly once: later, or at once if the
 * mutator has ended. `about` (or NULL) is the request whose client is told of
 * progress; it must live until then.
 */
void mutator_call(struct mutator *m, const char *method, json_t *params, struct request *about,
		  call_done done, void *arg);
/* The method that it works on; NULL if it is idle, or only asked for a sample. */
const char *mutator_busy(const struct mutator *m);
pid_t mutator_pid(const struct mutator *m);
struct maker mutator_identity(const struct mutator *m);

/* It is somebody else's from now on; calls that are not answered yet fail with `why`. */
void mutator_hand_over(struct mutator *m, const struct mutator_events *events, void *owner,
		       const char *why);

/*
 * Calls that only tell something, of clients that have gone, are not asked any more: where one does not
 * answer they would become ever more. Nor is inserted what nobody is there for any more, if its client
 * wanted to hear what came of it.
 */
void mutator_forget_gone(struct mutator *m);

/*
 * gone(arg) is called exactly once: when it has ended, or, where it does not end, some seconds
 * after mutator_release(), or when the server ends. To be asked for once, before it is released.
 */
void mutator_when_gone(struct mutator *m, void (*gone)(void *arg), void *arg);
/* Closes the connection, upon which it ends; pending calls fail with `why`. */
void mutator_release(struct mutator *m, const char *why);
/* The same for all that are left. */
void mutators_end(struct server *s, const char *why);

/* ----------------------------------------------------------------- reply.c */

/* Answers `r` with what a mutator has answered, or why it could not. */
void request_reply(struct request *r, const struct reply *reply);
/*
 * The same, when `m`, which is released next, has ended: who is answered may attach to the process or
 * repair it at once, and does not find somebody who lives and has made what is left in it.
 */
void request_reply_last(struct request *r, const struct reply *reply, struct mutator *m);

/* --------------------------------------------------------------- session.c */

enum session_state {
	SESSION_ATTACHING, /* the first attach is not answered yet */
	SESSION_LIVE,
	SESSION_RESTARTING, /* its mutator died; another one is attaching */
	SESSION_EXITED,	    /* the target has ended; values are kept */
	SESSION_LOST,	    /* no mutator any more: `why` says it */
};

struct session {
	struct server *server;
	struct session *next;
	char name[PROCESS_NAME_MAX];
	char process[PROCESS_NAME_MAX];
	pid_t pid;
	uint64_t start; /* the process's start time, so that a reused pid is seen */
	enum session_state state;
	struct mutator *mutator;   /* NULL in SESSION_LOST */
	json_t *attached;	   /* the answer to attach */
	json_t *status;		   /* the last one seen; may be NULL */
	json_t *texts;		   /* files of metrics: {name, text} in their order; may be NULL */
	struct sampler *sampler;   /* NULL: nothing was inserted yet */
	struct snapshot *snapshot; /* NULL: nobody has asked yet */
	struct heat *heat;	   /* distributions over time */
	json_t *recording;	   /* the last one; may be NULL */
	uint64_t opened_ns;	   /* uv_hrtime() */
	char *news;		   /* to be told to the next client that asks; may be NULL */
	char why[DINST_ERROR_TEXT];
	bool held;	     /* stands before its first instruction */
	bool follows;	     /* one that gave way to it may still be taken out of its target */
	bool cleaning;	     /* its first mutator has found something of an earlier session */
	struct peer *holder; /* the client for which it is held: when it goes, so do we */
	struct hold *holds;  /* what goes with clients (hold.c) */
	bool transient;	     /* attached by a client for itself alone: goes with the last hold */
	bool leaving;	     /* is being detached because of that */
	struct request *opening; /* attach or catch_exec, not answered yet */
	bool closing;
	bool over;  /* it has become another program, or was `taken`: values are the last ones */
	bool taken; /* somebody else has taken out what it had inserted */
	struct maker maker; /* the last mutator that died with the target attached */
	json_int_t next_id; /* of an instance, for the next mutator; 0: none has a number yet */
	unsigned restarts;
	uint64_t first_restart;
};

/*
 * Makes a session, with a mutator and no call yet. `name` NULL: from the
 * program, made unique; `program` NULL: the name of the process. DINST_BUSY if the name is taken, DINST_NO_PROCESS, DINST_DAEMON.
 */
int session_open(struct server *s, pid_t pid, const char *name, const char *program,
		 struct session **out, struct dinst_error *e);
/*
 * Starts attaching (method "attach" or "catch_exec"); `r` is answered when it is
 * done. The session closes itself if it fails.
 */
void session_begin(struct session *se, const char *method, struct request *r);
/* Releases the mutator, forgets the session and frees it. */
void session_close(struct session *se, const char *why);
/* Lets a held target run (nothing otherwise), with or without a mutator. */
void session_release_target(struct session *se);
/*
 * `reply` is what `release` came to: it is not held any more. SIGCONT, unless its mutator has let it go: if it
 * stands still then, it has stopped by itself.
 */
void session_released(struct session *se, const struct reply *reply);

/* False only if it is certain that its target has ended. */
bool session_target_is_there(const struct session *se);
struct session *session_named(struct server *s, const char *name);
struct session *session_of_pid(struct server *s, pid_t pid);
unsigned session_count(const struct server *s);
/* The session that params.session names, or the only one. */
struct session *session_choose(struct server *s, json_t *params, struct dinst_error *e);
/* One row for `ls`; a new reference. `busy` may be NULL. */
json_t *session_row(const struct session *se, const char *busy);
/* Keeps what a status answer said. */
void session_status(struct session *se, const struct reply *reply);
/* Tells the client of `r` what has happened to the session, once. */
void session_tell_news(struct session *se, struct request *r);

/* ---------------------------------------------------------------- detach.c */

/* Each of them answers `r` and closes the session. */

/*
 * Where the target has ended, or nobody is there who could: only the session is left. That it has
 * ended a mutator may have said that could not see it.
 */
void detach_alone(struct session *se, struct request *r);
/*
 * Nothing of its own is in it yet, and for how long its mutator waits may be up to the target, which can
 * provide its own memory or files: that one ends, or is ended, and whoever attaches is told. What it was
 * taking out of an earlier session another one goes on with.
 */
void detach_unfinished(struct session *se, struct request *r);
/*
 * Its target has ended, and its mutator died before it had looked whether children that live on have what was inserted:
 * a repair does.
 */
void detach_unanswered(struct session *se, struct request *r);

/* ---------------------------------------------------------------- orphan.c */

/*
 * Something of ours may be left in the process, which began at `start`, or, where it has ended, in children that
 * have what `maker` made (if it is somebody), and no session takes it out: a mutator of its own does, soon
 * and, where one cannot be stopped yet, again and again for some minutes.
 */
void repair_orphan(struct server *s, pid_t pid, uint64_t start, struct maker maker);
/* The same, where the mutator that made it lives: it detaches first. Takes it from the session, which closes. */
void detach_orphan(struct session *se);
/* How many are being repaired just now; for each of them tried(arg) is called, once, when that has come to its end. */
unsigned orphans_wait(struct server *s, void (*tried)(void *arg), void *arg);
/* For each that is not repaired yet: what is to be done. */
void orphans_tell(const struct server *s, void (*told)(void *arg, const char *text), void *arg);
/* The daemon ends: says what is to be done. */
void orphans_end(struct server *s);

/* ----------------------------------------------------------------- texts.c */

/* One of that name was loaded; another one takes its place. */
bool session_has_text(const struct session *se, const json_t *name);
/* A file of metrics was loaded: the next mutator gets it, too. */
void session_keep_text(struct session *se, json_t *params);
/* Gives a new mutator what the one before it had loaded, before anybody asks it for something. */
void session_reload(struct session *se);

/* ------------------------------------------------------------------ hold.c */

/* Somebody attaches to it or inserts something: for the time of his connection, or to stay. */
void hold_session(struct session *se, struct request *r, bool held);
/* `result` is the answer to a held `insert`; `p` may have gone (NULL): then they are removed. */
void hold_inserted(struct session *se, struct peer *p, struct rpc_span result);
/* `result` is the answer to `remove`. */
void hold_removed(struct session *se, struct rpc_span result);
/* The mutator has died, and what was inserted with it. */
void hold_lost(struct session *se);
/* Every second: what could not be detached or closed when its last client went. */
void hold_sweep(struct server *s);
/* The client's connection has ended; it is in no list any more. */
void hold_peer_gone(struct peer *p);
/*
 * `detach` with `hold`: the client of `r` lets go. False: nobody else wants the session, it is to be detached.
 * Else `r` is answered when what it held is out.
 */
bool hold_leave(struct session *se, struct request *r);
/* With the session. */
void hold_release(struct session *se);

/* --------------------------------------------------------------- methods.c */

/* Does what a client asked for; `r` is answered at once or later. */
void method_dispatch(struct server *s, struct request *r, const char *method, json_t *params);

typedef void method_server(struct server *s, struct request *r, const char *method, json_t *params);

/* ------------------------------------------------------------------ find.c */

/*
 * Looks for the one process of that name, and serves the request then, with its pid
 * as "target"; or answers it with why there is none (process_resolve()). Other requests
 * go on meanwhile. Of a client that has gone until then nothing is begun. `method` is a static text.
 */
void find_process(struct server *s, struct request *r, const char *name, const char *method,
		  json_t *params, method_server *serve);

/* ---------------------------------------------------------------- gather.c */

/* Answers with a row per session, as their mutators say now or have said last. */
void server_list(struct server *s, struct request *r);
/* Detaches everything; answers `r` (may be NULL), then ends the server. */
void server_stop(struct server *s, struct request *r);

#endif
