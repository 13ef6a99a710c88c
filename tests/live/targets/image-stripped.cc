/* SPDX-License-Identifier: MIT */
/* build: -O2 -fcf-protection=none -s */
/* image-stripped.cc - image-cxx without its symbols. */
#include "image-cxx.cc"
