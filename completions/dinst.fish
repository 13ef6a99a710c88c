# SPDX-License-Identifier: MIT
# fish completion for dinst: asks dinst itself, which knows its commands and what runs.

function __dinst_complete
    set -l words (commandline -opc)
    set -l program $words[1]
    set -e words[1]
    set -l current (commandline -ct)
    set -l found ($program --complete -- $words "$current" 2>/dev/null </dev/null)
    if test "$found[1]" = :files
        __fish_complete_path "$current"
    else
        string join \n -- $found
    end
end

complete -c dinst -f -a '(__dinst_complete)'
