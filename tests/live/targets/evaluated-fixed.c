/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-ipa-cp -fno-ipa-icf -fno-optimize-sibling-calls -s -fno-pie -no-pie */
/*
 * evaluated-fixed.c - evaluated.c without names, where it was linked.
 */
#include "evaluated.c"
