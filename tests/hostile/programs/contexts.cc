/* SPDX-License-Identifier: MIT */
/*
 * contexts.cc - fibers of both kinds, swapcontext() and Boost.Context, that call
 * the same functions in turn, throw inside of themselves, and are given up with
 * functions still active on their stacks. Reads how many rounds;
 * does half of its work before the rest of its input and half behind it; prints sums.
 */
#include <boost/context/fiber.hpp>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <ucontext.h>

namespace ctx = boost::context;

static thread_local ucontext_t main_context, fibers[4];
static thread_local long total;
static thread_local int current;
static thread_local bool ended[4];

__attribute__((noinline)) static long leaf(long n)
{
	return n * 5 + 2;
}

__attribute__((noinline)) static long switched(long n)
{
	long value = leaf(n);

	swapcontext(&fibers[current], &main_context);
	return value + leaf(n + 1);
}

static void fiber(int index)
{
	for (long i = 0; i < 20; i++) {
		try {
			total += switched(i + index);
			if (i % 5 == 4)
				throw std::runtime_error("x");
		} catch (const std::runtime_error &) {
			total += 100;
		}
	}
	ended[index] = true;
}

static void with_ucontext()
{
	constexpr size_t size = 65536;

	for (int i = 0; i < 4; i++) {
		getcontext(&fibers[i]);
		fibers[i].uc_stack.ss_sp = std::malloc(size);
		fibers[i].uc_stack.ss_size = size;
		fibers[i].uc_link = &main_context;
		ended[i] = false;
		makecontext(&fibers[i], reinterpret_cast<void (*)()>(fiber), 1, i);
	}
	/* The last is given up half-way. */
	for (int round = 0; round < 21; round++)
		for (current = 0; current < 4; current++)
			if (!ended[current] && (current < 3 || round < 10))
				swapcontext(&main_context, &fibers[current]);
	for (int i = 0; i < 4; i++)
		std::free(fibers[i].uc_stack.ss_sp);
}

static ctx::fiber deep(ctx::fiber &&caller, long n)
{
	total += leaf(n);
	if (n)
		return deep(std::move(caller), n - 1);
	return std::move(caller).resume();
}

static void with_boost(long r)
{
	ctx::fiber f{[r](ctx::fiber &&caller) {
		for (long i = 0; i < 10; i++)
			caller = deep(std::move(caller), (i + r) % 7);
		return std::move(caller);
	}};

	/* Every third is destroyed in the middle: its stack is unwound by an exception. */
	for (int i = 0; f && i < (r % 3 ? 20 : 5); i++)
		f = std::move(f).resume();
}

static void half(long rounds)
{
	long sums[3] = {};
	std::thread threads[3];

	for (int t = 0; t < 3; t++)
		threads[t] = std::thread([&sums, t, rounds] {
			for (long r = 0; r < rounds; r++) {
				with_ucontext();
				with_boost(r);
			}
			sums[t] = total;
		});
	for (auto &t : threads)
		t.join();
	std::printf("%ld %ld %ld\n", sums[0], sums[1], sums[2]);
}

int main()
{
	long rounds;
	int c, rest = 0;

	if (std::scanf("%ld", &rounds) != 1)
		return 2;
	half(rounds);
	while ((c = std::getchar()) != EOF)
		rest += c;
	half(rounds);
	std::printf("%d\n", rest);
	return 0;
}
