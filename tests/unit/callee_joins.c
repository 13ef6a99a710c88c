/* SPDX-License-Identifier: MIT */
/*
 * callee_joins.c - where ways meet in functions that become operations
 * (mutator/callee.h): registers and words of the frame that were set on some of
 * them only, and in parts. The judge is the processor, once with all that the
 * function is not given 0, and once with all of it ones: what is the same in both
 * results does not come of it, and must be what the operations give, to the bit.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdlib.h>
#include <sys/mman.h>

#include "tests/unit/callee_functions.h"
#include "tests/unit/callee_program.h"

enum { CODE = 4096, GRAPHS = 30000, BLOCKS = 7, ROUNDS = 8, GIVEN = 2 };

static int lift(const uint8_t *code, size_t size, struct dinst_error *e)
{
	const struct lift_argument list[GIVEN] = {{.value = 1}, {.value = 2}};
	struct lift l = {.arg = &made, .op = new_op, .value = new_value};
	const struct callee_request q = {.code = code,
					 .size = size,
					 .start = (uintptr_t)code,
					 .entry = (uintptr_t)code,
					 .arguments = list,
					 .argument_count = GIVEN,
					 .lift = &l,
					 .label = new_label,
					 .result = 7};

	made.count = made.labels = 0;
	made.values = 7;
	return callee_lift(&q, e);
}

/* `garbage` is in all registers but the arguments', and below the stack pointer. */
__attribute__((noinline)) static uint64_t call(const uint8_t *function, uint64_t rdi, uint64_t rsi,
					       uint64_t garbage)
{
	uint64_t result = garbage;

	__asm__ volatile("mov %[f], %%r12\n\tmov %%rsp, %%rbx\n\t"
			 "and $-16, %%rsp\n\tsub $256, %%rsp\n\t"
			 ".rept 32\n\tpush %%rax\n\t.endr\n\tadd $256, %%rsp\n\t"
			 "mov %%rax, %%rcx\n\tmov %%rax, %%rdx\n\tmov %%rax, %%r8\n\t"
			 "mov %%rax, %%r9\n\tmov %%rax, %%r10\n\tmov %%rax, %%r11\n\t"
			 "call *%%r12\n\tmov %%rbx, %%rsp"
			 : "+a"(result), "+D"(rdi), "+S"(rsi)
			 : [f] "r"(function)
			 : "rbx", "r12", "rcx", "rdx", "r8", "r9", "r10", "r11", "memory", "cc");
	return result;
}

enum { VALUES = 2000, LABELS = 64 };

/* What ways that lead to a label have set, a byte each. */
static uint8_t set_at[LABELS + 1][VALUES + 1];

static void lead(const uint8_t *set, unsigned label)
{
	for (unsigned i = 0; i <= VALUES; i++)
		set_at[label][i] &= set[i];
}

/* No value is looked at that has not been set on all ways. */
static void check_values(void)
{
	static uint8_t set[VALUES + 1];

	assert_true(made.count < OPS && made.values <= VALUES && made.labels <= LABELS);
	memset(set_at, 1, sizeof(set_at));
	memset(set, 0, sizeof(set));
	memset(set, 1, 1 + GIVEN);
	for (unsigned i = 0; i < made.count; i++) {
		const struct arch_op *op = &made.ops[i];

		assert_true(set[op->a] && set[op->b]);
		set[op->result] = 1;
		if (op->kind == ARCH_OP_LABEL) {
			lead(set, op->label);
			memcpy(set, set_at[op->label], sizeof(set));
		} else if (op->kind == ARCH_OP_JUMP || op->kind == ARCH_OP_IF) {
			lead(set, op->label);
		}
		/* Nothing goes on behind it. */
		if (op->kind == ARCH_OP_JUMP)
			memset(set, 1, sizeof(set));
	}
	assert_true(set[7]);
}

/* Returns how many bits of all results were not garbage. */
static unsigned compare(const char *name, const uint8_t *code)
{
	unsigned bits = 0;

	check_values();
	for (unsigned i = 0; i < 16 * ROUNDS; i++) {
		/* What is tested are their low bits: each way is gone. */
		const uint64_t a[6] = {(random64() & ~15ull) | (i & 15), random64() >> i % 64};
		const uint64_t want = call(code, a[0], a[1], 0);
		const uint64_t sure = ~(want ^ call(code, a[0], a[1], UINT64_MAX));
		const uint64_t got = interpret(a);

		bits += (unsigned)__builtin_popcountll(sure);
		if (!((got ^ want) & sure))
			continue;
		show();
		fail_msg("%s(%llx, %llx) is %llx, not %llx (%llx)", name, (unsigned long long)a[0],
			 (unsigned long long)a[1], (unsigned long long)got,
			 (unsigned long long)want, (unsigned long long)sure);
	}
	return bits;
}

/* ------------------------------------------------------------------ by hand */

#define JOINED(name, ...)                   \
	LIFTED(joined_##name, __VA_ARGS__); \
	extern const uint8_t lifted_joined_##name[]
#define UNKNOWN(name, ...)                             \
	FUNCTION(unknown_##name, __VA_ARGS__ "\nret"); \
	extern const uint8_t unknown_##name[]
#define BIG	       "movabs $0x1122334455667788,"
#define SKIP(bit, ...) "test $" #bit ",%dil\njne 5f\n" __VA_ARGS__ "\n5:\n"

/* Set on one way only, and changed in part behind it. */
JOINED(set_byte, SKIP(1, BIG "%rax") "cmp $9,%sil\nsete %al");
JOINED(above, "cmp $0x3a,%sil\nja 1f\n" BIG "%rax\n1: cmp $9,%sil\nsete %al");
JOINED(high_byte, SKIP(1, BIG "%rax") "mov $0x99,%ah");
JOINED(bytes, SKIP(1, BIG "%rax") "mov $0x99,%ah\nmov %sil,%al");
JOINED(half_word, SKIP(1, BIG "%rax") "mov %si,%ax");
JOINED(word, SKIP(1, BIG "%rax") "mov %esi,%eax");
JOINED(other_way, "test $1,%dil\njne 1f\nmov $1,%al\njmp 2f\n1: " BIG "%rax\n2: mov $7,%al");
JOINED(before, "mov $0x4444,%ax\n" SKIP(1, BIG "%rax") "mov $1,%al");
JOINED(both, "test $1,%dil\njne 1f\n" BIG "%rax\njmp 2f\n1: mov %rsi,%rax\n2: mov $1,%al");
JOINED(correlated, SKIP(1, BIG "%rax") "mov $1,%al\ntest $1,%dil\nje 1f\nmov %rsi,%rax\n1:");
JOINED(zeroed, SKIP(1, "xor %eax,%eax") "cmp $9,%sil\nsete %al");
JOINED(nested, SKIP(1, BIG "%rax\ntest $2,%dil\njne 1f\nmov %rsi,%rax\n1: mov $3,%al")
		       SKIP(4, "mov $0x77,%ah") "cmp $9,%sil\nsetb %al");
JOINED(twice, SKIP(1, BIG "%rax") SKIP(2, "mov %rsi,%rax") "mov $1,%al");
JOINED(moved, BIG "%rcx\nmov %rcx,%rax\n" SKIP(1, "mov %rsi,%rax") "mov $1,%al");
JOINED(another, "mov $5,%cl\n" SKIP(1, BIG "%rcx") "mov $6,%ch\nmov $7,%cl\nmov %rcx,%rax");
JOINED(given, "mov %rdi,%rcx\n" SKIP(1, BIG "%rcx") "mov $6,%cl\nmov %rcx,%rax");
JOINED(if_then, SKIP(1, BIG "%rax\ncmp $9,%sil\ncmove %rsi,%rax") "mov $1,%al");
JOINED(frame,
       "movb $5,-8(%rsp)\n" SKIP(1, "mov %rsi,-8(%rsp)") "movw $7,-8(%rsp)\nmov -8(%rsp),%rax");
JOINED(pushed, SKIP(1, BIG "%rax") "push %rax\npop %rcx\nmov $1,%cl\npush %rcx\npop %rax");

/* What was in there on one way is not known any more. */
UNKNOWN(register, SKIP(1, BIG "%rcx") "mov $1,%cl\nmov %rcx,%rax");
UNKNOWN(frame, SKIP(1, "mov %rsi,-8(%rsp)") "movb $1,-8(%rsp)\nmov -8(%rsp),%rax");
UNKNOWN(stack, "lea -8(%rsp),%rax\nmov $1,%al");
UNKNOWN(stacks, SKIP(1, "lea -8(%rsp),%rax") "mov $1,%al");
UNKNOWN(whole, SKIP(1, BIG "%rax") "");
UNKNOWN(used, SKIP(1, BIG "%rax") "mov $1,%al\nadd %rsi,%rax");
UNKNOWN(moved, SKIP(1, BIG "%rcx") "mov %rcx,%rax\nmov $1,%al");

struct shape {
	const char *name;
	const uint8_t *code;
};

#define SHAPE(n)                                      \
	(struct shape)                                \
	{                                             \
		.name = #n, .code = lifted_joined_##n \
	}
#define LIE(n)                                  \
	(struct shape)                          \
	{                                       \
		.name = #n, .code = unknown_##n \
	}

static const struct shape shapes[] = {
	SHAPE(set_byte), SHAPE(above),	   SHAPE(high_byte), SHAPE(bytes), SHAPE(half_word),
	SHAPE(word),	 SHAPE(other_way), SHAPE(before),    SHAPE(both),  SHAPE(correlated),
	SHAPE(zeroed),	 SHAPE(nested),	   SHAPE(twice),     SHAPE(moved), SHAPE(another),
	SHAPE(given),	 SHAPE(if_then),   SHAPE(frame),     SHAPE(pushed)};

static const struct shape lies[] = {LIE(register), LIE(frame), LIE(stack), LIE(stacks),
				    LIE(whole),	   LIE(used),  LIE(moved)};

/* They end behind the last return that control reaches: what follows them is not looked at. */
enum { SHAPE_BYTES = 128 };

static void test_shapes(void **state)
{
	struct dinst_error e = {0};

	(void)state;
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
		if (lift(shapes[i].code, SHAPE_BYTES, &e))
			fail_msg("%s: %s", shapes[i].name, e.text);
		assert_true(compare(shapes[i].name, shapes[i].code) > 0);
	}
}

static void test_unknown(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(lies) / sizeof(lies[0]); i++) {
		struct dinst_error e = {0};

		if (!lift(lies[i].code, SHAPE_BYTES, &e))
			fail_msg("%s is not refused", lies[i].name);
		assert_int_equal(e.code, DINST_REFUSED);
		dinst_error_clear(&e);
	}
}

/* ------------------------------------------------------------------- random */

static struct code {
	uint8_t bytes[CODE];
	size_t used;
} * code;

static void put(uint64_t bytes, unsigned size)
{
	memcpy(code->bytes + code->used, &bytes, size);
	code->used += size;
}

static unsigned below(unsigned n)
{
	return (unsigned)(random64() >> 32) % n;
}

/* Never rdi and rsi: what is tested stays, so that later ways depend on earlier ones. */
static unsigned random_register(void)
{
	static const uint8_t registers[] = {0, 0, 0, 1, 1, 2, 8};

	return registers[below(sizeof(registers))];
}

/* An instruction with a modrm byte, of 1, 2, 4 or 8 bytes: `opcode` is that of more than one. */
static void put_modrm(unsigned size, unsigned map, unsigned opcode, unsigned reg, unsigned rm)
{
	if (size == 2)
		put(0x66, 1);
	put(0x40 | (size == 8) << 3 | reg >> 3 << 2 | rm >> 3, 1);
	if (map)
		put(0x0f, 1);
	put(opcode, 1);
	put(0xc0 | (reg & 7) << 3 | (rm & 7), 1);
}

/* Between a register and one of three words of the frame. */
static void put_frame(unsigned size, bool load)
{
	const unsigned reg = random_register(), word = 1 + below(3),
		       at = size < 8 ? below(8 / size) : 0;

	if (size == 2)
		put(0x66, 1);
	put(0x40 | (size == 8) << 3 | reg >> 3 << 2, 1);
	put((load ? 0x8a : 0x88) | (size > 1), 1);
	put(0x44 | (reg & 7) << 3, 1);
	put(0x24, 1);
	put((uint8_t)(size * at - 8 * word), 1);
}

static void put_number(unsigned size)
{
	const unsigned reg = random_register();

	if (size == 1 && reg < 4 && below(2)) { /* ah, ch, dh */
		put(0xb4 + reg, 1);
	} else {
		if (size == 2)
			put(0x66, 1);
		put(0x40 | (size == 8) << 3 | reg >> 3, 1);
		put((size == 1 ? 0xb0 : 0xb8) + (reg & 7), 1);
	}
	put(random64(), size);
}

static void put_compare(void)
{
	const unsigned size = 1u << below(4);

	put_modrm(size, 0, size == 1 ? 0x80 : 0x83, 7, 6 + below(2));
	put(random64(), 1);
}

static void put_instruction(void)
{
	/* Without overflow and parity. */
	static const uint8_t conditions[] = {2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 15};
	const unsigned size = 1u << below(4), condition = conditions[below(sizeof(conditions))];
	const unsigned to = random_register();
	/* Arguments as well. */
	const unsigned from = below(3) ? random_register() : 6 + below(2);

	switch (below(12)) {
	case 0 ... 2:
		put_number(size);
		break;
	case 3 ... 4:
		put_modrm(size, 0, size == 1 ? 0x88 : 0x89, from, to);
		break;
	case 5:
		put_compare();
		put_modrm(1, 1, 0x90 | condition, 0, to);
		break;
	case 6:
		put_compare();
		put_modrm(size == 1 ? 8 : size, 1, 0x40 | condition, to, from);
		break;
	case 7 ... 8:
		put_frame(size, below(2));
		break;
	case 9:
		put_modrm(4, 0, 0x31, to, to);
		break;
	case 10: /* add, or, and, sub, xor */
		put_modrm(size, 0, "\x00\x08\x20\x28\x30"[below(5)] | (size > 1), from, to);
		break;
	default: /* movzx, movsx; sometimes an address of the frame */
		if (below(8))
			put_modrm(size == 1 ? 4 : size, 1, 0xb6 | below(2) << 3, to, from);
		else
			put(0xf824448d48, 5); /* lea -8(%rsp), %rax */
		break;
	}
}

/* Some registers have a value on all ways, others have not. */
static void put_head(void)
{
	for (unsigned reg = 0; reg < 3; reg++)
		if (below(3))
			put_modrm(8, 0, 0x89, 6 + below(2), reg);
	for (unsigned n = below(3); n > 0; n--)
		put_frame(8, false);
}

/* Mostly of a register that has been set in part. */
static void put_return(void)
{
	if (below(4)) {
		put(0xb0, 1); /* mov $x, %al */
		put(random64(), 1);
	}
	put(0xc3, 1);
}

/* Blocks that lead to later ones: the last one returns. */
static void put_graph(void)
{
	size_t start[BLOCKS], jump[BLOCKS];
	unsigned to[BLOCKS];

	code->used = 0;
	put_head();
	for (unsigned b = 0; b < BLOCKS; b++) {
		const unsigned how = b == BLOCKS - 1 ? 7 : below(8);

		start[b] = code->used;
		for (unsigned n = below(4); n > 0; n--)
			put_instruction();
		to[b] = 0;
		if (how < 5) { /* test $bit, %dil; je or jne */
			put_modrm(1, 0, 0xf6, 0, 7);
			put(1u << below(4), 1);
			put(0x840f + (below(2) << 8), 2);
		} else if (how == 5) {
			put(0xe9, 1);
		} else if (how == 7 && (b == BLOCKS - 1 || !below(3))) {
			put_return();
		}
		jump[b] = code->used;
		if (how > 5)
			continue;
		to[b] = b + 1 + below(BLOCKS - 1 - b);
		put(0, 4);
	}
	for (unsigned b = 0; b < BLOCKS; b++) {
		const int32_t distance = (int32_t)(start[to[b]] - (jump[b] + 4));

		if (to[b])
			memcpy(code->bytes + jump[b], &distance, sizeof(distance));
	}
}

static void test_random(void **state)
{
	unsigned lifted = 0;
	uint64_t bits = 0;

	(void)state;
	code = mmap(NULL, sizeof(*code), PROT_READ | PROT_WRITE | PROT_EXEC,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(code != MAP_FAILED);
	for (unsigned n = 0; n < GRAPHS; n++) {
		struct dinst_error e = {0};

		put_graph();
		if (lift(code->bytes, code->used, &e) == 0) {
			lifted++;
			bits += compare("random graph", code->bytes);
		} else {
			assert_int_equal(e.code, DINST_REFUSED);
		}
		dinst_error_clear(&e);
	}
	print_message("%u of %u graphs are computed, %u bits of a result are sure\n", lifted,
		      GRAPHS, lifted ? (unsigned)(bits / lifted / (16 * ROUNDS)) : 0);
	munmap(code, sizeof(*code));
	assert_true(lifted > GRAPHS / 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shapes),
		cmocka_unit_test(test_unknown),
		cmocka_unit_test(test_random),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
