#!/bin/bash
# SPDX-License-Identifier: MIT
#
# files.sh - programs whose file is not where their maps say: deleted, replaced
# by another one, in a mount namespace and a chroot of their own. Each is
# instrumented by what is mapped, never by what lies at the path now.
. "$(dirname "$0")/lib.sh"

need unshare chroot

# counted: any of them.
counted() {
	dinst --json read -p files >"$work/values" 2>&1
	[ "$(field value values | sum)" -gt 0 ]
}

# one TITLE: all functions in and out, and the count of one compared with what was answered.
one() {
	# The maps name a deleted file otherwise than before.
	prove save "$server" "$work/picture" || fail "cannot look at the server"
	json attach attach "$server" -n files
	json all insert calls "${2:-$all}" --each -p files
	wait_for 60 counted || fail "$1: nothing was counted: $(cat "$work/values")"
	[ "$(field points all | sum)" -ge 30 ] || fail "$1: only $(field points all | sum) points"
	json detach detach -p files
	[ "$(field left detach)" = 0 ] || fail "$1: something is left"
	end_server
	say "$1: $(field points all | sum) points"
}

program=$build/examples/demo-server
real_build=$build

# A tree of its own for each case: the server is started from there, the load from where it is.
prepare() {
	mkdir -p "$work/$1/examples"
	cp "$program" "$work/$1/examples/demo-server"
	cp "$real_build/examples/demo-load" "$real_build/examples/prove" "$work/$1/examples/"
	ln -sf "$real_build/dinst" "$work/$1/dinst"
}

# fear F6: the file of the program is deleted
prepare deleted
build=$work/deleted start_server
rm "$work/deleted/examples/demo-server"
build=$real_build
one "the file is deleted"

# fear F6: the file of the program is replaced by a damaged one
prepare replaced
build=$work/replaced start_server
# A new version at the same path, as a package upgrade makes it.
cp "$program" "$work/replaced/new"
head -c 8192 /dev/urandom >>"$work/replaced/new"
dd if=/dev/urandom of="$work/replaced/new" bs=1 seek=4096 count=4096 conv=notrunc 2>/dev/null
mv "$work/replaced/new" "$work/replaced/examples/demo-server"
build=$real_build
one "the file is replaced by a damaged one"

# fear I1, F6: a mount namespace and a chroot of its own
# A file that is only there in the program's own mount namespace, below its own root.
mkdir -p "$work/root/bin" "$work/root/lib64" "$work/root/lib/x86_64-linux-gnu" "$work/root/run"
cp "$program" "$work/root/bin/demo-server"
ldd "$program" | grep -o '/[^ ]*' | while read -r library; do
	mkdir -p "$work/root$(dirname "$library")"
	cp -L "$library" "$work/root$library"
done
rm -f "$work/server.log" "$work/load.log"
unshare --mount sh -c 'mount -t tmpfs tmpfs "$1/run" && cp "$1/bin/demo-server" "$1/run/hidden" &&
	exec chroot "$1" /run/hidden /socket 3' sh "$work/root" > >(exec cat >"$work/server.log") 2>"$work/unshare.err" &
server=$!
children+=("$server")
# Where there are namespaces it has to start.
if unshare --mount true 2>/dev/null; then
	wait_for 60 grep -q ready "$work/server.log" || fail "in a namespace and a root of its own: the server does not start: $(head -3 "$work/unshare.err")"
	"$build/examples/demo-load" "$work/root/socket" 1 >"$work/load.log" 2>"$work/load.err" &
	load=$!
	children+=("$load")
	wait_for 60 test -s "$work/load.log" || fail "the load does not start"
	one "in a namespace and a root of its own" '/Code/hidden/*'
else
	absent "a namespace and a root of its own" "$(head -1 "$work/unshare.err")"
fi
pass "deleted, replaced, hidden"
