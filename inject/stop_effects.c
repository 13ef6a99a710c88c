/* SPDX-License-Identifier: MIT */
/*
 * stop_effects.c - system calls whose interruption does something that making them anew does not undo.
 *
 * A supervisor makes a call for a thread (SECCOMP_RET_USER_NOTIF, seccomp_unotify(2)), and may have done so
 * already: the call would be made once more, and a second mkdir() of a directory fails. The same goes for a SCSI
 * command (SG_IO of /dev/sgN; on block devices nobody interrupts it), a break on a serial line, and what TCP Fast
 * Open has queued already: the data is sent twice. NBD_DO_IT disconnects the device, and connect() of SCTP
 * and some others fails, since it finds its own association. A thread that sleeps in one of these is not stopped.
 *
 * So does the server of a file system in user space (FUSE), which is told that the thread is interrupted: some give up what
 * they do then, with EINTR or another error, though it is done already. Others do not; then the thread does not
 * stop before it has its answer, and others would stand still for that long. It is waited for while all run, and so is who
 * waits for a TPM, whose command would end with ETIME.
 *
 * Which call it is, is read just before the first thread is interrupted; where threads are many only of those that
 * were in such a call when they were seized. What begins later is interrupted as any other.
 */
#include <errno.h>
#include <linux/nbd.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <scsi/sg.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/proc_open.h"

enum { LOOK_FEW = 16 /* threads: as many are looked at anew (30 us each) */ };

enum effect {
	NONE,
	SUPERVISED,
	SERVED,
	SCSI_COMMAND,
	LINE_BREAK,
	FAST_OPEN,
	ONCE_CONNECT,
	BLOCK_DEVICE
};

/* Whether what the thread waits in begins with that, as functions do that a compiler has cut or copied. */
static bool waits_in(const char *channel, const char *function)
{
	return !strncmp(channel, function, strlen(function));
}

static bool is_supervised(const char *channel)
{
	return waits_in(channel, "seccomp_do_user_notification");
}

/*
 * For a FUSE server: by its name in fs/fuse/dev.c, and those of its callers, where a compiler has made it a part of one. For a
 * TPM with interrupts: a signal is no time-out, but the command ends as if it were (drivers/char/tpm/tpm_tis_core.c).
 */
static bool is_served(const char *channel)
{
	static const char *const functions[] = {
		"request_wait_answer",	 "__fuse_request_send", "fuse_request_send",
		"__fuse_simple_request", "fuse_simple_request", "wait_for_tpm_stat",
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++)
		if (waits_in(channel, functions[i]))
			return true;
	return false;
}

bool stop_waits_for_server(const struct held *h)
{
	char channel[64];

	proc_word(h->pub.tid, "wchan", channel, sizeof(channel));
	return is_served(channel);
}

static enum effect effect_of_ioctl(const struct held *h, const struct proc_call *call)
{
	struct proc_stat stat;

	switch ((unsigned)call->arguments[1]) {
	case SG_IO: /* of a block device nobody can interrupt it */
		return proc_thread_stat_read(h->tgid, h->pub.tid, &stat) || stat.state != 'S'
			       ? NONE
			       : SCSI_COMMAND;
	case TCSBRK: /* with another argument it waits for what was written: tcdrain(3) */
		return call->arguments[2] ? NONE : LINE_BREAK;
	case TCSBRKP:
		return LINE_BREAK;
	case NBD_DO_IT:
		return BLOCK_DEVICE;
	default:
		return NONE;
	}
}

/*
 * Our copy of the socket that is descriptor `number` of the thread, or -1: it is none, the thread has other
 * descriptors than its process, or we may not have it (pidfd_getfd: Linux 5.6).
 */
static int copy_socket(const struct held *h, int number)
{
	char path[64], link[64], copied[64];
	ssize_t length;
	struct stat st;
	int pidfd, fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)h->pub.tid, number);
	length = proc_readlink(path, link, sizeof(link) - 1);
	if (length < 0)
		return -1;
	link[length] = '\0';
	if (strncmp(link, "socket:", 7) != 0)
		return -1;
	pidfd = (int)syscall(SYS_pidfd_open, h->tgid, 0);
	if (pidfd < 0)
		return -1;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, number, 0);
	close(pidfd);
	if (fd < 0)
		return -1;
	snprintf(copied, sizeof(copied), "socket:[%lu]",
		 fstat(fd, &st) ? 0 : (unsigned long)st.st_ino);
	if (!strcmp(copied, link))
		return fd;
	close(fd);
	return -1;
}

/* SO_PROTOCOL or SO_DOMAIN of a socket; -1: not known */
static int option(int fd, int name)
{
	socklen_t size = sizeof(int);
	int value;

	return getsockopt(fd, SOL_SOCKET, name, &value, &size) ? -1 : value;
}

/*
 * Whether connect() fails when it is made anew: SCTP, and Bluetooth's RFCOMM and SCO, find a connection that has begun
 * (EALREADY, EBADFD); vsock has taken it back, and SMC given it up, by then.
 */
static bool connects_once(int fd)
{
	switch (option(fd, SO_DOMAIN)) {
	case AF_BLUETOOTH:
	case AF_VSOCK:
	case AF_SMC:
		return true;
	default:
		return option(fd, SO_PROTOCOL) == IPPROTO_SCTP;
	}
}

/*
 * A handshake is on its way, and who waits for it in a call that sends has its data queued behind the SYN: nothing counts
 * as queued until it is done (net/ipv4/tcp.c: tcp_ioctl()), while who waits for room has queued much. TCP_INFO would say
 * so, too, but takes the socket's lock, for which we might wait as long as somebody who has it waits for memory.
 */
static bool is_connecting(int fd)
{
	int queued = 0;

	return option(fd, SO_PROTOCOL) == IPPROTO_TCP && !ioctl(fd, SIOCOUTQ, &queued) && !queued;
}

static enum effect effect_on_socket(const struct held *h, const struct proc_call *call)
{
	const int fd = copy_socket(h, (int)call->arguments[0]);
	enum effect effect = NONE;

	if (fd < 0)
		return NONE;
	if (call->number == SYS_connect)
		effect = connects_once(fd) ? ONCE_CONNECT : NONE;
	else if (is_connecting(fd))
		effect = FAST_OPEN;
	close(fd);
	return effect;
}

static bool may_have_effect(long number)
{
	switch (number) {
	case SYS_ioctl:
	case SYS_connect:
	case SYS_write:
	case SYS_writev:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
		return true;
	default:
		return false;
	}
}

static enum effect effect_of(const struct stop *s, const struct held *h)
{
	struct proc_call call;
	char channel[64];

	proc_word(h->pub.tid, "wchan", channel, sizeof(channel));
	if (is_supervised(channel))
		return SUPERVISED;
	if (is_served(channel))
		return SERVED;
	if (s->held_count > LOOK_FEW && !may_have_effect(h->call))
		return NONE;
	if (proc_call_read(h->pub.tid, &call) || !may_have_effect(call.number))
		return NONE;
	return call.number == SYS_ioctl ? effect_of_ioctl(h, &call) : effect_on_socket(h, &call);
}

int stop_check_effect(struct stop *s, const struct held *h, bool *served, struct dinst_error *e)
{
	static const char *const texts[] = {
		[SUPERVISED] = "is in a system call that its supervisor makes",
		[SCSI_COMMAND] =
			"waits for a SCSI command (SG_IO), which a stop would send once more",
		[LINE_BREAK] =
			"sends a break on a serial line (TCSBRK), which a stop would send once more",
		[FAST_OPEN] =
			"connects with data (TCP Fast Open), which a stop would send once more",
		[ONCE_CONNECT] =
			"connects by SCTP, Bluetooth, vsock or SMC, which a stop would make fail",
		[BLOCK_DEVICE] =
			"runs a network block device (NBD_DO_IT), which a stop would disconnect",
	};
	const enum effect effect = effect_of(s, h);

	*served = effect == SERVED;
	if (effect == NONE || *served)
		return 0;
	return stop_fail_busy(
		s, h, texts[effect],
		effect == BLOCK_DEVICE
			? "connect it by netlink, which no thread waits for (nbd-client without -L), or try again when it is disconnected"
			: "try again later",
		e);
}
