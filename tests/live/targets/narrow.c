/* SPDX-License-Identifier: MIT */
/*
 * narrow.c [two]: a program of 64 bits one thread of which jumps to code of 32 bits, and spins there
 * with known values in its registers until its input ends: the only one, or with another beside it.
 * Prints "ready" when it is in there.
 *
 * Exit: 0 right, 1 something differs (the line says what), 2 not set up.
 */
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* In the memory that code of 32 bits can reach. */
enum { SIZE = 65536, INSIDE_AT = 1024, END_AT = 1028, BACK_AT = 512, STACK_AT = SIZE - 1024 };
enum { CODE_32 = 0x23, CODE_64 = 0x33 }; /* arch/x86/include/asm/segment.h */
enum { RBX, RCX, RDX, RSI, RDI, RBP, R8, R9, R10, R11, R12, R13, R14, R15, REGISTERS };

struct far_pointer {
	uint32_t offset;
	uint16_t selector;
} __attribute__((packed));

uint64_t narrow_in[REGISTERS] __attribute__((visibility("hidden"), used));
uint64_t narrow_out[REGISTERS] __attribute__((visibility("hidden"), used));
uint64_t narrow_stack, narrow_stack_out __attribute__((visibility("hidden"), used));
uint64_t narrow_saved __attribute__((visibility("hidden"), used));
uint16_t narrow_selector __attribute__((visibility("hidden"), used));
struct far_pointer narrow_to __attribute__((visibility("hidden"), used));
extern char narrow_back[];
/* What code of 32 bits reads it reads by ds, which is 0 for others: __USER_DS while it runs. */
void narrow_go(void);

#define EACH(op)                                                                              \
	op("rbx", "0") op("rcx", "8") op("rdx", "16") op("rsi", "24") op("rdi", "32")         \
		op("rbp", "40") op("r8", "48") op("r9", "56") op("r10", "64") op("r11", "72") \
			op("r12", "80") op("r13", "88") op("r14", "96") op("r15", "104")
#define LOAD(reg, offset)  "	movq narrow_in+" offset "(%rip), %" reg "\n"
#define STORE(reg, offset) "	movq %" reg ", narrow_out+" offset "(%rip)\n"

__asm__(".text\n"
	"narrow_go:\n"
	"	push %rbx\n	push %rbp\n	push %r12\n	push %r13\n	push %r14\n	push %r15\n"
	"	mov %rsp, narrow_saved(%rip)\n	mov narrow_stack(%rip), %rsp\n" EACH(
		LOAD) "	mov $0x2b, %eax\n	mov %eax, %ds\n	ljmp *narrow_to(%rip)\n"
		      "narrow_back:\n" EACH(
			      STORE) "	mov %ds, narrow_selector(%rip)\n	xor %eax, %eax\n	mov %eax, %ds\n	mov %rsp, narrow_stack_out(%rip)\n	mov narrow_saved(%rip), %rsp\n"
				     "	pop %r15\n	pop %r14\n	pop %r13\n	pop %r12\n	pop %rbp\n	pop %rbx\n	ret\n");

static uint8_t *low;

static void put(uint8_t **to, const void *bytes, size_t size)
{
	memcpy(*to, bytes, size);
	*to += size;
}

static void put_address(uint8_t **to, unsigned at)
{
	const uint32_t address = (uint32_t)(uintptr_t)low + at;

	put(to, &address, sizeof(address));
}

static void write_code(void)
{
	static const uint8_t mark[] = {0xc7, 0x05}, one[] = {1, 0, 0, 0}, load[] = {0xa1},
			     again[] = {0x85, 0xc0, 0x74, 0xf7}, jump[] = {0xea},
			     selector[] = {CODE_64, 0}, back[] = {0xff, 0x25, 0, 0, 0, 0};
	const uint64_t address = (uintptr_t)narrow_back;
	uint8_t *to = low;

	/* movl $1,inside; 1: mov end,%eax; test %eax,%eax; jz 1b; ljmp back */
	put(&to, mark, sizeof(mark));
	put_address(&to, INSIDE_AT);
	put(&to, one, sizeof(one));
	put(&to, load, sizeof(load));
	put_address(&to, END_AT);
	put(&to, again, sizeof(again));
	put(&to, jump, sizeof(jump));
	put_address(&to, BACK_AT);
	put(&to, selector, sizeof(selector));
	/* back: jmp *(its address), of 64 bits again */
	to = low + BACK_AT;
	put(&to, back, sizeof(back));
	put(&to, &address, sizeof(address));
}

/* Says that the other one is in there, and ends it when our input ends. */
static void *watch(void *arg)
{
	volatile uint32_t *inside = (uint32_t *)(low + INSIDE_AT),
			  *end = (uint32_t *)(low + END_AT);
	char byte;

	while (!*inside)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) > 0)
		continue;
	*end = 1;
	return arg;
}

static int differ(int number, uint64_t is, uint64_t was)
{
	if (is == was)
		return 0;
	printf("register %d is %llx and was %llx\n", number, (unsigned long long)is,
	       (unsigned long long)was);
	return 1;
}

int main(int argc, char **argv)
{
	int wrong = 0;
	pthread_t t;

	(void)argv;
	alarm(600);
	signal(SIGCHLD, SIG_IGN);
	low = mmap(NULL, SIZE, PROT_READ | PROT_WRITE | PROT_EXEC,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
	if (low == MAP_FAILED)
		return 2;
	write_code();
	narrow_stack = (uintptr_t)low + STACK_AT;
	narrow_to = (struct far_pointer){(uint32_t)(uintptr_t)low, CODE_32};
	for (int i = 0; i < REGISTERS; i++)
		narrow_in[i] = 0x0123456789abcdefull * (uint64_t)(2 * i + 1);
	/* Of what it has names for, code of 32 bits has the lower half. */
	for (int i = RBX; i <= RBP; i++)
		narrow_in[i] &= UINT32_MAX;
	if (argc > 1) {
		if (pthread_create(&t, NULL, watch, NULL))
			return 2;
	} else if (!fork()) {
		alarm(600);
		watch(NULL);
		_exit(0);
	}
	narrow_go();
	for (int i = 0; i < REGISTERS; i++)
		wrong |= differ(i, narrow_out[i], narrow_in[i]);
	wrong |= differ(REGISTERS, narrow_selector, 0x2b);
	return wrong | differ(REGISTERS + 1, narrow_stack_out, narrow_stack);
}
