/* SPDX-License-Identifier: MIT */
/*
 * arena_place.c - finding room for an arena.
 *
 * Works on a list of intervals that must not be used: the mappings, what the
 * brk heap and the stack may grow into, and the bottom of the address space.
 * Never maps anything, and never trusts that a gap is still free afterwards:
 * the mapping itself is made with MAP_FIXED_NOREPLACE.
 */
#include "inject/arena_place.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "inject/cpus.h"
#include "inject/proc.h"

static const taddr_t PAGE = 4096;
static const taddr_t MIB = (taddr_t)1 << 20;
static const taddr_t BOTTOM_MIN = 64 << 10;
static const taddr_t HEAP_ROOM = (taddr_t)64 << 20;  /* kept free above the brk heap */
static const taddr_t STACK_ROOM = (taddr_t)64 << 20; /* the least kept free for the stack */
static const taddr_t STACK_MOST = (taddr_t)16 << 30; /* of a limit that is no limit */
static const taddr_t STACK_GAP = (taddr_t)1 << 20;   /* the kernel's stack_guard_gap */
static const taddr_t LOW_TOP = 0x7ff00000;	     /* below 2 GiB, for the data half */
static const taddr_t LOW_SHARED = (taddr_t)1 << 30;  /* from here on MAP_32BIT gives what is free */
enum { LOCKED_LEAST = 1 << 20 }; /* bytes of locked memory that make us careful */
enum { COMMIT_SHARE = 64 };	 /* of the memory that is left to all processes together */

static const taddr_t KERNEL_HALF = (taddr_t)1 << 63; /* [vsyscall] lies above it */

struct interval {
	taddr_t lo, hi;
};

struct used {
	struct interval *at; /* sorted, merged */
	size_t count;
};

static taddr_t minus(taddr_t a, taddr_t b)
{
	return a > b ? a - b : 0;
}

static taddr_t least(taddr_t a, taddr_t b)
{
	return a < b ? a : b;
}

/* ----------------------------------------------------------------- limits */

static int fail_lack(pid_t pid, int lack, struct dinst_error *e)
{
	return dinst_fail_errno(e, DINST_BUSY, -lack,
				"cannot look at what memory process %d may take", (int)pid);
}

/* Reads a small file; the number of bytes, 0 on failure. `text` ends with a zero. */
static size_t read_small(const char *path, char *text, size_t size, int *lack)
{
	const ssize_t got = proc_read(path, text, size);

	if (got >= 0)
		return (size_t)got;
	proc_note_lack(lack, (int)got);
	text[0] = '\0';
	return 0;
}

/* Field 47 of /proc/PID/stat, proc_pid_stat(5); the name in field 2 may hold anything. */
static taddr_t brk_start(pid_t pid, int *lack)
{
	char path[64], text[4096], *at;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (!read_small(path, text, sizeof(text), lack))
		return 0;
	at = strrchr(text, ')');
	for (int field = 2; at && field < 47; field++) {
		at = strchr(at, ' ');
		if (at)
			at++;
	}
	return at ? strtoull(at, NULL, 10) : 0;
}

/* As everybody may read it: prlimit(2) takes CAP_SYS_RESOURCE for another user's process. */
static uint64_t read_limit(pid_t pid, int resource, int *lack)
{
	const char *name = resource == RLIMIT_AS      ? "\nMax address space "
			   : resource == RLIMIT_DATA  ? "\nMax data size "
			   : resource == RLIMIT_STACK ? "\nMax stack size "
						      : "\nMax locked memory ";
	char path[64], text[4096], *at, *end;
	uint64_t value;

	snprintf(path, sizeof(path), "/proc/%d/limits", (int)pid);
	if (!read_small(path, text, sizeof(text), lack))
		return UINT64_MAX;
	at = strstr(text, name);
	if (!at)
		return UINT64_MAX;
	at += strlen(name);
	value = strtoull(at, &end, 10);
	return end == at ? UINT64_MAX : value; /* "unlimited" */
}

static uint64_t limit_of(pid_t pid, int resource, int *lack)
{
	struct rlimit limit;

	if (prlimit(pid, resource, NULL, &limit))
		return read_limit(pid, resource, lack);
	return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

uint64_t arena_limit(pid_t pid, int resource)
{
	int lack = 0;
	const uint64_t limit = limit_of(pid, resource, &lack);

	return lack ? 0 : limit;
}

static uint64_t left(pid_t pid, int resource, uint64_t used, int *lack)
{
	const uint64_t limit = limit_of(pid, resource, lack);

	return limit == UINT64_MAX ? limit : minus(limit, used);
}

/* Documentation/mm/overcommit-accounting.rst: MAP_NORESERVE counts for nothing then. */
bool arena_commits(const char *overcommit)
{
	enum { OVERCOMMIT_NEVER = 2 };

	return strtol(overcommit, NULL, 10) == OVERCOMMIT_NEVER;
}

uint64_t arena_commit_room(const char *overcommit, const char *meminfo)
{
	if (!arena_commits(overcommit))
		return UINT64_MAX;
	return minus(proc_bytes(meminfo, "\nCommitLimit:"),
		     proc_bytes(meminfo, "\nCommitted_AS:")) /
	       COMMIT_SHARE;
}

/*
 * What is left of limits, as may_expand_vm() of the kernel's mm/mmap.c counts: total_vm, and data_vm
 * of it. mlockall(MCL_FUTURE) cannot be seen before something is mapped (arena_map.c);
 * that some memory is locked already, can.
 */
static void read_room(pid_t pid, struct arena_limits *limits, int *lack)
{
	char text[4096], *whole = proc_status_text(pid, pid, text, sizeof(text));
	const char *status = whole ? whole : "";
	char overcommit[16], meminfo[8192] = "";

	if (!whole)
		proc_note_lack(lack, -errno);
	limits->locked = proc_bytes(status, "\nVmLck:");
	limits->locks_memory = limits->locked >= LOCKED_LEAST;
	limits->room = left(pid, RLIMIT_AS, proc_bytes(status, "\nVmSize:"), lack);
	limits->own_room = left(pid, RLIMIT_DATA, proc_bytes(status, "\nVmData:"), lack);
	if (limits->own_room > limits->room)
		limits->own_room = limits->room;
	if (whole != text)
		free(whole);
	read_small("/proc/sys/vm/overcommit_memory", overcommit, sizeof(overcommit), lack);
	limits->commits = arena_commits(overcommit);
	if (limits->commits)
		read_small("/proc/meminfo", meminfo, sizeof(meminfo), lack);
	limits->own_room = least(limits->own_room, arena_commit_room(overcommit, meminfo));
}

int arena_locked_bytes(pid_t pid, uint64_t *bytes, struct dinst_error *e)
{
	char text[4096], *whole = proc_status_text(pid, pid, text, sizeof(text));

	if (!whole && proc_is_lack(-errno))
		return fail_lack(pid, -errno, e);
	*bytes = whole ? proc_bytes(whole, "\nVmLck:") : 0;
	if (whole != text)
		free(whole);
	return DINST_OK;
}

int arena_limits_read(pid_t pid, struct arena_limits *limits, struct dinst_error *e)
{
	int lack = 0;
	const uint64_t stack = limit_of(pid, RLIMIT_STACK, &lack);
	char text[64];

	limits->bottom = BOTTOM_MIN;
	if (read_small("/proc/sys/vm/mmap_min_addr", text, sizeof(text), &lack)) {
		taddr_t least = (strtoull(text, NULL, 10) + PAGE - 1) / PAGE * PAGE;

		if (least > limits->bottom)
			limits->bottom = least;
	}
	limits->brk_start = brk_start(pid, &lack);
	read_room(pid, limits, &lack);
	limits->stack_limit = STACK_ROOM;
	if (stack != UINT64_MAX && stack > STACK_ROOM)
		limits->stack_limit = least(stack, STACK_MOST);
	return lack ? fail_lack(pid, lack, e) : DINST_OK;
}

unsigned arena_parse_cpus(const char *list)
{
	unsigned long highest = 0, number;
	const char *at = list;
	char *end;

	for (;;) {
		if (*at < '0' || *at > '9')
			return 0;
		number = strtoul(at, &end, 10);
		if (number > highest)
			highest = number;
		if (*end == '\0' || *end == '\n')
			break;
		if (*end != '-' && *end != ',')
			return 0;
		at = end + 1;
	}
	return highest < 1u << 20 ? (unsigned)highest + 1 : 0;
}

static unsigned ask_possible_cpus(void)
{
	char text[4096];
	unsigned cpus = 0;

	if (proc_read("/sys/devices/system/cpu/possible", text, sizeof(text)) > 0)
		cpus = arena_parse_cpus(text);
	return cpus ? cpus : cpus_most();
}

unsigned arena_possible_cpus(void)
{
	static atomic_uint known; /* it never changes while the machine runs */
	unsigned cpus = known;

	if (!cpus)
		known = cpus = ask_possible_cpus();
	return cpus;
}

/* -------------------------------------------------------------- what is used */

/* The names of the kernel's that say what grows; "" else. */
static const char *kept_name(const char *name)
{
	static const char *const kept[] = {"[heap]", "[stack]"};

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (!strcmp(name, kept[i]))
			return kept[i];
	return "";
}

static int by_lo(const void *a, const void *b)
{
	const struct maps_entry *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

bool arena_place_add(struct maps *m, const struct maps *other)
{
	struct maps_entry *grown =
		realloc(m->entries, (m->count + other->count + 1) * sizeof(*grown));
	size_t kept = 0;

	if (!grown)
		return false;
	m->entries = grown;
	for (size_t i = 0; i < other->count; i++)
		m->entries[m->count++] = other->entries[i];
	for (size_t i = 0; i < m->count; i++)
		m->entries[i].name = kept_name(m->entries[i].name);
	qsort(m->entries, m->count, sizeof(*m->entries), by_lo);
	for (size_t i = 0; i < m->count; i++) {
		struct maps_entry *last = kept ? &m->entries[kept - 1] : NULL;

		if (!last || m->entries[i].lo > last->hi || m->entries[i].name != last->name)
			m->entries[kept++] = m->entries[i];
		else if (m->entries[i].hi > last->hi)
			last->hi = m->entries[i].hi;
	}
	m->count = kept;
	return true;
}

/* By insertion: all but the first few are in order already. */
static void sort(struct used *u)
{
	for (size_t i = 1; i < u->count; i++) {
		const struct interval moved = u->at[i];
		size_t to = i;

		for (; to && u->at[to - 1].lo > moved.lo; to--)
			u->at[to] = u->at[to - 1];
		u->at[to] = moved;
	}
}

/* Whole pages: limits and the brk heap may begin and end anywhere. */
static void add(struct used *u, taddr_t lo, taddr_t hi)
{
	if (lo < hi)
		u->at[u->count++] =
			(struct interval){lo / PAGE * PAGE, (hi + PAGE - 1) / PAGE * PAGE};
}

/* Where the brk heap is, and what it may grow into. */
static void add_heap(struct used *u, const struct maps *m, const struct arena_limits *limits)
{
	taddr_t lo = limits->brk_start, hi = limits->brk_start;

	/* Several, where a part of it has other rights, or is locked. */
	for (size_t i = 0; i < m->count; i++) {
		const struct maps_entry *heap = &m->entries[i];

		if (strcmp(heap->name, "[heap]") != 0)
			continue;
		if (!lo || heap->lo < lo)
			lo = heap->lo;
		if (heap->hi > hi)
			hi = heap->hi;
	}
	if (lo)
		add(u, lo, hi + HEAP_ROOM);
}

/* Sorts, and merges what touches. */
static void settle(struct used *u)
{
	size_t kept = 0;

	sort(u);
	for (size_t i = 0; i < u->count; i++) {
		if (kept && u->at[i].lo <= u->at[kept - 1].hi) {
			if (u->at[i].hi > u->at[kept - 1].hi)
				u->at[kept - 1].hi = u->at[i].hi;
			continue;
		}
		u->at[kept++] = u->at[i];
	}
	u->count = kept;
}

static bool used_init(struct used *u, const struct maps *m, const struct arena_limits *limits,
		      taddr_t avoid_lo, taddr_t avoid_hi)
{
	const struct maps_entry *stack = maps_named(m, "[stack]");

	u->count = 0;
	u->at = malloc((m->count + 4) * sizeof(*u->at));
	if (!u->at)
		return false;
	add(u, 0, limits->bottom);
	add(u, avoid_lo, avoid_hi);
	add_heap(u, m, limits);
	if (stack)
		add(u, minus(minus(stack->hi, limits->stack_limit), STACK_GAP), stack->hi);
	for (size_t i = 0; i < m->count; i++)
		if (m->entries[i].lo < KERNEL_HALF)
			add(u, m->entries[i].lo, m->entries[i].hi);
	settle(u);
	return true;
}

/* ---------------------------------------------------------------- choosing */

/*
 * The kernel maps downwards into the gap below a mapping, and a heap grows
 * upwards: room above counts double, and more than 512 MiB is not better.
 */
static taddr_t score(const struct interval *gap, taddr_t at, size_t size)
{
	const taddr_t enough = 512 * MIB;

	return 2 * least(gap->hi - (at + size), enough) + least(at - gap->lo, enough);
}

/* The best place in one gap, no part of it outside [lo, hi). Score 0 is possible. */
static bool best_in_gap(const struct interval *gap, taddr_t lo, taddr_t hi, size_t size,
			taddr_t *out, taddr_t *out_score)
{
	static const taddr_t rooms[] = {512, 256, 64, 16, 1, 0};
	taddr_t first = lo > gap->lo ? lo : gap->lo;
	taddr_t end = least(hi, gap->hi);
	bool found = false;

	if (end < first || end - first < size)
		return false;
	for (size_t i = 0; i < 2 * sizeof(rooms) / sizeof(rooms[0]); i++) {
		taddr_t room = rooms[i / 2] * MIB;
		taddr_t at = i % 2 ? gap->lo + room : minus(gap->hi, room + size);
		taddr_t value;

		if (at > end - size)
			at = end - size;
		if (at < first)
			at = first;
		value = score(gap, at, size);
		if (found && value <= *out_score)
			continue;
		found = true;
		*out = at;
		*out_score = value;
	}
	return found;
}

bool arena_place_near(const struct maps *m, const struct arena_limits *limits, taddr_t lo,
		      taddr_t hi, size_t size, taddr_t avoid_lo, taddr_t avoid_hi, taddr_t *out)
{
	taddr_t window_lo = (minus(hi, ARENA_REACH) + PAGE - 1) / PAGE * PAGE;
	taddr_t window_hi = (lo + ARENA_REACH) / PAGE * PAGE;
	taddr_t best = 0, at = 0, value = 0;
	bool found = false;
	struct used u;

	if (hi - lo > ARENA_REACH || !used_init(&u, m, limits, avoid_lo, avoid_hi))
		return false;
	/* Nothing goes above the highest mapping: that is where the address space ends. */
	for (size_t i = 0; i + 1 < u.count; i++) {
		struct interval gap = {u.at[i].hi, u.at[i + 1].lo};

		if (!best_in_gap(&gap, window_lo, window_hi, size, &at, &value))
			continue;
		if (found && value <= best)
			continue;
		found = true;
		best = value;
		*out = at;
	}
	free(u.at);
	return found;
}

bool arena_place_is_free(const struct maps *m, const struct arena_limits *limits, taddr_t end,
			 size_t size, size_t room)
{
	bool found = false;
	struct used u;

	if (end < size + room || end + room < end || !used_init(&u, m, limits, 0, 0))
		return false;
	/* Nothing goes above the highest mapping, as above. */
	for (size_t i = 0; i + 1 < u.count && !found; i++)
		found = u.at[i].hi <= end - size - room && end + room <= u.at[i + 1].lo;
	free(u.at);
	return found;
}

/* Bytes that programs can have which want addresses of 32 bits (mmap(2), MAP_32BIT). */
static taddr_t free_low(const struct used *u)
{
	taddr_t sum = 0;

	for (size_t i = 0; i + 1 < u->count && u->at[i].hi < LOW_TOP; i++) {
		const taddr_t lo = u->at[i].hi > LOW_SHARED ? u->at[i].hi : LOW_SHARED;

		sum += minus(least(u->at[i + 1].lo, LOW_TOP), lo);
	}
	return sum;
}

/*
 * What lies above may be a stack that grows as it is used (MAP_GROWSDOWN): the maps do not tell,
 * and the kernel keeps others from mapping close below it, but not us, who name the address.
 */
bool arena_place_low(const struct maps *m, const struct arena_limits *limits, size_t size,
		     taddr_t avoid_lo, taddr_t avoid_hi, taddr_t *out)
{
	bool found = false, enough;
	struct used u;

	if (!used_init(&u, m, limits, avoid_lo, avoid_hi))
		return false;
	enough = size <= free_low(&u) / ARENA_SHARE;
	for (size_t i = 0; enough && i + 1 < u.count && u.at[i].hi < LOW_TOP; i++) {
		const taddr_t end = least(minus(u.at[i + 1].lo, STACK_ROOM), LOW_TOP);

		if (minus(end, u.at[i].hi) < size)
			continue;
		found = true;
		*out = (end - size) / PAGE * PAGE;
	}
	free(u.at);
	return found;
}
