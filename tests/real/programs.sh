#!/bin/bash
# SPDX-License-Identifier: MIT
#
# programs.sh - programs that nobody here wrote do the same with every entry,
# exit and call of theirs and of libc instrumented: from their first instruction,
# from the middle of their run, and with all of it going in and out until they
# end. One line PASS|FAIL per program.
#
#   programs.sh [NAME]...   only those
. "$(dirname "$0")/lib.sh"

need awk sort
times=$(short 3 1)
failures=0
wanted=" $* "

# try NAME COMMAND [OPTIONS...] -- ARGUMENTS...: if it is wanted and installed.
try() {
	local title=$1 command=$2 options=()

	shift 2
	[ "$wanted" = "  " ] || [[ $wanted == *" $title "* ]] || return 0
	command=$(command -v "$command") || { echo "SKIP $title is not installed"; return 0; }
	while [ "$1" != -- ]; do
		options+=("$1")
		shift
	done
	shift
	say "$title: $command"
	DINST_BUILD=$build TITLE=$title tests/tools/running.sh -n "$times" "${options[@]}" -- "$command" "$@" ||
		failures=$((failures + 1))
}

seq 1 200000 >"$work/numbers"
for f in /usr/bin/perl /usr/bin/bash; do cat "$f"; done | head -c 6000000 >"$work/bytes"

cat >"$work/perl" <<'PERL'
my ($s, $n, %h) = (0, 0);
while (<STDIN>) {
	chomp;
	eval { die { c => $_ } if $_ % 3 == 0; $s += $_; 1 } or $s -= $@->{c};
	$h{$_ % 1009} .= sprintf "%x,", $_ if $_ % 7 == 0;
	$n += () = /[13579]/g;
}
print "$s $n ", scalar(keys %h), "\n";
print map { "$_ $h{$_}\n" } (sort { $a <=> $b } keys %h)[0 .. 20];
PERL
try perl perl -i "$work/numbers" -- "$work/perl"

cat >"$work/lua" <<'LUA'
local s, t = 0, {}
local co = coroutine.wrap(function() for l in io.lines() do coroutine.yield(tonumber(l)) end end)
for i, n in co do end
for n in co do
	local ok, e = pcall(function(x) if x % 3 == 0 then error({c = x}) end return x end, n)
	s = s + (ok and e or -e.c)
	t[#t + 1] = tostring(n):reverse()
end
table.sort(t)
print(string.format("%d %s", s, table.concat(t, ",", 1, 50)))
LUA
sed -i '/^for i, n in co/d' "$work/lua"
try lua lua5.4 -i "$work/numbers" -- "$work/lua"

cat >"$work/bash" <<'BASH'
s=0
while read -r n; do
	if ((n % 3 == 0)); then ((s -= n)); else ((s += n)); fi
	[[ $n == *999 ]] && t+=$(echo "$n")
done
trap 'echo trapped' USR1
kill -USR1 $$
echo "$s ${#t} ${t//9/n}" | cat
BASH
head -n 40000 "$work/numbers" >"$work/few"
try bash bash -i "$work/few" -- "$work/bash"

cat >"$work/sql" <<'SQL'
PRAGMA journal_mode=WAL; CREATE TABLE t(a INTEGER PRIMARY KEY, b TEXT, c REAL); CREATE INDEX i ON t(b);
WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM n WHERE x<60000) INSERT INTO t SELECT x, hex(x*7919), x/3.0 FROM n;
SELECT count(*), sum(length(b)), printf('%.6f', sum(c)) FROM t WHERE b LIKE '%3%';
UPDATE t SET b=b||a WHERE a%3=0; DELETE FROM t WHERE a%7=0; SELECT count(*), max(b), min(b) FROM t;
SELECT substr(group_concat(b),1,40) FROM (SELECT b FROM t ORDER BY b DESC LIMIT 50);
SELECT sum(r) FROM (SELECT row_number() OVER (PARTITION BY a%10 ORDER BY b) r FROM t); PRAGMA integrity_check;
VACUUM; SELECT count(*) FROM t a JOIN t b ON a.b=b.b;
SQL
try sqlite sqlite3 -i "$work/sql" -r "@main /Code/libsqlite3.so.0/* @libc" -- x.db

try sort sort -i "$work/numbers" -- -r --parallel=2
try xz xz -i "$work/bytes" -r "@main /Code/liblzma.so.5/* @libc" -- -T2 -1 -c
try gzip gzip -i "$work/bytes" -- -c
try openssl openssl -i "$work/bytes" -r "@main /Code/libcrypto.so.3/* @libc" -- \
	enc -aes-256-cbc -pbkdf2 -k secret -S 0123456789abcdef
try sha512 openssl -i "$work/bytes" -r "@main /Code/libcrypto.so.3/* @libc" -- dgst -sha512

cat >"$work/python" <<'PYTHON'
import sys, json, re, zlib, threading, hashlib, collections
def gen(lines):
    for l in lines:
        try:
            n = int(l)
            if n % 3 == 0: raise ValueError(n)
            yield n
        except ValueError as e:
            yield -e.args[0]
values = list(gen(sys.stdin))[:60000]
words = collections.Counter(re.findall(r"\d{3}", json.dumps(values)))
out = []
def work(k): out.append((k, hashlib.sha256(zlib.compress(repr(values[k::4]).encode())).hexdigest()))
threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
for t in threads: t.start()
for t in threads: t.join()
print(sum(values), words.most_common(5), sorted(out))
PYTHON
try python /usr/bin/python3.11 -i "$work/numbers" -- -I "$work/python"

# A compiler: 20 MB of stripped code at a fixed address. Half a minute, so not for every day.
if [ -z "${DINST_SHORT:-}" ] && command -v gcc >/dev/null && cc1=$(gcc -print-prog-name=cc1) && [ -x "$cc1" ]; then
	gcc -E -P -D_GNU_SOURCE -I. -Iarch/x86_64 mutator/batch.c -o "$work/source.i" 2>/dev/null
	try cc1 "$cc1" -i "$work/source.i" -o out.s -- -quiet -O2 -fpreprocessed - -o out.s
fi

[ $failures -eq 0 ] && ended=pass || ended=fail
[ $failures -eq 0 ]
