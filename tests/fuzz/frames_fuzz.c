/* SPDX-License-Identifier: MIT */
/*
 * frames_fuzz.c - any bytes as .eh_frame and as an exception table: an error or
 * rows in order, nothing read beyond the end, and time that grows with the size only.
 *
 * The first byte says which: even, unwind data; odd, an exception table.
 */
#include "mutator/cfi.h"
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>

#define ADDRESS UINT64_C(0x401000)

static void read_frames(const uint8_t *bytes, size_t size, bool terminated)
{
	struct cfi_input in = {
		.bytes = bytes,
		.size = size,
		.address = ADDRESS,
		.text = 0x1000,
		.data = 0x3000,
		.terminated = terminated,
		.name = "fuzz",
	};
	struct dinst_error e = {0};
	struct cfi_range *ranges;
	size_t count;
	int r = cfi_read(&in, &ranges, &count, &e);

	require(r <= 0 && (r == 0 || (!ranges && e.code == r && e.text[0])));
	for (size_t i = 0; i < count; i++)
		require(ranges[i].size && (!i || ranges[i - 1].lo < ranges[i].lo));
	free(ranges);
}

struct seen {
	uint64_t sum;
	size_t calls;
};

static void saw(void *arg, vaddr_t lo, vaddr_t hi, vaddr_t pad)
{
	struct seen *s = arg;

	s->sum += lo ^ hi ^ pad;
	s->calls++;
}

/* fear L1: unwind data and exception tables, whatever is in them, are read within their bounds */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
	struct seen seen = {0, 0};
	size_t used = 0;

	if (!size)
		return 0;
	if (bytes[0] & 1) {
		cfi_call_sites(bytes + 1, size - 1, ADDRESS, 0x1000, saw, &seen, &used);
		require(used <= size - 1 && seen.calls <= size);
	} else {
		read_frames(bytes + 1, size - 1, bytes[0] & 2);
	}
	return 0;
}

FUZZ_MAIN(frames, 40000);
