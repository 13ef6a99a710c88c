#!/bin/bash
# SPDX-License-Identifier: MIT
#
# containers.sh - demo-server as process 1 of a container: pid, mount and user
# namespaces, an overlay that is pivoted to and read-only, noexec /tmp, a program that
# exists nowhere else, the system calls that engines allow. dinst from outside, and
# within as an ordinary user. All mounts are in namespaces that end with the container.
. "$(dirname "$0")/lib.sh"

need unshare nsenter pivot_root busybox mount pgrep
confine=$build/tests/tools/confine
[ -x "$confine" ] || skip "confine is not built (make tests)"
unshare --mount --pid --fork true 2>/dev/null || skip "no namespaces here"

# --- what the container's layers are made of: programs, their libraries, nothing else
image=$work/image
mkdir -p "$image"/{bin,tmp,proc,run,dev,old,opt}
cp "$(command -v busybox)" "$image/bin/busybox"
for tool in sh mount umount cat sleep sed ls grep env mkdir chmod; do ln -s busybox "$image/bin/$tool"; done
cp "$build/examples/demo-server" "$image/opt/only-here"
cp "$build/tests/live/targets/libplugin.so" "$image/opt/plugin.so"
cp "$confine" "$build/dinst" "$build/dinstd" "$build/dinst-mutator" "$image/bin/"
cp -rL "$build/metrics" "$image/bin/"
for program in "$image"/bin/{busybox,confine,dinst,dinstd,dinst-mutator} "$image/opt/only-here"; do
	ldd "$program" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
		mkdir -p "$image$(dirname "$library")"
		cp -nL "$library" "$image$library"
	done
done
touch "$image/dev/null"
chmod -R a+rX "$image"
chmod 711 "$work"

# Whatever happens, the daemons of other users do not stay, nor does a container; what is inside ends with it.
end_daemons() {
	local pid

	[ -z "${server:-}" ] || ! grep -qsE '^NSpid:.*[[:space:]]1$' "/proc/$server/status" || kill -9 "$server"
	for pid in $(pgrep -f "dinstd .*$work/|$work/.*dinstd"); do
		kill "$pid"
	done
}
trap 'end_daemons; finish' EXIT

# What process 1 of the container does before it is the program. $1: the image, $2: options.
cat >"$work/init" <<'INIT'
set -e
image=$1 options=$2
shift 2
mount --make-rprivate /
mount -t tmpfs layers "$image/../layers"
mkdir "$image/../layers/upper" "$image/../layers/work"
mount -t overlay overlay -o "lowerdir=$image,upperdir=$image/../layers/upper,workdir=$image/../layers/work" "$image/../merged"
cd "$image/../merged"
mount -t tmpfs -o noexec,nosuid,mode=1777 tmp tmp
mount -t tmpfs -o noexec,mode=1777 run run
mount -t proc proc proc
case $options in *memfd*) echo 2 >/proc/sys/vm/memfd_noexec ;; esac
mount --bind /dev/null dev/null
mkdir -p old
pivot_root . old
cd /
case $options in
*readonly*) exec /bin/sh -c 'umount -l /old; mount -o remount,ro /; exec "$@"' sh "$@" ;;
*) exec /bin/sh -c 'umount -l /old; exec "$@"' sh "$@" ;;
esac
INIT

# first_process PID: the child of it that is process 1 of a namespace.
first_process() {
	local pid

	for pid in $(cat "/proc/$1/task/$1/children"); do
		grep -qE '^NSpid:.*[[:space:]]1$' "/proc/$pid/status" && echo "$pid"
	done
}

# start_container OPTIONS [UNSHARE-OPTION...] -- PROGRAM...: $server is process 1 of it, as seen from here.
# $as, an array, is in front of it all: who makes the container.
as=()
start_container() {
	local options=$1
	local -a spaces=()

	shift
	while [ "$1" != -- ]; do
		spaces+=("$1")
		shift
	done
	shift
	rm -rf "$work/layers" "$work/merged"
	mkdir -p -m 755 "$work/layers" "$work/merged"
	[ ${#as[@]} -eq 0 ] || chown 54321 "$work/layers" "$work/merged"
	rm -f "$work/server.log" "$work/load.log"
	"${as[@]}" unshare --mount --pid --fork "${spaces[@]}" sh "$work/init" "$image" "$options" "$@" \
		> >(exec cat >"$work/server.log") 2>"$work/unshare.err" &
	container=$!
	children+=("$container")
	wait_for 60 grep -q ready "$work/server.log" || fail "the container does not start: $(head -3 "$work/unshare.err")"
	server=$(first_process "$container")
	children+=("$server")
	start_load "/proc/$server/root/run/s"
}

# start_alone SOCKET COMMAND...: $server is no container, but the process that COMMAND becomes.
start_alone() {
	local socket=$1

	shift
	rm -f "$work/server.log"
	"$@" > >(exec cat >"$work/server.log") 2>&1 &
	server=$!
	children+=("$server")
	wait_for 60 grep -q ready "$work/server.log" || fail "$title: the server does not start"
	start_load "$socket"
}

# start_load SOCKET: and the picture of how it was.
start_load() {
	rm -f "$work/load.log"
	"$build/examples/demo-load" "$1" 1 >"$work/load.log" 2>"$work/load.err" &
	load=$!
	children+=("$load")
	wait_for 60 test -s "$work/load.log" || fail "the load does not start: $(cat "$work/load.err")"
	prove save "$server" "$work/picture" || fail "cannot look at the server"
}

# end_container PROCESS: it is as before, no answer was wrong, and it ends well.
end_container() {
	prove check "$server" "$work/picture" >"$work/proof" || fail "$title: not as before: $(head -c 600 "$work/proof")"
	goes_on || fail "$title: the server does not answer any more"
	kill "$load"
	wait "$load" || fail "$title: wrong answers: $(head -3 "$work/load.err")"
	kill "$server"
	wait "$1" || fail "$title: the server ended with status $?"
	say "$title"
}

# within WHO... -- PROGRAM...: in the container's mount and pid namespaces, confined as WHO says.
within() {
	timeout 100 nsenter --target "$server" --mount --pid --root --wd "${enter[@]}" /bin/confine "${@:1:$#}"
}
enter=()

# counted COMMAND...: both instances have a value.
counted() {
	"$@" read -p c --json >"$work/values" 2>&1
	[ "$(field value values | awk '$1 > 0' | wc -l)" -eq "$(has_clock && echo 2 || echo 1)" ]
}

# cycle COMMAND...: attaches to $pid, inserts everything there, counts, detaches. COMMAND runs dinst.
cycle() {
	local status

	"$@" attach "$pid" -n c >"$work/attach" 2>"$work/attach.err" || fail "$title: attach: $(cat "$work/attach.err")"
	# 3: a window waits for a thread that is in it.
	"$@" insert calls "${focus:-/Code/only-here/*}" -p c --json >"$work/insert" 2>"$work/insert.err"
	status=$?
	[ $status -eq 0 ] || [ $status -eq 3 ] || fail "$title: insert: $(cat "$work/insert.err")"
	[ "$(field points insert | sum)" -ge 30 ] || fail "$title: only $(field points insert | sum) points"
	# Without the processor's clock it may need system calls, which a filter of the server's forbids.
	if has_clock; then
		"$@" insert latency /Code/only-here/answer_request -p c --json >"$work/latency" 2>"$work/latency.err"
	fi
	status=$?
	[ $status -eq 0 ] || [ $status -eq 3 ] || fail "$title: latency: $(cat "$work/latency.err")"
	wait_for 60 counted "$@" || fail "$title: nothing was counted: $(cat "$work/values")"
	"$@" detach -t 60 -p c --json >"$work/detach" 2>&1 || fail "$title: detach: $(cat "$work/detach")"
	[ "$(field left detach)" = 0 ] || fail "$title: something is left: $(cat "$work/detach")"
	"$@" stop >/dev/null 2>&1
}

# refused CODE WORDS COMMAND...: attach is refused with that code and these words, at once.
refused() {
	local code=$1 words=$2

	shift 2
	"$@" attach "$pid" --json >"$work/refusal" 2>&1 && fail "$title: attach succeeds"
	grep -q "\"code\":\"$code\"" "$work/refusal" && grep -q -- "$words" "$work/refusal" ||
		fail "$title: not refused as $code with '$words': $(cat "$work/refusal")"
	"$@" doctor "$pid" --json >"$work/doctor" 2>&1 && fail "$title: doctor sees nothing wrong"
	grep -q '"ok":false' "$work/doctor" && grep '"ok":false' "$work/doctor" | grep -q -- "$words" ||
		fail "$title: doctor does not say '$words': $(cat "$work/doctor")"
	"$@" stop >/dev/null 2>&1
}

# fine COMMAND...: doctor finds nothing in the way.
fine() {
	"$@" doctor "$pid" --json >"$work/doctor" 2>&1 || fail "$title: doctor: $(grep false "$work/doctor")"
}

# stamp: from here on nothing is written in the container by dinst.
stamp() {
	touch "$work/stamp"
	sleep 0.1
}

# unwritten DIRECTORY...: since stamp no file was made, changed or taken away in these of the container's file systems.
unwritten() {
	local -a roots=("${@/#//proc/$server/root}")

	find "${roots[@]}" -xdev -newer "$work/stamp" >"$work/written" 2>"$work/written.err" || fail "$title: find: $(cat "$work/written.err")"
	[ ! -s "$work/written" ] || fail "$title: files are written: $(head -5 "$work/written")"
}

inside() { within user=54321 caps=none -- /bin/env -i PATH=/bin HOME=/nowhere /bin/dinst "$@"; }
plain=(user=54321 caps=none --)

# fear I1, I2: a server as process 1 of pid and mount namespaces, on an overlay that was pivoted to and
#   is read-only: root outside, by the pid of outside; no file is written there
namespaces() {
	title="root outside, read-only overlay"
	start_container readonly -- /opt/only-here /run/s 3
	pid=$server
	stamp
	fine dinst
	cycle dinst
	focus='/Code/libc.so.6/*' cycle dinst
	unwritten /tmp /run /dev
	end_container "$container"
}

# fear I1, I2: the same user inside, without privileges, HOME, or a directory that programs run from,
#   where the target is process 1; the daemon needs no privilege of its own
ordinary_user() {
	title="an ordinary user inside, /tmp noexec, no HOME"
	start_container readonly -- /bin/confine "${plain[@]}" /opt/only-here /run/s 3
	pid=1
	fine inside
	cycle inside
	inside exec --wait -e 'insert calls /Code/only-here/main --json' -e 'read --json' -- /opt/only-here >"$work/exec" 2>&1
	grep -q '"points":1' "$work/exec" || fail "$title: exec: $(cat "$work/exec")"
	inside stop >/dev/null 2>&1
	pid=$server
	title="CAP_SYS_PTRACE alone, another user outside"
	mkdir -p -m 700 "$work/theirs"
	chown 54322 "$work/theirs"
	capable() { timeout 100 "$confine" caps=ptrace user=54322 -- env -i DINST_SOCKET="$work/theirs" "$image/bin/dinst" "$@"; }
	fine capable
	cycle capable
	title="an ordinary user inside; CAP_SYS_PTRACE alone outside"
	end_container "$container"
}

# fear A12, I1: user namespaces: root outside, root inside, the ordinary user outside who made it, who may
#   whatever uids and capabilities are in there; and root inside has no rights outside
user_namespaces() {
	title="user namespace: root outside"
	start_container readonly --user --map-root-user -- /opt/only-here /run/s 3
	pid=$server
	cycle dinst
	title="user namespace: root inside"
	root_inside() { timeout 100 nsenter --target "$server" --mount --pid --user --root --wd /bin/env -i DINST_SOCKET=/tmp/d.sock PATH=/bin /bin/dinst "$@"; }
	pid=1
	cycle root_inside
	title="user namespace: root outside, root inside"
	end_container "$container"

	as=("$confine" user=54321 caps=none --)
	title="user namespace: the user who made it"
	"${as[@]}" unshare --user --map-root-user true 2>/dev/null || { as=(); absent "$title" "no user namespaces for users here"; return; }
	start_container plain --user --map-root-user -- /opt/only-here /run/s 3
	as=()
	pid=$server
	mkdir -p -m 700 "$work/owner"
	chown 54321 "$work/owner"
	owner() { timeout 100 "$confine" user=54321 caps=none -- env -i DINST_SOCKET="$work/owner" "$image/bin/dinst" "$@"; }
	stamp
	fine owner
	cycle owner
	unwritten / /tmp /run /dev
	end_container "$container"

	title="user namespace: from inside to outside"
	start_alone "$work/owner/s" "$confine" "${plain[@]}" "$build/examples/demo-server" "$work/owner/s" 3
	pid=$server
	outsider() { timeout 100 "$confine" user=54321 caps=none -- unshare --user --map-root-user env -i DINST_SOCKET="$work/owner/d.sock" "$image/bin/dinst" "$@"; }
	refused not-permitted 'outside of our user namespace' outsider
	end_container "$server"
}

# fear A9, I1: the system calls that container engines allow by default: root outside works; dinst inside,
#   under the same filter, is refused, and the filter and the call are named; one that kills does not kill us
filtered() {
	local filter

	title="a container's filter: root outside"
	start_container readonly -- /bin/confine filter=container "${plain[@]}" /opt/only-here /run/s 3
	pid=$server
	fine dinst
	cycle dinst
	pid=1
	for filter in container nosys:ptrace kill:ptrace trap:process_vm_readv errno:pidfd_open; do
		title="dinst under the filter $filter"
		in_filter() { within "filter=$filter" "${plain[@]}" /bin/env -i PATH=/bin /bin/dinst "$@"; }
		refused not-permitted 'seccomp filter that dinst itself runs under' in_filter
	done
	title="a container's filter, on the server and on dinst"
	end_container "$container"

	title="without kcmp, pidfd_getfd and process_vm_readv"
	start_container readonly -- /bin/confine "${plain[@]}" /opt/only-here /run/s 3
	lacking() { within filter=errno:kcmp,pidfd_getfd,process_vm_readv "${plain[@]}" /bin/env -i PATH=/bin /bin/dinst "$@"; }
	fine lacking
	cycle lacking
	end_container "$container"
}

# fear B8, I2: a pid namespace in which executable memfds are forbidden (vm.memfd_noexec=2), and a target that
#   may not make memory executable: private arenas, from outside and from inside
no_memfd() {
	title="no executable memfd"
	[ -e /proc/sys/vm/memfd_noexec ] || { absent "$title" "this kernel does not know vm.memfd_noexec"; return; }
	start_container readonly,memfd -- /bin/confine mdwe "${plain[@]}" /opt/only-here /run/s 3
	pid=$server
	cycle dinst
	pid=1
	inside doctor --json >"$work/doctor"
	grep -q '"check":"memfd","ok":false.*vm.memfd_noexec is 2' "$work/doctor" || fail "$title: doctor: $(cat "$work/doctor")"
	cycle inside
	end_container "$container"
}

# fear F6, I1: what lies outside at the path that the target's maps name is never taken for the target's own
#   file: with other files there, and with the right ones deleted inside, without the right to see what is mapped
other_contents() {
	local space

	title="other files at the same paths outside"
	start_container plain -- /bin/confine "${plain[@]}" /bin/env LD_PRELOAD=/opt/plugin.so /opt/only-here /run/s 3
	# A mount namespace in which /opt has those. /proc and the rest are ours.
	unshare --mount sh -c 'mount -t tmpfs opt /opt && cp "$1" /opt/only-here && cp "$2" /opt/plugin.so && echo there && exec sleep 3000' sh \
		"$build/examples/demo-load" "$build/tests/live/targets/libimage-plugin.so" >"$work/space" 2>&1 &
	space=$!
	children+=("$space")
	wait_for 60 grep -q there "$work/space" || fail "no second mount namespace: $(cat "$work/space")"
	mkdir -p -m 700 "$work/stranger"
	chown 54321 "$work/stranger"
	stranger() {
		timeout 100 nsenter --target "$space" --mount "$confine" user=54321 caps=none -- \
			env -i DINST_SOCKET="$work/stranger" "$image/bin/dinst" "$@"
	}
	pid=$server
	stamp
	cycle stranger
	unwritten / /tmp /run /dev
	title="the files are deleted inside, others lie outside"
	rm "/proc/$server/root/opt/only-here" "/proc/$server/root/opt/plugin.so"
	prove save "$server" "$work/picture"
	# The kernel leads to the program itself, but to libraries only those with privileges.
	cycle stranger
	stranger attach "$pid" -n c >"$work/attach" 2>&1 || fail "$title: attach: $(cat "$work/attach")"
	stranger insert calls '/Code/plugin.so/*' -p c >"$work/insert" 2>&1 && fail "$title: another library's functions are inserted: $(cat "$work/insert")"
	grep -q 'deleted or replaced' "$work/insert" || fail "$title: the reason is not told: $(cat "$work/insert")"
	stranger detach -p c >/dev/null 2>&1
	stranger stop >/dev/null 2>&1
	title="the files are deleted inside: root outside"
	cycle dinst
	json attach attach "$pid" -n c
	json insert insert calls '/Code/plugin.so/*' -p c
	[ "$(field points insert | sum)" -gt 0 ] || fail "$title: no points in the library"
	json detach detach -t 60 -p c
	title="other files at the same paths outside; deleted inside"
	kill "$space"
	end_container "$container"
}

# fear I1: a chroot whose directory is deleted while the server runs in it
deleted_root() {
	title="a deleted root"
	rm -rf "$work/gone"
	cp -a "$image" "$work/gone"
	mkdir -p "$work/gone/run"
	start_alone "$work/gone/run/s" chroot "$work/gone" /opt/only-here /run/s 3
	rm -rf "$work/gone"
	prove save "$server" "$work/picture"
	pid=$server
	fine dinst
	cycle dinst
	end_container "$server"
}

# fear I1, A12: a /proc that is missing, that is of another pid namespace (where the same pid is somebody
#   else), or that hides processes (hidepid): refused, and named with the way out
proc_mounts() {
	title="/proc of another pid namespace"
	start_container readonly -- /opt/only-here /run/s 3
	pid=$server
	foreign() { timeout 100 unshare --mount --pid --fork env -i DINST_SOCKET="$work/dinstd/f.sock" "$image/bin/dinst" "$@"; }
	refused unsupported 'another pid namespace' foreign
	title="no /proc"
	bare() { timeout 100 unshare --mount sh -c 'umount -l /proc && exec "$@"' sh env -i DINST_SOCKET="$work/dinstd/b.sock" "$image/bin/dinst" "$@"; }
	bare doctor "$pid" --json >"$work/doctor" 2>&1 && fail "$title: doctor sees nothing wrong"
	grep -q '/proc is not mounted' "$work/doctor" || fail "$title: doctor: $(cat "$work/doctor")"
	bare attach "$pid" >"$work/refusal" 2>&1 && fail "$title: attach succeeds"
	grep -q '/proc' "$work/refusal" || fail "$title: $(cat "$work/refusal")"
	title="hidepid"
	mkdir -p -m 700 "$work/stranger"
	chown 54321 "$work/stranger"
	hidden() {
		timeout 100 unshare --mount sh -c 'mount -t proc -o hidepid=2 proc /proc && exec "$@"' sh \
			"$confine" user=54321 caps=none -- env -i DINST_SOCKET="$work/stranger/h.sock" "$image/bin/dinst" "$@"
	}
	refused no-such-process hidepid hidden
	title="/proc: foreign, missing, hiding"
	end_container "$container"
}

for ((round = 0; round < $(short 2 1); round++)); do
	namespaces
	ordinary_user
	user_namespaces
	filtered
	no_memfd
	other_contents
	deleted_root
	proc_mounts
done
has_clock || absent "latencies in containers" "the kernel does not trust this processor's clock"
pass "nine kinds of containers"
