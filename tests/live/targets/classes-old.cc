/* SPDX-License-Identifier: MIT */
/* build: -gdwarf-4 -gstrict-dwarf */
/*
 * classes-old.cc - classes.cc with debug information as older compilers make it: neither of a class is
 * said how it is passed, nor of a function that it is "= default".
 */
#include "classes.cc"

/* Its copy constructor is one all the same. */
struct WithMore {
	int x;
	explicit WithMore(int v) : x(v) {}
	WithMore(const WithMore &o, int more = 1) : x(o.x + more) {}
};

extern "C" {
int KEEP reference_more(WithMore a) { return a.x; }
}

int more_of(const WithMore &o)
{
	return reference_more(o);
}
