/* SPDX-License-Identifier: MIT */
/* build: -no-pie -fno-pie -fno-inline -fno-ipa-cp -fno-ipa-icf */
/* The program "calls" at a fixed address. */
#include "calls.c"
