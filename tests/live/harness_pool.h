/* SPDX-License-Identifier: MIT */
/*
 * harness_pool.h - a page of the administrator's pool of huge pages (hugetlb) for a test.
 */
#ifndef DINST_TESTS_LIVE_HARNESS_POOL_H
#define DINST_TESTS_LIVE_HARNESS_POOL_H

#include <stdbool.h>

/*
 * One more is in the pool, which nobody else changes meanwhile, until harness_pool_give_back(); false
 * where there is none to be had, and nothing is to be given back.
 */
bool harness_pool_take(void);
void harness_pool_give_back(void);

/* True if the kernel writes to such a page for a tracer though the program may not; Linux 6.1 and 6.12 do not. */
bool harness_pool_is_written(void);

#endif
