/* SPDX-License-Identifier: MIT */
/* build: -static -no-pie -fno-pie -fno-inline -fno-ipa-cp -fno-ipa-icf */
/* The program "calls" with libc in it, at a fixed address. */
#include "calls.c"
