/* SPDX-License-Identifier: MIT */
/*
 * sections.cc - functions that throw and catch, to be built with each of their basic blocks in a section
 * of its own (clang -fbasic-block-sections=all), as programs are whose blocks are laid out by how often they
 * run. Reads how many rounds; does half of its work before the rest of its input and half behind it; prints sums.
 */
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#define NOINLINE __attribute__((noinline))

struct guard {
	long &to;
	long by;
	~guard() { to += by; }
};

NOINLINE static long checked(long n)
{
	if (n % 7 == 3)
		throw std::runtime_error(std::to_string(n));
	if (n % 11 == 5)
		throw n;
	return n * 3 + 1;
}

NOINLINE static long spread(long n)
{
	long sum = 0, left = 0;

	for (long i = 0; i < 8; i++) {
		guard g{left, i};

		switch ((n + i) % 5) {
		case 0:
			sum += checked(n + i);
			break;
		case 1:
			sum ^= n << i;
			break;
		case 2:
			try {
				sum += checked(n * i);
			} catch (const std::runtime_error &e) {
				sum += (long)std::string(e.what()).size();
			}
			break;
		case 3:
			sum -= checked(n - i) / 2;
			break;
		default:
			if (sum < 0)
				sum = -sum / 3;
		}
	}
	return sum + left;
}

NOINLINE static long outer(long n)
{
	try {
		return spread(n);
	} catch (long value) {
		return value / 2;
	} catch (const std::exception &e) {
		return -(long)std::string(e.what()).size();
	}
}

static void work(long rounds)
{
	std::vector<std::thread> threads;
	long sums[3] = {0};

	for (int t = 0; t < 3; t++)
		threads.emplace_back([&, t] {
			for (long i = 0; i < rounds * 100; i++)
				sums[t] += outer(i + t);
		});
	for (auto &t : threads)
		t.join();
	printf("%ld %ld %ld\n", sums[0], sums[1], sums[2]);
	fflush(stdout);
}

int main()
{
	long rounds = 1;
	int c;

	if (scanf("%ld", &rounds) != 1)
		return 1;
	work(rounds / 2);
	while ((c = getchar()) != EOF)
		continue;
	work(rounds / 2);
	return 0;
}
