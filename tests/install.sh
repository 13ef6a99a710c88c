#!/bin/bash
# SPDX-License-Identifier: MIT
#
# install.sh - an installed tree works: make install into a directory, attach
# with what is there and nothing else, make uninstall leaves nothing.
set -u
cd "$(dirname "$0")/.." || exit 1

build=$(realpath "${DINST_BUILD:-build}") || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-install-XXXXXX") || exit 1
root=$work/root
export DINST_SOCKET=$work/dinstd.sock
server=

finish() {
	[ -x "$root/usr/bin/dinst" ] && timeout 20 "$root/usr/bin/dinst" stop >/dev/null 2>&1
	[ -n "$server" ] && kill "$server" 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT

fail() {
	echo "FAIL install $*"
	exit 1
}

# The same build directory as for the packages: what is built for /usr is built once.
# Root's umask may be 077: what is installed is everybody's all the same.
(umask 077 && make -s -j"$(nproc)" O="$build/deb/build" PREFIX=/usr DESTDIR="$root" install) >"$work/log" 2>&1 ||
	fail "make install: $(tail -3 "$work/log")"
closed=$(find "$root/usr" ! -type l ! -perm -o=r | head -3)
[ -z "$closed" ] || fail "others cannot read $closed"
for file in bin/dinst sbin/dinstd libexec/dinst/dinst-mutator; do
	[ -x "$root/usr/$file" ] || fail "$file is missing"
done
for page in docs/*.[1-8] docs/man/*.[1-8]; do
	[ -e "$page" ] || continue
	[ -f "$root/usr/share/man/man${page##*.}/$(basename "$page")" ] || fail "$page is missing"
done
for file in data/metrics/*.mdl; do
	[ -f "$root/usr/share/dinst/metrics/$(basename "$file")" ] || fail "$file is missing"
done

# A copy elsewhere, so that nothing can be found by the path it was built with.
mv "$root" "$work/moved"
root=$work/moved
"$build/examples/demo-server" "$work/socket" 2 >"$work/server" 2>&1 &
server=$!
for _ in $(seq 600); do
	grep -q ready "$work/server" && break
	sleep 0.1
done
dinst() {
	(cd / && env -i PATH=/usr/bin:/bin DINST_SOCKET="$DINST_SOCKET" timeout 300 "$root/usr/bin/dinst" "$@")
}
dinst --json metrics >"$work/out" 2>&1 || fail "metrics: $(head -c 300 "$work/out")"
grep -q '"metric":"calls".*moved/usr/share/dinst/metrics/' "$work/out" || fail "metrics: $(head -c 300 "$work/out")"
dinst --json attach "$server" >"$work/out" 2>&1 || fail "attach: $(head -c 300 "$work/out")"
dinst --json insert calls /Code/demo-server/answer_request -p "$server" >"$work/out" 2>&1 ||
	fail "insert: $(head -c 300 "$work/out")"
for _ in 1 2 3; do
	"$build/examples/demo-load" "$work/socket" stats >/dev/null || fail "the server does not answer"
done
dinst --json read >"$work/out" 2>&1 || fail "read: $(head -c 300 "$work/out")"
grep -q '"value": *3[,}]' "$work/out" || fail "not 3 calls: $(head -c 300 "$work/out")"
dinst --json detach >"$work/out" 2>&1 || fail "detach: $(head -c 300 "$work/out")"
dinst stop >/dev/null 2>&1

mv "$root" "$work/root"
root=$work/root
make -s O="$build/deb/build" PREFIX=/usr DESTDIR="$root" uninstall >"$work/log" 2>&1 || fail "make uninstall: $(tail -3 "$work/log")"
left=$(find "$root" -type f | head -5)
[ -z "$left" ] || fail "left behind: $left"
echo "PASS install"
