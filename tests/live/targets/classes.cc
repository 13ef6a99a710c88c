/* SPDX-License-Identifier: MIT */
/*
 * classes.cc - functions that take classes of every kind by value: those that
 * are passed as what they consist of, and those whose address is passed. Which
 * it is the function's name tells.
 */
#include <cstdio>
#include <string>
#include <utility>

#define KEEP __attribute__((noinline, noclone, used))

struct Plain {
	int x;
	short y;
};

struct WithMethods {
	int x;
	int get() const { return x; }
	WithMethods() : x(1) {}
	explicit WithMethods(int v) : x(v) {}
	static int made;
};

struct Defaulted {
	int x;
	Defaulted(const Defaulted &) = default;
	explicit Defaulted(int v) : x(v) {}
	~Defaulted() = default;
};

struct Derived : Plain {
	int z;
};

template <typename T> struct Box {
	T value;
};

struct WithDestructor {
	int x;
	~WithDestructor() { x = 0; }
};

struct WithCopy {
	int x;
	explicit WithCopy(int v) : x(v) {}
	WithCopy(const WithCopy &o) : x(o.x + 1) {}
};

struct WithMove {
	int x;
	explicit WithMove(int v) : x(v) {}
	WithMove(WithMove &&o) : x(o.x) { o.x = 0; }
};

struct Virtual {
	int x = 3;
	virtual int get() const { return x; }
};

struct Holder {
	int x;
	WithDestructor inner;
};

struct Heir : WithCopy {
	int y;
	explicit Heir(int v) : WithCopy(v), y(v) {}
};

struct VirtualBase : virtual Plain {
	int z = 0;
};

int WithMethods::made = 0;

extern "C" {
int KEEP value_plain(Plain a) { return a.x + a.y; }
int KEEP value_methods(WithMethods a) { return a.get(); }
int KEEP value_defaulted(Defaulted a) { return a.x; }
int KEEP value_derived(Derived a) { return a.z; }
int KEEP value_box(Box<long> a) { return (int)a.value; }
int KEEP reference_destructor(WithDestructor a) { return a.x; }
int KEEP reference_copy(WithCopy a) { return a.x; }
int KEEP reference_move(WithMove a) { return a.x; }
int KEEP reference_virtual(Virtual a) { return a.get(); }
int KEEP reference_holder(Holder a) { return a.x; }
int KEEP reference_heir(Heir a) { return a.y; }
int KEEP reference_base(VirtualBase a) { return a.z; }
int KEEP reference_box(Box<WithCopy> a) { return a.value.x; }
int KEEP reference_string(std::string a) { return (int)a.size(); }
}

/* Nowhere in the code as functions. */
namespace made_of
{
struct parts {
	int n;
	__attribute__((always_inline)) int get() const { return n + 1; }
};

__attribute__((always_inline)) inline int add(int n, const parts &p)
{
	return n + p.get();
}
}

int main()
{
	WithCopy c(3);
	int sum = value_plain({1, 2}) + value_methods(WithMethods(4)) + value_defaulted(Defaulted(5));

	sum += value_derived(Derived()) + value_box({6}) + reference_destructor({7}) + reference_copy(c);
	sum += reference_move(WithMove(8)) + reference_virtual(Virtual()) + reference_holder({9, {1}});
	sum += reference_heir(Heir(2)) + reference_base(VirtualBase()) + reference_box({c});
	sum += reference_string("text");
	sum = made_of::add(sum, {sum});
	printf("%d\n", sum);
	return 0;
}
