/* SPDX-License-Identifier: MIT */
/*
 * folded.cc - functions of which the linker makes one (--icf=all), throwing and
 * called by their tables, in several threads. Reads how many rounds.
 */
#include <cstdio>

#include <string>
#include <thread>
#include <vector>
#include <map>
#include <stdexcept>
template <int N> struct A {
	__attribute__((noinline)) static long f(long x)
	{
		if (x % 7 == 0)
			throw std::runtime_error("x");
		return x * 3 + 1;
	}
	__attribute__((noinline)) static long g(long x)
	{
		return f(x) + f(x + 1);
	}
	virtual long v(long x)
	{
		return g(x);
	}
	virtual ~A()
	{
	}
};
template <int N> long all(long x)
{
	long s = 0;
	A<N> a;
	A<N> *p = &a;
	asm volatile("" : "+r"(p));
	try {
		s += p->v(x);
	} catch (std::runtime_error &e) {
		s -= 5;
	}
	if constexpr (N > 0)
		s += all<N - 1>(x + 1);
	return s;
}
__attribute__((noinline)) long sw(int i)
{
	switch (i) {
	case 0:
		return 5;
	case 1:
		return 17;
	case 2:
		return 3;
	case 3:
		return 99;
	case 4:
		return 123;
	case 5:
		return 7;
	default:
		return 1;
	}
}
long work()
{
	long s = 0;
	std::map<std::string, long> m;
	for (int i = 0; i < 800; i++) {
		s += all<30>(i) + sw(i % 9);
		m[std::to_string(i)] = s;
	}
	long r[3] = {0, 0, 0};
	std::vector<std::thread> t;
	for (int k = 0; k < 3; k++)
		t.emplace_back([&r, k] {
			for (int i = 0; i < 500; i++)
				r[k] += all<20>(i * k);
		});
	for (auto &x : t)
		x.join();
	return s + r[0] + r[1] + r[2] + m.size();
}
int main()
{
	long rounds, sum = 0, rest = 0;
	int c;

	if (std::scanf("%ld", &rounds) != 1)
		return 2;
	for (long i = 0; i < rounds; i++)
		sum += work();
	while ((c = std::getchar()) != EOF)
		rest += c;
	for (long i = 0; i < rounds; i++)
		sum += work();
	std::printf("%ld %ld\n", sum, rest);
	return 0;
}
