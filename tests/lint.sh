#!/bin/bash
# SPDX-License-Identifier: MIT
#
# lint.sh - the rules of the house, as a list of things that must not be found.
#
# Each rule prints what breaks it; the exit status is 1 if anything did. Looks
# at the files that git knows or would add, changes nothing.
set -u
shopt -s lastpipe
cd "$(dirname "$0")/.." || exit 2

CC=${CC:-gcc}
broken=0
rules=0

# Reads what was found on standard input; names the rule if there is anything.
rule() {
	local found
	found=$(cat)
	rules=$((rules + 1))
	if [ -n "$found" ]; then
		echo "lint: $1"
		echo "$found" | head -20 | sed 's/^/    /'
		broken=$((broken + 1))
	fi
}

# files PATTERN...: names of our files that match.
files() {
	git ls-files -co --exclude-standard -- "$@" | while read -r file; do
		[ -f "$file" ] && echo "$file"
	done
}

# search REGEX PATTERN...: file:line:text of what matches.
search() {
	local regex=$1
	shift
	files "$@" | tr '\n' '\0' | xargs -0 -r grep -nHP -e "$regex"
}

sources=$(files '*.c' '*.h' '*.cc' '*.S')
ours=$(files 'arch/*.[ch]' 'inject/*.[ch]' 'mutator/*.[ch]' 'daemon/*.[ch]')

# --------------------------------------------------------------- layers

search '#include "(inject|mutator|daemon|tests)/' 'arch/*' | rule 'arch/ includes nothing above it'
search '#include "(mutator|daemon|tests)/' 'inject/*' | rule 'inject/ includes arch/ only'
search '#include "(daemon|tests)/' 'mutator/*.c' 'mutator/*.h' | grep -v 'daemon/common/' |
	rule 'mutator/ includes inject/ and arch/ only (and daemon/common/, the protocol)'
search '#include "(tests|examples)/' 'daemon/*' | rule 'daemon/ includes no test'
search '#include "[^"]*"' 'arch/*.[ch]' 'inject/*.[ch]' 'mutator/*.[ch]' 'daemon/*.[ch]' 'tests/*.[ch]' |
	grep -vE '#include "(arch|inject|mutator|daemon|lib|tests)/|^tests/live/targets/' |
	rule 'includes are written from the top of the tree'
search 'capstone' 'inject/*.[ch]' 'mutator/*.[ch]' 'daemon/*.[ch]' | rule 'capstone stays behind arch/'

# ------------------------------------------------------- dangerous calls

search '(?<![\w.>"])(ptrace|waitpid|wait4|waitid)\(' 'inject/*.c' 'mutator/*.c' 'arch/*.c' |
	grep -vE '^inject/ptrace\.c:|^[^:]*:[0-9]+:\s*(/?\*|\*)' | rule 'ptrace() and waitpid() stand in inject/ptrace.c only'
search '(?<![\w.>"])ptrace\(' 'daemon/*.c' | grep -vE '^[^:]*:[0-9]+:\s*(/?\*|\*)' |
	rule 'no ptrace() in daemon/'
# But for a test that steps through its own target, which may end with it.
search 'PTRACE_SINGLE''STEP|PTRACE_SETSIG''MASK' '*' ':!LICENSE' ':!tests/live/every_step.h' |
	rule 'no single-stepping and no signal mask from outside'
search '(?<![\w.>])(strcpy|strcat|sprintf|vsprintf|strtok|alloca|gets|stpcpy|mktemp|tmpnam)\s*\(' '*.c' '*.h' '*.cc' |
	rule 'banned functions'
search '(?<![\w.>])(printf|puts|perror|putchar|exit|abort)\s*\(' 'arch/*.c' 'inject/*.c' 'mutator/*.c' |
	grep -vE '^mutator/main\.c:|^[^:]*:[0-9]+:\s*(/?\*|\*)' | rule 'libraries neither print nor exit'
search '#include <(stdio|unistd|fcntl|sys/ptrace)\.h>' 'arch/*' | grep -v '<stdio.h>' | rule 'arch/ has no I/O'

# A look at files of a task that is ending may keep a real-time thread for good: inject/proc_open.h.
grep -lE '"/proc/%' $(files 'inject/*.c' 'mutator/*.c') |
	xargs -r grep -nP '(?<![\w>.])(open|openat|fopen|opendir|stat|lstat|access|readlink)\((?!")' /dev/null |
	grep -vE '^[^:]*:[0-9]+:\s*(/?\*|\*)' | rule 'files of tasks in /proc are opened by inject/proc_open.h'

# ------------------------------------------------------------- portable

search '__x86_64__|__aarch64__|__i386__|__amd64__' 'inject/*' 'mutator/*' 'daemon/*' 'arch/arch.h' |
	rule 'architecture macros stand in arch/ only'
# Code only: comments may name what they talk about.
registers='rip|rsp|rax|rbx|rcx|rdx|rsi|rdi|rbp|orig_rax|r(8|9|1[0-5])|eflags|fs_base|user_regs_struct'
echo "$ours" | grep -vE '^arch/' | xargs -r grep -lwE "$registers" | while read -r file; do
	$CC -fpreprocessed -dD -E -P "$file" 2>/dev/null | grep -nwE "$registers" | grep -v '"' | sed "s,^,$file:,"
done | rule 'register names stand in arch/ only'

# ---------------------------------------------------------------- looks

for file in $sources; do
	line=
	IFS= read -r line <"$file"
	[ "$line" = '/* SPDX-License-Identifier: MIT */' ] || echo "$file"
done | rule 'sources start with the SPDX line'
for file in $(files '*.sh' Makefile bootstrap .ci/run .clang-format); do
	mapfile -t -n 3 lines <"$file"
	printf -v head '\n%s\n' "${lines[@]}"
	[[ $head == *$'\n# SPDX-License-Identifier: MIT\n'* ]] || echo "$file"
done | rule 'scripts carry the SPDX line'
for file in $ours; do
	mapfile -t -n 2 lines <"$file"
	[[ ${lines[1]:-} == '/*'* ]] || echo "$file"
done | rule 'sources say in their head what they own'
# A line up to its first // that is in no string.
search '^(?:[^"\x27/]|/(?!/)|"(?:[^"\\]|\\.)*"|\x27(?:[^\x27\\]|\\.)\x27|\x27|(?<=:)//)*(?<!:)//' '*.c' '*.h' '*.cc' |
	rule 'comments are /* */'
search '\b(TO[D]O|FIX[M]E|XX[X]|HA[C]K)\b' '*.c' '*.h' '*.cc' '*.S' '*.sh' '*.md' Makefile |
	rule 'nothing marked as unfinished'
search '[ \t]+$' '*.c' '*.h' '*.sh' Makefile | rule 'no blanks at the end of a line'
echo "$sources" | xargs -r wc -l | awk '$2 != "total" && $1 > 600 { print $2 ": " $1 " lines" }' |
	rule 'files have at most 600 lines'
# A function's body is what stands between "{" and "}" in the first column.
echo "$ours" | grep '\.c$' | xargs -r awk '
	FNR == 1 { start = 0 }
	/^\{/ { start = FNR }
	/^\}/ && start { if (FNR - start > 61) print FILENAME ":" start ": " FNR - start - 1 " lines"; start = 0 }' |
	rule 'functions have at most 60 lines'
search '(?<![\w}])/(work|home|root)/|\.librar''y|/tmp/dins''t/' '*' ':!LICENSE' | rule 'no path of somebody'"'"'s machine'

# They are searched by halves.
sed -n '/ never\[\] = {/,/^};/p' mutator/slots.c | grep '^	"' | LC_ALL=C sort -c 2>&1 |
	rule 'the names of functions that never return are sorted'

if command -v clang-format >/dev/null 2>&1; then
	echo "$sources" | grep '\.[ch]$' | xargs -r clang-format --dry-run -Werror 2>&1 |
		grep 'error:' | cut -d: -f1 | sort | uniq -c | rule 'the tree is formatted (make fmt)'
fi

tests/fears.sh --check | rule 'every fear has its test, and docs/safety.md the table'

# ------------------------------------------------------------- checkers

echo "$sources" | grep '\.h$' | xargs -r -n 8 -P "$(nproc)" $CC -std=gnu11 -D_GNU_SOURCE -I. -Iarch/x86_64 -Wall -Wextra \
	-Wmissing-prototypes -Wstrict-prototypes -Wvla -fsyntax-only -x c 2>&1 | grep -v 'pragma once in main file' | rule 'headers compile alone'
for file in $(files '*.sh' .ci/run); do
	bash -n "$file" 2>&1
done | rule 'bash -n'
for file in $(files bootstrap); do
	sh -n "$file" 2>&1
done | rule 'sh -n'
if command -v shellcheck >/dev/null 2>&1; then
	files '*.sh' .ci/run bootstrap | xargs -r shellcheck -S error 2>&1 | rule 'shellcheck'
fi
if command -v mandoc >/dev/null 2>&1; then
	files 'docs/*.[1-8]' 'docs/man/*.[1-8]' | xargs -r mandoc -T lint -W error 2>&1 | rule 'mandoc -T lint'
fi
for tool in clang-format shellcheck mandoc; do
	command -v $tool >/dev/null 2>&1 || echo "lint: nothing was asked of $tool, which is not installed (package $tool)"
done

echo "$rules rules, $broken broken"
[ "$broken" -eq 0 ]
