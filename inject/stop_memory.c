/* SPDX-License-Identifier: MIT */
/*
 * stop_memory.c - mappings, writing memory and registers of a stopped target.
 *
 * Writes through /proc/TID/mem, which reaches pages of any protection and
 * leaves the mapping's own protection as it is; where a kernel restricts that
 * (proc_mem.force_override), or we may not open it, word by word through ptrace.
 * Never writes part of a request silently.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "inject/control.h"
#include "inject/fault.h"
#include "inject/proc_open.h"

/* rseq(2), include/uapi/linux/rseq.h: where struct rseq has the pointer, and what it points to. */
enum { RSEQ_CS_OFFSET = 8 };

struct rseq_section {
	uint32_t version, flags;
	uint64_t start, length, abort;
} __attribute__((aligned(32)));

static int gone(struct stop *s, struct dinst_error *e)
{
	return dinst_fail(e, DINST_GONE, "process %d (%s) ended while it was stopped",
			  (int)s->target->pid, s->target->name);
}

/* A stopped thread of the target itself: through it memory is reached. */
static const struct held *any_stopped(struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++)
		if (s->held[i].stopped && !s->held[i].pub.foreign)
			return &s->held[i];
	return NULL;
}

/* Some thread runs and did not stop again in time: it is alive, as far as is known. */
static bool any_lost(const struct stop *s)
{
	for (size_t i = 0; i < s->held_count; i++)
		if (s->held[i].lost)
			return true;
	return false;
}

void stop_forget_maps(struct stop *s)
{
	if (s->has_maps)
		maps_release(&s->maps);
	s->has_maps = false;
}

int stop_maps(struct stop *s, const struct maps **out, struct dinst_error *e)
{
	int code;

	/* Somebody runs, and may change them. */
	if (any_lost(s))
		stop_forget_maps(s);
	code = s->has_maps ? 0 : maps_read(s->target->pid, &s->maps, e);
	s->has_maps = !code;
	*out = code ? NULL : &s->maps;
	return code;
}

/* A killed thread is no tracee of ours any more, long before its process is a zombie. */
bool stop_is_dying(struct stop *s)
{
	const struct held *h = any_stopped(s);
	struct arch_regs regs;

	if (!h && any_lost(s))
		return !target_alive(s->target);
	return !h || tracee_get_regs(h->pub.tid, &regs) || !target_alive(s->target);
}

static int open_memory(struct stop *s, struct dinst_error *e)
{
	const struct held *h = any_stopped(s);
	char path[64];
	int error;

	if (s->memory_fd >= 0)
		return 0;
	if (!h)
		return gone(s, e);
	snprintf(path, sizeof(path), "/proc/%d/mem", (int)h->pub.tid);
	s->memory_fd = proc_open(path, O_RDWR);
	if (s->memory_fd >= 0)
		return 0;
	error = errno;
	/* CAP_SYS_PTRACE alone opens no file of another user: ptrace() serves. */
	if (error == EACCES)
		return 0;
	if (stop_is_dying(s))
		return gone(s, e);
	return dinst_fail_errno(e, DINST_NOT_PERMITTED, error,
				"cannot open the memory of process %d (%s) for writing",
				(int)s->target->pid, s->target->name);
}

/*
 * One word at a time, the bytes around it unchanged. It need not be aligned, so that a window is
 * written by one call: our death cannot leave half of it.
 */
static size_t write_words(struct stop *s, taddr_t address, const uint8_t *from, size_t size)
{
	const struct held *h = any_stopped(s);
	size_t done = 0, before, count;
	uint8_t word[sizeof(uint64_t)];
	uint64_t value;

	while (h && done < size) {
		count = size - done < sizeof(word) ? size - done : sizeof(word);
		before = 0;
		if (target_read(s->target, address + done, word, sizeof(word), NULL)) {
			/* At the end of what is mapped there: the word that ends with it. */
			before = sizeof(word) - count;
			if (target_read(s->target, address + done - before, word, sizeof(word),
					NULL))
				break;
		}
		memcpy(word + before, from + done, count);
		memcpy(&value, word, sizeof(value));
		if (tracee_poke(h->pub.tid, address + done - before, value))
			break;
		done += count;
	}
	return done;
}

int stop_write(struct stop *s, taddr_t address, const void *from, size_t size,
	       struct dinst_error *e)
{
	const uint8_t *bytes = from;
	size_t done = 0;
	ssize_t put;
	int error = 0;
	int code = open_memory(s, e);

	if (code)
		return code;
	if (address > (taddr_t)LLONG_MAX - size)
		return dinst_fail(e, DINST_FAILED,
				  "cannot write %zu bytes at 0x%llx: no such memory", size,
				  (unsigned long long)address);
	s->wrote_words = false;
	while (done < size) {
		fault_point();
		put = s->memory_fd < 0 ? -1
				       : pwrite(s->memory_fd, bytes + done, size - done,
						(off_t)(address + done));
		if (put > 0) {
			done += (size_t)put;
			continue;
		}
		if (s->memory_fd < 0)
			error = EIO;
		else
			error = put < 0 ? errno : ESRCH;
		if (error == EINTR)
			continue;
		s->wrote_words |= error == EIO;
		put = error == EIO
			      ? (ssize_t)write_words(s, address + done, bytes + done, size - done)
			      : 0;
		if (put <= 0)
			break;
		done += (size_t)put;
	}
	if (done == size)
		return 0;
	if (error == ESRCH || stop_is_dying(s))
		return gone(s, e);
	return dinst_fail_errno(e, DINST_FAILED, error,
				"cannot write %zu bytes at 0x%llx of process %d (%s), only %zu",
				size, (unsigned long long)address, (int)s->target->pid,
				s->target->name, done);
}

bool stop_wrote_words(const struct stop *s)
{
	return s->wrote_words;
}

int stop_store_regs(struct stop *s, struct dinst_error *e)
{
	struct held *h;
	int error;

	for (size_t i = 0; i < s->held_count; i++) {
		h = &s->held[i];
		if (!h->stopped || !h->pub.changed)
			continue;
		error = tracee_set_regs(h->pub.tid, &h->pub.regs);
		if (error == -ESRCH)
			return gone(s, e);
		if (error)
			return dinst_fail_errno(
				e, DINST_FAILED, -error,
				"cannot set the registers of thread %d of process %d (%s)",
				(int)h->pub.tid, (int)s->target->pid, s->target->name);
		h->original = h->pub.regs;
		h->pub.changed = false;
	}
	return 0;
}

int stop_in_sequence(struct stop *s, const struct stop_thread *thread, taddr_t *abort_pc)
{
	struct rseq_section section = {0};
	uint64_t pointer = 0;
	taddr_t pc = arch_pc(&thread->regs);

	if (!thread->rseq)
		return 0;
	/* What the pointer leads to may be missing: that is the program's own affair, and tells nothing. */
	if (target_read(s->target, thread->rseq + RSEQ_CS_OFFSET, &pointer, sizeof(pointer),
			NULL) ||
	    (pointer && target_read(s->target, pointer, &section, sizeof(section), NULL)))
		return arch_in_syscall(&thread->regs) ? 0 : DINST_BUSY;
	if (!pointer || pc - section.start >= section.length)
		return 0;
	*abort_pc = section.abort;
	return 1;
}

int stop_leave_sequence(struct stop *s, struct stop_thread *thread)
{
	taddr_t abort_pc;
	const int in = stop_in_sequence(s, thread, &abort_pc);

	if (in <= 0)
		return in;
	arch_set_pc(&thread->regs, abort_pc);
	thread->changed = true;
	return 1;
}

int stop_clear_descriptors(struct stop *s, stop_leads leads, const void *arg, struct dinst_error *e)
{
	const size_t count = stop_thread_count(s);
	struct target_range *ranges = calloc(count + 1, sizeof(*ranges));
	uint64_t *pointers = calloc(count + 1, sizeof(*pointers));
	const struct stop_thread **threads = calloc(count + 1, sizeof(*threads));
	const uint64_t none = 0;
	size_t n = 0;
	int code = 0;

	if (!ranges || !pointers || !threads)
		code = dinst_fail(e, DINST_NO_MEMORY, "out of memory");
	for (size_t i = 0; i < count && !code; i++) {
		const struct stop_thread *t = stop_thread(s, i);

		if (t->kernel_worker || !t->rseq)
			continue;
		ranges[n] = (struct target_range){.address = t->rseq + RSEQ_CS_OFFSET,
						  .size = sizeof(*pointers),
						  .to = &pointers[n]};
		threads[n++] = t;
	}
	if (n)
		code = target_read_many(s->target, ranges, n, e);
	for (size_t i = 0; i < n && !code; i++)
		if (pointers[i] && leads(threads[i], pointers[i], arg))
			code = stop_write(s, ranges[i].address, &none, sizeof(none), e);
	free(threads);
	free(pointers);
	free(ranges);
	return code;
}
