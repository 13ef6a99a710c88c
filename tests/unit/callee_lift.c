/* SPDX-License-Identifier: MIT */
/*
 * callee_lift.c - functions that become operations (mutator/callee.h). The judge
 * is the processor: every function of every library that this test is linked
 * with which is accepted, and small ones by hand for each instruction, gives the
 * same when it is called as when its operations are interpreted. And what is
 * refused, one function for each reason.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mutator/callee.h"
#include "mutator/image.h"
#include "tests/unit/callee_functions.h"
#include "tests/unit/callee_program.h"

enum { BUFFER = 512, ROUNDS = 48 };

/* ----------------------------------------------------------------- programs */

static bool is_mapped(void *arg, taddr_t address, uint64_t size)
{
	struct made *m = arg;
	const vaddr_t end = image_readable_end(m->image, address - m->bias);

	return m->known_memory && end && size <= end - (address - m->bias);
}

/* Values 1 to 6 are the arguments, 7 is the result. */
static int lift(uint32_t function, unsigned arguments, unsigned variables, struct dinst_error *e)
{
	struct lift_argument list[6];
	struct lift l = {.arg = &made, .op = new_op, .value = new_value, .is_mapped = is_mapped};
	const struct image_function *functions, *f;
	size_t size = 0;
	struct callee_request q = {.arguments = list,
				   .argument_count = arguments,
				   .lift = &l,
				   .label = new_label,
				   .result = 7};

	image_functions(made.image, &functions);
	f = &functions[function];
	q.code = image_code(made.image, f->address, &size);
	q.size = f->size < size ? f->size : size;
	q.start = q.entry = f->address + made.bias;
	for (unsigned i = 0; i < 6; i++)
		list[i] = (struct lift_argument){.value = (uint16_t)(i + 1),
						 .variable = variables >> i & 1};
	made.count = made.labels = 0;
	made.values = 7;
	return callee_lift(&q, e);
}

/* Control goes forward only, and nothing is stored but into what was passed. */
static void check_shape(unsigned variables)
{
	static bool placed[UINT16_MAX];

	memset(placed, 0, made.labels + 1);
	assert_true(made.count < OPS);
	for (unsigned i = 0; i < made.count; i++) {
		const struct arch_op *op = &made.ops[i];

		if (op->kind == ARCH_OP_LABEL) {
			assert_false(placed[op->label]);
			placed[op->label] = true;
		} else if (op->kind == ARCH_OP_JUMP || op->kind == ARCH_OP_IF) {
			assert_true(op->label && !placed[op->label]);
		} else if (op->kind == ARCH_OP_LOAD) {
			/* The program's own memory may be gone, whatever the file says. */
			assert_true(variables);
		} else if (op->kind == ARCH_OP_STORE) {
			assert_true(variables);
		} else {
			assert_true(op->kind == ARCH_OP_READ ||
				    (op->kind >= ARCH_OP_CONST && op->kind <= ARCH_OP_TEST));
		}
	}
	for (unsigned i = 1; i <= made.labels; i++)
		assert_true(placed[i]);
}

/* The program may have the processor check it: of a variable only what lies at a multiple of its size. */
static void check_alignment(void)
{
	for (unsigned i = 0; i < made.count; i++) {
		const struct arch_op *op = &made.ops[i];

		if (op->kind == ARCH_OP_LOAD || op->kind == ARCH_OP_STORE)
			assert_int_equal(op->number % op->size, 0);
	}
}

/* ------------------------------------------------------------ the processor */

static sigjmp_buf faulted;

static void on_fault(int number)
{
	(void)number;
	siglongjmp(faulted, 1);
}

/* With rax 0, so that what a function does not set of it is 0 on both sides. */
__attribute__((noinline)) static uint64_t call(taddr_t function, const uint64_t *a)
{
	uint64_t result = 0;

	__asm__ volatile("mov %[a], %%r11\n\t"
			 "mov 0(%%r11), %%rdi\n\tmov 8(%%r11), %%rsi\n\tmov 16(%%r11), %%rdx\n\t"
			 "mov 24(%%r11), %%rcx\n\tmov 32(%%r11), %%r8\n\tmov 40(%%r11), %%r9\n\t"
			 "mov %%rsp, %%rbx\n\tand $-16, %%rsp\n\tsub $256, %%rsp\n\t"
			 "call *%[f]\n\tmov %%rbx, %%rsp"
			 : "+a"(result)
			 : [a] "r"(a), [f] "r"(function)
			 : "rbx", "rdi", "rsi", "rdx", "rcx", "r8", "r9", "r10", "r11", "memory",
			   "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5");
	return result;
}

static void take_faults(void)
{
	const struct sigaction on = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};

	/* In each test: cmocka has handlers of its own. */
	assert_int_equal(sigaction(SIGSEGV, &on, NULL) | sigaction(SIGBUS, &on, NULL), 0);
}

/* False if it read what is not there. */
static bool try_call(taddr_t function, const uint64_t *a, uint64_t *result)
{
	if (sigsetjmp(faulted, 1))
		return false;
	*result = call(function, a);
	return true;
}

static uint8_t buffer[BUFFER];

static uint64_t random_argument(void)
{
	static const uint64_t corners[] = {0,	       1,	   255,	      256,	  -1ull,
					   INT32_MAX,  UINT32_MAX, INT64_MAX, 1ull << 63, 0x80,
					   0x80000000, -128ull,	   '0',	      'Z',	  ' '};

	switch (random64() % 6) {
	case 0:
		return corners[random64() % (sizeof(corners) / sizeof(corners[0]))];
	case 1:
		return random64() % 300;
	case 2:
		return random64() >> random64() % 64;
	case 3:
		return (uint64_t) - (int64_t)(random64() % 300);
	default:
		return (uintptr_t)buffer + random64() % (BUFFER / 2) / 8 * 8;
	}
}

/* Returns how often both were compared. */
static unsigned compare(const char *name, taddr_t function, unsigned rounds)
{
	unsigned compared = 0;

	for (unsigned i = 0; i < rounds; i++) {
		uint64_t a[6], got, want;

		for (unsigned n = 0; n < 6; n++)
			a[n] = random_argument();
		for (unsigned n = 0; n < BUFFER; n++)
			buffer[n] = (uint8_t)(random64() % 5 ? random64() : 0);
		if (!try_call(function, a, &want))
			continue;
		got = interpret(a);
		compared++;
		if (got == want)
			continue;
		show();
		fail_msg("%s(%llx, %llx, %llx, %llx, %llx, %llx) is %llx, not %llx", name,
			 (unsigned long long)a[0], (unsigned long long)a[1],
			 (unsigned long long)a[2], (unsigned long long)a[3],
			 (unsigned long long)a[4], (unsigned long long)a[5],
			 (unsigned long long)got, (unsigned long long)want);
	}
	return compared;
}

/* ------------------------------------------------------------------- images */

struct totals {
	unsigned functions, lifted, compared;
};

static bool open_image(const char *path)
{
	const int fd = open(path, O_RDONLY | O_CLOEXEC);

	made.image = NULL;
	if (fd >= 0)
		image_open(fd, path, NULL, &made.image, NULL);
	if (fd >= 0)
		close(fd);
	return made.image != NULL;
}

static void check_image(struct totals *t)
{
	const struct image_function *functions;
	const size_t count = image_functions(made.image, &functions);

	for (size_t i = 0; i < count; i++) {
		const unsigned skip =
			FUNCTION_COLD | FUNCTION_STUB | FUNCTION_NO_SYMBOL | FUNCTION_IFUNC;
		struct dinst_error e = {0};

		if (functions[i].flags & skip)
			continue;
		t->functions++;
		made.known_memory = i & 1;
		if (lift((uint32_t)i, 6, 0, &e) == 0) {
			check_shape(0);
			t->lifted++;
			t->compared += compare(functions[i].name, functions[i].address + made.bias,
					       ROUNDS);
		}
		dinst_error_clear(&e);
	}
	image_close(made.image);
}

static int each_object(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	made.bias = info->dlpi_addr;
	if (*info->dlpi_name == '/' && open_image(info->dlpi_name))
		check_image(arg);
	return 0;
}

static void test_libraries(void **state)
{
	struct totals t = {0};

	(void)state;
	take_faults();
	dl_iterate_phdr(each_object, &t);
	print_message("%u of %u functions are computed, %u calls compared\n", t.lifted, t.functions,
		      t.compared);
	assert_true(t.lifted >= 100);
	assert_true(t.compared >= 20 * t.lifted);
}

/* ------------------------------------------------------------------ by hand */

static taddr_t own_bias;

static int find_own_bias(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	own_bias = info->dlpi_addr;
	return 1;
}

static int setup(void **state)
{
	(void)state;
	return dl_iterate_phdr(find_own_bias, NULL) != 1;
}

static uint32_t own_function(const char *name)
{
	uint32_t *found, index;
	size_t count;

	assert_int_equal(image_match(made.image, name, &found, &count, NULL), 0);
	if (count != 1)
		fail_msg("%zu functions are named %s", count, name);
	index = found[0];
	free(found);
	return index;
}

static void open_self(void)
{
	made.bias = own_bias;
	assert_true(open_image("/proc/self/exe"));
}

static void test_forms(void **state)
{
	struct dinst_error e = {0};

	(void)state;
	take_faults();
	open_self();
	for (size_t i = 0; i < sizeof(lifted_names) / sizeof(lifted_names[0]); i++) {
		const uint32_t f = own_function(lifted_names[i]);
		const struct image_function *functions;

		image_functions(made.image, &functions);
		for (unsigned known = 0; known < 2; known++) {
			made.known_memory = known;
			if (lift(f, 6, 0, &e))
				fail_msg("%s: %s", lifted_names[i], e.text);
			check_shape(0);
			assert_true(compare(lifted_names[i], functions[f].address + own_bias,
					    20 * ROUNDS) > 0);
		}
	}
	image_close(made.image);
}

static void test_refused(void **state)
{
	(void)state;
	open_self();
	for (size_t i = 0; i < sizeof(refused_names) / sizeof(refused_names[0]); i++) {
		struct dinst_error e = {0};

		if (!lift(own_function(refused_names[i].name), 2, 0, &e))
			fail_msg("%s is not refused", refused_names[i].name);
		assert_int_equal(e.code, DINST_REFUSED);
		if (!strstr(e.text, refused_names[i].why))
			fail_msg("%s: %s", refused_names[i].name, e.text);
		dinst_error_clear(&e);
	}
	image_close(made.image);
}

/* A variable by its address: read and written, eight bytes and none beside them. */
static void test_variables(void **state)
{
	static const struct {
		const char *name, *why;
	} refused[] = {
		{"beyond_above", "not its own"},   {"beyond_below", "not its own"},
		{"beyond_unknown", "not its own"}, {"odd_half", "not at a multiple"},
		{"odd_word", "not at a multiple"},
	};
	uint64_t words[3] = {111, 0, 333}, expected[3] = {111, 0, 333};
	struct dinst_error e = {0};

	(void)state;
	open_self();
	for (size_t i = 0; i < sizeof(variable_names) / sizeof(variable_names[0]); i++) {
		const uint32_t f = own_function(variable_names[i]);
		const struct image_function *functions;

		image_functions(made.image, &functions);
		if (lift(f, 2, 1, &e))
			fail_msg("%s: %s", variable_names[i], e.text);
		check_shape(1);
		check_alignment();
		for (unsigned n = 0; n < ROUNDS; n++) {
			uint64_t a[6] = {(uintptr_t)&words[1], random_argument()}, got;
			uint64_t b[6] = {(uintptr_t)&expected[1], a[1]};

			words[1] = expected[1] = random64();
			got = interpret(a);
			assert_int_equal(got, call(functions[f].address + own_bias, b));
			assert_memory_equal(words, expected, sizeof(words));
		}
		/* The same is refused where it is not a variable's address. */
		assert_int_equal(lift(f, 2, 0, &e), DINST_REFUSED);
		assert_non_null(strstr(e.text, "not its own"));
		dinst_error_clear(&e);
	}
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		assert_int_equal(lift(own_function(refused[i].name), 2, 1, &e), DINST_REFUSED);
		if (!strstr(e.text, refused[i].why))
			fail_msg("%s: %s", refused[i].name, e.text);
		dinst_error_clear(&e);
	}
	image_close(made.image);
}

/* ------------------------------------------------------------------- random */

/* Every instruction of a piece of straight code; at a return its result. */
static void lift_all(struct lift *l, struct lift_state *s, const uint8_t *code, size_t size)
{
	struct arch_insn insn;

	for (size_t at = 0; at < size; at += insn.length) {
		assert_int_equal(arch_decode(code + at, size - at, (uintptr_t)code + at, &insn),
				 ARCH_OK);
		if (insn.flow == ARCH_FLOW_RETURN)
			assert_int_equal(arch_lift_return(l, s, &insn, 7), ARCH_OK);
		else
			assert_int_equal(arch_lift(l, s, &insn), ARCH_OK);
	}
}

enum { SEQUENCES = 20000, SEQUENCE = 10, CODE = 4096 };

/* The stack pointer is where it was, and nothing has been made of it. */
static bool all_numbers(const struct lift_state *s, const struct lift_state *before)
{
	const unsigned stack = 4;

	for (unsigned i = 0; i < 16; i++)
		if (i != stack &&
		    (s->registers[i].kind != LIFT_NUMBER || s->registers[i].bytes != 0xff))
			return false;
	return !memcmp(&s->registers[stack], &before->registers[stack], sizeof(*s->registers));
}

/* Instructions of random bytes, those that are lifted: one behind the other in `code`. */
static size_t random_code(uint8_t *code, struct lift *l, struct lift_state *s, unsigned *lifted)
{
	size_t used = 0;

	for (unsigned i = 0; i < 40 * SEQUENCE && *lifted < SEQUENCE; i++) {
		uint8_t bytes[ARCH_INSN_MAX];
		const struct lift_state before = *s;
		const unsigned ops = made.count;
		struct arch_insn insn;

		for (unsigned n = 0; n < sizeof(bytes); n++)
			bytes[n] = (uint8_t)random64();
		/* Prefixes and the second map more often than by chance. */
		if (random64() & 1)
			bytes[0] = (uint8_t)(0x40 | (bytes[0] & 15));
		if (!(random64() & 7))
			bytes[0] = 0x66;
		if (!(random64() & 3))
			bytes[1] = 0x0f;
		if (arch_decode(bytes, sizeof(bytes), (uintptr_t)code + used, &insn) != ARCH_OK ||
		    (insn.flags & (ARCH_INSN_MEMORY | ARCH_INSN_PC_RELATIVE)))
			continue;
		if (arch_lift(l, s, &insn) != ARCH_OK || !all_numbers(s, &before)) {
			*s = before;
			made.count = ops;
			continue;
		}
		memcpy(code + used, bytes, insn.length);
		used += insn.length;
		(*lifted)++;
	}
	return used;
}

/* Any encoding of anything that is no access to memory: what is lifted is what is executed. */
static void test_random(void **state)
{
	const size_t head = (size_t)(random_head_end - random_head),
		     tail = (size_t)(random_tail_end - random_tail);
	uint8_t *code = mmap(NULL, CODE, PROT_READ | PROT_WRITE | PROT_EXEC,
			     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct lift_argument list[6];
	unsigned long total = 0;

	(void)state;
	assert_true(code != MAP_FAILED);
	for (unsigned i = 0; i < 6; i++)
		list[i] = (struct lift_argument){.value = (uint16_t)(i + 1)};
	for (unsigned n = 0; n < SEQUENCES; n++) {
		struct lift l = {.arg = &made, .op = new_op, .value = new_value};
		struct lift_state s;
		unsigned lifted = 0;
		size_t used = head;

		made.count = made.labels = 0;
		made.values = 7;
		assert_int_equal(arch_lift_begin(&l, &s, list, 6), ARCH_OK);
		memcpy(code, random_head, head);
		lift_all(&l, &s, code, head);
		used += random_code(code + used, &l, &s, &lifted);
		memcpy(code + used, random_tail, tail);
		lift_all(&l, &s, code + used, tail);
		total += lifted;
		compare("random code", (uintptr_t)code, 3);
	}
	print_message("%lu instructions of random bytes\n", total);
	assert_true(total > SEQUENCES);
	munmap(code, CODE);
}

/* What was not given is not made up. */
static void test_too_few(void **state)
{
	struct dinst_error e = {0};

	(void)state;
	open_self();
	assert_int_equal(lift(own_function("lifted_add"), 1, 0, &e), DINST_REFUSED);
	assert_non_null(strstr(e.text, "argument that is not given"));
	dinst_error_clear(&e);
	assert_int_equal(lift(own_function("lifted_add"), 2, 0, &e), 0);
	image_close(made.image);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),	  cmocka_unit_test(test_refused),
		cmocka_unit_test(test_variables), cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_libraries), cmocka_unit_test(test_random),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, setup, NULL);
}
