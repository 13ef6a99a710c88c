/* SPDX-License-Identifier: MIT */
/* build: -O1 -fno-inline -fno-ipa-cp -fno-ipa-icf -fno-optimize-sibling-calls -s -fpie -pie */
/*
 * evaluated-stripped.c - evaluated.c without names, anywhere.
 */
#include "evaluated.c"
