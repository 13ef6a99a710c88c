# SPDX-License-Identifier: MIT
# bash completion for dinst: asks dinst itself, which knows its commands and what runs.

# Sets plain to what the shell makes of $1, the beginning of a word.
_dinst_unquote()
{
	local rest=$1 quote= char
	plain=
	while [[ -n $rest ]]; do
		char=${rest:0:1} rest=${rest:1}
		case $quote$char in
		"''" | '""') quote= ;;
		\' | \") quote=$char ;;
		\\) plain+=${rest:0:1} rest=${rest:1} ;;
		'"\')
			[[ $rest == [\"\\\$\`]* ]] && char=${rest:0:1} rest=${rest:1}
			plain+=$char
			;;
		*) plain+=$char ;;
		esac
	done
}

# Sets quoted to $1 as it is written behind the quote $2, which is open, or behind none: others give
# names to their processes and functions, and the shell must take nothing in them for its own.
_dinst_quote()
{
	local i char
	if [[ -z $2 ]]; then
		printf -v quoted %q "$1"
		return
	fi
	quoted=
	for ((i = 0; i < ${#1}; i++)); do
		char=${1:i:1}
		case $2$char in
		\"[\"\\\$\`]) quoted+=\\$char ;;
		'"!') quoted+='"\!"' ;; # no other way: a backslash would stay there
		"''") quoted+="'\\''" ;;
		*) quoted+=$char ;;
		esac
	done
	# readline closes the quote, but not behind one
	[[ $quoted == *"$2" ]] && quoted+=$2
}

_dinst()
{
	local cur word about head plain quoted quote= words=() cword
	local -a lines

	# ':' and '=' belong to names of functions and to options
	if declare -F _get_comp_words_by_ref >/dev/null; then
		_get_comp_words_by_ref -n := cur words cword
	else
		cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
	fi
	COMPREPLY=()
	# $2 is the part of the word that is replaced: what is behind an open quote, or behind a ':'
	[[ $cur == *"$2" ]] || return
	head=${cur:0:${#cur}-${#2}}
	[[ $head == *[\'\"] ]] && quote=${head: -1}
	_dinst_unquote "$cur"
	mapfile -t lines < <("$1" --complete -- "${words[@]:1:cword-1}" "$plain" 2>/dev/null </dev/null)
	_dinst_unquote "$head"
	for about in "${lines[@]}"; do
		word=${about%%$'\t'*}
		if [[ $word == :files ]]; then
			compopt -o default -o filenames
			return
		fi
		[[ $word == */ ]] && compopt -o nospace
		_dinst_quote "${word#"$plain"}" "$quote"
		COMPREPLY+=("$quoted")
	done
}

complete -F _dinst dinst
