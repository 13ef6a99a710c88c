/* SPDX-License-Identifier: MIT */
/*
 * throws.cc - what leaves cases by an exception.
 */
#include "tests/live/asm/driver.h"

namespace
{
struct thrown {
	long number;
};
}

/* Nobody needs to know what the unwinder executes: the trace ends here. */
extern "C" void torture_throw(long number)
{
	torture_untrace();
	throw thrown{number};
}

extern "C" long torture_try(struct call *c)
{
	try {
		torture_call(c);
	} catch (const thrown &t) {
		return t.number;
	}
	return -1;
}
