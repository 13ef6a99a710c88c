/* SPDX-License-Identifier: MIT */
/*
 * proc.h - what /proc says about processes and threads (proc(5)).
 *
 * Private to inject/. Copies of one moment; nothing is cached. All functions
 * return 0 or a negative errno, and set their results on success only.
 */
#ifndef DINST_INJECT_PROC_H
#define DINST_INJECT_PROC_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { PROC_NAME_MAX = 64 };

/* Flags of the kernel's task structure (include/linux/sched.h), as in stat field 9. */
enum proc_flag {
	PROC_EXITING = 0x00000004,
	PROC_FORKED = 0x00000040, /* and has executed nothing since */
	PROC_DUMPS_CORE = 0x00000200,
	PROC_KERNEL = 0x00200000,      /* a thread of the kernel's: has no memory */
	PROC_IO_WORKER = 0x00000010,   /* before Linux 5.10 another thing: proc_worker_flags() */
	PROC_USER_WORKER = 0x00004000, /* before Linux 6.4 */
	PROC_KERNEL_THREAD = 0x00200000,
};

struct proc_stat {
	char name[PROC_NAME_MAX];
	char state;
	pid_t parent;
	unsigned flags;
	uint64_t start_time;
	uint64_t major_faults;
	uint64_t user_ticks, system_ticks; /* CPU time, sysconf(_SC_CLK_TCK) a second */
	uint64_t resident_pages;
	uint64_t
		pending; /* signals sent to this thread, number 1 is bit 0; SIGKILL also if sent to all */
};

struct proc_status {
	char name[PROC_NAME_MAX];
	char state;
	pid_t tgid, parent, tracer;
	uid_t uid[4]; /* real, effective, saved, file system */
	gid_t gid[4];
	unsigned threads;
	uint64_t capabilities; /* effective */
	uint64_t permitted;    /* capabilities that it may make effective */
	uint64_t text_kib;     /* of the executable's code (VmExe); 0 without memory */
	uint64_t caught;       /* signals with handlers, number 1 is bit 0 */
	uint64_t pending;      /* signals that wait for this thread or for its process */
	uint64_t blocked;      /* signals that it blocks */
	int seccomp;	       /* 0 none, 1 strict, 2 filter; -1 not told */
	unsigned filters;      /* of seccomp; 0 where the kernel does not tell */
	pid_t own_id;	       /* in its own pid namespace; 0 where the kernel does not tell */
};

enum { PROC_SECCOMP_STRICT = 1, PROC_SECCOMP_FILTER = 2 };

/* Reads at most size - 1 bytes and ends them with a zero; returns how many, or -errno. */
ssize_t proc_read(const char *path, char *text, size_t size);
/*
 * All of a file, malloc'ed, for which `size` bytes, and then four times as many again and again, up to 64 MiB, are tried. NULL
 * if it cannot be read (errno is why), or is longer.
 */
char *proc_read_long(const char *path, size_t size);

/*
 * The next number at *at, which moves behind it; false if there is none or it is too large.
 * Negative ones wrap around, as strtoull(3) says.
 */
bool proc_number(const char **at, int base, uint64_t *value);

/*
 * The status of a thread: in `text` if it fits, else in memory that the caller frees.
 * NULL if it cannot be read: errno is why.
 */
char *proc_status_text(pid_t pid, pid_t tid, char *text, size_t size);

/* The number of kB behind `name` ("\nVmLck:") in a status or in /proc/meminfo, in bytes; 0 where there is none. */
uint64_t proc_bytes(const char *text, const char *name);

int proc_stat_read(pid_t pid, struct proc_stat *stat);
/* True if a thread is on its way out, or has gone: also one that was killed and has not run since. */
bool proc_has_to_end(const struct proc_stat *stat);
/*
 * Those flags that say, in the kernel of this release (uname(2)), that a thread of a process runs the kernel's code only. Before
 * Linux 5.10 the flag of io_uring's workers was that of a virtual CPU; they are threads of a process since 5.12, and in 5.10
 * since 5.10.162, which has 5.15's io_uring. Before 6.4 the other one was that of who had loaded a module, for good.
 */
unsigned proc_worker_flags(const char *release);
/* True if it is such a thread, which nobody can stop, nor has to: a worker of io_uring's or vhost's. */
bool proc_is_worker(const struct proc_stat *stat);
/*
 * True if `of` made `pid`, or who made it, and so on; for as long as none of those in between has ended. Or nobody can
 * look now.
 */
bool proc_descends(pid_t pid, pid_t of);
/*
 * As proc_descends(), for one that has no memory any more, and may be seen for the last time meanwhile: false only where
 * it is seen to come of nobody whom `of` or who comes of it has made. Whom his parent has left is an ancestor's of them all: so nobody else's child is.
 */
bool proc_may_descend(pid_t pid, pid_t of);
/* Of a thread of process `pid`; -ENOENT if it is none. /proc/TID/stat would add up all threads. */
int proc_thread_stat_read(pid_t pid, pid_t tid, struct proc_stat *stat);
int proc_status_read(pid_t tid, struct proc_status *status);

/* Of what NSpid lists in a status, one number for each pid namespace, ours first: the last, its own. 0 if there is none. */
pid_t proc_own_id(const char *list);

/*
 * The thread whose entry in /proc shows what process `pid` has (memory, files, root): the leader, or
 * another one where it has exited or is being replaced by one that executes a program. What it was
 * doing goes to *stat, which may be NULL. 0 if no thread lives.
 */
pid_t proc_memory_tid(pid_t pid, struct proc_stat *stat);
/*
 * The same in *tid, and 0; or why nobody could look (-EMFILE; -EAGAIN: its threads come and go too fast), where
 * proc_memory_tid() says 0 too.
 */
int proc_memory_look(pid_t pid, struct proc_stat *stat, pid_t *tid);

/* The first line of /proc/TID/NAME ("wchan", "comm"), or "?". */
void proc_word(pid_t tid, const char *name, char *text, size_t size);

/* The system call that a thread sleeps in; -EAGAIN if it runs, -ENOENT if it is in none. */
struct proc_call {
	long number;
	uint64_t arguments[6];
};
int proc_call_read(pid_t tid, struct proc_call *call);

/* What a thread spent since it was born: CPU and waiting for a CPU, and how often it slept. */
struct proc_usage {
	uint64_t run_ns, wait_ns;
	uint64_t sleeps; /* voluntary context switches */
	bool known;
};
void proc_usage_read(pid_t tid, struct proc_usage *usage);

/* How often thread `tid` was given a processor since it was born; 0 where that is not told. */
uint64_t proc_switches(pid_t tid);

/* The time that thread `tid` has had on processors, in ns; 0 where that is not told. */
uint64_t proc_run_ns(pid_t tid);

/*
 * What CLOCK_MONOTONIC of process `pid` is ahead of ours, in ns: not 0 where one of the two is in
 * a time namespace (time_namespaces(7)). 0 too where that is not told: of a process that has made
 * a namespace for its children and is itself in another one than we are.
 */
int64_t proc_clock_offset(pid_t pid);

/* A list of thread or process ids; zero-initialised is empty. */
struct proc_ids {
	pid_t *ids;
	size_t count, capacity;
};

int proc_ids_add(struct proc_ids *list, pid_t id);
bool proc_ids_have(const struct proc_ids *list, pid_t id);
void proc_ids_release(struct proc_ids *list);

/*
 * 0 for an error that says that the process or thread is no more, else the error: whoever cannot be
 * looked at for a reason of ours (no descriptor, no memory) is still there, and may be anything.
 */
int proc_unless_gone(int error);
/* The same, and 0 for what is kept from us, as another user's is: that is not looked at. */
int proc_unless_kept(int error);
/* True if the error says that we have no descriptor or no memory, as it may be for a moment. */
bool proc_is_lack(int error);
/* Keeps such an error in *lack, which any other leaves as it is. */
void proc_note_lack(int *lack, int error);

/*
 * As readdir(3). NULL at the end, or where it cannot be read further: then *error, else 0, is why: who is not
 * listed may be there.
 */
struct dirent *proc_next(DIR *dir, int *error);

/*
 * The processes but us, each looked at once over several listings of /proc; zero-initialised is nobody. Somebody else
 * may get the pid of who has ended. Then its directory is another one; that of who lives may become so, too, and he is
 * only looked at again.
 *
 * Who ends between the listing and the look may have forked a child with a lower pid than the listing has come to,
 * which that never tells. So what must have all: list again until nobody new has come and gone; and where the
 * numbers of pids have begun anew meanwhile.
 */
struct proc_looks {
	struct proc_look {
		pid_t pid;
		ino_t directory;
	} * looks; /* the first `known` are sorted */
	size_t count, room, known;
	DIR *dir; /* of the listing under way */
};
/* In front of each listing: 0, or -errno. */
int proc_looks_begin(struct proc_looks *l);
/*
 * The next one that earlier listings have not told; 0 at the end; -ENOMEM; or why the listing cannot be read to its
 * end: who is not told may be there.
 */
pid_t proc_looks_next(struct proc_looks *l);
/* Nobody has been looked at. */
void proc_looks_forget(struct proc_looks *l);
void proc_looks_release(struct proc_looks *l);

/*
 * The threads of `pid`, and such as have ended meanwhile; replaces the list's contents. Where threads end all the time
 * it may leave one out, for once in many millions.
 */
int proc_tasks(pid_t pid, struct proc_ids *list);
/* True if `pid` may provide pages of its memory itself: it has a descriptor of userfaultfd(2), or nobody can look now. */
bool proc_provides_pages(pid_t pid);
/* How many threads `pid` has, dead ones that nobody has collected included; -1 if it has ended. */
long proc_thread_count(pid_t pid);
/* The child processes of thread `tid` of `pid`; adds to the list. -EAGAIN: they come and go too fast. */
int proc_children(pid_t pid, pid_t tid, struct proc_ids *list);
/*
 * The same of all its threads, and such as have ended meanwhile; whom one has made that ends meanwhile is among them.
 * None where that is kept from us, or it has ended. Where threads end all the time, as proc_tasks().
 */
int proc_all_children(pid_t pid, struct proc_ids *list);

/*
 * The id given to the youngest task that we can see, of whatever process: as
 * long as it stays the same, nobody has been born. -1 if it cannot be told.
 * The descriptor (from proc_births_open(), -1 if there is none) stays open.
 */
int proc_births_open(void);
long proc_births(int fd);

#endif
