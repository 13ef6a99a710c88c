/* SPDX-License-Identifier: MIT */
/* build: -O2 */
/*
 * written.c - a program that has written jumps over instructions of its own, as static keys do, whose labels
 * nothing in the file tells of: from the part of a function that was moved away back to it, from there to another such part, and
 * in a function of more than a MiB, at its end.
 *
 * Prints "ready" when the jumps are written. "go N" calls each function N times, on the ways with the jumps and on those
 * without; "done". Exits with 1 if a result was wrong.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern int back(int), across(int), large(int);

/* Where a jump goes, and where it leads: distances, since addresses would tell of the labels. */
struct key {
	char *part, *to_part;
	long at, to;
};
extern const struct key keys[], keys_end[];

#define BEGIN(name) ".type " name ",@function\n" name ":\n"
#define END(name)   "	.size " name ",.-" name "\n"
/* Somebody else's label is in the middle of what is patched at the exit. */
#define LABELLED(label)                                \
	"	add $2,%eax\n"                               \
	"	xor %esi,%esi\n"                             \
	"	add $3,%eax\n" label ":	add $4,%eax\n" \
	"	ret\n"
/* What is written over always is. */
#define KEY(label)                                                   \
	"	add $100,%eax\n" label ":.byte 0x0f,0x1f,0x44,0,0\n" \
	"	ud2\n"
#define PLAIN            \
	"	add $2,%eax\n" \
	"	ret\n"
#define LISTED(label, part, to, to_part) \
	"	.quad " part ", " to_part ", " label " - " part ", " to " - " to_part "\n"

__asm__(".text\n"
	".globl back, across, large, keys, keys_end\n"
	".balign 16\n" BEGIN(
		"back") "	mov $1,%eax\n"
			"	test %edi,%edi\n"
			"	jz back.cold\n"
			"	js 1f\n" LABELLED(".Lback") "1:\n" PLAIN END("back") ".balign 16\n" BEGIN(
				"across") "	mov $1,%eax\n"
					  "	test %edi,%edi\n"
					  "	jz across.cold\n"
					  "	jns across.cold.1\n" PLAIN END("across") ".balign 16\n" BEGIN(
						  "large") "	mov $1,%eax\n"
							   "	jmp 1f\n"
							   "	.rept 120000\n"
							   "	.byte 0x66,0x0f,0x1f,0x84,0,0,2,0,0\n"
							   "	.endr\n"
							   "1:	test %edi,%edi\n"
							   "	jz 2f\n"
							   "	js 1f\n" LABELLED(".Llarge") "1:\n" PLAIN "2:\n" KEY(
								   ".Llarge_key") END("large") ".pushsection .text.unlikely,\"ax\",@progbits\n" BEGIN("back.cold")
								   KEY(".Lback_key") END("back.cold") BEGIN(
									   "across.cold") KEY(".Lacross_key") END("across.cold")
									   BEGIN("across.cold.1") LABELLED(".Lacross") END(
										   "across.cold.1") ".popsection\n"
												    ".pushsection .data.rel.ro,\"aw\"\n"
												    ".balign 8\n"
												    "keys:\n" LISTED(
													    ".Lback_key",
													    "back.cold",
													    ".Lback",
													    "back") LISTED(".Lacross_key",
															   "across.cold",
															   ".Lacross",
															   "across.cold.1")
													    LISTED(".Llarge_key",
														   "large",
														   ".Llarge",
														   "large") "keys_end:\n"
															    ".popsection\n");

static void write_jump(const struct key *key)
{
	enum { LENGTH = 5 };
	char *const at = key->part + key->at, *const to = key->to_part + key->to;
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), start = (uintptr_t)at & -page;
	const int32_t distance = (int32_t)(to - at - LENGTH);

	mprotect((void *)start, 2 * page, PROT_READ | PROT_WRITE | PROT_EXEC);
	*at = (char)0xe9;
	memcpy(at + 1, &distance, sizeof(distance));
	mprotect((void *)start, 2 * page, PROT_READ | PROT_EXEC);
}

static void check(int is, int wanted)
{
	if (is == wanted)
		return;
	printf("%d instead of %d\n", is, wanted);
	exit(1);
}

int main(void)
{
	static int (*const functions[])(int) = {back, across, large};
	char line[64];

	for (const struct key *key = keys; key < keys_end; key++)
		write_jump(key);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		for (long n = strtol(line + 3, NULL, 10); n > 0; n--) {
			for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
				check(functions[i](0), 105);
				check(functions[i](1), 10);
				check(functions[i](-1), 3);
			}
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
