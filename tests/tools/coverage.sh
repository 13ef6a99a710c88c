#!/bin/bash
# SPDX-License-Identifier: MIT
#
# coverage.sh - makes docs/coverage.md: which share of the points of real
# programs can be instrumented, how, and why not the rest.
#
#   coverage.sh [FILE]...   those instead of the programs of the table, to standard output
#
# Programs that are not installed are left out, with a line that says so.
set -u
cd "$(dirname "$0")/../.." || exit 1
tool=${DINST_BUILD:-build}/tests/tools/coverage
[ -x "$tool" ] || { echo "coverage.sh: no $tool (make tests)" >&2; exit 1; }
[ $# -eq 0 ] || exec "$tool" "$@"

lib=/usr/lib/x86_64-linux-gnu
programs="/usr/bin/redis-server /usr/sbin/nginx /usr/bin/memcached /usr/lib/postgresql/15/bin/postgres
	$lib/libc.so.6 $lib/ld-linux-x86-64.so.2 $lib/libstdc++.so.6 $lib/libpython3.11.so.1.0
	$lib/libsqlite3.so.0 $lib/libcrypto.so.3 /usr/bin/perl /usr/sbin/mariadbd /usr/bin/node
	/usr/bin/python3.11"

# version FILE: the package that it is of, as the system knows it.
version() {
	local file package

	for file in "$1" "$(realpath "$1")" "${1#/usr}" "$(realpath "$1" | sed 's,^/usr,,')"; do
		package=$(dpkg-query -S "$file" 2>/dev/null | sed -n 's/: .*//p' | grep -v diversion | head -1)
		[ -n "$package" ] && break
	done
	if [ -n "$package" ]; then
		dpkg-query -W -f '${Package} ${Version}\n' "$package" | head -1
	else
		echo "of no package"
	fi
}

table=$(mktemp) || exit 1
trap 'rm -f "$table"' EXIT
{
	cat <<'TEXT'
# Which points of real programs can be instrumented

Made by `tests/tools/coverage.sh`. All functions of each file are planned as for an insertion; a point is *reached* if it has a
window with a tactic, and no tactic is a trap. `dinst points --summary` shows the same for the modules of a process, and
`tests/tools/coverage -l FILE` lists the refused points. Functions that only exist as parts of others (`.cold`), linker stubs and
resolvers of IFUNCs are not counted by themselves.

| file | points | number | reached | tactics | refused |
| --- | --- | --- | --- | --- | --- |
TEXT
	for file in $programs; do
		[ -r "$file" ] && "$tool" -m "$file"
	done
	printf '\n## Versions\n\n'
	for file in $programs; do
		if [ -r "$file" ]; then
			printf -- '- `%s`: %s\n' "$(basename "$file")" "$(version "$file")"
		else
			printf -- '- `%s`: not installed when the table was made\n' "$(basename "$file")"
		fi
	done
	cat <<'TEXT'

## Tactics

- `retarget`: the displacement of the call, jump or conditional jump itself is changed, so that it leads to the trampoline.
- `call`: an indirect call is overwritten by a direct one, in place.
- `jump`: a near jump over the instructions from the point on, which run in the trampoline.
- `self`: an exit that is long enough for a near jump by itself.
- `previous`, `across`: instructions before an exit go with it; `across` when a conditional jump is among them.
- `padding`, `previous+padding`: what the exit's own bytes lack is unused padding behind it, or both.
- `short`: a short jump to a near jump in padding within its reach.
- `evicted`: the same, to a hole in the window of another place, made for that.
- `edges`: on every way that leads to the point instead of at the point.
- `bypass`: at the point, and jumps to it that must not count go round.
- `merged`: served by the window of another point.

## Reasons for a refusal

TEXT
	"$tool" -r
} >"$table" || exit 1
cp "$table" docs/coverage.md
