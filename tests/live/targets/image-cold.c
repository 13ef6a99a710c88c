/* SPDX-License-Identifier: MIT */
/* build: -O2 -fno-inline -fno-ipa-icf -x c tests/live/targets/image-cold.inc */
/*
 * image-cold.c - functions with cold parts, whose names functions of another file have, too (image-cold.inc): two of
 * this file, the second one's name is everybody's there; one that is everybody's; one that is the whole program's. In
 * the table of symbols those of the other file are the nearest to the parts, which are of this file.
 */
int first_others(int x);
volatile int told;

__attribute__((cold, noinline, noclone)) void tell(int x)
{
	told += x;
}

#define ROUND(name)                                  \
	int name(int x)                              \
	{                                            \
		if (__builtin_expect(x > 1000, 0)) { \
			tell(x);                     \
			tell(x + 1);                 \
			return -1;                   \
		}                                    \
		return x * 3 + 1;                    \
	}

__attribute__((noinline, noclone)) static ROUND(of_file)

	__attribute__((noinline, noclone)) static ROUND(of_one)

		__attribute__((noinline, noclone)) ROUND(of_all)

			__attribute__((noinline, noclone, visibility("hidden"))) ROUND(of_program)

				int main(int argc, char **argv)
{
	(void)argv;
	return of_file(argc) + of_one(argc) + of_all(argc) + of_program(argc) +
		       first_others(argc) ==
	       0;
}
