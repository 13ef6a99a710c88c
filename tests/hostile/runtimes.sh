#!/bin/bash
# SPDX-License-Identifier: MIT
#
# runtimes.sh - programs of languages that generate code, unwind, switch stacks or
# live on faults do the same with their native parts instrumented: from their first
# instruction, from the middle of their run, and with all of it going in and out
# until they end (tests/tools/running.sh). A line PASS|FAIL|SKIP for each.
#
#   runtimes.sh [NAME]...   only those; with DINST_SHORT=1 two, by SEED
#
# fear G5: node, a Java machine and LuaJIT compile, throw compiled code away and collect while all
#   functions of node, of libjvm or of libluajit and of libc are instrumented: same output
# fear H1, E2: a Go server under load, also without asynchronous preemption and with its collector at
#   work all the time, answers every request while its calls are counted
# fear H2, E1: Rust panics through instrumented frames are caught by catch_unwind, end threads, or
#   abort (-C panic=abort) as they should
# fear H5, E1: C++ coroutines that go on in another thread, throw and are destroyed half-way; fibers
#   by swapcontext() and Boost.Context; greenlets and Ruby's fibers: same output
# fear E1, F2: C++ built by clang with each basic block in a section of its own: exceptions find their
#   handlers in whatever section
# fear E1: OCaml's Stack_overflow, made of a SIGSEGV by its pc, is caught in functions that recurse
#   without an end, and all else of OCaml's is as it was
# fear G5, E2: Erlang's compiled code and its processes, whose stacks are in heaps that move: same output
# fear C3, E1: C++ whose equal functions the linker has folded into one: same output with every kind of point
# fear H1, E1: nil dereferences in Go that gccgo has compiled, in functions without an exception table,
#   are recovered from, also in a program that is stripped
# fear H3, E1: Ada's exceptions that are made of SIGSEGV find their handlers
. "$(dirname "$0")/lib.sh"

need awk
SEED=${SEED:-1}
export SEED
times=$(short 2 1)
programs=$PWD/tests/hostile/programs
failures=0 done=0
all=(node java luajit rust rust-abort coroutines contexts greenlets ruby ada gccgo ocaml sections folded erlang go)
wanted=("$@")
if [ $# -eq 0 ]; then
	wanted=("${all[@]}")
	[ -z "${DINST_SHORT:-}" ] || mapfile -t wanted < <(printf '%s\n' "${all[@]}" |
		awk -v seed="$SEED" 'BEGIN { srand(seed) } { print rand(), $0 }' | sort | head -2 | cut -d' ' -f2)
fi

# try NAME ROUNDS KINDS RESOURCES COMMAND...
try() {
	local title=$1 input=$work/input.$1 kinds=$3 resources=$4

	{ echo "$2"; seq 1 1000; } >"$input"
	shift 4
	done=$((done + 1))
	DINST_BUILD=$build TITLE=$title LIMIT=200 tests/tools/running.sh -n "$times" -i "$input" \
		-k "$kinds" -r "$resources" -- "$@" || failures=$((failures + 1))
}

# make_it NAME COMMAND...: builds it, or says that it cannot be.
make_it() {
	local title=$1

	shift
	"$@" >"$work/$title.log" 2>&1 && return
	absent "$title" "cannot be built: $(head -1 "$work/$title.log")"
	return 1
}

run_node() {
	local node library

	have node || { absent node "nodejs is not installed"; return; }
	node=$(realpath "$(command -v node)")
	# Debian's is a small program, with all that counts in a library.
	library=$(ldd "$node" | awk '$1 ~ /^libnode/ { print $3 }')
	try node 100 e "@main ${library:+/Code/$(basename "$(realpath "$library")")/* }@libc" "$node" "$programs/jit.js"
}

run_java() {
	local jvm java

	have javac java || { absent java "default-jdk-headless is not installed"; return; }
	make_it java javac -d "$work" "$programs/Jit.java" || return
	java=$(realpath "$(command -v java)")
	jvm=$(find "$(dirname "$java")/.." -name libjvm.so -path '*server*' | head -1)
	[ -n "$jvm" ] || { absent java "no libjvm.so"; return; }
	try java 20 e "/Code/libjvm.so/* @libc" "$java" -Xmx128m -cp "$work" Jit
}

run_luajit() {
	have luajit || { absent luajit "luajit is not installed"; return; }
	try luajit 1500 exc "@main /Code/libluajit-5.1.so.2/* @libc" "$(realpath "$(command -v luajit)")" "$programs/jit.lua"
}

run_rust() {
	have rustc || { absent rust "rustc is not installed"; return; }
	make_it rust rustc -O -o "$work/panics" "$programs/panics.rs" || return
	try rust 1500 exc "@main @libc /Code/libgcc_s.so.1/*" "$work/panics"
}

run_rust-abort() {
	have rustc || { absent rust-abort "rustc is not installed"; return; }
	make_it rust-abort rustc -O -C panic=abort -o "$work/aborts" "$programs/panics.rs" || return
	try rust-abort 10000 exc "@main @libc" "$work/aborts"
}

run_coroutines() {
	have g++ || { absent coroutines "g++ is not installed"; return; }
	make_it coroutines g++ -O2 -std=c++20 -pthread -o "$work/coroutines" "$programs/coroutines.cc" || return
	try coroutines 1500 exc "@main /Code/libstdc++.so.6/* /Code/libgcc_s.so.1/* @libc" "$work/coroutines"
}

run_contexts() {
	have g++ || { absent contexts "g++ is not installed"; return; }
	make_it contexts g++ -O2 -std=c++17 -pthread -o "$work/contexts" "$programs/contexts.cc" -lboost_context || return
	try contexts 60 exc "@main @libc" "$work/contexts"
}

run_greenlets() {
	/usr/bin/python3 -c 'import greenlet' 2>/dev/null ||
		{ absent greenlets "python3-greenlet is not installed"; return; }
	try greenlets 30 exc "@main @libc" /usr/bin/python3 -I "$programs/green.py"
}

run_ruby() {
	have ruby || { absent ruby "ruby is not installed"; return; }
	# From its first instruction: a module that comes later is named without a glob.
	local ruby library

	ruby=$(realpath "$(command -v ruby)")
	library=$(ldd "$ruby" | awk '$1 ~ /^libruby/ { print $3 }')
	try ruby 15 exc "${library:+/Code/$(basename "$(realpath "$library")")/* }@libc" "$ruby" --disable=gems "$programs/fibers.rb"
}

run_ada() {
	have gnatmake || { absent ada "gnat is not installed"; return; }
	make_it ada gnatmake -q -D "$work" -O1 -fnon-call-exceptions "$programs/faults.adb" -o "$work/faults" || return
	try ada 1000 exc "@main /Code/libgnat-12.so/* @libc" "$work/faults"
}

run_gccgo() {
	local compiler

	compiler=$(compgen -c gccgo | sort | head -1)
	[ -n "$compiler" ] || { absent gccgo "gccgo is not installed"; return; }
	make_it gccgo "$compiler" -O2 "$programs/panics.go" -o "$work/panics" || return
	try gccgo 300 exc "@main @libc" "$work/panics"
	strip "$work/panics"
	try gccgo-stripped 300 excb "@main" "$work/panics"
}

run_ocaml() {
	have ocamlopt || { absent ocaml "ocaml-nox is not installed"; return; }
	cp "$programs/overflow.ml" "$work/overflow.ml"
	make_it ocaml ocamlopt -o "$work/overflow" "$work/overflow.ml" || return
	try ocaml 10 excb "@main @libc" "$work/overflow"
}

run_sections() {
	have clang++ || { absent sections "clang is not installed"; return; }
	make_it sections clang++ -O2 -std=c++17 -pthread -fbasic-block-sections=all -o "$work/sections" "$programs/sections.cc" || return
	try sections 100 excbdlim "@main" "$work/sections"
}

run_folded() {
	have g++ ld.gold || { absent folded "g++ or gold is not installed"; return; }
	make_it folded g++ -O2 -std=c++17 -ffunction-sections -pthread -fuse-ld=gold -Wl,--icf=all,--gc-sections \
		-o "$work/folded" "$programs/folded.cc" || return
	try folded 3 excabdlim "@main" "$work/folded"
}

run_erlang() {
	local root=/usr/lib/erlang beam

	have erlc || { absent erlang "erlang-base is not installed"; return; }
	beam=$(find "$root" -name beam.smp | head -1)
	[ -n "$beam" ] || { absent erlang "no beam.smp"; return; }
	make_it erlang erlc -o "$work" "$programs/processes.erl" || return
	BINDIR=$(dirname "$beam") ROOTDIR=$root EMU=beam PROGNAME=erl try erlang 3 exc "@main @libc" "$beam" -- -root "$root" \
		-bindir "$(dirname "$beam")" -progname erl -home "$work" -noshell -pa "$work" -run processes main
}

# serve NAME SETTING...: a Go server under those settings, counted while it is asked.
serve() {
	local title=$1 server load port id plain

	shift
	port=$(free_port)
	env "$@" "$work/goserver" "127.0.0.1:$port" >"$work/$title.log" 2>&1 &
	server=$!
	children+=("$server")
	wait_for 60 grep -q ready "$work/$title.log" || fail "$title: the server does not start: $(cat "$work/$title.log")"
	prove save "$server" "$work/picture" || fail "cannot look at $title"
	plain=$("$work/goserver" ask "127.0.0.1:$port" 100) || fail "$title: wrong without us: $plain"
	# All the time while it goes in, and for a while when all of it is.
	(
		while [ ! -e "$work/$title.in" ]; do
			"$work/goserver" ask "127.0.0.1:$port" 1000 || exit 1
		done
		exec "$work/goserver" ask "127.0.0.1:$port" "$(short 20000 6000)"
	) >"$work/$title.load" 2>&1 &
	load=$!
	children+=("$load")
	json go.attach attach "$server" -n "$title"
	json go.all insert calls '/Code/goserver/net/http.*' -p "$title"
	json go.main insert calls '/Code/goserver/main.*' -p "$title"
	: >"$work/$title.in"
	wait "$load" || fail "$title: $(tail -3 "$work/$title.load")"
	json go.read read -p "$title"
	[ "$(field value go.read | sum)" -gt 0 ] || fail "$title: nothing was counted"
	say "$title: $(describe go.all), counted $(field value go.read | sum)"
	"$work/goserver" ask "127.0.0.1:$port" "$(short 10000 3000)" >"$work/$title.load" 2>&1 &
	load=$!
	children+=("$load")
	dinst --json detach -t 20 -p "$title" >"$work/go.detach" 2>"$work/go.detach.err"
	id=$?
	wait "$load" || fail "$title: while it was taken out: $(tail -3 "$work/$title.load")"
	# A stale word on a stack of Go's may keep something for now: that is told, and goes later.
	[ $id -eq 0 ] || [ $id -eq 3 ] || fail "$title: detach: $(cat "$work/go.detach.err")"
	[ $id -eq 0 ] || wait_for 60 dinst repair "$server" || fail "$title: what was left cannot be taken out: $(dinst repair "$server" 2>&1)"
	prove check "$server" "$work/picture" >"$work/proof" || fail "$title: not as before: $(head -c 600 "$work/proof")"
	"$work/goserver" ask "127.0.0.1:$port" 100 >/dev/null || fail "$title: wrong after us"
	kill "$server"
	wait "$server" || fail "$title ended with status $?: $(tail -3 "$work/$title.log")"
	echo "PASS $title"
	done=$((done + 1))
}

run_go() {
	have go || { absent go "golang-go is not installed"; return; }
	make_it go env HOME="$work" GOFLAGS= GO111MODULE=off CGO_ENABLED=0 go build -o "$work/goserver" "$programs/server.go" || return
	serve go-preempted GODEBUG=asyncpreemptoff=0 GOGC=1
	serve go-unpreempted GODEBUG=asyncpreemptoff=1 GOGC=20
}

say "SEED=$SEED"
for runtime in "${wanted[@]}"; do
	"run_$runtime"
done
[ $failures -eq 0 ] || fail "$failures of $done runtimes do otherwise; again with SEED=$SEED"
[ $done -gt 0 ] || skip "none of ${wanted[*]} is installed"
pass "$done runtimes do the same"
