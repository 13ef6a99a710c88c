/* SPDX-License-Identifier: MIT */
/*
 * remote-registers.c MODE: one thread with known values in all registers, the
 * carry flag set and known bytes in the red zone waits for the end of its
 * input: in read, nanosleep, futex, poll, ppoll, epoll_wait, accept, sigtimedwait, or running, with all flags
 * known. Then all of it must be as it was, and so must what is said of its signals. "blocked": all are
 * blocked, and SIGTRAP is pending and handled once in the end; "masked": the same, running. "ignored": that one is
 * ignored. "aligned": running, and the processor checks alignment. "sequence": it runs inside a restartable sequence, counts
 * its aborts and notices one that was swallowed. "stackless": it runs with a stack pointer
 * below which, and above, nothing is mapped. "selector": it runs with a value in es that it may give
 * itself and a tracer may not. "compat": it sleeps for three seconds, in a call of 32-bit programs.
 *
 * Exit: 0 right, 1 something differs (the line says what), 2 not set up.
 */
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/rseq.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { RAX, RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, REGISTERS };

static const char *const names[REGISTERS] = {"rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8",
					     "r9",  "r10", "r11", "r12", "r13", "r14", "r15"};

uint64_t regs_in[REGISTERS] __attribute__((visibility("hidden"), used));
uint64_t regs_out[REGISTERS] __attribute__((visibility("hidden"), used));
uint64_t regs_carry __attribute__((visibility("hidden"), used));
uint64_t regs_red[3] __attribute__((visibility("hidden"), used));
uint64_t regs_stack __attribute__((visibility("hidden"), used));
/* Carry, zero, direction, overflow and identification are set, and sign, parity and adjust are not. */
uint64_t regs_flags __attribute__((visibility("hidden"), used)) = 0x200e43;
uint64_t regs_flags_out __attribute__((visibility("hidden"), used));
uint64_t regs_own_stack[8] __attribute__((visibility("hidden"), used));
uint64_t regs_aborts __attribute__((visibility("hidden"), used));
uint64_t regs_swallowed __attribute__((visibility("hidden"), used));

void regs_syscall(void);
void regs_spin(void);
void regs_sequence(void);
void regs_stackless(void);

#define EACH(op)                                                                              \
	op("rax", "0") op("rbx", "8") op("rcx", "16") op("rdx", "24") op("rsi", "32")         \
		op("rdi", "40") op("rbp", "48") op("r8", "56") op("r9", "64") op("r10", "72") \
			op("r11", "80") op("r12", "88") op("r13", "96") op("r14", "104")      \
				op("r15", "112")
#define LOAD(reg, offset)  "	movq regs_in+" offset "(%rip), %" reg "\n"
#define STORE(reg, offset) "	movq %" reg ", regs_out+" offset "(%rip)\n"

#define PROLOGUE                                                       \
	"	push %rbx\n	push %rbp\n	push %r12\n	push %r13\n	push %r14\n" \
	"	push %r15\n	mov %rsp, regs_stack(%rip)\n"                    \
	"	movq $0x1111, -8(%rsp)\n	movq $0x2222, -64(%rsp)\n"          \
	"	movq $0x3333, -128(%rsp)\n"
#define EPILOGUE                                                \
	EACH(STORE)                                             \
	"	setc regs_carry(%rip)\n"                              \
	"	mov -8(%rsp), %rax\n	mov %rax, regs_red(%rip)\n"      \
	"	mov -64(%rsp), %rax\n	mov %rax, regs_red+8(%rip)\n"   \
	"	mov -128(%rsp), %rax\n	mov %rax, regs_red+16(%rip)\n" \
	"	xor %rsp, regs_stack(%rip)\n"                         \
	"	pop %r15\n	pop %r14\n	pop %r13\n	pop %r12\n"          \
	"	pop %rbp\n	pop %rbx\n	ret\n"

__asm__(".text\n"
	"regs_syscall:\n" PROLOGUE EACH(LOAD) "	stc\n	syscall\n" EPILOGUE
					      "regs_spin:\n" PROLOGUE EACH(LOAD)
	/* The flags by way of another stack, since there is the red zone below this one. */
	"	lea regs_own_stack+64(%rip), %rsp\n	pushq regs_flags(%rip)\n	popfq\n"
	"	mov regs_stack(%rip), %rsp\n"
	/* r15 points to what ends the loop, which changes no flag. */
	"1:	mov (%r15), %ecx\n	jrcxz 1b\n"
	"	lea regs_own_stack+64(%rip), %rsp\n	pushfq\n	popq regs_flags_out(%rip)\n"
	"	pushq $0x202\n	popfq\n	mov regs_stack(%rip), %rsp\n"
	"	movq regs_in+16(%rip), %rcx\n	stc\n" EPILOGUE "regs_stackless:\n" PROLOGUE EACH(
		LOAD) "	mov $16, %esp\n"
		      "1:	mov (%r15), %eax\n	test %eax, %eax\n	jz 1b\n	cmp $16, %rsp\n"
		      "	jne 2f\n	mov regs_stack(%rip), %rsp\n"
		      "	movq regs_in(%rip), %rax\n	stc\n" EPILOGUE "2:	ud2\n"
		      /*
	 * rdx: where rseq_cs is. Nobody may find it cleared and the sequence
	 * still going on: that is an abort that was swallowed.
	 */
		      "regs_sequence:\n" PROLOGUE EACH(
			      LOAD) "2:	lea 9f(%rip), %rax\n	mov %rax, (%rdx)\n"
				    "3:	mov (%r15), %eax\n	test %eax, %eax\n	jnz 4f\n"
				    "	cmpq $0, (%rdx)\n	jne 3b\n	incq regs_swallowed(%rip)\n"
				    "4:	jmp 6f\n"
				    "	.byte 0x0f, 0xb9, 0x3d\n	.long 0x53053053\n"
				    "5:	incq regs_aborts(%rip)\n"
				    "	mov (%r15), %eax\n	test %eax, %eax\n	jz 2b\n"
				    "6:	movq $0, (%rdx)\n"
				    "	movq regs_in(%rip), %rax\n	stc\n" EPILOGUE
				    ".data\n.balign 32\n"
				    "9:	.long 0, 0\n	.quad 3b, 4b - 3b, 5b\n.text\n");

static volatile uint32_t *shared;
static long arguments[6];
static long expected; /* what the call is to return */

static void do_nothing(void)
{
}

/* Something that sets the flag when the input ends, and then does `more`. */
static void watch_input_and(void (*more)(void))
{
	char byte;

	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		exit(2);
	if (fork())
		return;
	while (read(STDIN_FILENO, &byte, 1) > 0)
		;
	*shared = 1;
	syscall(SYS_futex, shared, FUTEX_WAKE, 1, NULL, NULL, 0);
	more();
	_exit(0);
}

static void watch_input(void)
{
	watch_input_and(do_nothing);
}

static void on_read(void)
{
	static char byte;

	memcpy(arguments, (long[]){SYS_read, STDIN_FILENO, (long)&byte, 1}, 4 * sizeof(long));
}

static void on_nanosleep(void)
{
	static struct timespec time = {5, 0}; /* longer than all deaths take on a busy machine */

	memcpy(arguments, (long[]){SYS_nanosleep, (long)&time}, 2 * sizeof(long));
}

static void on_futex(void)
{
	watch_input();
	memcpy(arguments, (long[]){SYS_futex, (long)shared, FUTEX_WAIT, 0, 0}, 5 * sizeof(long));
}

static void on_poll(void)
{
	static struct pollfd input = {STDIN_FILENO, POLLIN, 0};

	memcpy(arguments, (long[]){SYS_poll, (long)&input, 1, 20000}, 4 * sizeof(long));
	expected = 1;
}

/* With a mask of its own, which is not the thread's. */
static void on_ppoll(void)
{
	static struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	static struct timespec time = {20, 0};
	static const uint64_t none;
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	memcpy(arguments,
	       (long[]){SYS_ppoll, (long)&input, 1, (long)&time, (long)&none, sizeof(none)},
	       6 * sizeof(long));
	expected = 1;
}

static struct sockaddr_un address;
static socklen_t address_size = sizeof(address);

static void connect_there(void)
{
	connect(socket(AF_UNIX, SOCK_STREAM, 0), (struct sockaddr *)&address, address_size);
}

static void on_accept(void)
{
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	address.sun_family = AF_UNIX;
	/* The kernel finds a name for it. */
	if (bind(fd, (struct sockaddr *)&address, sizeof(sa_family_t)) || listen(fd, 1) ||
	    getsockname(fd, (struct sockaddr *)&address, &address_size))
		exit(2);
	watch_input_and(connect_there);
	memcpy(arguments, (long[]){SYS_accept, fd, 0, 0}, 4 * sizeof(long));
	expected = fd + 1;
}

static pid_t waiting;

/* To nobody else, should that one have ended. */
static void send_signal(void)
{
	if (getppid() == waiting)
		kill(waiting, SIGUSR1);
}

static void on_sigtimedwait(void)
{
	static struct timespec time = {20, 0};
	static sigset_t set;

	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, NULL);
	waiting = getpid();
	watch_input_and(send_signal);
	memcpy(arguments,
	       (long[]){SYS_rt_sigtimedwait, (long)&set, 0, (long)&time, sizeof(uint64_t)},
	       5 * sizeof(long));
	expected = SIGUSR1;
}

static volatile sig_atomic_t handled;

static void on_trap(int signal)
{
	(void)signal;
	handled++;
}

/* All signals are blocked, and the one that tracers are told of most is pending. */
static void block_and_trap(void)
{
	sigset_t all;

	signal(SIGTRAP, on_trap);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	raise(SIGTRAP);
}

static void on_blocked(void)
{
	on_read();
	block_and_trap();
}

static void on_masked(void)
{
	watch_input();
	block_and_trap();
}

static void on_ignored(void)
{
	on_read();
	signal(SIGTRAP, SIG_IGN);
}

static void on_epoll(void)
{
	static struct epoll_event event = {.events = EPOLLIN};
	int fd = epoll_create1(0);

	if (epoll_ctl(fd, EPOLL_CTL_ADD, STDIN_FILENO, &event))
		exit(2);
	memcpy(arguments, (long[]){SYS_epoll_wait, fd, (long)&event, 1, -1}, 5 * sizeof(long));
	expected = 1;
}

static void on_sequence(void)
{
	watch_input();
	arguments[3] = (long)((char *)__builtin_thread_pointer() + __rseq_offset + 8);
}

enum { OWN_SELECTOR = 0x28 }; /* of user data, but for the privilege that it asks for */

enum { ALIGNMENT_CHECK = 1 << 18 };

static void on_aligned(void)
{
	watch_input();
	regs_flags |= ALIGNMENT_CHECK;
}

static unsigned selector(void)
{
	unsigned es;

	__asm__ volatile("mov %%es, %0" : "=r"(es));
	return es;
}

static void on_selector(void)
{
	watch_input();
	__asm__ volatile("mov %0, %%es" : : "r"(OWN_SELECTOR));
}

static const struct {
	const char *mode;
	void (*prepare)(void);
	void (*run)(void);
	bool is_call;
} modes[] = {
	{"read", on_read, regs_syscall, true},
	{"nanosleep", on_nanosleep, regs_syscall, true},
	{"futex", on_futex, regs_syscall, true},
	{"poll", on_poll, regs_syscall, true},
	{"ppoll", on_ppoll, regs_syscall, true},
	{"epoll", on_epoll, regs_syscall, true},
	{"accept", on_accept, regs_syscall, true},
	{"sigtimedwait", on_sigtimedwait, regs_syscall, true},
	{"blocked", on_blocked, regs_syscall, true},
	{"ignored", on_ignored, regs_syscall, true},
	{"running", watch_input, regs_spin, false},
	{"aligned", on_aligned, regs_spin, false},
	{"masked", on_masked, regs_spin, false},
	{"stackless", watch_input, regs_stackless, false},
	{"selector", on_selector, regs_spin, false},
	{"sequence", on_sequence, regs_sequence, false},
};

static int differ(const char *name, uint64_t is, uint64_t was)
{
	if (is == was)
		return 0;
	printf("%s is %llx and was %llx\n", name, (unsigned long long)is, (unsigned long long)was);
	return 1;
}

static const char *const signal_lines[] = {"SigPnd:", "ShdPnd:", "SigBlk:", "SigIgn:", "SigCgt:"};

enum { SIGNALS = sizeof(signal_lines) / sizeof(signal_lines[0]) };

static uint64_t signals_in[SIGNALS], signals_out[SIGNALS];

static void look_at_signals(uint64_t values[SIGNALS])
{
	FILE *status = fopen("/proc/thread-self/status", "re");
	char line[256];

	while (status && fgets(line, sizeof(line), status))
		for (int i = 0; i < SIGNALS; i++)
			if (!strncmp(line, signal_lines[i], strlen(signal_lines[i])))
				values[i] = strtoull(line + strlen(signal_lines[i]), NULL, 16);
	if (status)
		fclose(status);
}

/* What has been pending all the time is handled once, and only when it may be. */
static int check_handler(size_t mode)
{
	const bool pending = modes[mode].prepare == on_blocked || modes[mode].prepare == on_masked;
	int wrong = differ("handled too early", (uint64_t)handled, 0) |
		    differ("pending", signals_out[0] >> (SIGTRAP - 1) & 1, pending);
	sigset_t all;

	sigfillset(&all);
	sigprocmask(SIG_UNBLOCK, &all, NULL);
	return wrong | differ("handled", (uint64_t)handled, pending);
}

static int check(size_t mode)
{
	int wrong = 0;

	if (modes[mode].is_call)
		wrong |= differ("result", regs_out[RAX], (uint64_t)expected);
	else
		wrong |= differ("rax", regs_out[RAX], regs_in[RAX]);
	for (int i = RBX; i < REGISTERS; i++)
		if (!modes[mode].is_call || (i != RCX && i != R11))
			wrong |= differ(names[i], regs_out[i], regs_in[i]);
	wrong |= differ("carry", regs_carry & 1, 1);
	if (modes[mode].run == regs_spin)
		wrong |= differ("flags", regs_flags_out, regs_flags);
	wrong |= differ("red zone", regs_red[0], 0x1111);
	wrong |= differ("red zone + 56", regs_red[1], 0x2222);
	wrong |= differ("red zone + 120", regs_red[2], 0x3333);
	wrong |= differ("stack pointer", regs_stack, 0);
	wrong |= differ("swallowed aborts", regs_swallowed, 0);
	if (modes[mode].prepare == on_selector)
		wrong |= differ("es", selector(), OWN_SELECTOR);
	look_at_signals(signals_out);
	for (int i = 0; i < SIGNALS; i++)
		wrong |= differ(signal_lines[i], signals_out[i], signals_in[i]);
	return wrong | check_handler(mode);
}

/* nanosleep is number 162 (arch/x86/entry/syscalls/syscall_32.tbl), and what goes on with it number 0. */
static int sleep_compat(void)
{
	enum { NUMBER = 162, SECONDS = 3 };
	struct timespec *time = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
				     MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	struct timespec before, after;
	long result;

	if (time == MAP_FAILED)
		return 2;
	*(uint64_t *)time = SECONDS; /* two numbers of 32 bits */
	printf("ready\n");
	fflush(stdout);
	clock_gettime(CLOCK_MONOTONIC, &before);
	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(NUMBER), "b"(time), "c"(0)
			 : "memory", "r8", "r9", "r10", "r11");
	clock_gettime(CLOCK_MONOTONIC, &after);
	return differ("result", (uint64_t)result, 0) |
	       differ("too short", after.tv_sec - before.tv_sec < SECONDS - 1, 0);
}

int main(int argc, char **argv)
{
	static const int places[] = {RAX, RDI, RSI, RDX, R10, R8};
	size_t mode = 0, count = sizeof(modes) / sizeof(modes[0]);

	while (mode < count && strcmp(modes[mode].mode, argc > 1 ? argv[1] : ""))
		mode++;
	if (argc > 1 && !strcmp(argv[1], "compat"))
		return sleep_compat();
	if (mode == count)
		return 2;
	alarm(600);
	signal(SIGCHLD, SIG_IGN);
	for (int i = 0; i < REGISTERS; i++)
		regs_in[i] = 0x0123456789abcdefull * (uint64_t)(2 * i + 1);
	modes[mode].prepare();
	for (int i = 0; i < 6; i++)
		if (modes[mode].is_call || arguments[i])
			regs_in[places[i]] = (uint64_t)arguments[i];
	if (!modes[mode].is_call)
		regs_in[R15] = (uint64_t)(uintptr_t)shared;
	look_at_signals(signals_in);
	printf("ready\n");
	fflush(stdout);
	modes[mode].run();
	if (!strcmp(modes[mode].mode, "sequence"))
		printf("aborts %llu\n", (unsigned long long)regs_aborts);
	return check(mode);
}
