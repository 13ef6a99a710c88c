#!/bin/bash
# SPDX-License-Identifier: MIT
#
# deb.sh - make deb builds packages that lintian accepts, and that work: unpacked into a
# scratch root, dinst answers a question about a server, and a program is built with the library.
set -u
cd "$(dirname "$0")/.." || exit 1

build=$(realpath "${DINST_BUILD:-build}") || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-debtest-XXXXXX") || exit 1
export DINST_SOCKET=$work/d.sock
server=

finish() {
	[ -x "$work/root/usr/bin/dinst" ] && timeout 20 "$work/root/usr/bin/dinst" stop >/dev/null 2>&1
	[ -n "$server" ] && kill "$server" 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT

fail() {
	echo "FAIL deb $*"
	exit 1
}

for tool in dpkg-deb dpkg-shlibdeps dpkg-architecture; do
	command -v $tool >/dev/null || {
		echo "SKIP deb $tool is not installed"
		exit 0
	}
done

make -s -j"$(nproc)" O="$build" deb >"$work/log" 2>&1 || fail "make deb: $(tail -5 "$work/log")"
packages=$(ls "$build"/deb/*.deb)
[ "$(echo "$packages" | wc -l)" -eq 3 ] || fail "packages: $packages"

if command -v lintian >/dev/null; then
	# shellcheck disable=SC2086
	lintian --allow-root --fail-on error,warning $packages >"$work/lintian" 2>&1 || fail "lintian: $(cat "$work/lintian")"
	[ ! -s "$work/lintian" ] || cat "$work/lintian"
	echo "PASS deb lintian"
else
	echo "SKIP deb lintian is not installed"
fi

for package in $packages; do
	dpkg-deb -x "$package" "$work/root" || fail "cannot unpack $package"
done
for page in docs/man/*.[1-8]; do
	[ -f "$work/root/usr/share/man/man${page##*.}/$(basename "$page").gz" ] || fail "$page is missing"
done
[ -f "$work/root/usr/share/bash-completion/completions/dinst" ] || fail "no completion for bash"

"$build/examples/demo-server" "$work/socket" 2 >"$work/server" 2>&1 &
server=$!
for _ in $(seq 600); do
	grep -q ready "$work/server" && break
	sleep 0.1
done
dinst() {
	(cd / && env -i PATH=/usr/bin:/bin DINST_SOCKET="$DINST_SOCKET" timeout 300 "$work/root/usr/bin/dinst" "$@")
}
dinst doctor >"$work/doctor" 2>&1 || {
	[ "$(id -u)" -eq 0 ] || { echo "SKIP deb needs root: $(grep no "$work/doctor" | head -1)"; exit 0; }
	fail "doctor: $(cat "$work/doctor")"
}
grep -q "$work/root/usr/.*libexec/dinst/dinst-mutator" "$work/doctor" || fail "doctor: $(cat "$work/doctor")"
dinst --json attach "$server" >"$work/out" 2>&1 || fail "attach: $(head -c 300 "$work/out")"
dinst --json insert calls answer_request >"$work/out" 2>&1 || fail "insert: $(head -c 300 "$work/out")"
for _ in 1 2 3; do
	"$build/examples/demo-load" "$work/socket" stats >/dev/null || fail "the server does not answer"
done
dinst --json read >"$work/out" 2>&1
grep -q '"value": *3[,}]' "$work/out" || fail "not 3 calls: $(head -c 300 "$work/out")"

# A program of somebody's, with the library, shared and static.
libdir=$(dirname "$(find "$work/root/usr/lib" -name libdinst.so)")
flags=$(PKG_CONFIG_SYSROOT_DIR=$work/root PKG_CONFIG_LIBDIR=$libdir/pkgconfig pkg-config --cflags --libs dinst) ||
	fail "pkg-config: $flags"
# shellcheck disable=SC2086
gcc -Wall -Werror -o "$work/raw" examples/lib/raw.c $flags || fail "cannot link with the shared library"
LD_LIBRARY_PATH=$libdir "$work/raw" ping >"$work/out" 2>&1 || fail "raw: $(cat "$work/out")"
grep -q '"sessions":1' "$work/out" || fail "raw: $(cat "$work/out")"
gcc -Wall -Werror -I"$work/root/usr/include" -o "$work/static" examples/lib/raw.c "$libdir/libdinst.a" -ljansson ||
	fail "cannot link with the static library"
"$work/static" ping >"$work/out" 2>&1 || fail "static: $(cat "$work/out")"
echo '#include <dinst.h>' | gcc -Wall -Wextra -Werror -std=c99 -pedantic -fsyntax-only -I"$work/root/usr/include" -x c - ||
	fail "the header is not plain C"
if command -v g++ >/dev/null; then
	echo '#include <dinst.h>' | g++ -Wall -Wextra -Werror -fsyntax-only -I"$work/root/usr/include" -x c++ - ||
		fail "the header is no C++"
fi
# What the header promises is what the library shows, no more and no less.
grep -oE '^[a-z].*\bdinst_[a-z_]+\(' lib/dinst.h | grep -v typedef | grep -oE 'dinst_[a-z_]+' | sort -u >"$work/promised"
nm -D --defined-only "$libdir/libdinst.so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort -u >"$work/shown"
nm -g --defined-only "$libdir/libdinst.a" | awk '$2 != "" && NF == 3 { print $3 }' | sort -u >"$work/static.shown"
diff "$work/promised" "$work/shown" || fail "the header and the shared library differ"
diff "$work/promised" "$work/static.shown" || fail "the header and the static library differ"
dinst --json detach >"$work/out" 2>&1 || fail "detach: $(cat "$work/out")"
echo "PASS deb $(echo "$packages" | xargs -n1 basename | tr '\n' ' ')"
