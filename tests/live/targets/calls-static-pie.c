/* SPDX-License-Identifier: MIT */
/* build: -static-pie -fPIE -fno-inline -fno-ipa-cp -fno-ipa-icf */
/* The program "calls" with libc in it, at any address. */
#include "calls.c"
