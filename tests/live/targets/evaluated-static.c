/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-ipa-cp -fno-ipa-icf -fno-optimize-sibling-calls -static */
/*
 * evaluated-static.c - evaluated.c with its C library in it.
 */
#include "evaluated.c"
