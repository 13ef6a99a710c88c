/* SPDX-License-Identifier: MIT */
/*
 * ptrace.c - ptrace() and waitpid(), wrapped.
 *
 * Owns the wait-status decoding and the deadline timer. Must never decide what
 * to do about an event, and never use a signal mask, a trap or stepping in the
 * target: a tracer that dies in between would leave them behind.
 */
#include "inject/ptrace.h"
#include "inject/target.h"

#include <errno.h>
#include <linux/audit.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inject/fault.h"
#include "inject/target.h"
#include "inject/seccomp.h"

/*
 * Interrupts a blocked wait. A real-time signal that nothing else here uses;
 * it is sent to one thread and is blocked in no tracer thread.
 */
#define WAKE_SIGNAL (SIGRTMAX - 4)

/* The signal is repeated in case it came just before the wait began. */
enum { WAKE_INTERVAL_NS = 2000000 };

/* Without a timer: from one look to the next. */
enum { LOOK_MIN_NS = 20000, LOOK_MAX_NS = 1000000 };

/* What comes within this is not slept for. */
enum { EAGER_NS = 100000 };

/* Signals that wait: for so many the kernel is asked at once, and in all. */
enum { PEEKED = 16, PEEKED_MOST = 1024 };

/* include/uapi/linux/ptrace.h; that header and libc's cannot be used together. */
enum {
	SECCOMP_GET_FILTER = 0x420c,
	GET_RSEQ_CONFIGURATION = 0x420f,
	GET_DISPATCH_CONFIGURATION = 0x4211,
	DISPATCH_ON = 1,	/* include/uapi/linux/prctl.h */
	DISPATCHED_BY_USER = 2, /* SYS_USER_DISPATCH, include/uapi/asm-generic/siginfo.h */
	FILTERS_MAX = 64,
};

struct rseq_configuration {
	uint64_t address;
	uint32_t size;
	uint32_t signature;
	uint32_t flags;
	uint32_t pad;
};

struct dispatch_configuration {
	uint64_t mode;
	uint64_t selector;
	uint64_t offset;
	uint64_t length;
};

#ifndef PTRACE_O_SUSPEND_SECCOMP
#define PTRACE_O_SUSPEND_SECCOMP (1 << 21)
#endif

/*
 * From the seize on: a tracee that is at a system call's stop when we die goes
 * on unharmed only with TRACESYSGOOD; without it the kernel would send it the
 * SIGTRAP of that stop.
 */
static const unsigned long seize_options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool tells_filters; /* CONFIG_CHECKPOINT_RESTORE: otherwise EINVAL, whatever there is */

/*
 * A seize that is under way in this thread. One that waits is woken up again and again; one that only had no
 * CPU gets a single signal, however long that was, and comes to its end.
 */
enum { WAKES_LEAST = 3 };

static _Thread_local struct {
	sigjmp_buf out;
	uint64_t until_ns;
	volatile sig_atomic_t under_way, wakes;
} seizing;

/* Its arrival is all that matters to a wait, which returns EINTR. A seize would go on. */
static void wake(int signal)
{
	(void)signal;
	if (!seizing.under_way || ++seizing.wakes < WAKES_LEAST || clock_ns() < seizing.until_ns)
		return;
	seizing.under_way = 0;
	siglongjmp(seizing.out, 1);
}

static void prepare(void)
{
	struct sigaction action;

	tells_filters = !access("/proc/sys/kernel/ns_last_pid", F_OK);
	memset(&action, 0, sizeof(action));
	action.sa_handler = wake;
	sigemptyset(&action.sa_mask);
	sigaction(WAKE_SIGNAL, &action, NULL);
}

uint64_t clock_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

void tracer_init(struct tracer *tr)
{
	struct sigevent event;
	sigset_t all;

	memset(tr, 0, sizeof(*tr));
	pthread_once(&once, prepare);
	sigfillset(&all);
	sigdelset(&all, WAKE_SIGNAL);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	memset(&event, 0, sizeof(event));
	event.sigev_notify = SIGEV_THREAD_ID;
	event.sigev_signo = WAKE_SIGNAL;
	event._sigev_un._tid = gettid();
	tr->looks = timer_create(CLOCK_MONOTONIC, &event, &tr->timer) != 0;
}

void tracer_release(struct tracer *tr)
{
	if (!tr->looks)
		timer_delete(tr->timer);
	tr->armed = false;
}

void tracer_arm(struct tracer *tr, uint64_t deadline_ns)
{
	struct itimerspec when;

	memset(&when, 0, sizeof(when));
	tr->deadline_ns = deadline_ns;
	tr->eager = false;
	if (tr->looks || (!deadline_ns && !tr->armed))
		return;
	if (deadline_ns) {
		when.it_value.tv_sec = (time_t)(deadline_ns / 1000000000u);
		when.it_value.tv_nsec = (long)(deadline_ns % 1000000000u);
		when.it_interval.tv_nsec = WAKE_INTERVAL_NS;
	}
	timer_settime(tr->timer, TIMER_ABSTIME, &when, NULL);
	tr->armed = deadline_ns != 0;
}

static int answer(long result)
{
	return result < 0 ? -errno : 0;
}

int tracee_seize(pid_t tid, uint64_t until_ns)
{
	int error;

	fault_point();
	if (until_ns && sigsetjmp(seizing.out, 1))
		return -ETIMEDOUT;
	seizing.until_ns = until_ns;
	seizing.wakes = 0;
	seizing.under_way = until_ns != 0;
	error = answer(ptrace(PTRACE_SEIZE, tid, NULL, (void *)seize_options));
	seizing.under_way = 0;
	return error;
}

int tracee_suspend_seccomp(pid_t tid)
{
	unsigned long options = seize_options | PTRACE_O_SUSPEND_SECCOMP;

	fault_point();
	return answer(ptrace(PTRACE_SETOPTIONS, tid, NULL, (void *)options));
}

int tracee_restore_seccomp(pid_t tid)
{
	fault_point();
	return answer(ptrace(PTRACE_SETOPTIONS, tid, NULL, (void *)seize_options));
}

int tracee_interrupt(pid_t tid)
{
	fault_point();
	return answer(ptrace(PTRACE_INTERRUPT, tid, NULL, NULL));
}

int tracee_resume(pid_t tid, int signal)
{
	fault_point();
	return answer(ptrace(PTRACE_CONT, tid, NULL, (void *)(long)signal));
}

int tracee_resume_to_syscall(pid_t tid, int signal)
{
	fault_point();
	return answer(ptrace(PTRACE_SYSCALL, tid, NULL, (void *)(long)signal));
}

int tracee_enter_syscall(pid_t tid, const struct arch_regs *regs)
{
	const int error = tracee_set_regs(tid, regs);

	/* No fault point: docs/safety.md tells what it would find. */
	return error ? error : answer(ptrace(PTRACE_SYSCALL, tid, NULL, NULL));
}

int tracee_detach(pid_t tid, int signal)
{
	fault_point();
	return answer(ptrace(PTRACE_DETACH, tid, NULL, (void *)(long)signal));
}

int tracee_get_regs(pid_t tid, struct arch_regs *regs)
{
	return answer(ptrace(PTRACE_GETREGS, tid, NULL, &regs->user));
}

int tracee_set_regs(pid_t tid, const struct arch_regs *regs)
{
	struct arch_regs copy = *regs, now;

	fault_point();
	if (!ptrace(PTRACE_SETREGS, tid, NULL, &copy.user))
		return 0;
	if (errno != EIO)
		return -errno;
	/*
	 * The kernel takes one register after the other, and denies some values that a thread can give
	 * itself: a base of gs that is an address of the kernel's, a selector without privileges. Those
	 * are left as they were, which is right where they have not been changed here.
	 */
	memset(&now, 0, sizeof(now));
	return !tracee_get_regs(tid, &now) && !memcmp(&now.user, &copy.user, sizeof(now.user))
		       ? 0
		       : -EIO;
}

int tracee_get_rseq(pid_t tid, taddr_t *address, uint32_t *size, uint32_t *signature)
{
	struct rseq_configuration rseq;

	memset(&rseq, 0, sizeof(rseq));
	*address = 0;
	*size = 0;
	*signature = 0;
	if (ptrace((enum __ptrace_request)GET_RSEQ_CONFIGURATION, tid, (void *)sizeof(rseq),
		   &rseq) < 0)
		return -errno;
	*address = rseq.address;
	*size = rseq.size;
	*signature = rseq.signature;
	return 0;
}

int tracee_has_filters(pid_t tid)
{
	if (ptrace((enum __ptrace_request)SECCOMP_GET_FILTER, tid, NULL, NULL) >= 0)
		return 1;
	return errno == EINVAL && tells_filters ? 0 : -EACCES;
}

bool tracee_filters_allow(pid_t tid, long number, bool native, const struct arch_regs *regs)
{
	struct sock_filter filter[BPF_MAXINSNS];
	struct __ptrace_syscall_info info;
	struct seccomp_data call = {.nr = (int)number};
	long count;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, tid, (void *)sizeof(info), &info) <= 0)
		return false;
	call.arch = native ? arch_elf_machine | __AUDIT_ARCH_64BIT | __AUDIT_ARCH_LE : info.arch;
	call.instruction_pointer = arch_pc(regs);
	for (unsigned i = 0; i < 6; i++)
		call.args[i] = (uint64_t)(native ? arch_syscall_argument(regs, i)
						 : arch_narrow_argument(regs, i));
	for (long i = 0; i < FILTERS_MAX; i++) {
		count = ptrace((enum __ptrace_request)SECCOMP_GET_FILTER, tid, (void *)i, NULL);
		if (count < 0)
			return errno == ENOENT && i > 0; /* these were all */
		if (count > BPF_MAXINSNS ||
		    ptrace((enum __ptrace_request)SECCOMP_GET_FILTER, tid, (void *)i, filter) !=
			    count ||
		    !seccomp_allows(filter, (size_t)count, &call))
			return false;
	}
	return false;
}

int tracee_dispatches(pid_t tid, taddr_t *selector)
{
	struct dispatch_configuration dispatch;

	memset(&dispatch, 0, sizeof(dispatch));
	if (ptrace((enum __ptrace_request)GET_DISPATCH_CONFIGURATION, tid, (void *)sizeof(dispatch),
		   &dispatch) < 0)
		return errno == ESRCH ? 0 : -1;
	*selector = dispatch.selector;
	return dispatch.mode == DISPATCH_ON;
}

bool tracee_blocks(pid_t tid, int signal)
{
	/* Where a call has one of its own, that from before it: the kernel puts it back first. */
	uint64_t mask = 0;

	return ptrace(PTRACE_GETSIGMASK, tid, (void *)sizeof(mask), &mask) < 0 ||
	       (mask >> (signal - 1) & 1);
}

bool tracee_was_dispatched(pid_t tid, taddr_t lo, taddr_t hi)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	return !ptrace(PTRACE_GETSIGINFO, tid, NULL, &info) && info.si_signo == SIGSYS &&
	       info.si_code == DISPATCHED_BY_USER &&
	       (taddr_t)(uintptr_t)info.si_call_addr - lo <= hi - lo;
}

bool tracee_knows_sender(pid_t tid)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	/* Of who is outside of the namespace there is no id in it (send_signal_locked() in kernel/signal.c). */
	return !ptrace(PTRACE_GETSIGINFO, tid, NULL, &info) && info.si_code <= 0 && info.si_pid;
}

static bool is_queued(pid_t tid, int signal, uint32_t flags)
{
	struct __ptrace_peeksiginfo_args some = {.flags = flags, .nr = PEEKED};
	siginfo_t infos[PEEKED];
	long count;

	do {
		count = ptrace(PTRACE_PEEKSIGINFO, tid, &some, infos);
		for (long i = 0; i < count; i++)
			if (infos[i].si_signo == signal)
				return true;
		some.off += PEEKED;
	} while (count == PEEKED && some.off < PEEKED_MOST);
	return false;
}

bool tracee_is_pending(pid_t tid, int signal)
{
	return is_queued(tid, signal, PTRACE_PEEKSIGINFO_SHARED) || is_queued(tid, signal, 0);
}

bool tracee_has_faulted(pid_t tid, taddr_t lo, taddr_t hi)
{
	struct arch_regs regs;
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	/*
	 * A thread may be stopped between its fault and the signal for it, which then comes when the program
	 * counter is another one: it is told by its address. What is executed in there uses no memory elsewhere.
	 */
	if (ptrace(PTRACE_GETSIGINFO, tid, NULL, &info) || tracee_get_regs(tid, &regs) ||
	    arch_pc(&regs) - lo > hi - lo || (taddr_t)(uintptr_t)info.si_addr - lo > hi - lo)
		return false;
	/* The kernel's, because of what was executed: kill(2) and its like have codes below. */
	return info.si_code > 0 && (info.si_signo == SIGSEGV || info.si_signo == SIGILL ||
				    (info.si_signo == SIGBUS && info.si_code != BUS_MCEERR_AO));
}

int tracee_poke(pid_t tid, taddr_t address, uint64_t word)
{
	fault_point();
	return answer(
		ptrace(PTRACE_POKEDATA, tid, (void *)(uintptr_t)address, (void *)(uintptr_t)word));
}

int tracee_peek(pid_t tid, taddr_t address, uint64_t *word)
{
	long value;

	errno = 0;
	value = ptrace(PTRACE_PEEKDATA, tid, (void *)(uintptr_t)address, NULL);
	if (errno)
		return -errno;
	*word = (uint64_t)value;
	return 0;
}

/* What waitid(2) says, as ptrace(2) describes it for a seized tracee. */
static void decode(const siginfo_t *info, struct tracee_event *event)
{
	int code = info->si_status >> 8;
	int signal = info->si_status & 0xff;

	event->signal = 0;
	if (info->si_code != CLD_TRAPPED && info->si_code != CLD_STOPPED) {
		event->kind = TRACEE_EXITED;
	} else if (code == PTRACE_EVENT_STOP) {
		event->kind = TRACEE_STOPPED;
		event->signal = signal;
	} else if (code == PTRACE_EVENT_EXEC) {
		event->kind = TRACEE_EXEC;
	} else if (code) {
		event->kind = TRACEE_EVENT;
	} else if (signal == (SIGTRAP | 0x80)) {
		event->kind = TRACEE_SYSCALL;
	} else {
		event->kind = TRACEE_SIGNAL;
		event->signal = signal;
	}
}

/*
 * A wait that takes a stop's status leaves nothing of it in the kernel. For a
 * signal that would be fatal to it: if we died before we said so, the thread
 * would go on without the signal. So signals are only looked at, which is
 * enough to resume or detach with them. A leader's death is its parent's to
 * take.
 */
static bool is_left(const struct tracee_event *event, bool leader)
{
	return event->kind == TRACEE_SIGNAL || (event->kind == TRACEE_EXITED && leader);
}

enum { WAIT_OPTIONS = WEXITED | WSTOPPED | __WALL | __WNOTHREAD };

/* What has become of it: 0, -EAGAIN (with WNOHANG), or another -errno. */
static int look(pid_t tid, bool leader, int hang, struct tracee_event *event)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	event->signal = 0;
	if (waitid(P_PID, (id_t)tid, &info, WAIT_OPTIONS | WNOWAIT | hang))
		return -errno;
	if (!info.si_pid)
		return -EAGAIN;
	decode(&info, event);
	if (!is_left(event, leader) && waitid(P_PID, (id_t)tid, &info, WAIT_OPTIONS | WNOHANG))
		return -errno;
	return 0;
}

/* Nobody with that id is ours. */
static int vanished(struct tracee_event *event)
{
	event->kind = TRACEE_VANISHED;
	return 0;
}

int tracee_poll(pid_t tid, bool leader, struct tracee_event *event)
{
	int error;

	do
		error = look(tid, leader, WNOHANG, event);
	while (error == -EINTR);
	return error == -ECHILD ? vanished(event) : error;
}

pid_t tracee_next(void)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	if (waitid(P_ALL, 0, &info, WAIT_OPTIONS | WNOWAIT | WNOHANG))
		return -1;
	return info.si_pid;
}

bool tracee_any(void)
{
	return tracee_next() != 0;
}

/*
 * What comes at once is not slept for: on virtual machines being woken takes longer than all that
 * the thread does in between. The first time that it does not come at once is the last one: then
 * the thread may be waiting for this very CPU.
 */
static int look_eagerly(struct tracer *tr, pid_t tid, bool leader, struct tracee_event *event)
{
	const uint64_t until = clock_ns() + EAGER_NS;
	int error;

	do
		error = look(tid, leader, WNOHANG, event);
	while (error == -EAGAIN && clock_ns() < until);
	tr->eager = error != -EAGAIN;
	return error;
}

int tracee_wait(struct tracer *tr, pid_t tid, bool leader, struct tracee_event *event)
{
	struct timespec pause = {0, LOOK_MIN_NS};
	int error;

	for (;;) {
		error = tr->eager ? look_eagerly(tr, tid, leader, event)
				  : look(tid, leader, tr->looks ? WNOHANG : 0, event);
		if (error != -EINTR && error != -EAGAIN)
			break;
		if (tr->deadline_ns && clock_ns() >= tr->deadline_ns) {
			error = -ETIMEDOUT;
			break;
		}
		if (!tr->looks)
			continue;
		nanosleep(&pause, NULL);
		pause.tv_nsec = pause.tv_nsec < LOOK_MAX_NS ? 2 * pause.tv_nsec : LOOK_MAX_NS;
	}
	return error == -ECHILD ? vanished(event) : error;
}

int tracer_ask(void)
{
	return answer(ptrace(PTRACE_DETACH, 0, NULL, NULL));
}

/* Seconds after which a call that does not return is as good as one that kills. */
enum { PROBE_SECONDS = 2 };

int probe_in_child(int (*call)(void))
{
	pid_t child = fork();
	sigset_t alarm_only;
	int status;

	if (child < 0)
		return 0;
	if (!child) {
		/* No core file for what is to be expected. */
		prctl(PR_SET_DUMPABLE, 0);
		signal(SIGALRM, SIG_DFL);
		/* A tracer's thread has it blocked (tracer_init()). */
		sigemptyset(&alarm_only);
		sigaddset(&alarm_only, SIGALRM);
		sigprocmask(SIG_UNBLOCK, &alarm_only, NULL);
		alarm(PROBE_SECONDS);
		_exit(-call() & 0xff);
	}
	status = child_wait(child);
	return status < 0 ? PROBE_KILLED : -status;
}

int child_wait(pid_t child)
{
	siginfo_t info;

	memset(&info, 0, sizeof(info));
	while (waitid(P_PID, (id_t)child, &info, WEXITED)) {
		if (errno != EINTR)
			return -1;
	}
	return info.si_code == CLD_EXITED ? info.si_status : -1;
}

int child_wait_until(pid_t child, uint64_t deadline)
{
	const long longest_ns = 5 * 1000000L;
	struct timespec pause = {0, 20 * 1000L};
	siginfo_t info;

	for (;;) {
		memset(&info, 0, sizeof(info));
		if (waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT) || info.si_pid)
			break;
		if (clock_ns() >= deadline) {
			kill(child, SIGKILL);
			break;
		}
		nanosleep(&pause, NULL);
		if (pause.tv_nsec < longest_ns)
			pause.tv_nsec *= 2;
	}
	return child_wait(child);
}
