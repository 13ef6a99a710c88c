#!/bin/bash
# SPDX-License-Identifier: MIT
#
# places.sh - what another user of the machine may put in the place of the socket, its
# directory, the lock, the log and the cache; who may speak to whom; what is handed on to
# programs; what names of programs do to a terminal.
. "$(dirname "$0")/lib.sh"

need setpriv timeout mkfifo
id nobody >/dev/null 2>&1 || skip "there is no user nobody"
theirs=(setpriv --reuid=nobody --regid=nogroup --clear-groups)
mine=(setpriv --reuid=54321 --regid=54321 --clear-groups)
mkdir -p "$work/bin"
cp "$build/dinst" "$build/dinstd" "$build/dinst-mutator" "$work/bin/"
cp -rL "$build/metrics" "$work/bin/"
chmod -R a+rX "$work/bin"
"${theirs[@]}" "$work/bin/dinst" --version >/dev/null 2>&1 || skip "nobody cannot run programs in $work"
start_server
shared=$work/shared
mkdir "$shared"
chmod 1777 "$shared"

# refused TITLE COMMAND...: it fails, soon, and without a session.
refused() {
	local title=$1 status

	shift
	timeout 60 "$@" >"$work/out" 2>&1
	status=$?
	[ $status -ne 0 ] && [ $status -ne 124 ] || fail "$title: status $status: $(head -c 300 "$work/out")"
	say "$title: $(head -1 "$work/out" | cut -c1-110)"
}

attach() {
	env DINST_SOCKET="$shared/p.sock" "$work/bin/dinst" attach "$server"
}
export -f attach
export shared work server

# fear L2: a link or anything else in the place of the lock, the log or the socket is
#   refused, not followed, not waited for, and the file that it leads to is as before
for place in p.lock p.log p.sock; do
	for what in hard symbolic dangling fifo directory; do
		echo precious >"$work/precious"
		case $what in
		hard) ln "$work/precious" "$shared/$place" ;;
		symbolic) ln -s "$work/precious" "$shared/$place" ;;
		dangling) ln -s "$work/not-there" "$shared/$place" ;;
		fifo) mkfifo "$shared/$place" ;;
		directory) mkdir "$shared/$place" ;;
		esac
		# A directory in the place of the socket stands for a socket in it.
		if [ $place$what = p.sockdirectory ]; then
			chmod 777 "$shared/$place"
		fi
		refused "$what $place" bash -c attach
		[ "$(cat "$work/precious")" = precious ] || fail "$what $place: what it leads to was changed"
		[ ! -e "$work/not-there" ] || fail "$what $place: a file was made where it leads to"
		rm -rf "${shared:?}"/p.*
	done
done

# fear L2: the directory of the socket belongs to somebody else, is open to others, or is a
#   link: nothing is put into it
places=/tmp/dinst-54321
[ ! -e $places ] || fail "$places exists"
for what in theirs link open; do
	case $what in
	theirs) "${theirs[@]}" mkdir -m 777 $places ;;
	link) "${theirs[@]}" ln -s "$shared" $places ;;
	open) "${mine[@]}" mkdir -m 777 $places && chmod 777 $places ;;
	esac
	refused "/tmp/dinst-UID, $what" "${mine[@]}" env -u DINST_SOCKET -u XDG_RUNTIME_DIR "$work/bin/dinst" attach 1
	left=$(ls -A "$shared" $places/ 2>/dev/null | grep -c 'dinstd\.')
	rm -rf $places
	[ "$left" -eq 0 ] || fail "$what: something was put there"
done

# fear L2: only the daemon's own user and root are served, whatever the socket's mode says,
#   and nobody speaks to a daemon of somebody else's
"$work/bin/dinst" attach "$server" -n guarded >/dev/null 2>&1 || fail "attach"
chmod 711 "$work/dinstd"
refused "the socket of root's daemon" "${theirs[@]}" env DINST_SOCKET="$DINST_SOCKET" "$work/bin/dinst" ls
chmod 666 "$DINST_SOCKET"
answer=$("${theirs[@]}" "$build/tests/tools/rude" good "$DINST_SOCKET" 1 guarded 3000 2>&1) &&
	fail "nobody was served by root's daemon: $answer"
# A thread of the daemon's writes its log.
wait_for 60 grep -q 'turned away' "$work/dinstd/dinstd.log" || fail "the log does not tell of it: $answer"
chmod 600 "$DINST_SOCKET"
chmod 700 "$work/dinstd"
"${theirs[@]}" "$work/bin/dinstd" -s "$shared/theirs.sock" >/dev/null 2>&1 &
their_daemon=$!
children+=("$their_daemon")
wait_for 60 test -S "$shared/theirs.sock" || fail "their daemon does not start"
chmod 666 "$shared/theirs.sock"
refused "another user's daemon" "${mine[@]}" env DINST_SOCKET="$shared/theirs.sock" "$work/bin/dinst" ls
grep -q 'is served by uid' "$work/out" || fail "the reason is not told: $(cat "$work/out")"
kill "$their_daemon"

# fear L2: nothing that whoever started the daemon had open, or was, is handed on to it and its mutators
"$work/bin/dinst" stop >/dev/null 2>&1
(
	cd "$work" || exit 1
	umask 000
	trap '' USR1
	exec 9<"$work/precious" 200>"$work/held" 0<&- 1>&-
	"$work/bin/dinst" attach "$server" -n again
) 2>"$work/again.err"
daemon=$(cut -d' ' -f1 "$work/dinstd/dinstd.lock" 2>/dev/null)
[ -n "$daemon" ] && [ -d "/proc/$daemon" ] || fail "no daemon: $(cat "$work/again.err")"
mutator=$(grep -l "^PPid:[[:space:]]$daemon\$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3 | head -1)
[ -n "$mutator" ] || fail "no mutator: $(cat "$work/again.err")"
for process in "$daemon" "$mutator"; do
	ls -l "/proc/$process/fd" >"$work/fds"
	grep -Eq "precious|/held" "$work/fds" && fail "what was open is handed on: $(cat "$work/fds")"
	[ "$(readlink "/proc/$process/cwd")" = / ] || fail "it keeps $(readlink "/proc/$process/cwd") busy"
	[ "$(awk '{ print $7 }' "/proc/$process/stat")" = 0 ] || fail "it has a terminal"
	[ "$(awk '/^Umask:/ { print $2 }' "/proc/$process/status")" = 0077 ] || fail "its umask: $(grep Umask "/proc/$process/status")"
	grep -q '^SigBlk:[[:space:]]*0*$' "/proc/$process/status" || fail "signals are blocked: $(grep SigBlk "/proc/$process/status")"
	# SIGUSR1 is bit 9
	ignored=$(awk '/^SigIgn:/ { print $2 }' "/proc/$process/status")
	[ $((0x$ignored >> 9 & 1)) -eq 0 ] || fail "a signal that was ignored still is: $ignored"
done
[ "$(stat -c %a "$work/dinstd/dinstd.log")" = 600 ] || fail "the log can be read by others"
[ "$(stat -c %a "$DINST_SOCKET")" = 600 ] || fail "the socket is open to others"
"$work/bin/dinst" detach -p again >/dev/null 2>&1 || fail "detach: $(cat "$work/again.err")"

# fear L2: what sudo leaves in the environment is another user's home, and stays as it is
mkdir "$work/home"
chown nobody "$work/home"
"$work/bin/dinst" stop >/dev/null 2>&1
(
	unset XDG_CACHE_HOME
	HOME=$work/home "$work/bin/dinst" attach "$server" -n home >/dev/null 2>&1
	"$work/bin/dinst" funcs answer_request -p home >/dev/null 2>&1
	"$work/bin/dinst" points --summary -p home >/dev/null 2>&1
	"$work/bin/dinst" detach -p home >/dev/null 2>&1
)
[ -z "$(ls -A "$work/home")" ] || fail "root put something into the home of nobody: $(ls -A "$work/home")"

# fear L2: names of programs and files cannot make a terminal do anything, nor forge lines of the log
evil=$work/$(printf 'e\033[2J\302\2331mx\ny')
cp "$build/examples/demo-server" "$evil"
"$evil" "$work/evil.socket" 1 >"$work/evil.log" 2>&1 &
evil_server=$!
children+=("$evil_server")
wait_for 60 grep -q ready "$work/evil.log" || fail "the server of that name does not start"
for command in "attach $evil_server -n evil" "ls" "modules -p evil" "funcs answer_request -p evil" "--json ls" \
	"--json modules -p evil" "doctor $evil_server" "insert calls /Code/nosuch/* -p evil" "detach -p evil" "attach $evil_server -n [x"; do
	# shellcheck disable=SC2086 # words
	timeout 60 "$work/bin/dinst" $command >"$work/shown" 2>&1
	if LC_ALL=C grep -qaP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$work/shown"; then
		fail "dinst $command shows control characters: $(od -c "$work/shown" | head -20)"
	fi
done
LC_ALL=C grep -qaP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]' "$work/dinstd/dinstd.log" && fail "the log has control characters"
LC_ALL=C grep -vaE '^([0-9-]+ [0-9:.]+ dinstd: |dinstd: another dinstd )' "$work/dinstd/dinstd.log" >"$work/forged" && fail "lines of the log that are none: $(head -3 "$work/forged")"
kill "$evil_server"

# fear L2: what a process calls itself does not say where its recording is put
recordings() {
	local climber

	mkdir -p "$work/deep/here"
	bash -c 'printf ../up >/proc/self/comm; while :; do read -r -t 0.05 <> <(:); done' &
	climber=$!
	children+=("$climber")
	wait_for 60 grep -q up "/proc/$climber/comm" || fail "a process cannot name itself ../up"
	(cd "$work/deep/here" && timeout 60 "$work/bin/dinst" record libc.so.6:read -p "$climber" -d 0.2) >"$work/out" 2>&1 ||
		fail "recording a process named ../up: $(head -c 300 "$work/out")"
	[ "$(ls -A "$work/deep")" = here ] || fail "a recording of ../up is beside the directory: $(ls -A "$work/deep")"
	[ -n "$(ls "$work/deep/here")" ] || fail "a recording of ../up is not to be seen: $(ls -A "$work/deep/here")"
	kill "$climber"
}
if has_clock; then
	recordings
else
	absent "names of recordings" "the kernel does not trust this processor's clock"
fi
end_server
pass "links, places, users, what is handed on, names"
