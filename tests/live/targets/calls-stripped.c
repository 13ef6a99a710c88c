/* SPDX-License-Identifier: MIT */
/* build: -s -fno-inline -fno-ipa-cp -fno-ipa-icf */
/* The program "calls" without symbols. */
#include "calls.c"
