#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh - make bench-parts: decoding, costs of a call, of each kind of point and of each primitive of MDL, a server, lengths of stops, attach. The figures
# are ratios of one run on one machine; load beside it shows.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${DINST_BUILD:-build}
status=0

echo "$(uname -sr), $(nproc) CPUs, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1 /proc/loadavg)"
echo
timeout 60 "$build/tests/bench/decode" || status=1
echo
timeout 60 "$build/tests/bench/analysis" /usr/bin/redis-server /usr/lib/postgresql/15/bin/postgres \
	/lib/x86_64-linux-gnu/libc.so.6 /lib/x86_64-linux-gnu/libcrypto.so.3 /usr/sbin/mariadbd /usr/bin/node || status=1
echo
timeout 120 "$build/tests/bench/calls" || status=1
echo
timeout 120 "$build/tests/bench/points" || status=1
echo
timeout 120 "$build/tests/bench/primitives" || status=1
DINST_UNSTEADY=1 timeout 60 "$build/tests/bench/primitives" wall || status=1
DINST_UNSTEADY=call timeout 60 "$build/tests/bench/primitives" wall || status=1
echo
timeout 60 "$build/tests/bench/stream" || status=1
echo
timeout 300 "$build/tests/bench/redis" || status=1
echo
timeout 900 "$build/tests/bench/stops" || status=1
echo
timeout 240 tests/bench/attach.sh || status=1
exit $status
