/* SPDX-License-Identifier: MIT */
/*
 * target_facts.h - what decides whether we may attach, as plain values.
 *
 * Private to inject/. facts_read() looks (target_facts.c); what follows from it
 * is said by target_checks.c, which looks at nothing else: so every rule can be
 * tested with facts that the kernel at hand would not show.
 */
#ifndef DINST_INJECT_TARGET_FACTS_H
#define DINST_INJECT_TARGET_FACTS_H

#include "inject/cgroup.h"
#include "inject/control.h"

/* kernel.yama.ptrace_scope (Documentation/admin-guide/LSM/Yama.rst). */
enum yama { YAMA_ABSENT = -1, YAMA_CLASSIC, YAMA_DESCENDANTS, YAMA_ADMIN, YAMA_NEVER };

/* Bits of a capability set (linux/capability.h). */
enum { CAPABILITY_PTRACE = 19, CAPABILITY_ADMIN = 21 };

/* System calls that we make ourselves, and that a filter on us may forbid. */
enum own_call {
	OWN_PTRACE,
	OWN_READ,	/* process_vm_readv; /proc/PID/mem serves as well */
	OWN_PIDFD,	/* pidfd_open */
	OWN_DESCRIPTOR, /* pidfd_getfd; /proc/PID/fd serves as well */
	OWN_COMPARE,	/* kcmp: who shares memory with whom */
	OWN_CALLS
};

enum proc_state {
	PROC_FINE,
	PROC_MISSING, /* nothing is mounted on /proc */
	PROC_FOREIGN, /* it shows the processes of another pid namespace */
};

enum relation { RELATION_UNKNOWN, RELATION_SAME, RELATION_OTHER };

struct facts {
	pid_t pid; /* 0: no process in particular */
	pid_t tid; /* shows memory and files in /proc: the leader, or who lives if it has exited */
	bool exists;
	bool hidden; /* it is there, but /proc does not show it to us (hidepid) */
	struct proc_status status;
	struct proc_stat stat;
	char tracer[PROC_NAME_MAX]; /* who traces it */
	bool alive_threads;	    /* a dead leader, but other threads live */
	int elf_class;		    /* 0: not known */
	unsigned elf_machine;
	bool dumpable;
	bool descendant;	      /* of ours */
	bool all_filtered;	      /* each of its threads is under a seccomp filter */
	enum relation user_namespace; /* its own and ours */
	char label[128];	      /* of the security module; "?" */
	int access;		      /* 0 or errno of the kernel's own check */
	bool uprobed;		      /* a kernel uprobe was hit in it */
	bool translated;	      /* Valgrind runs copies of its code */
	bool maps_unseen;	      /* neither of these two can be told now */
	bool frozen;
	char frozen_by[CGROUP_PATH_MAX];
	bool room_unseen; /* whether it is limited in memory cannot be told now */
	bool limited;
	uint64_t memory_room;
	char limited_by[CGROUP_PATH_MAX];

	struct proc_status own;
	enum proc_state proc;
	bool inner_user;		/* we are in a user namespace, not the first one */
	int own_calls[OWN_CALLS];	/* 0, the filter's errno, or PROBE_KILLED */
	int yama;			/* enum yama, or what else it says */
	int memfd_noexec;		/* vm.memfd_noexec */
	bool getfd_missing;		/* the kernel has no pidfd_getfd */
	bool flags_missing;		/* the processor has no lahf and sahf (arch/thread.h) */
	bool children_told, compare_ok; /* what tells who shares memory */

	/*
	 * DINST_BUSY and why, where something could not be looked at for want of descriptors or memory: what
	 * is said above may be wrong then. Its code is 0 where all was seen, or is kept from us for good.
	 */
	struct dinst_error unseen;
};

/* What is looked at besides whether the process is there; the rest stays zero. */
enum facts_part {
	FACTS_OWN = 1,	   /* ourselves */
	FACTS_STATE = 2,   /* what may become different while it runs */
	FACTS_PROGRAM = 4, /* what it runs, for which its file is opened, and what is only told */
	FACTS_ALL = 7,
};

/* Without FACTS_PROGRAM nothing is opened that somebody else may have to provide (mounts.h). */
void facts_read(struct facts *f, pid_t pid, unsigned parts);

/* What its mappings tell: uprobed, translated, or maps_unseen. */
void facts_read_maps(struct facts *f);

/* What is mapped as `name` belongs to Valgrind's core (its manual, "How Valgrind works"). */
bool facts_is_valgrind(const char *name);

/* As target_checks(). */
size_t facts_checks(const struct facts *f, struct target_check *out, size_t max);

/* As target_warns_of_uprobes(), of facts; true. */
bool facts_check_uprobes(const struct facts *f, struct target_check *c);

/* As target_find_obstacle() and target_explain_denial(). */
int facts_obstacle(const struct facts *f, struct dinst_error *e);
int facts_denial(const struct facts *f, struct dinst_error *e);

/* Why a filter of the target cannot be suspended, and what to do. */
int facts_filter(const struct facts *f, struct dinst_error *e);

#endif
