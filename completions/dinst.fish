# SPDX-License-Identifier: MIT
# fish completion for dinst: asks dinst itself, which knows its commands and what runs.

function __dinst_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    # without its quotes, of which the last one may be still to come; fish itself quotes what is offered
    set -l token (commandline -ct)
    set -l quote (string match -r '^["\']' -- $token)
    set -l current (string unescape -- "$token$quote"; or string unescape -- "$token")
    set -l found ($program --complete -- $words "$current" 2>/dev/null </dev/null)
    if test "$found[1]" = :files
        __fish_complete_path "$current"
    else
        string join \n -- $found
    end
end

complete -c dinst -f -a '(__dinst_complete)'
