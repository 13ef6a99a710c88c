/* SPDX-License-Identifier: MIT */
/* build: -O2 -fcf-protection=none */
/*
 * image-cxx.cc - a C++ program whose file has all that makes finding functions
 * hard: exceptions and their landing pads, parts that the compiler moved to
 * the cold section, templates, aliases, a table of functions, a resolver.
 *
 * Prints "ready", works until its standard input ends, exits with 0 if right.
 */
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#define NOINLINE __attribute__((noinline, noclone))

namespace shapes
{
class Circle
{
      public:
	explicit Circle(double radius);
	virtual ~Circle();
	virtual double area() const;
	double scale(int by, const std::string &unit);

      private:
	double radius_;
};

NOINLINE Circle::Circle(double radius) : radius_(radius)
{
	if (radius < 0)
		throw std::invalid_argument("negative radius");
}

NOINLINE Circle::~Circle()
{
	radius_ = -1;
}

NOINLINE double Circle::area() const
{
	return 3 * radius_ * radius_;
}

NOINLINE double Circle::scale(int by, const std::string &unit)
{
	if (unit.empty())
		throw std::runtime_error("no unit: " + std::to_string(by));
	radius_ *= by;
	return radius_;
}

template <typename T> NOINLINE T largest(const std::vector<T> &of)
{
	T best = of.at(0);

	for (const T &x : of)
		if (best < x)
			best = x;
	return best;
}
} /* namespace shapes */

/* What happens rarely goes to a fragment of its own. */
extern "C" NOINLINE int mostly_warm(int n)
{
	if (__builtin_expect(n < 0, 0)) {
		fprintf(stderr, "negative: %d\n", n);
		for (int i = 0; i < 3; i++)
			fprintf(stderr, "%d\n", n * i);
		abort();
	}
	return n * 3 + 1;
}

extern "C" NOINLINE int catches(int n)
{
	try {
		shapes::Circle c(n);

		return c.scale(2, n == 7 ? "" : "m");
	} catch (const std::runtime_error &e) {
		return -2;
	} catch (const std::invalid_argument &e) {
		return -1;
	}
}

extern "C" NOINLINE int doubled(int n)
{
	return n + n;
}

extern "C" NOINLINE int twice(int) noexcept __attribute__((alias("doubled")));

static NOINLINE int add_one(int n)
{
	return n + 1;
}

static NOINLINE int add_two(int n)
{
	return n + 2;
}

typedef int (*function)(int);

static NOINLINE int generic(int n)
{
	return n;
}

extern "C" function resolve_chosen(void)
{
	return generic;
}

extern "C" int chosen(int) __attribute__((ifunc("resolve_chosen")));

static function volatile table[] = {add_one, add_two, doubled, mostly_warm, twice};

int main(void)
{
	int sum = 0, c;

	for (int i = 0; i < 5; i++)
		sum += table[i](i);
	if (catches(-1) != -1 || catches(7) != -2 || catches(3) != 6)
		return 1;
	if (shapes::largest(std::vector<int>{1, 5, 3}) != 5)
		return 2;
	if (sum != 1 + 3 + 4 + 10 + 8 || chosen(4) != 4)
		return 3;
	puts("ready");
	fflush(stdout);
	while ((c = getchar()) != EOF)
		sum += c;
	return 0;
}
