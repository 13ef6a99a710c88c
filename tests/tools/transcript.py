#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""
transcript.py - runs what a document shows, word for word.

  transcript.py FILE [HEADING]      all of it, or the section of that heading

A command is an indented line that begins with "$ "; it goes on in the next line where it
ends in a pipe or a backslash. What is below it, up to the next command or the end of the
block, must be found in its output: every line, in that order, other lines may stand
between. Any number stands for any number, a time for any time, blanks for blanks, "..." for
anything, and a line "..." for any lines. Lines that begin with "dinst: " are on standard error:
they may stand anywhere. All commands run in one shell. The exit status is 1 if anything
differs; what was run and printed is on standard output.
"""
import re
import subprocess
import sys

SECONDS = 1700


def section(lines, heading):
    if not heading:
        return lines
    start = next(i for i, line in enumerate(lines) if re.fullmatch(r"#+ " + re.escape(heading), line))
    level = lines[start].split(" ")[0]
    end = next((i for i in range(start + 1, len(lines)) if re.match(r"#{1,%d} " % len(level), lines[i])), len(lines))
    return lines[start:end]


def steps(lines):
    """[(command, [expected line])]"""
    found, more, inside = [], False, False
    for line in lines:
        if more:
            found[-1][0] += "\n" + line[4:]
        elif line.startswith("    $ "):
            found.append([line[6:], []])
        elif line.startswith("    ") and inside:
            found[-1][1].append(line[4:].rstrip())
            continue
        elif line == "" and inside:
            continue
        else:
            inside = False
            continue
        inside = True
        more = found[-1][0].endswith(("|", "\\"))
    return found


def pattern(expected):
    parts = re.split(r"(\.\.\.|\b(?:ns|us|ms|s)\b|0x[0-9a-f]+|\d+(?:[.,]\d+)*|\s+)", expected.strip())
    text = ""
    for part in parts:
        if part == "...":
            text += ".*"
        elif re.fullmatch(r"0x[0-9a-f]+", part):
            text += "0x[0-9a-f]+"
        elif re.fullmatch(r"\d[\d.,]*", part):
            text += r"\d+(?:[.,]\d+)*"
        elif part in ("ns", "us", "ms", "s"):
            text += "(?:ns|us|ms|s)"
        elif part.isspace():
            text += r"\s+"
        else:
            text += re.escape(part)
    return re.compile(text + r"\s*")


def missing(expected, output):
    at = 0
    for line in expected:
        if line.strip() in ("", "..."):
            continue
        want = pattern(line)
        anywhere = line.startswith("dinst: ")
        hit = next((i for i in range(0 if anywhere else at, len(output)) if want.fullmatch(output[i].strip())), None)
        if hit is None:
            return line
        at = at if anywhere else hit + 1
    return None


def main():
    lines = open(sys.argv[1], encoding="utf-8").read().splitlines()
    todo = steps(section(lines, sys.argv[2] if len(sys.argv) > 2 else None))
    if not todo:
        sys.exit("there is no command in it")
    shell = subprocess.Popen(["timeout", str(SECONDS), "bash"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, text=True, bufsize=1, errors="replace")
    bad = 0
    for number, (command, expected) in enumerate(todo):
        mark = f"transcript-{number}-done"
        print("$ " + command, flush=True)
        try:
            shell.stdin.write(command + "\n")
            shell.stdin.write(f"echo; echo {mark} $?\n")
            shell.stdin.flush()
        except BrokenPipeError:
            sys.exit("the shell is gone")
        output = []
        for line in shell.stdout:
            if line.startswith(mark):
                status = int(line.split()[1])
                break
            output.append(line.rstrip("\n"))
            print("  " + line.rstrip("\n"), flush=True)
        else:
            sys.exit(f"no end of '{command}' (time limit {SECONDS} s)")
        wrong = missing(expected, output)
        if wrong is not None:
            print(f"WRONG: '{wrong}' is not in the output of '{command}'")
            bad += 1
        if status not in (0, 3):
            print(f"WRONG: exit status {status} of '{command}'")
            bad += 1
    shell.stdin.close()
    shell.wait(timeout=60)
    print(f"{len(todo)} commands, {bad} wrong")
    sys.exit(bad > 0)


main()
