#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""
layouts.py - a program of random control flow in machine code, from a seed.

    layouts.py SEED > program.S

Whatever a linker and an assembler let one write, and what defines itself: blocks
fall, branch and jump into their own and into others' functions, into padding that
runs on, through tables and registers; they are called in the middle, return
anywhere, keep registers, flags and the red zone across all of that; what one leaves in the
red zone another one reads, also where that is a function's first instruction; functions have
names, sizes, unwind data, or none of these, and data lies between them.

It ends: what goes backwards or calls counts %edi down, and below zero it returns.
"""
import random
import sys

seed = int(sys.argv[1])
r = random.Random(seed)
out = []

REGS = ["ax", "cx", "dx", "bx", "si", "bp", "8", "9", "10", "11", "12", "13", "14", "15"]


def q(n):
    return "%r" + n


def d(n):
    return "%r" + n + "d" if n.isdigit() else "%e" + n


def emit(line):
    out.append("\t" + line)


def label(name):
    out.append(name + ":")


NAMED, FRAME, BOTH, NOTHING, SIZELESS = range(5)


MOST = r.choice([2, 6, 12])  # blocks of a function


class Function:
    def __init__(self, n):
        self.n = n
        self.name = "f%d" % n
        self.kind = r.choices([NAMED, FRAME, BOTH, NOTHING, SIZELESS], [2, 2, 8, 1, 1])[0]
        self.blocks = ["B%d_%d" % (n, i) for i in range(r.randint(1, MOST))]


FUNCTIONS = r.randint(20, 60)
ODD = r.random() < 0.4
LENGTHS = r.choice([[0, 0, 1, 1, 2, 3, 5], [0, 0, 0, 1], [1, 4, 8]])  # of what a block does
ALIGNED = r.choice([0, 0.4, 1])  # of the functions
PADDED = r.choice([0.05, 0.25, 0.5])  # of the blocks
skips = []
PLACES = r.random() < 0.3 # who learns its own address
SPILLED = r.choice([0, 0.1, 0.3])
functions = [Function(n) for n in range(FUNCTIONS)]
order = [(f, b) for f in functions for b in f.blocks]
data = []
# Blocks that read what whoever comes there has left in the red zone; nobody calls them.
RED = [8 * n for n in range(2, 17) if n not in (3, 4)]  # not what others use
readers = {b: r.choice(RED) for f, b in order if r.random() < SPILLED}
callable_blocks = [b for f, b in order if b not in readers]
callable_starts = [f.blocks[0] for f in functions if f.blocks[0] not in readers] or callable_blocks


def some_registers():
    a, b = r.choice(REGS), r.choice(REGS)
    return a, b


def body():
    """Instructions that go nowhere."""
    for _ in range(r.choice(LENGTHS)):
        a, b = some_registers()
        k = r.randrange(22)
        if k == 0:
            emit("mov $%d, %s" % (r.getrandbits(31), d(a)))
        elif k == 1:
            emit("add %s, %s" % (d(a), d(b)))
        elif k == 2:
            emit("imul $%d, %s, %s" % (r.choice([3, 5, 1000003]), q(a), q(b)))
        elif k == 3:
            emit("xor %s, %s" % (q(a), q(b)))
        elif k == 4:
            emit("lea %d(%s,%s,%d), %s" % (r.choice([1, 100, 70000]), q(a), q(b), r.choice([1, 2, 4, 8]), q(r.choice(REGS))))
        elif k == 5:
            emit("rol $%d, %s" % (r.randint(1, 31), d(a)))
        elif k == 6:
            emit("inc %s" % d(a))
        elif k == 7:
            emit("%s %s, %s" % (r.choice(["adc", "sbb"]), q(a), q(b)))
        elif k == 8:
            emit("set%s %s" % (r.choice(["c", "z", "s", "o"]), "%" + r.choice(["al", "cl", "dl", "bl", "sil", "r9b"])))
        elif k == 9:
            emit("cmov%s %s, %s" % (r.choice(["c", "z", "s", "o", "g"]), q(a), q(b)))
        elif k == 10:
            emit("push %s" % q(a))
            emit("not %s" % d(b))
            emit("pop %s" % q(r.choice(REGS)))
        elif k == 11:
            emit("mov %s, -%d(%%rsp)" % (q(a), 8 * r.randint(1, 16)))
        elif k == 12:
            o = 8 * r.randint(1, 16)
            emit("mov %s, -%d(%%rsp)" % (q(a), o))
            emit("bswap %s" % q(a))
            emit("add -%d(%%rsp), %s" % (o, q(b)))
        elif k == 13:
            n = len(data)
            data.append(r.getrandbits(31))
            emit("add W%d(%%rip), %s" % (n, d(a)))
        elif k == 14:
            emit("xchg %s, %s" % (d(a), d(b)))
        elif k == 15:
            emit("cmp %s, %s" % (d(a), d(b)))
        elif k == 16:
            emit("nop")
        elif k == 17:
            emit("movq %s, %%xmm%d" % (q(a), r.randrange(3)))
        elif k == 18:
            emit("movq %%xmm%d, %s" % (r.randrange(3), q(a)))
        elif k == 19:
            emit("cld" if r.random() < 0.3 else r.choice(["stc", "clc", "cmc"]))
        elif k == 20 and PLACES:
            emit("call 1f")
            label("1")
            emit("pop %s" % q(a))
        elif k == 21 and ODD:
            k = r.randrange(7)
            n = len(skips)
            skips.append(n)
            if k == 0:
                # over a prefix, or not
                emit("test %s, %s" % (d(a), d(a)))
                emit("je S%d" % n)
                emit(".byte 0xf0")
                label("S%d" % n)
                emit("incl K(%rip)")
                emit("movl $0, K(%rip)")
            elif k == 1:
                # data behind a call
                emit("call S%d" % n)
                emit(".byte 0x%02x, 0x%02x, 0x%02x" % tuple(r.randrange(256) for _ in range(3)))
                label("S%d" % n)
                emit("pop %s" % q(a))
            elif k == 2:
                # instructions in the middle of another one
                emit("%s S%d+2" % (r.choice(["jc", "jns", "jmp"]), n))
                label("S%d" % n)
                emit(".byte 0x66, 0xb8, 0x90, 0x90")  # mov $0x9090, %ax
            elif k == 3:
                # a return to what was pushed
                emit("lea S%d(%%rip), %s" % (n, q(a)))
                emit("push %s" % q(a))
                emit("ret")
                label("S%d" % n)
            elif k == 4:
                # a call that does not come back
                emit("call S%d" % n)
                emit("ud2")
                label("S%d" % n)
                emit("lea 8(%rsp), %rsp")
            elif k == 5:
                emit("mov $%d, %%ecx" % r.randint(1, 5))
                label("S%d" % n)
                emit("lea 1(%s), %s" % (q("ax"), q("ax")))
                emit("loop S%d" % n)
            else:
                emit("bnd jmp S%d" % n)
                label("S%d" % n)
        else:
            emit("shr $1, %s" % q(a))


def nops(n):
    """n bytes that do nothing, as assemblers pad."""
    forms = {1: "0x90", 2: "0x66,0x90", 3: "0x0f,0x1f,0x00", 4: "0x0f,0x1f,0x40,0", 5: "0x0f,0x1f,0x44,0,0",
             6: "0x66,0x0f,0x1f,0x44,0,0", 7: "0x0f,0x1f,0x80,0,0,0,0", 8: "0x0f,0x1f,0x84,0,0,0,0,0",
             9: "0x66,0x0f,0x1f,0x84,0,0,0,0,0", 10: "0x66,0x2e,0x0f,0x1f,0x84,0,0,0,0,0"}
    while n:
        k = min(n, r.choice([10, 10, 9, 8, 4, 1]))
        emit(".byte " + forms[k])
        n -= k


def leave(target):
    """Whoever goes there leaves what is read there."""
    if target in readers:
        emit("mov %s, -%d(%%rsp)" % (q(r.choice(REGS)), readers[target]))


def pick(at, forward):
    """A place to go to: near, mostly. forward: it must be behind block number `at`."""
    if r.random() < 0.85:
        lo, hi = max(0, at - 5), min(len(order) - 1, at + 6)
    else:
        lo, hi = 0, len(order) - 1
    if forward:
        lo = at + 1
        if lo > hi:
            hi = min(len(order) - 1, at + 6)
        if lo > hi:
            return None
    i = r.randint(lo, hi)
    b = order[i][1]
    leave(b)
    return "P" + b if b in padded and r.random() < 0.5 else b


CONDITIONS = ["e", "ne", "c", "nc", "s", "ns", "o", "no", "l", "ge", "a", "be"]


def fuel():
    emit("sub $1, %edi")
    emit("%sjs R%d" % (r.choice(["", "", "{disp32} "]), r.randrange(RETURNS)))


def jump(text, target):
    if text != "jrcxz" and r.random() < 0.3:
        text = "{disp32} " + text
    emit("%s %s" % (text, target))


# What the entries of a table are: addresses, offsets of four bytes, or of eight.
WHOLE, OFFSETS, LONG_OFFSETS = range(3)
tables = []


def entry(target, n, kind):
    emit("%s %s - T%d" % (".quad" if kind == LONG_OFFSETS else ".long", target, n))


def some_call():
    fuel()
    k = r.randrange(4)
    target = r.choice(callable_starts if r.random() < 0.85 else callable_blocks)
    if k < 2:
        emit("call %s" % target)
    elif k == 2:
        emit("lea %s(%%rip), %%r11" % target)
        emit("call *%r11")
    else:
        n = len(tables)
        tables.append((n, [target], WHOLE))
        emit("call *T%d(%%rip)" % n)


def between():
    """What lies where control does not come by."""
    k = r.randrange(8)
    if k == 0:
        for _ in range(r.randint(1, 3)):
            emit(".long 0x%x" % r.getrandbits(32))
    elif k == 1:
        emit(".fill %d, 1, 0xcc" % r.randint(1, 12))
    elif k == 2:
        emit("ud2")
    elif k == 3:
        nops(r.randint(1, 15))


def transfer(at, last):
    """How the block ends. True: control may go on behind it."""
    k = r.choices(range(10), WAYS)[0]
    if last and k in (0, 2, 3):
        k = 9
    if k == 0:
        return True
    if k in (1, 2):
        forward = r.random() < 0.6
        if not forward:
            fuel()
        target = pick(at, forward)
        if target is None:
            k = 9
        elif k == 1:
            jump("jmp", target)
            return False
        else:
            jump("j" + r.choice(CONDITIONS), target)
            return True
    if k == 3:
        fuel()
        emit("jrcxz 1f")
        emit("jmp 2f")
        label("1")
        emit("jmp %s" % pick(at, False))
        label("2")
        return True
    if k == 4:
        fuel()
        n = len(tables)
        count = r.choice([1, 2, 4, 8])
        tables.append((n, [pick(at, False) for _ in range(count)], OFFSETS))
        a, b = r.sample(REGS, 2)
        emit("mov %s, %s" % (d(r.choice(REGS)), d(a)))
        if r.random() < 0.5:
            emit("and $%d, %s" % (count - 1, d(a)))
        else:
            emit("and $%d, %s" % (count - 1, d(a)))
            emit("cmp $%d, %s" % (count - 1, d(a)))
            emit("ja R%d" % r.randrange(RETURNS))
        form = r.randrange(4)
        if form == 0:
            # whole addresses
            tables[-1] = (n, tables[-1][1], WHOLE)
            emit("lea T%d(%%rip), %s" % (n, q(b)))
            emit("%sjmp *(%s,%s,8)" % (r.choice(["", "notrack "]), q(b), q(a)))
            return False
        emit("lea T%d(%%rip), %s" % (n, q(b)))
        if r.random() < 0.3:
            tables[-1] = (n, tables[-1][1], LONG_OFFSETS)
            emit("mov (%s,%s,8), %s" % (q(b), q(a), q(a)))
        else:
            emit("movslq (%s,%s,4), %s" % (q(b), q(a), q(a)))
        if form == 1:
            emit("lea (%s,%s), %s" % (q(a), q(b), q(b)))
            a = b
        else:
            emit("add %s, %s" % (q(b), q(a)))
        if form == 2:
            # spilled, and loaded again by name
            emit("mov %s, -24(%%rsp)" % q(a))
            emit("jmp *-24(%rsp)")
        else:
            emit("%sjmp *%s" % (r.choice(["", "notrack "]), q(a)))
        if form == 3 and r.random() < 0.3:
            # the table lies in the code
            emit(".p2align 2")
            label("T%d" % n)
            _, targets, kind = tables.pop()
            for t in targets:
                entry(t, n, kind)
            tables.append((n, None, kind))
        return False
    if k == 5:
        fuel()
        a = r.choice(REGS)
        target = pick(at, False)
        form = r.randrange(5)
        if form == 0:
            more = r.choice([4, 8, 100])
            emit("lea %s-%d(%%rip), %s" % (target, more, q(a)))
            if r.random() < 0.3:
                b = r.choice([x for x in REGS if x != a])
                emit("mov %s, %s" % (q(a), q(b)))
                a = b
            if r.random() < 0.2:
                emit("js R%d" % r.randrange(RETURNS))
            how = r.randrange(4)
            if how == 0:
                emit("add $%d, %s" % (more, q(a)))
            elif how == 1:
                emit("lea %d(%s), %s" % (more, q(a), q(a)))
            elif how == 2:
                emit("sub $%d, %s" % (-more, q(a)))
            else:
                emit("add $%d, %s" % (more - 1, q(a)))
                emit("inc %s" % q(a))
            emit("jmp *%s" % q(a))
        elif form == 1:
            emit("lea %s(%%rip), %s" % (target, q(a)))
            emit("push %s" % q(a))
            emit("ret")
        elif form == 2:
            b = r.choice([x for x in REGS if x != a])
            emit("lea %s(%%rip), %s" % (target, q(a)))
            emit("lea %s(%%rip), %s" % (pick(at, False), q(b)))
            emit("test $%d, %%edi" % r.choice([1, 2, 4]))
            emit("cmovz %s, %s" % (q(b), q(a)))
            emit("jmp *%s" % q(a))
        elif form == 3:
            b = r.choice(REGS)
            emit("lea %s(%%rip), %s" % (target, q(a)))
            emit("mov %s, -32(%%rsp)" % q(a))
            emit("mov -32(%%rsp), %s" % q(b))
            emit("jmp *%s" % q(b))
        else:
            emit("lea %s(%%rip), %s" % (target, q(a)))
            emit("jmp *%s" % q(a))
        return False
    if k == 6:
        fuel()
        target = r.choice(functions).blocks[0]
        leave(target)
        emit("jmp %s" % target)
        return False
    if k == 7:
        some_call()
        return not last or not emit("ret")
    if k == 8:
        some_call()
        emit("ret")
        return False
    emit("ret")
    return False


# Not all of everything in each program: what is not understood is refused whole, and hides the rest.
WAYS = [r.choice([2, 5]), r.choice([2, 4]), r.choice([3, 6]), r.choice([0, 0, 1]), r.choice([0, 0, 0, 1]),
        r.choice([0, 0, 0, 1]), r.choice([0, 1]), r.choice([1, 3]), r.choice([0, 1]), r.choice([1, 2])]
RETURNS = max(2, len(order) // 8)
padded = {b for f, b in order if r.random() < PADDED}
return_at = {}
for n in range(RETURNS):
    return_at.setdefault(r.randrange(len(order)), []).append(n)

emit(".text")
previous = None
for at, (f, b) in enumerate(order):
    first, last = b == f.blocks[0], b == f.blocks[-1]
    if first:
        if r.random() < ALIGNED:
            emit(".p2align %d" % r.choice([3, 4, 4, 5]))
        if f.kind in (NAMED, BOTH, SIZELESS):
            if r.random() < 0.3:
                emit(".globl %s" % f.name)
            emit(".type %s, @function" % f.name)
            label(f.name)
        if f.kind in (FRAME, BOTH):
            emit(".cfi_startproc")
    if b in padded:
        label("P" + b)
        if r.random() < 0.7:
            nops(r.randint(1, 16))
        else:
            emit(".p2align 4")
    label(b)
    if first and r.random() < 0.2:
        emit("endbr64")
    if b in readers:
        emit("%s -%d(%%rsp), %s" % (r.choice(["add", "mov", "xor"]), readers[b], q(r.choice(REGS))))
    if not first and r.random() < 0.06:
        emit(".type g_%s, @function" % b)
        label("g_%s" % b)
        if r.random() < 0.5:
            emit(".size g_%s, %d" % (b, r.choice([0, 1, 7, 40])))
    body()
    goes_on = transfer(at, at == len(order) - 1)
    for n in return_at.get(at, []):
        if goes_on:
            emit("jmp 9f")
        label("R%d" % n)
        body()
        emit("ret")
        if goes_on:
            label("9")
    if not goes_on:
        between()
    elif at + 1 < len(order):
        leave(order[at + 1][1])
    if last:
        if f.kind in (FRAME, BOTH):
            emit(".cfi_endproc")
        if f.kind in (NAMED, BOTH):
            emit(".size %s, . - %s" % (f.name, f.name))

emit(".section .rodata")
for n, targets, kind in tables:
    if targets is None:
        continue
    emit(".p2align 3")
    if kind == WHOLE:
        emit(".section .data.rel.ro, \"aw\"")
        emit(".p2align 3")
        label("T%d" % n)
        for t in targets:
            emit(".quad %s" % t)
        emit(".section .rodata")
    else:
        label("T%d" % n)
        for t in targets:
            entry(t, n, kind)
for n, w in enumerate(data):
    emit(".p2align 2")
    label("W%d" % n)
    emit(".long %d" % w)
emit(".section .data.rel.ro, \"aw\"")
emit(".p2align 3")
emit(".globl layout_starts, layout_count")
label("layout_starts")
starts = [b for b in callable_starts if r.random() < 0.8] or callable_starts[:1]
for s in starts:
    emit(".quad %s" % s)
label("layout_count")
emit(".quad %d" % len(starts))
emit(".data")
label("K")
emit(".long 0")
emit(".section .note.GNU-stack, \"\", @progbits")
print("/* made by layouts.py %d */" % seed)
print("\n".join(out))
