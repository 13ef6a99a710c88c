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

template <typename F> static int KEEP call(F f)
{
	return f(1.5, 2);
}

int main()
{
	char text[] = "x";
	int four[4] = {1, 2, 3, 4};
	/* described inside of this function, as its type is */
	auto inner = [&](double a, int b) KEEP
	{
		return static_cast<int>(a) + b + four[1];
	};

	return named::pick(text) + named::pick('a', 1) + named::pick("y") + named::sum(four) +
		       (named::pair{1} * 2).a + call(inner) ==
	       0;
}
