#!/bin/bash
# SPDX-License-Identifier: MIT
#
# help.sh - the help of each command fits a screen and has an example; each has a manual page
# with all of its options; mandoc finds nothing wrong in any; no colours where none are wanted.
set -u
cd "$(dirname "$0")/.." || exit 1

build=$(realpath "${DINST_BUILD:-build}") || exit 1
dinst=$build/dinst
bad=0

fail() {
	echo "FAIL help $*"
	bad=1
}

# fits NAME: the text on standard input is a screen.
fits() {
	awk -v name="$1" '
		length($0) > 80 { print "line " NR " of " name " has " length($0) " columns: " $0 }
		END { if (NR > 24) print name " has " NR " lines" }' | while read -r wrong; do
		echo "$wrong"
	done
}

check_help() {
	local text wrong

	text=$("$dinst" "$@" --help 2>&1) || fail "dinst $* --help fails"
	wrong=$(echo "$text" | fits "dinst $* --help")
	[ -z "$wrong" ] || fail "$wrong"
	echo "$text" | grep -q '^Example:' || fail "dinst $* --help has no example"
	echo "$text" | grep -q '^usage: dinst' || fail "dinst $* --help has no usage"
}

commands=$("$dinst" --complete '' | cut -f1)
[ "$(echo "$commands" | wc -l)" -ge 20 ] || fail "commands: $commands"
check_help
for command in $commands; do
	check_help "$command"
	"$dinst" --help | grep -qw -e "$command" || fail "dinst --help does not name $command"
	[ "$command" = help ] || [ "$command" = quit ] || [ -f "docs/man/dinst-$command.1" ] || {
		fail "there is no page dinst-$command(1)"
		continue
	}
	grep -qE "^\.(Xr dinst-$command 1|It Cm $command)" docs/man/dinst.1 ||
		grep -q "Xr dinst-$command 1" docs/man/dinst.1 || fail "dinst(1) does not name $command"
	for option in $("$dinst" --complete "$command" -- | cut -f1 | sort -u); do
		case $option in
		--json | --quiet | --verbose | --target | --help) continue ;;
		esac
		grep -qE -e "Fl -${option#--}|Fl . , Fl -${option#--}| ${option}|^${option}|-${option}" "docs/man/dinst-$command.1" 2>/dev/null ||
			fail "dinst-$command(1) does not explain $option"
	done
done
[ $bad -eq 0 ] && echo "PASS help of $(echo "$commands" | wc -l) commands"

if command -v mandoc >/dev/null; then
	before=$bad
	for page in docs/man/*.[1-8]; do
		wrong=$(mandoc -T lint -W warning "$page" 2>&1)
		[ -z "$wrong" ] || fail "$(echo "$wrong" | head -3)"
		if grep -oE '^\.Xr dinst[a-z-]* [0-9]' "$page" | while read -r _ name section; do
			[ -f "docs/man/$name.$section" ] || echo "$page: $name($section)"
		done | grep .; then
			fail "there are no such pages"
		fi
	done
	[ "$bad" -eq "$before" ] && echo "PASS help manual pages"
else
	echo "SKIP help mandoc is not installed"
fi

# Colours: on terminals only, and not with NO_COLOR.
escape=$(printf '\033')
for command in --help doctor metrics "metrics -v"; do
	# shellcheck disable=SC2086
	if "$dinst" $command 2>&1 | grep -q "$escape"; then
		fail "dinst $command writes escapes into a pipe"
	fi
	if command -v script >/dev/null; then
		NO_COLOR=1 script -qec "$dinst $command" /dev/null </dev/null 2>&1 | grep -q "$escape\[[0-9;]*m" &&
			fail "dinst $command is in colour with NO_COLOR"
	fi
done
[ $bad -eq 0 ] && echo "PASS help colours"
exit $bad
