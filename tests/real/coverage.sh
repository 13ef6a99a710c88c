#!/bin/bash
# SPDX-License-Identifier: MIT
#
# coverage.sh - at least 99.9 % of the entries, exits and calls of real binaries
# have a tactic (99.5 % where there are less than a thousand): the files of
# docs/coverage.md that are installed here. What is refused for the program's sake (restartable sequences,
# libc's calls while threads may be cancelled at any instruction) may be another 0.5 %.
. "$(dirname "$0")/lib.sh"

lib=/usr/lib/x86_64-linux-gnu
files=()
# Debian's node is a small program, with its code in a library.
node=$(find $lib -maxdepth 1 -name 'libnode.so.*' 2>/dev/null | head -1)
for file in /usr/bin/redis-server /usr/sbin/nginx /usr/bin/memcached /usr/lib/postgresql/*/bin/postgres \
	$lib/libc.so.6 $lib/ld-linux-x86-64.so.2 $lib/libstdc++.so.6 $lib/libpython3.11.so.1.0 \
	$lib/libsqlite3.so.0 $lib/libcrypto.so.3 /usr/bin/perl /usr/sbin/mariadbd ${node:-/usr/bin/node}; do
	[ -r "$file" ] && files+=("$file")
done
timeout 850 "$build/tests/tools/coverage" "${files[@]}" >"$work/table" 2>"$work/coverage.err"
status=$?
cat "$work/table"
[ $status -eq 0 ] || fail "status $status: $(head -c 300 "$work/coverage.err")"
pass "${#files[@]} files"
