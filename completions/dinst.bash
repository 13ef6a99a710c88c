# SPDX-License-Identifier: MIT
# bash completion for dinst: asks dinst itself, which knows its commands and what runs.

_dinst()
{
	local cur word about words=() cword
	local -a lines

	# ':' and '=' belong to names of functions and to options
	if declare -F _get_comp_words_by_ref >/dev/null; then
		_get_comp_words_by_ref -n := cur words cword
	else
		cur=${COMP_WORDS[COMP_CWORD]} words=("${COMP_WORDS[@]}") cword=$COMP_CWORD
	fi
	COMPREPLY=()
	mapfile -t lines < <("$1" --complete -- "${words[@]:1:cword-1}" "${cur#[\'\"]}" 2>/dev/null </dev/null)
	for about in "${lines[@]}"; do
		word=${about%%$'\t'*}
		if [[ $word == :files ]]; then
			compopt -o default -o filenames
			return
		fi
		[[ $word == */ ]] && compopt -o nospace
		# what the shell would take apart is quoted, but not twice
		[[ $cur == [\'\"]* ]] || printf -v word %q "$word"
		COMPREPLY+=("$word")
	done
	if declare -F __ltrim_colon_completions >/dev/null; then
		__ltrim_colon_completions "$cur"
	fi
}

complete -F _dinst dinst
