/* SPDX-License-Identifier: MIT */
/*
 * named.cc - functions whose names, as people read them, look like patterns.
 */
#define KEEP __attribute__((noinline, noclone, used))

namespace named
{
int KEEP pick(char *at)
{
	return *at;
}

int KEEP pick(char first, int second)
{
	return first + second;
}

int KEEP pick(const char *at)
{
	return *at + 1;
}

int KEEP sum(int (&of)[4])
{
	return of[0] + of[3];
}

struct pair {
	int a;
	pair KEEP operator*(int by);
};

pair KEEP pair::operator*(int by)
{
	return {a * by};
}
} /* namespace named */

int main()
{
	char text[] = "x";
	int four[4] = {1, 2, 3, 4};

	return named::pick(text) + named::pick('a', 1) + named::pick("y") + named::sum(four) +
		       (named::pair{1} * 2).a ==
	       0;
}
