#!/bin/bash
# SPDX-License-Identifier: MIT
#
# run.sh - the hostile tests: once with the seeds that are in them (or SEED), or
# for HOURS, one round after the other, each with a seed of its own.
#
#   tests/hostile/run.sh [PROGRAM...]     (make hostile [HOURS=n] [SEED=n])
#
# With HOURS the first seed is SEED, or drawn; each is told before its program runs, so that
# it is known even if nothing comes after it. A failure in a round is told with the command that
# repeats it; the rounds go on, and the exit status says that there was one.
set -u
cd "$(dirname "$0")/../.." || exit 2

build=${DINST_BUILD:-build}
programs=("$@")
if [ $# -eq 0 ]; then
	for script in tests/hostile/*.sh; do
		case $script in */lib.sh | */run.sh) ;; *) programs+=("$script") ;; esac
	done
fi

if [ -z "${HOURS:-}" ]; then
	# groups.sh waits for the kernel, most of its minute: short ones, none of which is about times, run beside it.
	together=() alone=()
	for program in "${programs[@]}"; do
		case $(basename "$program" .sh) in
		groups) together=("$program" "${together[@]}") ;;
		containers | coredump | files | limits | oddities | places | privileges | users) together+=("$program") ;;
		*) alone+=("$program") ;;
		esac
	done
	exec tests/run.sh -t 1800 -p "${together[@]}" -s "${alone[@]}"
fi

seconds=$(awk -v h="$HOURS" 'BEGIN { print h ~ /^[0-9]*[.]?[0-9]+$/ ? int(h * 3600) : 0 }')
if [ "$seconds" -le 0 ]; then
	echo "HOURS=$HOURS: that is no time" >&2
	exit 2
fi
end=$(($(date +%s) + seconds))
unset HOURS
RANDOM=${SEED:-$RANDOM}
mkdir -p "$build" || exit 2
round=0
failed=0
while [ "$(date +%s)" -lt "$end" ]; do
	round=$((round + 1))
	for program in "${programs[@]}"; do
		seed=${SEED:-$((RANDOM * 32768 + RANDOM))}
		unset SEED
		echo "round $round: SEED=$seed $program"
		if ! SEED=$seed tests/run.sh -t 1800 "$program" >"$build/hostile.log" 2>&1; then
			failed=$((failed + 1))
			cat "$build/hostile.log"
			echo "round $round: FAILED; again with: SEED=$seed DINST_BUILD=$build $program"
		fi
		[ "$(date +%s)" -lt "$end" ] || break
	done
	echo "round $round: $(date +%T), $failed failed so far"
done
[ "$failed" -eq 0 ]
