#!/bin/bash
# SPDX-License-Identifier: MIT
#
# completion.sh - the completions in real shells: a key is pressed in bash, zsh and fish, and the
# line on the screen is looked at. In tmux; shells that are not there are skipped by name.
set -u
cd "$(dirname "$0")/.." || exit 1

build=$(realpath "${DINST_BUILD:-build}") || exit 1
work=$(mktemp -d "${TMPDIR:-/tmp}/dinst-completion-XXXXXX") || exit 1
export DINST_SOCKET=$work/d.sock
# A name that nobody else has, so that it can be completed.
target=$work/dinst-prey
# Names that anyone may give to a process: a shell that took them for more than words would make
# the file x.
hard=("zq\$(>x)\`>x\`\"!\\'" "zr\\!\`>x\`\$(>x)\"")
pids=()
pid=
bad=0

tm() {
	tmux -S "$work/tmux" -f /dev/null "$@"
}

finish() {
	tm kill-server 2>/dev/null
	timeout 60 "$build/dinst" stop >/dev/null 2>&1
	kill $pid "${pids[@]}" 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT

command -v tmux >/dev/null || {
	echo "SKIP completion tmux is not installed"
	exit 0
}
[ "$(id -u)" -eq 0 ] || {
	echo "SKIP completion needs root"
	exit 0
}

mkdir -p "$work/bin" "$work/home" "$work/zsh"
ln -s "$build/dinst" "$work/bin/dinst"
cp "$build/examples/demo-server" "$target"
"$target" "$work/socket" 2 >/dev/null 2>&1 &
pid=$!
for name in "${hard[@]}"; do
	cp "$build/examples/demo-server" "$work/$name"
	"$work/$name" "$work/socket-${#pids[@]}" 2 >/dev/null 2>&1 &
	pids+=($!)
done
for _ in $(seq 600); do
	[ -S "$work/socket" ] && [ -S "$work/socket-0" ] && [ -S "$work/socket-1" ] && break
	sleep 0.1
done
PATH=$work/bin:$PATH

# --- what dinst offers
offers() {
	dinst --complete -- "$@" | cut -f1
}
check() {
	local want=$1
	shift
	offers "$@" | grep -qxF -e "$want" || {
		echo "FAIL completion '$*' does not offer '$want': $(offers "$@" | head -5 | tr '\n' ' ')"
		bad=$((bad + 1))
	}
}
check attach at
check --name attach --n
check dinst-prey attach dinst-p
check "$pid" doctor "${pid%?}"
check dinst-prey watch -p dinst-p
for name in "${hard[@]}"; do
	check "$name" attach "${name:0:2}"
done
check calls insert cal
check :files metrics --check ''
check :files run ''
check insert help ins
[ -z "$(offers no-such-command '')" ] || {
	echo "FAIL completion an unknown command has arguments"
	bad=1
}
dinst attach "$pid" -n prey >/dev/null 2>&1 || {
	echo "FAIL completion cannot attach"
	exit 1
}
dinst -q insert calls /Code/dinst-prey/turn >/dev/null
check prey detach pr
check answer_request points answer_r
check dinst-prey:answer_request points dinst-prey:answer_r
check /Code/dinst-prey/ insert calls /Code/dinst-p
check /Code/dinst-prey/answer_request insert calls /Code/dinst-prey/answer_r
check 1 read ''
check 1 history ''
check dinst-prey points --summary dinst-p
[ $bad -eq 0 ] && echo "PASS completion dinst --complete"

# shows SHELL TEXT: waits until it stands on the screen.
shows() {
	for _ in $(seq 1200); do
		tm capture-pane -p -t "$1" | grep -qF -e "$2" && return 0
		sleep 0.1
	done
	return 1
}

# press SHELL LINE EXPECTED: types LINE and a tabulator, waits for EXPECTED; what is typed behind it
# tells whether there is a blank at its end.
press() {
	local shell=$1 line=$2 expected=$3

	tm send-keys -t "$shell" C-u
	tm send-keys -t "$shell" -l "$line"
	shows "$shell" "$line" && tm send-keys -t "$shell" Tab
	if shows "$shell" "${expected% }"; then
		sleep 0.3
		tm send-keys -t "$shell" -l "@@"
		shows "$shell" "$expected@@" && return
	fi
	echo "FAIL completion $shell: '$line' did not become '$expected'"
	tm capture-pane -p -t "$shell" | grep . | tail -8
	bad=$((bad + 1))
}

# names SHELL TYPED NAME: TYPED and a tabulator make an argument of a command line that is NAME,
# letter for letter, once the shell has read it; and nothing else is run by it.
names() {
	local shell=$1 typed=$2 name=$3 line="dinst attach $2"

	rm -f "$work/home/said" "$work/home/x"
	tm send-keys -t "$shell" C-u
	tm send-keys -t "$shell" C-l
	tm send-keys -t "$shell" -l "$line"
	shows "$shell" "$line" && tm send-keys -t "$shell" Tab
	shows "$shell" ">x" || bad=$((bad + 1))
	tm send-keys -t "$shell" C-a
	tm send-keys -t "$shell" -l "said "
	tm send-keys -t "$shell" Enter
	for _ in $(seq 200); do
		[ -f "$work/home/said" ] && break
		sleep 0.1
	done
	[ "$(cat "$work/home/said" 2>&1)" = "$name" ] && [ ! -e "$work/home/x" ] && return
	echo "FAIL completion $shell: '$line' did not name $name: $(ls "$work/home")"
	tm capture-pane -p -t "$shell" | grep . | tail -8
	tm send-keys -t "$shell" C-c
	bad=$((bad + 1))
}

# one SHELL COMMAND...: starts it in tmux and tries it.
one() {
	local shell=$1 before=$bad
	shift
	command -v "$shell" >/dev/null || {
		echo "SKIP completion $shell is not installed"
		return
	}
	tm new-session -d -s "$shell" -c "$work/home" -x 150 -y 50 "env" -i "PATH=$PATH" TERM=screen "HOME=$work/home" \
		"ZDOTDIR=$work/zsh" "DINST_SOCKET=$DINST_SOCKET" LC_ALL=C.UTF-8 "$@"
	for _ in $(seq 1200); do
		tm capture-pane -p -t "$shell" | grep -q 'ready>' && break
		sleep 0.1
	done
	press "$shell" "dinst atta" "dinst attach "
	press "$shell" "dinst attach dinst-pr" "dinst attach dinst-prey "
	press "$shell" "dinst detach --al" "dinst detach --all "
	press "$shell" "dinst insert calls /Code/dinst-pr" "dinst insert calls /Code/dinst-prey/"
	press "$shell" "dinst insert calls /Code/dinst-prey/answer_req" "/Code/dinst-prey/answer_request "
	# bash takes names with ':' apart, where it has no help
	[ "$shell" = bash ] && [ ! -f /usr/share/bash-completion/bash_completion ] ||
		press "$shell" "dinst points dinst-prey:answer_req" "dinst-prey:answer_request "
	press "$shell" "dinst insert alloc_l" "dinst insert alloc_live "
	press "$shell" "dinst -p pre" "dinst -p prey "
	touch "$work/home/some-metrics.mdl"
	press "$shell" "dinst metrics --check $work/home/some-m" "$work/home/some-metrics.mdl "
	for name in "${hard[@]}"; do
		for quote in '' \" \'; do
			names "$shell" "$quote${name:0:2}" "$name"
		done
	done
	tm kill-session -t "$shell"
	[ "$bad" -eq "$before" ] && echo "PASS completion $shell"
}

# in front of a command line, keeps the word that "dinst attach" would be given
said="said() { printf '%s\\n' \"\${@:3}\" >said.new; mv said.new said; }"
cat >"$work/bashrc" <<END
PS1='ready> '
[ -f /usr/share/bash-completion/bash_completion ] && . /usr/share/bash-completion/bash_completion
. '$PWD/completions/dinst.bash'
$said
END
cat >"$work/zsh/.zshrc" <<END
PROMPT='ready> '
fpath=('$PWD/completions' \$fpath)
autoload -U compinit
compinit -u -D
$said
END
mkdir -p "$work/home/.config/fish/completions"
cp completions/dinst.fish "$work/home/.config/fish/completions/"
cat >"$work/home/.config/fish/config.fish" <<END
function fish_prompt
    echo -n 'ready> '
end
function fish_greeting
end
function said
    printf '%s\\n' \$argv[3..-1] >said.new
    mv said.new said
end
END
one bash bash --noprofile --rcfile "$work/bashrc" -i
[ -f /usr/share/bash-completion/bash_completion ] || echo "SKIP completion bash-completion is not installed: names with ':' in bash"
one zsh zsh -i
one fish fish -i
exit $bad
