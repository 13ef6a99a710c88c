/* SPDX-License-Identifier: MIT */
/*
 * seccomp.h - what a seccomp filter would say to a system call
 * (Documentation/userspace-api/seccomp_filter.rst).
 *
 * Private to inject/. Runs the filter's program over a description of the call;
 * no I/O. A filter is outside input: whatever is not a valid program denies.
 */
#ifndef DINST_INJECT_SECCOMP_H
#define DINST_INJECT_SECCOMP_H

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stddef.h>

/*
 * True if the filter lets the call pass untouched (SECCOMP_RET_ALLOW or _LOG). An
 * instruction_pointer of 0: the call may be made anywhere, so a filter that asks where denies.
 */
bool seccomp_allows(const struct sock_filter *filter, size_t count,
		    const struct seccomp_data *call);

#endif
