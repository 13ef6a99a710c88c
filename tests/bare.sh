#!/bin/bash
# SPDX-License-Identifier: MIT
#
# bare.sh - tries the README's first command on a Debian with nothing in it.
#
#   tests/bare.sh [demo|test]          (make bare)
#
# Makes a minimal Debian 12 with debootstrap from the mirror that apt uses
# here, puts a clean copy of HEAD into it, and runs `./bootstrap demo` in a
# chroot. Needs root, the network and about 1.5 GB below ${TMPDIR:-/tmp}; takes
# some minutes. Everything is unmounted and removed at the end.
set -eu
cd "$(dirname "$0")/.."
name=bare
. tests/debian.sh

what=${1:-demo}

debian_begin
if debian_in "{ command -v gcc make pkg-config; ./bootstrap $what; }"; then
	tail -40 "$log"
	result PASS "./bootstrap $what from $mirror"
	rm -f "$log"
else
	tail -60 "$log"
	result FAIL "./bootstrap $what ($log)"
	exit 1
fi
