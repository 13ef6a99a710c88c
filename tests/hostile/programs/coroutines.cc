/* SPDX-License-Identifier: MIT */
/*
 * coroutines.cc - C++20 coroutines that are suspended, go on in another thread,
 * throw into the one that waits for them, and are destroyed half-way; and
 * exceptions through many frames. Reads how many rounds;
 * does half of its work before the rest of its input and half behind it; prints sums.
 */
#include <coroutine>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

struct Generator {
	struct promise_type {
		long value = 0;
		std::exception_ptr thrown;
		Generator get_return_object() { return Generator{handle::from_promise(*this)}; }
		std::suspend_always initial_suspend() { return {}; }
		std::suspend_always final_suspend() noexcept { return {}; }
		std::suspend_always yield_value(long v) { value = v; return {}; }
		void return_void() {}
		void unhandled_exception() { thrown = std::current_exception(); }
	};
	using handle = std::coroutine_handle<promise_type>;
	handle h;

	explicit Generator(handle h) : h(h) {}
	Generator(Generator &&o) : h(o.h) { o.h = nullptr; }
	~Generator() { if (h) h.destroy(); }
	bool next()
	{
		h.resume();
		if (h.promise().thrown)
			std::rethrow_exception(h.promise().thrown);
		return !h.done();
	}
};

static thread_local long destroyed;

struct Guard {
	long n;
	~Guard() { destroyed += n; }
};

__attribute__((noinline)) static long leaf(long n)
{
	if (n % 17 == 16)
		throw std::runtime_error(std::to_string(n));
	return n * 3 + 1;
}

static Generator numbers(long from, long count)
{
	Guard guard{1};
	for (long i = from; i < from + count; i++) {
		Guard inner{i & 7};
		co_yield leaf(i);
	}
}

static Generator outer(long from, long count)
{
	Guard guard{2};
	auto inner = numbers(from, count);
	while (inner.next())
		co_yield inner.h.promise().value + 1;
}

__attribute__((noinline)) static long depth(long n)
{
	Guard guard{1};
	return n ? depth(n - 1) + 1 : leaf(16);
}

static long work(long rounds)
{
	long sum = 0;

	for (long r = 0; r < rounds; r++) {
		try {
			auto g = outer(r, 12);
			for (int i = 0; i < 6 + r % 10 && g.next(); i++)
				sum += g.h.promise().value;
		} catch (const std::exception &e) {
			sum += std::stol(e.what());
		}
		try {
			sum += depth(r % 30);
		} catch (const std::runtime_error &) {
			sum += 5;
		}
	}
	return sum + destroyed;
}

static void half(long rounds)
{
	long sums[3] = {};
	std::vector<std::thread> threads;

	for (int t = 0; t < 3; t++)
		threads.emplace_back([&sums, t, rounds] { sums[t] = work(rounds + t); });
	for (auto &t : threads)
		t.join();
	/* One that began here ends in another thread. */
	auto moved = std::make_unique<Generator>(numbers(0, 10));
	moved->next();
	std::thread([&moved] { while (moved->next()) {} moved.reset(); }).join();
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
