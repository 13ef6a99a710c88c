#!/bin/bash
# SPDX-License-Identifier: MIT
#
# groups.sh - targets whose control groups leave them little: memory, processes,
# CPU time, or nothing at all (frozen). Whatever we need more than there is, is
# refused; it is never the target that pays. The groups are below our own, and go
# when the test ends.
. "$(dirname "$0")/lib.sh"

need awk pgrep
confine=$build/tests/tools/confine
[ -x "$confine" ] || skip "confine is not built (make tests)"
groups=()

# new_group CONTROLLER: makes a group below ours, version 1, or 2 where that has the controller;
# its directory is in $group. Fails where there is none.
new_group() {
	local controller=$1 own point

	point=$(awk -v c="$controller" '$9 == "cgroup" || $8 == "cgroup" || $7 == "cgroup" {
		n = split($NF, words, ","); for (i = 1; i <= n; i++) if (words[i] == c) { print $5; exit } }' \
		<(sed 's/ - / /' /proc/self/mountinfo))
	if [ -n "$point" ]; then
		own=$(sed -nE "s/^[0-9]+:([^:]*,)?$controller(,[^:]*)?:(.*)/\3/p" /proc/self/cgroup)
	else
		point=$(awk '$7 == "cgroup2" || $8 == "cgroup2" || $9 == "cgroup2" { print $5; exit }' <(sed 's/ - / /' /proc/self/mountinfo))
		own=$(sed -n 's/^0:://p' /proc/self/cgroup)
		[ "$controller" = freeze ] || grep -qw "$controller" "$point$own/cgroup.subtree_control" 2>/dev/null || return 1
	fi
	[ -n "$point" ] && [ -n "$own" ] || return 1
	group=${point}${own%/}/dinst-test-$$-${#groups[@]}
	mkdir "$group" 2>/dev/null || return 1
	groups+=("$group")
}

leave_groups() {
	local pid

	for group in "${groups[@]}"; do
		thaw "$group" 2>/dev/null
	done
	# Also the one that is in the group.
	for pid in $(pgrep -f "dinstd .*$work/|$work/.*dinstd"); do
		kill "$pid"
	done
	finish
	for group in "${groups[@]}"; do
		wait_for 60 rmdir "$group" || echo "  cannot remove $group"
	done
}
trap leave_groups EXIT

# put VALUE FILE...: into the first of these files that the group has.
put() {
	local value=$1 file

	shift
	for file in "$@"; do
		if [ -e "$group/$file" ]; then
			echo "$value" >"$group/$file"
			return
		fi
	done
	return 1
}

freeze() {
	if [ -e "$1/freezer.state" ]; then echo FROZEN >"$1/freezer.state"; else echo 1 >"$1/cgroup.freeze"; fi
	wait_for 60 grep -qsE '^(FROZEN|frozen 1)$' "$1/freezer.state" "$1/cgroup.events" || fail "$title: it does not freeze"
}

thaw() {
	if [ -e "$1/freezer.state" ]; then echo THAWED >"$1/freezer.state"; elif [ -e "$1/cgroup.freeze" ]; then echo 0 >"$1/cgroup.freeze"; fi
}

usage() {
	cat "$group/memory.usage_in_bytes" 2>/dev/null || cat "$group/memory.current"
}

# refused WORDS ARGS...: dinst ARGS ends with status 1 and these words, within a few seconds.
refused() {
	local words=$1 begun=$SECONDS

	shift
	timeout 60 "$build/dinst" --json "$@" >"$work/refusal" 2>&1
	[ $? -eq 1 ] || fail "$title: $*: not refused: $(cat "$work/refusal")"
	grep -q -- "$words" "$work/refusal" || fail "$title: $*: without '$words': $(cat "$work/refusal")"
	[ $((SECONDS - begun)) -lt 30 ] || fail "$title: $*: took $((SECONDS - begun)) s"
}

# cramped ARGS...: dinst, its daemon and its mutators in the target's group.
cramped() {
	"$confine" cgroup="$group" -- env DINST_SOCKET="$work/dinstd/cramped.sock" timeout 60 "$build/dinst" --json "$@"
}

# fear I3: at the limit of memory (what it uses and half a MB, besides what the kernel sets aside) all of libc is refused, for its pages would
#   have the kernel kill the target; what is small goes in; with more room all does
memory() {
	local daemon one first aside

	title="little memory"
	new_group memory || { absent "$title" "no memory controller here"; return; }
	start_server "$confine" cgroup="$group" --
	# Each processor may set 256 KiB aside for the group (64 pages, mm/memcontrol.c), which count as used;
	# libc needs 1.4 MB.
	aside=$(($(nproc) < 3 ? $(nproc) : 3))
	put $(($(usage) + (512 + aside * 256) * 1024)) memory.limit_in_bytes memory.max || fail "$title: no limit"
	json attach attach "$server" -n limited
	# fear I3: the daemon and its mutators are the first that the kernel ends where memory runs out
	# its log is written by a thread of its own, behind the answers
	wait_for 60 grep -q ' dinstd: version .*, socket ' "$work/dinstd/dinstd.log" || fail "$title: the daemon does not say who it is"
	daemon=$(sed -n 's/.* dinstd: version .*, pid \([0-9]*\), socket .*/\1/p' "$work/dinstd/dinstd.log" | tail -1)
	for one in "$daemon" $(cat "/proc/$daemon/task/$daemon/children"); do
		[ "$(cat "/proc/$one/oom_score_adj")" = 1000 ] || fail "$title: $(cat "/proc/$one/comm") is not the first to go: $(cat "/proc/$one/oom_score_adj")"
		first=$((${first:-0} + 1))
	done
	[ "$first" -ge 2 ] || fail "$title: no mutator was looked at"
	refused 'its control group has only' insert calls '/Code/libc.so.6/*' -p limited
	grep -q '"code":"refused"' "$work/refusal" || fail "$title: $(cat "$work/refusal")"
	json insert insert calls /Code/demo-server/answer_request -p limited
	wait_for 60 counts "$(field id insert)" limited || fail "$title: nothing was counted"
	put $(($(usage) + 16 * 1024 * 1024)) memory.limit_in_bytes memory.max
	json all insert calls '/Code/libc.so.6/*' -p limited
	[ "$(field points all | sum)" -gt 1000 ] || fail "$title: only $(field points all | sum) points"
	json detach detach -t 60 -p limited
	[ "$(field left detach)" = 0 ] || fail "$title: something is left"
	dinst --json doctor "$server" >"$work/doctor"
	grep -q '"check":"memory".* KiB more' "$work/doctor" || fail "$title: doctor does not tell"
	if [ -e "$group/memory.oom_control" ]; then
		grep -q 'oom_kill 0' "$group/memory.oom_control" || fail "$title: the kernel has killed somebody"
	else
		grep -q 'oom_kill 0' "$group/memory.events" || fail "$title: the kernel has killed somebody"
	fi
	end_server
	say "$title: libc refused, one function in, all with more room"
}

# fear I3: dinst in the target's own group, where there is not enough for both: it is dinst that goes
shared_memory() {
	local status try

	title="dinst in the target's group"
	new_group memory || { absent "$title" "no memory controller here"; return; }
	start_server "$confine" cgroup="$group" --
	put $(($(usage) + 6 * 1024 * 1024)) memory.limit_in_bytes memory.max
	cramped attach "$server" -n cramped >"$work/attach" 2>&1
	status=$?
	for try in 1 2 3; do
		[ $status -eq 1 ] && break
		cramped insert calls '/Code/*/*' -p cramped >"$work/insert" 2>&1
		status=$?
	done
	is_gone "$server" && fail "$title: the target was killed"
	put $(($(usage) + 64 * 1024 * 1024)) memory.limit_in_bytes memory.max
	cramped detach -p cramped >/dev/null 2>&1
	cramped stop >/dev/null 2>&1
	# Whoever was killed: from outside of the group it is put right.
	json repair repair "$server"
	end_server
	say "$title: status $status, $(grep -h '^oom_kill ' "$group/memory.oom_control" "$group/memory.events" 2>/dev/null | tr '\n' ' ')the target lives"
}

# fear I3: the target's group may have no process or thread more: we need none there
processes() {
	local room status

	title="no process more"
	new_group pids || { absent "$title" "no pids controller here"; return; }
	start_server "$confine" cgroup="$group" --
	put "$(cat "$group/pids.current")" pids.max
	json attach attach "$server" -n limited
	json insert insert calls "$all" --each -p limited
	json more insert calls /Code/demo-server/answer_request -p limited
	wait_for 60 counts "$(field id more)" limited || fail "$title: nothing was counted"
	json detach detach -t 60 -p limited
	[ "$(field left detach)" = 0 ] || fail "$title: something is left"
	# And dinst itself, where there are hardly any: an error, and nothing is left behind.
	for room in 2 3 4 5 6; do
		put $(($(cat "$group/pids.current") + room)) pids.max
		cramped attach "$server" -n cramped >"$work/attach" 2>&1
		status=$?
		[ $status -le 1 ] || fail "$title: status $status: $(cat "$work/attach")"
		[ $status -eq 1 ] || cramped insert calls "$all" -p cramped >"$work/insert" 2>&1
		put max pids.max
		cramped detach -p cramped >/dev/null 2>&1
		cramped stop >/dev/null 2>&1
	done
	end_server
	say "$title: worked from outside"
}

# fear I3, K2: a target that gets 5 % of a CPU: a stop takes its time, keeps its deadline, and is right
throttled() {
	local round longest=0 inserted=0

	title="5 % of a CPU"
	new_group cpu || { absent "$title" "no cpu controller here"; return; }
	start_server "$confine" cgroup="$group" --
	if [ -e "$group/cpu.cfs_quota_us" ]; then put 5000 cpu.cfs_quota_us; else put "5000 100000" cpu.max; fi
	json attach attach "$server" -n slow
	# Busy is an answer, too; but not to all of them.
	for ((round = 0; round < $(short 20 4) || (inserted == 0 && round < 60); round++)); do
		dinst --json insert calls "$all" -p slow >"$work/insert" 2>&1
		case $? in
		0 | 3)
			[ "$(field points insert | sum)" -ge 30 ] || fail "$title: only $(field points insert | sum) points"
			wait_for 60 counts "$(field id insert)" slow || fail "$title: nothing was counted"
			inserted=$((inserted + 1))
			;;
		1) grep -qE '"code":"busy"' "$work/insert" || fail "$title: $(cat "$work/insert")" ;;
		*) fail "$title: $(cat "$work/insert")" ;;
		esac
		longest=$({ echo "$longest"; field stop_us insert; } | largest)
		dinst --json remove --all -p slow >"$work/remove" 2>&1
		dinst --json flush -p slow >"$work/flush" 2>&1
	done
	dinst --json detach -t 20 -p slow >"$work/detach" 2>&1
	if [ "$(field left detach)" != 0 ]; then
		wait_for 120 dinst repair "$server" || fail "$title: repair"
	fi
	if [ -e "$group/cpu.cfs_quota_us" ]; then put -1 cpu.cfs_quota_us; else put max cpu.max; fi
	end_server
	[ $inserted -gt 0 ] || fail "$title: busy $round times, and never anything else"
	[ "$longest" -le 2000000 ] || fail "$title: it stood still for $longest us"
	say "$title: $(grep nr_throttled "$group/cpu.stat"), $inserted of $round inserted, stopped for $longest us"
}

# Whose client is killed while all is frozen: nobody is there to be told, and it is taken out all the same.
forsaken() {
	local tracer

	rm -f "$work/trace"
	"$build/dinst" trace answer_request -p "$server" >"$work/trace" 2>&1 &
	tracer=$!
	children+=("$tracer")
	wait_for 60 grep -q answer_request "$work/trace" || fail "$title: trace: $(head -3 "$work/trace")"
	freeze "$group"
	disown "$tracer"
	kill -9 "$tracer"
	wait_for 100 grep -q "had to stay in pid $server" "$work/dinstd/dinstd.log" || fail "$title: nothing had to stay: $(tail -3 "$work/dinstd/dinstd.log")"
	thaw "$group"
	wait_for 100 grep -q "pid $server is repaired: {" "$work/dinstd/dinstd.log" || fail "$title: not repaired: $(tail -3 "$work/dinstd/dinstd.log")"
}

# fear J2, I3: frozen groups of both versions: refused at once, by name; frozen when it is instrumented: values
#   can be read, what takes a system call in it is refused, detach says what is left, and all goes when it thaws
frozen() {
	title="frozen ($1)"
	new_group "$1" || { absent "$title" "not here"; return; }
	start_server "$confine" cgroup="$group" --
	freeze "$group"
	refused 'control group is frozen' attach "$server" -n cold
	grep -q '"code":"busy"' "$work/refusal" || fail "$title: $(cat "$work/refusal")"
	dinst --json doctor "$server" >"$work/doctor" && fail "$title: doctor sees nothing wrong"
	grep -q '"check":"frozen","ok":false.*thaw' "$work/doctor" || fail "$title: doctor: $(cat "$work/doctor")"
	thaw "$group"
	json attach attach "$server" -n cold
	json insert insert calls /Code/demo-server/answer_request -p cold
	wait_for 60 counts "$(field id insert)" cold || fail "$title: nothing was counted"
	freeze "$group"
	[ "$(read_value "$(field id insert)" cold)" -gt 0 ] || fail "$title: nothing was counted"
	refused 'control group is frozen' insert latency /Code/demo-server/answer_request -p cold
	dinst --json detach -t 1 -p cold >"$work/detach" 2>&1
	[ $? -eq 3 ] && [ "$(field left detach)" != 0 ] && grep -q frozen "$work/detach" ||
		fail "$title: detach: $(cat "$work/detach")"
	thaw "$group"
	json repair repair "$server"
	if has_clock; then forsaken; else say "$title: no events without a trusted clock: no client that is killed"; fi
	end_server
	say "$title: refused, and put right afterwards"
}

for ((turn = 0; turn < $(short 2 1); turn++)); do
	memory
	shared_memory
	processes
	throttled
	frozen freeze
	frozen freezer
done
[ ${#groups[@]} -gt 0 ] || skip "no control groups here"
pass "${#groups[@]} control groups"
