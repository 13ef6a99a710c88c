/* SPDX-License-Identifier: MIT */
/* build: -Wno-psabi */
/*
 * typed.c - a target whose arguments, results and globals are of every type
 * that the psABI passes in a way of its own; what is passed is known to the tests.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone, used, externally_visible))

enum colour { RED, GREEN = 7, BLUE = -3 };
/* Numbers that take all bits of a byte, of two and of four, unsigned and not. */
enum code { CODE_OK = 200, CODE_MANY = 40000, CODE_LAST = 0x80000000 };
enum __attribute__((packed)) small_code { SMALL_ONE = 1, SMALL_OK = 200 };
enum balance { BALANCE_LOW = -56, BALANCE_HIGH = 200 };

struct pair {
	int32_t x;
	int16_t y;
	uint8_t z;
};

struct mixed {
	double d;
	int64_t i;
};

struct floats {
	float a, b, c;
};

struct large {
	int64_t words[3];
	int32_t last;
};

struct node {
	struct node *next;
	int32_t value;
	unsigned low : 3, high : 5;
	int sign : 4;
	union {
		int64_t wide;
		char text[8];
	};
	struct pair pairs[2];
};

/* Larger than any stack has room for above a function that nobody passes it to. */
struct huge {
	int64_t words[1000000];
	int32_t last;
};

/* The last of its bits is the last of its word. */
struct full {
	unsigned low : 7, high : 25;
};

/* On the stack these lie at multiples of 16. */
struct aligned {
	_Alignas(16) int64_t words[4];
};

struct wide {
	long double d;
	int64_t i;
};

/* Is returned in memory, small as it is. */
struct __attribute__((packed)) packed {
	int8_t before;
	int64_t i;
};

/* Its members lie across words of the stack. */
struct __attribute__((packed)) packed_large {
	int8_t before;
	int64_t i;
	char between[5];
	int32_t last;
};

struct tiled {
	int8_t rows[4][5];
	int32_t after;
};

/* Passed and returned in a vector register, or in memory, as the compiler was told. */
struct vector {
	float v __attribute__((vector_size(32)));
};

int64_t KEEP takes_small(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f);
int64_t KEEP takes_many(int a, int b, int c, int d, int e, int f, int8_t g, int64_t h, uint16_t i);
int64_t KEEP takes_floats(float a, int b, double c, double d);
int64_t KEEP takes_pair(struct pair p, int after);
int64_t KEEP takes_mixed(int before, struct mixed m, struct floats f, int after);
int64_t KEEP takes_large(int before, struct large l, int after);
int64_t KEEP takes_huge(int before, struct huge h, int after, int64_t more[4], int a, int b, int c,
			int d);
int64_t KEEP takes_full(struct full *f);
int64_t KEEP takes_doubles(double a, double b, double c, double d, double e, double f, double g,
			   double h, double i);
int64_t KEEP takes_node(struct node *n, bool flag, enum colour colour);
int64_t KEEP takes_codes(enum code code, enum small_code small, enum balance balance);
int64_t KEEP takes_long_double(long double d, int after);
void KEEP gives_nothing(int a);
unsigned char KEEP put_char(unsigned char c);
int64_t KEEP put_many(int64_t n);
double KEEP gives_double(int a);
int8_t KEEP gives_small(int a);
struct pair KEEP gives_pair(int a);
struct mixed KEEP gives_mixed(int a);
struct large KEEP gives_large(int a);
struct node *KEEP gives_node(void);
int64_t KEEP takes_any(int count, ...);
int64_t KEEP takes_aligned(struct aligned s, int64_t h);
int64_t KEEP takes_gap(int a, int b, int c, int d, int e, int f, int64_t g, struct wide s,
		       int64_t h);
int64_t KEEP takes_gap_told(double a, struct large l, int b, int c, int d, int e, int f, int g,
			    int64_t h, struct aligned s);
struct packed KEEP gives_packed(int a);
int64_t KEEP takes_packed(struct packed_large p, int after);
int64_t KEEP takes_tiled(struct tiled *t);
int64_t KEEP takes_cold(double a, int b);
#ifdef __x86_64__
/* The compiler does not say so. */
int64_t KEEP __attribute__((ms_abi)) takes_elsewhere(int64_t a, double b, int64_t *c);
#endif
int64_t KEEP takes_turned(int64_t a, int64_t b);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
int64_t KEEP takes_vector(struct vector v, int after);
struct vector KEEP gives_vector(int a);
float __attribute__((vector_size(32))) KEEP gives_bare_vector(int a);
#pragma GCC diagnostic pop

int8_t global_small = -5;
uint16_t global_unsigned = 65000;
double global_double = 1234.75;
struct node global_node = {
	.value = -77,
	.low = 5,
	.high = 17,
	.sign = -2,
	.wide = 0x1122334455667788,
	.pairs = {{1, 2, 3}, {-4, -5, 250}},
};
struct node *global_pointer = &global_node;
int32_t global_numbers[4] = {10, -20, 30, -40};
int32_t global_matrix[3][4] = {{0, 1, 2, 3}, {10, 11, 12, 13}, {20, 21, 22, -23}};
__thread int global_of_thread = 1;
static int64_t global_hidden = 99;

int64_t takes_small(int8_t a, uint8_t b, int16_t c, uint16_t d, int32_t e, uint32_t f)
{
	return a + b + c + d + e + f + global_of_thread;
}

int64_t takes_many(int a, int b, int c, int d, int e, int f, int8_t g, int64_t h, uint16_t i)
{
	return a + b + c + d + e + f + g + h + i;
}

int64_t takes_floats(float a, int b, double c, double d)
{
	return (int64_t)(a + b + c + d);
}

int64_t takes_pair(struct pair p, int after)
{
	return p.x + p.y + p.z + after;
}

int64_t takes_mixed(int before, struct mixed m, struct floats f, int after)
{
	return before + (int64_t)m.d + m.i + (int64_t)(f.a + f.b + f.c) + after;
}

int64_t takes_large(int before, struct large l, int after)
{
	return before + l.words[0] + l.words[2] + l.last + after;
}

int64_t takes_node(struct node *n, bool flag, enum colour colour)
{
	return n->value + flag + colour;
}

int64_t takes_codes(enum code code, enum small_code small, enum balance balance)
{
	return (int64_t)code + small + balance;
}

int64_t takes_long_double(long double d, int after)
{
	return (int64_t)d + after;
}

void gives_nothing(int a)
{
	global_hidden += a;
}

double gives_double(int a)
{
	return a * 2.5;
}

int8_t gives_small(int a)
{
	return (int8_t)a;
}

struct pair gives_pair(int a)
{
	return (struct pair){a, (int16_t)(a + 1), (uint8_t)(a + 2)};
}

struct mixed gives_mixed(int a)
{
	return (struct mixed){a * 1.5, a};
}

struct large gives_large(int a)
{
	return (struct large){{a, a + 1, a + 2}, a + 3};
}

struct node *gives_node(void)
{
	return global_pointer;
}

int64_t takes_any(int count, ...)
{
	return count;
}

int64_t takes_aligned(struct aligned s, int64_t h)
{
	return s.words[0] + h;
}

int64_t takes_gap(int a, int b, int c, int d, int e, int f, int64_t g, struct wide s, int64_t h)
{
	return a + b + c + d + e + f + g + s.i + h;
}

int64_t takes_gap_told(double a, struct large l, int b, int c, int d, int e, int f, int g,
		       int64_t h, struct aligned s)
{
	return (int64_t)a + l.last + b + c + d + e + f + g + h + s.words[0];
}

/* Without a prototype: a float is passed as a double. */
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wold-style-definition"
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
int64_t KEEP takes_old(a, b, c)
float a;
int16_t b;
float c;
{
	return (int64_t)(a + (float)b + c);
}
#pragma GCC diagnostic pop

struct packed gives_packed(int a)
{
	return (struct packed){1, a};
}

int64_t takes_packed(struct packed_large p, int after)
{
	return p.before + p.i + p.last + after;
}

/* Called by nobody. */
int64_t takes_huge(int before, struct huge h, int after, int64_t more[4], int a, int b, int c,
		   int d)
{
	return before + h.last + after + more[0] + a + b + c + d;
}

int64_t takes_full(struct full *f)
{
	return f->low + f->high;
}

int64_t takes_doubles(double a, double b, double c, double d, double e, double f, double g,
		      double h, double i)
{
	return (int64_t)(a + b + c + d + e + f + g + h + i);
}

int64_t takes_tiled(struct tiled *t)
{
	return t->rows[1][3] + t->after;
}

/* Its code lies in two places: the compiler thinks that this is seldom called. */
static void __attribute__((cold, noinline)) seldom(int64_t a)
{
	fprintf(stderr, "seldom: %lld\n", (long long)a);
}

int64_t takes_cold(double a, int b)
{
	if (b < 0) {
		seldom(b);
		seldom((int64_t)a);
	}
	return (int64_t)a + b;
}

#ifdef __x86_64__
int64_t __attribute__((ms_abi)) takes_elsewhere(int64_t a, double b, int64_t *c)
{
	return a + (int64_t)b + *c;
}
#endif

#ifdef __x86_64__
/* Its beginning is not its only way in. */
int64_t KEEP __attribute__((naked)) takes_byte(int8_t a)
{
	(void)a;
	__asm__("movsbl %dil, %edi\n"
		".Linside: movslq %edi, %rax\n"
		"ret");
}

int64_t KEEP __attribute__((naked)) calls_inside(void)
{
	__asm__("movl $-300, %edi\n"
		"movl %edi, %edi\n"
		"call .Linside\n"
		"ret");
}
#endif

/* Where it begins, a is in b's register already. */
int64_t takes_turned(int64_t a, int64_t b)
{
	a = b;
	return a * 3 + b;
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpsabi"
int64_t takes_vector(struct vector v, int after)
{
	return (int64_t)v.v[1] + after;
}

struct vector gives_vector(int a)
{
	return (struct vector){{(float)a}};
}

float __attribute__((vector_size(32))) gives_bare_vector(int a)
{
	return gives_vector(a).v;
}
#pragma GCC diagnostic pop

unsigned char put_char(unsigned char c)
{
	return c + 100;
}

int64_t put_many(int64_t n)
{
	return n * 3;
}

/* Two calls that pass what differs in its type. */
int64_t KEEP puts_both(unsigned i)
{
	return put_char((unsigned char)(i + 200)) + put_many(i + 3000);
}

/* Everything once. */
static __attribute__((noinline)) int64_t round_of(unsigned i)
{
	int64_t sum = takes_small(-1, 200, -300, 60000, -70000, 4000000000u);

	sum += takes_many(1, 2, 3, 4, 5, 6, -7, 1ll << 40, 65535);
	sum += takes_floats(-2.75f, 3, 1e10, -0.5);
	sum += takes_pair((struct pair){-9, -8, 254}, 4);
	sum += takes_mixed(1, (struct mixed){-6.5, -66}, (struct floats){1.5f, -2.5f, 3.5f}, 2);
	sum += takes_large(1, (struct large){{11, 22, 33}, -44}, 2);
	sum += takes_node(&global_node, true, BLUE);
	sum += takes_long_double(3.5L, 9) + takes_any(2, 3, 4);
	gives_nothing(1);
	sum += (int64_t)gives_double(3) + gives_small(-3) + gives_pair(7).x;
	sum += takes_old(1.5f, 2, 3.5f);
	sum += takes_aligned((struct aligned){{1, 2, 3, 4}}, 5) + gives_packed(6).i;
	sum += takes_packed((struct packed_large){1, -2, "", -3}, 4);
#ifdef __x86_64__
	sum += takes_elsewhere(1, 2.5, &sum) + takes_byte(1) + calls_inside();
#endif
	sum += takes_turned(1, 2) + puts_both(0);
	sum += takes_gap(1, 2, 3, 4, 5, 6, 7, (struct wide){8.5L, 9}, 10);
	sum += takes_gap_told(1, (struct large){{2, 3, 4}, 5}, 6, 7, 8, 9, 10, 11, 12,
			      (struct aligned){{13, 14, 15, 16}});
	sum += gives_mixed(5).i + gives_large(6).last + gives_node()->value;
	sum += takes_tiled(&(struct tiled){.rows = {{0}, {1, 2, 3, 4, 5}}}) + takes_cold(-2.5, 17);
	sum += takes_vector((struct vector){gives_bare_vector(1)}, 2) + global_matrix[i % 3][i % 4];
	return sum + global_small + global_unsigned + global_numbers[i % 4];
}

/* "round N" does everything N times. */
int main(void)
{
	char line[64];
	unsigned count;

	setvbuf(stdout, NULL, _IOLBF, 0);
	/* The C library's, of which the linker made a copy here. */
	optind = 4321;
	printf("ready\n");
	while (fgets(line, sizeof(line), stdin)) {
		int64_t sum = 0;

		if (sscanf(line, "round %u", &count) != 1)
			return 1;
		for (unsigned i = 0; i < count; i++)
			sum += round_of(i);
		printf("sum %lld\n", (long long)sum);
	}
	return 0;
}
