#!/bin/bash
# SPDX-License-Identifier: MIT
#
# oddities.sh - programs with bytes in their text that are no instructions, or are not yet what they
# will be, print the same with everything in them instrumented from their first instruction on.
#
# fear C5: code that the loader writes to, texts behind calls that take their return address for the text's,
#   what a trap's handler reads behind the trap, kCFI's numbers, labels as distances from the global
#   offset table and as addresses of eight bytes, instructions that the program overwrites and faults that it mends by lists of its own,
#   functions of which the symbols say that they begin or end within an instruction:
#   same output with each kind of point instrumented
# fear C3: a jump that a program has written into its code before, into the middle of its function: no wrong result
. "$(dirname "$0")/lib.sh"

need gcc readelf strip
instrument=$build/tests/tools/instrument
[ -x "$instrument" ] || skip "instrument is not built (make tests)"
mkdir "$work/log"
export INSTRUMENT_LOG=$work/log

make_it() {
	local name=$1

	shift
	gcc -O1 -Wall "$@" "tests/hostile/programs/$name.c" -o "$work/$name" || fail "$name cannot be built"
}

make_it textrel -pie -fPIE -Wl,-z,notext
readelf -d "$work/textrel" | grep -q TEXTREL || fail "textrel has no relocations in its text"
make_it behind -pie -fPIE
make_it offsets -pie -fPIE
make_it wide -no-pie -fno-pie
make_it listed -pie -fPIE
make_it switched -pie -fPIE
make_it inside -pie -fPIE
strip -N .Llabel "$work/offsets"

points=0 runs=0
for program in textrel behind offsets wide listed inside; do
	"$work/$program" >"$work/plain" || fail "$program does not run by itself"
	for kind in e x c a b d l i m excabdlim; do
		timeout 60 "$instrument" --exec "$kind" @main -- "$work/$program" >"$work/result" 2>"$work/err" ||
			fail "$program, $kind: status $?: $(tail -1 "$work/err")"
		cmp -s "$work/plain" "$work/result" ||
			fail "$program, $kind: $(cat "$work/result") instead of $(cat "$work/plain")"
		followed "$program, $kind"
		[ "$followed_hits" -gt 0 ] || fail "$program, $kind: nothing was counted at $followed_points points"
		points=$((points + followed_points))
		runs=$((runs + 1))
	done
done
timeout 60 "$instrument" --exec e /Code/listed/things.cold -- "$work/listed" >/dev/null 2>"$work/err"
grep -q ' 1 points' "$work"/log/* || fail "things.cold: $(tail -1 "$work/err")"
for kind in e x b i m excabdlim; do
	mkfifo "$work/end" || fail "no pipe"
	# Said by the one before, perhaps: this one opens it when it has got the pipe.
	rm -f "$work/result"
	"$work/switched" <"$work/end" >"$work/result" &
	pid=$!
	exec 9>"$work/end"
	wait_for 20 grep -q ready "$work/result" || fail "switched does not start"
	timeout 60 "$instrument" "$pid" "$kind" 2 100 @main >"$work/out" 2>"$work/err" ||
		fail "switched, $kind: status $?: $(tail -1 "$work/err")"
	exec 9>&-
	wait "$pid" || fail "switched, $kind: it has ended with status $?"
	grep -q '^0 wrong, 0$' "$work/result" || fail "switched, $kind: $(tail -1 "$work/result")"
	runs=$((runs + 1))
	rm "$work/end"
done
[ "$points" -ge 300 ] || fail "only $points points"
pass "$runs runs, $points points"
