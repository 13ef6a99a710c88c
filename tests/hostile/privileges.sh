#!/bin/bash
# SPDX-License-Identifier: MIT
#
# privileges.sh - an ordinary user on his own processes, with everything missing that
# can be missing: a runtime directory, a home, room on disks, descriptors, threads. And
# who may not, is told why: another tracer, set-uid programs, programs that may not be
# read. All mounts are in namespaces that end with the command.
. "$(dirname "$0")/lib.sh"

need unshare nsenter mount pgrep prlimit
confine=$build/tests/tools/confine
[ -x "$confine" ] || skip "confine is not built (make tests)"
yama=$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)
user=54321 # nobody has it
plain=("$work/bin/confine" "user=$user" caps=none --)
# Where he can get at it: the programs, and a directory of his own.
mkdir -p "$work/bin" "$work/his"
cp "$build/dinst" "$build/dinstd" "$build/dinst-mutator" "$build/examples/demo-server" "$confine" "$work/bin/"
cp -rL "$build/metrics" "$work/bin/"
chmod -R a+rX "$work/bin"
chown $user "$work/his"
chmod 700 "$work/his"
"${plain[@]}" "$work/bin/dinst" --version >/dev/null 2>&1 || skip "users cannot run programs in $work"
tracer=tracer=any
[ "$yama" -le 1 ] || skip "kernel.yama.ptrace_scope is $yama: nobody may trace"

# Whatever happens, his daemons do not stay.
end_daemons() {
	local pid

	for pid in $(pgrep -f "dinstd .*$work/|$work/.*dinstd"); do
		kill "$pid"
	done
}
trap 'end_daemons; cat "$work"/his/*.log >"$work/his.log" 2>/dev/null; finish' EXIT

# start_own PROGRAM: demo-server as his own process, and its load.
start_own() {
	rm -f "$work/server.log" "$work/load.log"
	"$confine" user=$user caps=none $tracer -- "$1" "$work/his/s" 2 > >(exec cat >"$work/server.log") 2>&1 &
	server=$!
	children+=("$server")
	wait_for 60 grep -q ready "$work/server.log" || fail "the server does not start"
	"$build/examples/demo-load" "$work/his/s" 1 >"$work/load.log" 2>"$work/load.err" &
	load=$!
	children+=("$load")
	wait_for 60 test -s "$work/load.log" || fail "the load does not start"
	prove save "$server" "$work/picture" || fail "cannot look at the server"
}

# his ARGS...: dinst as that user; $place is what stands in front: limits, mounts, variables.
place=()
variables=()
his() {
	timeout 100 "${place[@]}" "${plain[@]}" env -i PATH=/usr/bin:/bin "${variables[@]}" "$work/bin/dinst" "$@"
}

counted() {
	[ "$(his --json read -p own | sed -n 's/.*"value": *\([0-9]*\).*/\1/p')" -gt 0 ]
}

# works: attach, insert all, count, detach; one daemon for each.
works() {
	his --json attach "$server" -n own >"$work/out" 2>&1 || fail "$title: attach: $(cat "$work/out")"
	his --json insert calls "$all" -p own >"$work/insert" 2>&1
	# 3: a window waits for a thread that is in it.
	case $? in 0 | 3) ;; *) fail "$title: insert: $(cat "$work/insert")" ;; esac
	wait_for 60 counted || fail "$title: nothing was counted"
	his --json detach -t 50 -p own >"$work/detach" 2>&1 || fail "$title: detach: $(cat "$work/detach")"
	his stop >/dev/null 2>&1
	prove check "$server" "$work/picture" >"$work/proof" || fail "$title: not as before: $(head -c 600 "$work/proof")"
	say "$title: works"
}

# refuses WORDS: attach fails with these words, and nothing is left.
refuses() {
	his --json attach "$server" -n own >"$work/out" 2>&1
	[ $? -eq 1 ] || fail "$title: status $?, not refused: $(cat "$work/out")"
	grep -q '"message":"..*' "$work/out" && grep -qE -- "$1" "$work/out" || fail "$title: without '$1': $(cat "$work/out")"
	his stop >/dev/null 2>&1
	prove check "$server" "$work/picture" >"$work/proof" || fail "$title: not as before: $(head -c 600 "$work/proof")"
	say "$title: $(sed -n 's/.*"message":"\([^"]*\)".*/\1/p' "$work/out" | head -1)"
}

# fear I2, A12: the daemon of an ordinary user needs no privilege, no runtime directory, no home and no cache
ordinary() {
	title="a directory named by DINST_SOCKET"
	variables=(DINST_SOCKET="$work/his/d1.sock")
	works
	title="neither XDG_RUNTIME_DIR nor HOME"
	variables=()
	# By that user's own name in /tmp, in a /tmp that ends with the command.
	place=(nsenter --target "$tmp_space" --mount)
	works
	title="XDG_RUNTIME_DIR of another user (left by su)"
	mkdir -p "$work/hers"
	variables=(XDG_RUNTIME_DIR="$work/hers")
	works
	title="XDG_RUNTIME_DIR that is not there"
	variables=(XDG_RUNTIME_DIR="$work/his/nowhere")
	refuses "$work/his/nowhere"
	place=()
	title="HOME and cache read-only"
	mkdir -p "$work/home"
	variables=(DINST_SOCKET="$work/his/d2.sock" HOME="$work/home")
	works
	title="the cache is a file"
	echo >"$work/his/cache"
	variables=(DINST_SOCKET="$work/his/d3.sock" XDG_CACHE_HOME="$work/his/cache")
	works
	title="a directory that may not be written"
	variables=(DINST_SOCKET="$work/hers")
	refuses "not-permitted|ermission denied"
}

# A mount namespace that stays, with a /tmp and small file systems of its own.
make_space() {
	unshare --mount sh -c '
		mkdir -p "$1/full" "$1/nodes" "$1/ro" &&
		mount --make-rprivate / && mount --bind "$1" /mnt && mount -t tmpfs -o mode=1777,noexec tmp /tmp &&
		mkdir -p "$1" && mount --move /mnt "$1" &&
		mount -t tmpfs -o size=256k,mode=1777 full "$1/full" && head -c 1000000 /dev/zero >"$1/full/filler" 2>/dev/null
		mount -t tmpfs -o nr_inodes=2,mode=1777 nodes "$1/nodes" && touch "$1/nodes/last"
		mount -t tmpfs -o mode=1777 ro "$1/ro" && mount -o remount,ro "$1/ro" && echo there && exec sleep 3000' sh "$work" >"$work/space" 2>&1 &
	tmp_space=$!
	children+=("$tmp_space")
	wait_for 60 grep -q there "$work/space" || fail "no mount namespace: $(cat "$work/space")"
}

# fear I2: a disk without inodes, a read-only one: for the socket's directory told with the path and
#   the reason; for the cache and the home these are no obstacle, and a full disk is for nothing
disks() {
	place=(nsenter --target "$tmp_space" --mount)
	title="cache on a full disk"
	variables=(DINST_SOCKET="$work/his/d4.sock" XDG_CACHE_HOME="$work/full")
	works
	title="cache without inodes"
	variables=(DINST_SOCKET="$work/his/d5.sock" XDG_CACHE_HOME="$work/nodes")
	works
	title="cache read-only"
	variables=(DINST_SOCKET="$work/his/d6.sock" XDG_CACHE_HOME="$work/ro" XDG_STATE_HOME="$work/ro")
	works
	title="socket without inodes"
	variables=(XDG_RUNTIME_DIR="" DINST_SOCKET="$work/nodes/d.sock")
	refuses "$work/nodes.*No space left"
	title="socket read-only"
	variables=(DINST_SOCKET="$work/ro/d.sock")
	refuses "$work/ro.*Read-only"
	title="socket on a full disk"
	variables=(DINST_SOCKET="$work/full/d.sock")
	works
	place=()
}

# fear I3: few descriptors, no processes, little address space and no core for dinst, its daemon and mutators: an
#   error that says what is missing, or it works; the target is as before
limits() {
	local limit status worked=0 refused=0 tasks

	tasks=$(find /proc/[0-9]*/task -mindepth 1 -maxdepth 1 -user $user 2>/dev/null | wc -l)
	for limit in --nofile=64 --nofile=24 --nofile=16 --nofile=12 --nofile=9 --nproc=$((tasks + 1)) --nproc=$((tasks + 2)) \
		--nproc=$((tasks + 3)) --nproc=$((tasks + 4)) --nproc=$((tasks + 6)) --nproc=$((tasks + 12)) --as=300000000 --as=100000000 --as=60000000 \
		--fsize=0 --fsize=4096 --data=4000000 --stack=65536 --memlock=0 --rttime=1; do
		variables=(DINST_SOCKET="$work/his/l.sock")
		place=(prlimit "$limit")
		: >"$work/insert"
		# Through a pipe: a limit on files is for those of dinst, not for its words.
		his --json attach "$server" -n own 2>&1 | cat >"$work/out"
		status=${PIPESTATUS[0]}
		if [ "$status" -eq 0 ]; then
			his --json insert calls "$all" -p own 2>&1 | cat >"$work/insert"
			status=${PIPESTATUS[0]}
		fi
		case $status in
		0 | 3) worked=$((worked + 1)) ;;
		1) refused=$((refused + 1)) ;;
		# What runs dinst did not have what it takes, and says so itself. A death by a signal is none of these.
		125) grep -hq '^confine: cannot ' "$work/out" "$work/insert" || fail "$limit: status 125: $(cat "$work/out" "$work/insert")" ;;
		127) grep -hq 'error while loading' "$work/out" "$work/insert" || fail "$limit: status 127: $(cat "$work/out" "$work/insert")" ;;
		*) fail "$limit: status $status: $(cat "$work/out" "$work/insert")" ;;
		esac
		[ $status -ne 1 ] || grep -hq '"message":"..*' "$work/out" "$work/insert" ||
			fail "$limit: no reason: $(cat "$work/out" "$work/insert")"
		grep -hqE 'signal (4|6|7|8|11)\b' "$work/out" "$work/insert" && fail "$limit: something crashed: $(cat "$work/out" "$work/insert")"
		[ -z "${VERBOSE:-}" ] || echo "  $limit: $status $(cat "$work/out" "$work/insert" 2>/dev/null | grep -h message)"
		place=()
		his detach -p own >/dev/null 2>&1
		his stop >/dev/null 2>&1
		his repair "$server" >/dev/null 2>&1
		his stop >/dev/null 2>&1
		prove check "$server" "$work/picture" >"$work/proof" || fail "$limit: not as before: $(head -c 600 "$work/proof")"
	done
	[ "$worked" -gt 2 ] && [ "$refused" -gt 2 ] || fail "limits: $worked worked, $refused refused: these are the wrong limits"
	say "limits for dinst: $worked worked, $refused refused with the reason"
}

end_own() {
	kill "$load"
	wait "$load" || fail "wrong answers: $(head -3 "$work/load.err")"
	kill "$server"
	wait "$server" || fail "the server ended with status $?"
}

# fear A11: a real tracer has it: attach and doctor name it by pid and name, with a code of its own; when it has
#   gone all works
tracers() {
	local tracer_pid command

	for command in strace gdb; do
		place=()
		have $command || { absent "traced by $command" "is not installed"; continue; }
		title="traced by $command"
		start_server
		if [ $command = strace ]; then
			strace -f -o /dev/null -e trace=none -p "$server" 2>"$work/tracer.err" &
		else
			# It waits for commands; ended by a signal it may leave the server stopped.
			rm -f "$work/commands"
			mkfifo "$work/commands"
			exec 9<>"$work/commands"
			gdb -nx -q -p "$server" <"$work/commands" >"$work/tracer.err" 2>&1 9>&- &
		fi
		tracer_pid=$!
		children+=("$tracer_pid")
		wait_for 60 grep -qE "^TracerPid:.*[1-9]" "/proc/$server/status" || fail "$title: it does not trace: $(cat "$work/tracer.err")"
		dinst --json attach "$server" -n traced >"$work/out" 2>&1
		[ $? -eq 1 ] || fail "$title: not refused: $(cat "$work/out")"
		grep -q "\"code\":\"already-traced\".*traced by process $tracer_pid ($command)" "$work/out" ||
			fail "$title: the tracer $tracer_pid is not named: $(cat "$work/out")"
		dinst --json doctor "$server" >"$work/doctor" && fail "$title: doctor sees nothing wrong"
		grep -q "\"check\":\"tracer\",\"ok\":false.*$tracer_pid ($command).*end process $tracer_pid" "$work/doctor" ||
			fail "$title: doctor: $(cat "$work/doctor")"
		if [ $command = gdb ]; then printf 'detach\nquit\n' >&9; else kill "$tracer_pid"; fi
		wait "$tracer_pid" 2>/dev/null
		wait_for 60 grep -qE "^TracerPid:.*[^0-9]0$" "/proc/$server/status" || fail "$title: it goes on tracing"
		prove save "$server" "$work/picture"
		json attach attach "$server" -n free
		json insert insert calls "$all" -p free
		wait_for 60 counts "$(field id insert)" free || fail "$title: nothing was counted when it has gone"
		json detach detach -t 60 -p free
		end_server
		say "$title: refused by name, then works"
	done
}

# denied WORDS: his attach and doctor say why not; root may.
denied() {
	refuses "$1"
	his --json doctor "$server" >"$work/doctor" 2>&1 && fail "$title: doctor sees nothing wrong"
	grep '"ok":false' "$work/doctor" | grep -q "$1" || fail "$title: doctor: $(cat "$work/doctor")"
	json attach attach "$server" -n root
	json insert insert calls "/Code/$2/*" -p root
	[ "$(field points insert | sum)" -ge 30 ] || fail "$title: only $(field points insert | sum) points"
	wait_for 60 counts "$(field id insert)" root || fail "$title: nothing was counted"
	json detach detach -t 60 -p root
	[ "$(field left detach)" = 0 ] || fail "$title: something is left: $(cat "$work/detach")"
	prove check "$server" "$work/picture" >"$work/proof" || fail "$title: not as before: $(head -c 600 "$work/proof")"
}

# fear A12: his own processes that the kernel keeps from him: a set-uid program, one whose file he may not
#   read; and root's, another user's: each told apart
kept_from_him() {
	variables=(DINST_SOCKET="$work/his/k.sock")
	title="a set-uid program"
	cp "$build/examples/demo-server" "$work/bin/raised"
	chmod 4755 "$work/bin/raised"
	chmod 777 "$work/his"
	start_own "$work/bin/raised"
	chmod 700 "$work/his"
	if [ "$(awk '/^Uid:/ { print $3 }' "/proc/$server/status")" = 0 ]; then
		denied 'effective 0, ' raised
		end_own
	else
		absent "$title" "set-uid has no effect here"
		end_own
	fi
	title="a file that he may run, not read"
	cp "$build/examples/demo-server" "$work/bin/secret"
	chmod 711 "$work/bin/secret"
	start_own "$work/bin/secret"
	denied 'not dumpable.*may not read' secret
	end_own
}

make_space
for ((turn = 0; turn < $(short 2 1); turn++)); do
	start_own "$work/bin/demo-server"
	ordinary
	disks
	limits
	end_own
	tracers
	kept_from_him
done
kill "$tmp_space"
pass "an ordinary user, and who is told why not"
