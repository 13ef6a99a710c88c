#!/bin/bash
# SPDX-License-Identifier: MIT
#
# architectures.sh - each architecture has all that the layers above it use: what only one of them
# is linked with here, another one could lack without a word.
set -u
cd "$(dirname "$0")/.." || exit 1

build=${DINST_BUILD:-build}
bad=0

above=("$build"/lib{inject,mdl,mutator,common,face}.a "$build/mutator/main.o")
for archive in "$build/libarch.a" "$build/libaarch64.a"; do
	symbols=$(nm -P "$archive" "${above[@]}" 2>&1) || {
		echo "FAIL architectures $archive: $(echo "$symbols" | grep '^nm' | head -3)"
		bad=1
		continue
	}
	missing=$(echo "$symbols" | awk '
		$1 !~ /^arch_/ { next }
		$2 == "U" { used[$1] }
		$2 != "U" { there[$1] }
		END {
			for (name in used) {
				count++
				if (!(name in there)) print name
			}
			if (count < 100) print "only " count + 0 " names of the contract are used at all"
		}' | sort)
	if [ -n "$missing" ]; then
		echo "FAIL architectures ${archive##*/} lacks:" $missing
		bad=1
	else
		echo "PASS architectures ${archive##*/} has all that is used above it"
	fi
done
exit $bad
