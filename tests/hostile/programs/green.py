# SPDX-License-Identifier: MIT
#
# green.py - greenlets, which copy stacks to and fro in one thread, beside
# generators and exceptions. Reads how many rounds; prints sums.
import sys
from greenlet import greenlet, GreenletExit


def deep(n, parent):
    if n == 0:
        return parent.switch(1)
    return deep(n - 1, parent) + 1


def body(parent, rounds):
    total = 0
    for i in range(rounds):
        try:
            total += deep(i % 9, parent)
            if i % 4 == 3:
                raise ValueError(i)
        except ValueError as e:
            total += e.args[0]
    return total


def half(rounds):
    main_let = greenlet.getcurrent()
    total = 0
    for r in range(rounds):
        lets = [greenlet(body) for _ in range(4)]
        for g in lets:
            g.switch(main_let, 20)
        while any(lets):
            for g in lets[:3]:
                if g:
                    total += g.switch(2) or 0
            if r % 2 and lets[3]:
                lets[3].throw(GreenletExit)
            elif lets[3]:
                total += lets[3].switch(3) or 0
    return total


rounds = int(sys.stdin.readline())
first = half(rounds)
rest = sum(len(line) for line in sys.stdin)
print(first, rest, half(rounds))
