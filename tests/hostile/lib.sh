# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# lib.sh - demo-server under a load that checks every answer, for the scripts
# of tests/hostile. Sourced, not run.
. "$(dirname "${BASH_SOURCE[0]}")/../real/lib.sh"

# answered: how many right answers the load had. It writes a line now and then.
answered() {
	tail -1 "$work/load.log" | cut -d' ' -f2
}

# has_answered NUMBER: more than that.
has_answered() {
	[ "$(answered)" -gt "$1" ]
}

# goes_on: the server answers what it is asked from now on.
goes_on() {
	wait_for 60 has_answered "$(answered)"
}

# daemon_answers: it listens. To list the sessions of a daemon that does not run is no failure.
daemon_answers() {
	dinst ls >"$work/daemon.answers" 2>&1 && ! grep -q 'no daemon' "$work/daemon.answers"
}

# counts ID SESSION: an instance has counted something.
counts() {
	[ "$(read_value "$1" "$2")" -gt 0 ]
}

# start_server [PREFIX...]: starts it (under a command such as prlimit) and its load.
start_server() {
	rm -f "$work/server.log" "$work/load.log"
	# Through a pipe: a limit on the size of files is for the server, not for its words.
	"$@" "$build/examples/demo-server" "$work/socket" 3 > >(exec cat >"$work/server.log") 2>&1 &
	server=$!
	children+=("$server")
	wait_for 60 grep -q ready "$work/server.log" || fail "the server does not start"
	"$build/examples/demo-load" "$work/socket" 1 >"$work/load.log" 2>"$work/load.err" &
	load=$!
	children+=("$load")
	wait_for 60 test -s "$work/load.log" || fail "the load does not start"
	prove save "$server" "$work/picture" || fail "cannot look at the server"
}

# end_server: proves that it is as before, that no answer was wrong, and that it ends well.
end_server() {
	prove check "$server" "$work/picture" >"$work/proof" || fail "not as before: $(head -c 600 "$work/proof")"
	goes_on || fail "the server does not answer any more"
	kill "$load"
	wait "$load" || fail "wrong answers: $(head -3 "$work/load.err")"
	kill "$server"
	wait "$server" || fail "the server ended with status $?"
}

# followed WHAT: the mutator of `instrument --exec`, whose log is in $work/log, has failed at nothing and
# followed the program to its end: the program runs and prints the same without any mutator, too. Sets
# `followed_points` and `followed_hits`; the log goes.
followed() {
	# The last lines are written after the program has ended.
	wait_for 60 grep -qsE '^(end|instrument): ' "$work"/log/* || fail "$1: its mutator has not come to the end: $(cat "$work"/log/*)"
	grep -hs '^instrument: ' "$work"/log/* >"$work/followed" && fail "$1: $(head -1 "$work/followed")"
	followed_points=$(sed -n 's/^[a-z][a-z ]* [^ ]*: \([0-9]*\) points.*/\1/p' "$work"/log/* | sum)
	followed_hits=$(sed -n 's/^  [a-z].* = \([0-9]*\) (.*/\1/p' "$work"/log/* | sum)
	rm -f "$work"/log/*
}

all='/Code/demo-server/*'
