#!/bin/bash
# SPDX-License-Identifier: MIT
#
# fears.sh - which test answers which fear.
#
#   tests/fears.sh           the table, as docs/safety.md has it
#   tests/fears.sh --write   puts it there
#   tests/fears.sh --check   says what is wrong: a fear without a test or a
#                            reason, a test that names an unknown fear, an old table
#
# The fears are in tests/fears.txt. A test names those that it answers in a
# comment right above it, which goes on to the comment's end, or in a script as
# long as lines start with "#   ":
#
#   fear A1, D7: each of 1,000 attaches meets threads that live 100 ms
set -u
cd "$(dirname "$0")/.." || exit 2

document=docs/safety.md
begin='<!-- made by tests/fears.sh -->'
end='<!-- end of what tests/fears.sh made -->'

# Lines "ID<tab>file: function<tab>text", one for each fear that a test names.
named() {
	# A file that is gone, and git still knows, names nothing.
	git ls-files -co --exclude-standard -- tests ':!tests/fears.*' | grep -E '\.(c|h|cc|sh)$' |
		xargs -r grep -lsE '\bfear [A-L][0-9]' | xargs -r awk '
		function flush_text(place,   i, ids, n) {
			if (text == "") return
			gsub(/[ \t]+/, " ", text)
			sub(/ ?\*\/.*$/, "", text)
			n = split(list, ids, /, */)
			for (i = 1; i <= n; i++)
				printf "%s\t%s\t%s\n", ids[i], place, text
			text = ""; waiting = 0
		}
		FNR == 1 { flush_text(last); waiting = 0; open = 0 }
		{ last = FILENAME }
		match($0, /(^|[ *#])fear [A-L][0-9]+(, *[A-L][0-9]+)*: /) {
			flush_text(FILENAME)
			list = substr($0, RSTART, RLENGTH); sub(/^.*fear /, "", list); sub(/: $/, "", list)
			text = substr($0, RSTART + RLENGTH)
			script = FILENAME ~ /\.sh$/
			open = script || $0 !~ /\*\//
			if (script) { place = FILENAME }
			waiting = !script
			next
		}
		open && script { if ($0 ~ /^#   /) { text = text " " substr($0, 5); next } open = 0; flush_text(FILENAME) }
		open { line = $0; sub(/^[ \t]*\*?[ \t]*/, "", line); if (line !~ /^\//) text = text " " line; if ($0 ~ /\*\//) open = 0; next }
		waiting && match($0, /^(static )?(void|int|bool) [a-z_0-9]+\(/) {
			name = substr($0, RSTART, RLENGTH - 1); sub(/.* /, "", name)
			flush_text(FILENAME ":" name)
		}
		END { flush_text(last) }'
}

table() {
	named | sort -u | awk -F'\t' '
	NR == FNR {
		where = $2; sub(/^tests\//, "", where)
		shown[$1] = shown[$1] (shown[$1] == "" ? "" : "<br>") "`" where "` " $3
		next
	}
	function flush_fear() {
		if (id == "") return
		if (note != "") shown[id] = shown[id] (shown[id] == "" ? "" : "<br>") note
		gsub(/\|/, "\\|", shown[id])
		printf "| **%s** %s | %s |\n", id, fear, shown[id]
		id = ""; note = ""
	}
	/^#/ || /^$/ { next }
	/^== / { flush_fear(); printf "\n### %s\n\n| fear | shown by (in `tests/`) |\n| --- | --- |\n", substr($0, 4); next }
	/^(untested|partly): / { note = note (note == "" ? "" : " ") "*" $0 "*"; next }
	{ flush_fear(); id = $1; sub(/ .*/, "", id); fear = substr($0, length(id) + 2) }
	END { flush_fear() }' - tests/fears.txt
}

check() {
	local known
	known=$(grep -oE '^[A-L][0-9]+ ' tests/fears.txt | tr -d ' ')
	named | awk -F'\t' -v known="$known" '
		BEGIN { n = split(known, ids, "\n"); while (n) is_known[ids[n--]] = 1 }
		!($1 in is_known) { print $2 " names fear " $1 ", which tests/fears.txt does not have" }'
	table | sed -n 's/^| \*\*\([A-L][0-9]*\)\*\* .* |  *|$/fear \1 has no test and no reason/p'
	[ "$(sed -n "\|^$begin\$|,\|^$end\$|p" $document | sed '1d;$d')" = "$(table)" ] ||
		echo "the table in $document is old: tests/fears.sh --write"
}

write() {
	local new
	new=$(mktemp) || exit 2
	{
		sed "\|^$begin\$|q" $document
		table
		sed -n "\|^$end\$|,\$p" $document
	} >"$new" && cat "$new" >$document
	rm -f "$new"
}

case ${1:-} in
'') table ;;
--write) write ;;
--check) check ;;
*) echo "usage: tests/fears.sh [--write|--check]" >&2; exit 2 ;;
esac
