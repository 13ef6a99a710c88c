#!/usr/bin/python3
# SPDX-License-Identifier: MIT
"""
table.py - make bench: one table of what looking costs, dinst and what else is installed.

  table.py [call|events|redis]...     one part only

  call    a function of ten nanoseconds: ns added to a call, time to attach and detach, the
          longest pause of the program, memory of the tool
  events  two threads with a million events a second: how fast they still are, how many events
          are kept and dropped, memory of the tool
  redis   throughput and CPU time per request of redis-server with 1, 50 and all functions

Ratios in one run count, never a figure by itself: see docs/performance.md. The program is on
CPU 0 and the tool on CPU 1. Below ten minutes; what is not installed is skipped by name.
"""
import glob
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.path.realpath(os.environ.get("DINST_BUILD", "build"))
DINST = os.path.join(BUILD, "dinst")
WORK = tempfile.mkdtemp(prefix="dinst-bench-")
os.environ["DINST_SOCKET"] = os.path.join(WORK, "d.sock")
QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
running = []
skipped = []
# Started in the background by a shell it would be ignored, by the tools as well, which are ended by it.
signal.signal(signal.SIGINT, signal.default_int_handler)


def start(command, cpu, **how):
    process = subprocess.Popen(["taskset", "-c", str(cpu), *command], **{**QUIET, **how})
    running.append(process)
    return process


def end(process, sig=signal.SIGINT, patience=20):
    """Seconds until it had ended."""
    begin = time.monotonic()
    if process.poll() is None:
        process.send_signal(sig)
    try:
        process.wait(patience)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return time.monotonic() - begin


def dinst(*words):
    """Objects that dinst --json printed, and seconds."""
    begin = time.monotonic()
    done = subprocess.run(["taskset", "-c", str(TOOL_CPU), DINST, "--json", *words], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, timeout=120)
    if done.returncode not in (0, 3):
        raise RuntimeError(f"dinst {' '.join(words)}: {done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()], time.monotonic() - begin


def peak_mib(pids):
    total = 0
    for pid in pids:
        try:
            total += int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1))
        except (OSError, AttributeError):
            pass
    return total / 1024


def children(pid):
    found = [pid]
    for task in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            for child in open(task).read().split():
                found += children(int(child))
        except OSError:
            pass
    return found


def daemon_pids():
    try:
        return children(int(open(os.path.join(WORK, "d.lock")).read()))
    except (OSError, ValueError):
        return []


def has(tool):
    if shutil.which(tool):
        return True
    if tool not in skipped:
        skipped.append(tool)
    return False


CPUS = sorted(os.sched_getaffinity(0))
PROGRAM_CPU, TOOL_CPU = CPUS[0], CPUS[-1]

# ---------------------------------------------------------------- one function


class Loop:
    """The program of peers/loop.c and what it says about itself."""

    def __init__(self, program, seconds=60, before=()):
        self.path = os.path.join(WORK, "windows")
        self.process = start([*before, program, str(seconds)], PROGRAM_CPU, stdout=open(self.path, "w"))
        self.pid = self.process.pid

    def windows(self, since=0.0, until=float("inf")):
        rows = []
        for line in open(self.path):
            part = line.split()
            if len(part) == 3 and line.endswith("\n") and since * 1e9 <= int(part[0]) <= until * 1e9:
                rows.append((int(part[0]) / 1e9, float(part[1]), float(part[2])))
        return rows

    def measure(self, seconds):
        """Median of ns per call over so many seconds."""
        begin = time.monotonic()
        time.sleep(seconds)
        rows = self.windows(begin + 0.06)
        return statistics.median(row[1] for row in rows) if rows else None

    def longest_us(self, since, until):
        return max((row[2] for row in self.windows(since, until + 0.06)), default=0.0)

    def wait_slower(self, than, seconds):
        """The moment when a window was slower than that; None if none was."""
        begin = time.monotonic()
        while time.monotonic() - begin < seconds:
            for at, ns, _ in self.windows(begin):
                if ns > than:
                    return at - begin
            time.sleep(0.02)
        return None


def show_call(name, added=None, factor=None, attach=None, detach=None, pause=None, memory=None, note=""):
    def cell(value, form):
        return "-" if value is None else form % value
    print(f"  {name:34} {cell(added, '%10.1f')} {cell(factor, '%9.2fx'):>10} {cell(attach, '%8.0f ms'):>11} "
          f"{cell(detach, '%8.0f ms'):>11} {cell(pause, '%8.2f ms'):>11} {cell(memory, '%5.0f MiB'):>9}  {note}".rstrip(),
          flush=True)


def with_dinst(loop, name, *commands):
    before = loop.measure(1)
    begin = time.monotonic()
    _, attach = dinst("attach", str(loop.pid), "-n", "loop")
    for command in commands:
        _, seconds = dinst(*command)
        attach += seconds
    done = time.monotonic()
    ns = loop.measure(1.5)
    memory = peak_mib(daemon_pids())
    pause = loop.longest_us(begin, done)
    begin = time.monotonic()
    _, detach = dinst("detach", "-p", "loop")
    pause = max(pause, loop.longest_us(begin, time.monotonic()))
    show_call(name, ns - before, ns / before, attach * 1e3, detach * 1e3, pause / 1e3, memory)


def with_tool(loop, name, command, seconds=2.0, prepare=None, cleanup=None, **how):
    """A tool that attaches by pid: it is there when the program gets slower."""
    if not has(command[0]):
        return
    if prepare and subprocess.run(prepare, **QUIET).returncode != 0:
        skipped.append(f"{name} ({' '.join(prepare[:2])} failed)")
        return
    before = loop.measure(1)
    begin = time.monotonic()
    tool = start(command, TOOL_CPU, **how)
    attach = loop.wait_slower(before * 1.5, 20)
    if attach is None:
        end(tool)
        skipped.append(f"{name} (it did not attach)")
    else:
        ns = loop.measure(seconds)
        memory = peak_mib(children(tool.pid))
        if tool.poll() is not None:
            skipped.append(f"{name} (it ended by itself)")
            return
        pause = loop.longest_us(begin, begin + attach)
        leave = time.monotonic()
        detach = end(tool)
        time.sleep(0.1)
        pause = max(pause, loop.longest_us(leave, time.monotonic()) if ns < 1e5 else pause)
        show_call(name, ns - before, ns / before, attach * 1e3, detach * 1e3, pause / 1e3, memory)
    if cleanup:
        subprocess.run(cleanup, **QUIET)


def whole_program(name, program, base, before=(), tool=None, seconds=4):
    """A tool that must start the program, or a program built for it."""
    if tool and not has(tool):
        return
    loop = Loop(program, seconds, before)
    time.sleep(1)
    memory = None
    for _ in range(int(seconds * 4)):
        if len(loop.windows()) > seconds * 20 - 30 or loop.process.poll() is not None:
            break
        memory = peak_mib(children(loop.pid)) if tool else None
        time.sleep(0.25)
    loop.process.wait(60)
    rows = [row[1] for row in loop.windows()][4:]
    if not rows:
        skipped.append(f"{name} (it did not run)")
        return
    ns = statistics.median(rows)
    show_call(name, ns - base, ns / base, memory=memory, note="from the start" if tool else "built in")


def gdb_command(pid, function):
    script = os.path.join(WORK, f"gdb-{function}")
    with open(script, "w") as file:
        file.write(f"set pagination off\nbreak {function}\ncommands\nsilent\ncontinue\nend\ncontinue\n")
    return ["gdb", "-q", "-nx", "-p", str(pid), "-x", script]


def call_part():
    loop_c = "tests/bench/peers/loop.c"
    program = os.path.join(WORK, "loop")
    flags = ["gcc", "-O2", "-g", "-fno-omit-frame-pointer"]
    for suffix, more in (("", []), ("-pg", ["-pg"]), ("-hooks", ["-finstrument-functions", "-DHOOKS"])):
        subprocess.run([*flags, *more, "-o", program + suffix, loop_c], check=True)
    loop = Loop(program, 240)
    base = loop.measure(2)
    noise_from = time.monotonic()
    time.sleep(2)
    noise = loop.longest_us(noise_from, time.monotonic())
    print(f"A function of {base:.1f} ns, called by one thread; its longest pause without any tool: {noise / 1e3:.2f} ms\n")
    print(f"  {'':34} {'ns added':>10} {'call takes':>10} {'attach':>11} {'detach':>11} {'pause':>11} {'memory':>9}")
    with_dinst(loop, "dinst, a counter", ("insert", "calls", "work"))
    with_dinst(loop, "dinst, a latency distribution", ("insert", "latency", "work"))
    with_tool(loop, "dinst trace, to a file", [DINST, "trace", "-p", str(loop.pid), "work", "-o", os.devnull])
    with_tool(loop, "perf uprobe, counted", ["perf", "stat", "-e", "probe_loop:work", "-p", str(loop.pid)],
              prepare=["perf", "probe", "-q", "-x", program, "--add", "work"],
              cleanup=["perf", "probe", "-q", "--del", "probe_loop:*"])
    with_tool(loop, "bpftrace, count()",
              ["bpftrace", "-p", str(loop.pid), "-e", f"uprobe:{program}:work {{ @ = count(); }}"])
    with_tool(loop, "bpftrace, latency hist()",
              ["bpftrace", "-p", str(loop.pid), "-e",
               f"uprobe:{program}:work {{ @s[tid] = nsecs; }} "
               f"uretprobe:{program}:work /@s[tid]/ {{ @ = hist(nsecs - @s[tid]); delete(@s[tid]); }}"])
    with_tool(loop, "gdb, a breakpoint that goes on",
              gdb_command(loop.pid, "work"))
    with_tool(loop, "ltrace -x, counted", ["ltrace", "-c", "-x", "work", "-e", "-*", "-p", str(loop.pid)], seconds=2)
    end(loop.process, signal.SIGTERM)
    whole_program("gcc -finstrument-functions, a counter", program + "-hooks", base)
    whole_program("uftrace record (built with -pg)", program + "-pg", base,
                  ["uftrace", "record", "-d", os.path.join(WORK, "uftrace"), "--no-libcall", "-F", "work"], "uftrace", 2)
    whole_program("valgrind --tool=callgrind", program, base,
                  ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={WORK}/callgrind"], "valgrind", 6)
    print()


# ---------------------------------------------------------------------- events


class Events:
    """The program of peers/events.c: calls of both threads, their CPU time."""

    def __init__(self, program, rounds, seconds, before=()):
        self.path = os.path.join(WORK, "events.out")
        self.process = subprocess.Popen([*before, program, str(rounds), str(seconds)],
                                        **{**QUIET, "stdout": open(self.path, "w")})
        running.append(self.process)
        self.pid = self.process.pid

    def rows(self, since=0.0):
        rows = [line.split() for line in open(self.path) if line.endswith("\n")]
        return [(int(row[0]) / 1e9, int(row[1]), int(row[2])) for row in rows
                if len(row) == 3 and row[0].isdigit() and int(row[0]) >= since * 1e9]

    def speed(self, seconds):
        """Calls a second, and ns of CPU time a call, over so many seconds."""
        begin = time.monotonic()
        time.sleep(seconds)
        while len(self.rows(begin)) < 4:
            if time.monotonic() - begin > 20:
                raise RuntimeError("the program does not come to run: too much else does")
            time.sleep(0.1)
        return self.speed_of(self.rows(begin))

    @staticmethod
    def speed_of(rows):
        (t0, c0, n0), (t1, c1, n1) = rows[0], rows[-1]
        return (c1 - c0) / (t1 - t0), (n1 - n0) / max(1, c1 - c0)


def show_events(name, before, now, kept, dropped, memory, note=""):
    share = f"{100 * kept / (kept + dropped):7.1f} %" if kept + dropped else "-"
    print(f"  {name:38} {now[0] / 1e3:8.0f} {now[0] / before[0]:8.3f}x {now[1] / before[1]:7.2f}x "
          f"{kept:10d} {dropped:10d} {share:>9} {('%5.0f MiB' % memory) if memory else '-':>9}  {note}".rstrip(), flush=True)


def number_before(text, words):
    found = re.search(r"(\d+) " + words, text)
    return int(found.group(1)) if found else 0


def lines_of(path, *endings):
    """How many lines there are, and how many end with one of these."""
    count = ended = 0
    with open(path, "rb") as file:
        for line in file:
            count += 1
            ended += line.rstrip().endswith(endings)
    return count, ended


def events_of_trace(path):
    """A call that is one line was two events; one that is open, or ends by itself, one."""
    count = 0
    with open(path, "rb") as file:
        for line in file:
            count += 1 if line.rstrip().endswith(b"{") or b"  } " in line or b" }" in line else 2
    return count


def events_dinst(program, rounds, record):
    """Text of dinst trace, or a recording; kept is what is in the file."""
    events = Events(program, rounds, 20)
    path = os.path.join(WORK, "events.file")
    errors = os.path.join(WORK, "events.err")
    before = events.speed(1.5)
    tool = subprocess.Popen([DINST, "record" if record else "trace", "-p", str(events.pid), "work", "-d", "4", "-o", path],
                            **{**QUIET, "stderr": open(errors, "w")})
    running.append(tool)
    time.sleep(1)
    now = events.speed(2.5)
    memory = peak_mib([*daemon_pids(), tool.pid])
    tool.wait(60)
    end(events.process, signal.SIGTERM)
    said = open(errors).read()
    dropped = number_before(said, "dropped") + number_before(said, "more were left out")
    kept = number_before(said, "events recorded") if record else events_of_trace(path)
    shutil.rmtree(path) if record else os.unlink(path)
    show_events("dinst record" if record else "dinst trace -o FILE", before, now, kept, dropped, memory)
    return before


def events_uftrace(program, rounds, before):
    if not has("uftrace"):
        return
    data = os.path.join(WORK, "uftrace.events")
    events = Events(program, rounds, 4, ["uftrace", "record", "-d", data, "--no-libcall", "-F", "work"])
    memory = 0
    while events.process.poll() is None:
        memory = max(memory, peak_mib([events.pid]))
        time.sleep(0.2)
    rows = events.rows()
    report = subprocess.run(["uftrace", "report", "-d", data], capture_output=True, text=True, timeout=60).stdout
    found = re.search(r"(\d+)\s+work\b", report)
    if not found or len(rows) < 20:
        skipped.append("uftrace record, events (it did not run)")
        return
    kept = 2 * int(found.group(1))
    show_events("uftrace record (built with -pg)", before, events.speed_of(rows[10:]), kept,
                max(0, 2 * rows[-1][1] - kept), memory, "from the start")
    shutil.rmtree(data, ignore_errors=True)


def events_bpftrace(program, rounds):
    if not has("bpftrace"):
        return
    path, errors = os.path.join(WORK, "events.file"), os.path.join(WORK, "events.err")
    events = Events(program, rounds, 30)
    before = events.speed(1.5)
    tool = subprocess.Popen(["bpftrace", "-p", str(events.pid), "-e",
                             f'uprobe:{program}:work {{ printf("%d %lu in\\n", tid, nsecs); }} '
                             f'uretprobe:{program}:work {{ printf("%d %lu out\\n", tid, nsecs); }}'],
                            **{**QUIET, "stdout": open(path, "w"), "stderr": open(errors, "w")})
    running.append(tool)
    wait = time.monotonic() + 15
    while time.monotonic() < wait and os.path.getsize(path) == 0:
        time.sleep(0.1)
    now = events.speed(2.5)
    memory = peak_mib(children(tool.pid))
    end(tool)
    end(events.process, signal.SIGTERM)
    kept = lines_of(path, b" in", b" out")[1]
    lost = sum(int(n) for n in re.findall(r"Lost (\d+) events", open(errors).read() + open(path).read()))
    os.unlink(path)
    if not kept:
        skipped.append("bpftrace printf() of events (it did not attach)")
        return
    show_events("bpftrace, printf() to a file", before, now, kept, lost, memory)


def events_part():
    program = os.path.join(WORK, "events")
    flags = ["gcc", "-O2", "-g", "-pthread", "-fno-omit-frame-pointer"]
    for suffix, more in (("", []), ("-pg", ["-pg"])):
        subprocess.run([*flags, *more, "-o", program + suffix, "tests/bench/peers/events.c"], check=True)
    rounds = int(subprocess.run([program], capture_output=True, text=True, check=True).stdout)
    events = Events(program, rounds, 4)
    quiet, again = events.speed(1.5), events.speed(1.5)
    end(events.process, signal.SIGTERM)
    print(f"Two threads that call a function of 1 us every 4 us: {2 * quiet[0] / 1e6:.2f} million events a second "
          f"(entries and returns)\n")
    print(f"  {'':38} {'k calls/s':>8} {'speed':>9} {'CPU':>8} {'kept':>10} {'dropped':>10} {'':>9} {'memory':>9}")
    show_events("nothing (noise)", quiet, again, 0, 0, None)
    before = events_dinst(program, rounds, False)
    events_dinst(program, rounds, True)
    events_uftrace(program + "-pg", rounds, before)
    events_bpftrace(program, rounds)
    print()


# ----------------------------------------------------------------------- redis


class Redis:
    """A copy of redis-server: a uprobe is on a file, and so in every process that runs it."""

    binary = os.path.join(WORK, "redis-server")

    def __init__(self, before=()):
        self.socket = os.path.join(WORK, "redis")
        if not os.path.exists(self.binary):
            shutil.copy(os.path.realpath(shutil.which("redis-server")), self.binary)
        self.process = start([*before, self.binary, "--port", "0", "--unixsocket", self.socket, "--save", "",
                              "--dir", WORK], PROGRAM_CPU)
        self.pid = self.process.pid
        for _ in range(600):
            if subprocess.run(["redis-cli", "-s", self.socket, "ping"], **QUIET).returncode == 0:
                break
            time.sleep(0.1)

    def load(self, requests):
        """Requests per second, CPU ns of the main thread per request."""
        def cpu():
            return int(open(f"/proc/{self.pid}/task/{self.pid}/schedstat").read().split()[0])
        begin = cpu()
        done = subprocess.run(["taskset", "-c", str(TOOL_CPU), "redis-benchmark", "-s", self.socket, "-q", "-n",
                               str(requests), "-c", "50", "-P", "16", "-t", "get"],
                              capture_output=True, text=True, timeout=120)
        rates = re.findall(r"([\d.]+) requests per second", done.stdout)
        return float(rates[-1]) if rates else 0.0, (cpu() - begin) / requests


def show_redis(name, before, now, memory=None, note=""):
    print(f"  {name:34} {before[0]:10.0f} {now[0]:10.0f} {now[0] / before[0]:8.3f}x {before[1]:9.0f} {now[1]:9.0f} "
          f"{now[1] / before[1]:8.2f}x {('%5.0f MiB' % memory) if memory else '-':>9}  {note}".rstrip(), flush=True)


def best(redis, requests, rounds=3):
    """Median of rounds: throughput is the client's, too."""
    rows = [redis.load(requests) for _ in range(rounds)]
    return statistics.median(row[0] for row in rows), statistics.median(row[1] for row in rows)


def redis_dinst(redis, name, foci):
    before = best(redis, 200000)
    dinst("attach", str(redis.pid), "-n", "redis")
    rows, _ = dinst("insert", "calls", *foci, "--each", "-p", "redis")
    now = best(redis, 200000)
    memory = peak_mib(daemon_pids())
    stops = [max(row["stop_us"] for row in rows)]
    rows, _ = dinst("detach", "-p", "redis")
    stops.append(rows[0]["stop_us"])
    show_redis(name, before, now, memory, f"stopped {stops[0] / 1e3:.2f} and {stops[1] / 1e3:.2f} ms")


def redis_tool(redis, name, command, requests, rounds=3, ready=2.0, prepare=(), cleanup=None):
    if not has(command[0]):
        return
    for words in prepare:
        subprocess.run(words, **QUIET)
    before = best(redis, 200000)
    tool = start(command, TOOL_CPU)
    time.sleep(ready)
    if tool.poll() is not None:
        skipped.append(f"{name} (it ended at once)")
    else:
        now = best(redis, requests, rounds)
        memory = peak_mib(children(tool.pid))
        end(tool)
        show_redis(name, before, now, memory)
    if cleanup:
        subprocess.run(cleanup, **QUIET)


def busiest(redis, count):
    """The functions that a request calls most, by dinst's own counters."""
    dinst("attach", str(redis.pid), "-n", "redis")
    dinst("insert", "calls", "/Code/redis-server/*", "--each", "-p", "redis")
    redis.load(20000)
    rows, _ = dinst("read", "-p", "redis")
    dinst("detach", "-p", "redis")
    names = [row["focus"].split("/")[-1] for row in sorted(rows, key=lambda row: -row["value"]) if row["value"]]
    return [name for name in names if re.fullmatch(r"\w+", name)][:count]


def redis_part():
    if not (has("redis-server") and has("redis-benchmark")):
        return
    redis = Redis()
    binary = redis.binary
    redis.load(100000)
    names = busiest(redis, 50)
    print("redis-server, GET, 50 clients, 16 requests at a time; 50: the functions that are called most\n")
    print(f"  {'':34} {'req/s':>10} {'with':>10} {'':>9} {'CPU ns':>9} {'with':>9} {'':>9} {'memory':>9}")
    quiet = best(redis, 200000)
    show_redis("nothing (noise)", quiet, best(redis, 200000))
    redis_dinst(redis, "dinst, 1 function", ["processCommand"])
    redis_dinst(redis, "dinst, 50 functions", [f"/Code/redis-server/{name}" for name in names])
    redis_dinst(redis, "dinst, all functions", ["/Code/redis-server/*"])
    for title, chosen, requests in (("1 function", ["processCommand"], 100000), (f"{len(names)} functions", names, 10000)):
        redis_tool(redis, f"perf uprobes, {title}",
                   ["perf", "stat", "-e", "probe_redis:*", "-p", str(redis.pid)], requests, 2 if requests < 50000 else 3,
                   prepare=[["perf", "probe", "-q", "-x", binary, "--del", "*"]] +
                           [["perf", "probe", "-q", "-x", binary, "--add", f"probe_redis:{name}={name}"] for name in chosen],
                   cleanup=["perf", "probe", "-q", "--del", "probe_redis:*"])
        redis_tool(redis, f"bpftrace count(), {title}",
                   ["bpftrace", "-p", str(redis.pid), "-e",
                    ",".join(f"uprobe:{binary}:{name}" for name in chosen) + " { @ = count(); }"],
                   requests, 2 if requests < 50000 else 3, ready=4.0)
    redis_tool(redis, "gdb, 1 function",
               gdb_command(redis.pid, "processCommand"), 2000, 1, ready=8.0)
    redis_tool(redis, "ltrace -x, 1 function",
               ["ltrace", "-c", "-x", "processCommand", "-e", "-*", "-p", str(redis.pid)], 2000, 1, ready=4.0)
    plain = best(redis, 200000)
    end(redis.process, signal.SIGTERM)
    if has("valgrind"):
        os.unlink(redis.socket) if os.path.exists(redis.socket) else None
        slow = Redis(["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={WORK}/callgrind.redis"])
        show_redis("valgrind --tool=callgrind, all", plain, best(slow, 10000, 1), peak_mib([slow.pid]), "from the start")
        end(slow.process, signal.SIGTERM)
    skipped.append("uftrace and gcc -finstrument-functions on redis (they need a build of their own)")
    skipped.append("uprobes on all functions of redis (at the cost of 50, a request would take milliseconds)")
    print()


def main():
    parts = {"call": call_part, "events": events_part, "redis": redis_part}
    chosen = sys.argv[1:] or list(parts)
    begin = time.monotonic()
    model = re.search(r"model name\s*: (.*)", open("/proc/cpuinfo").read())
    print(f"{os.uname().sysname} {os.uname().release}, {len(CPUS)} CPUs, {model.group(1) if model else os.uname().machine}, "
          f"load {open('/proc/loadavg').read().split()[0]}\n")
    if os.geteuid() != 0:
        sys.exit("make bench needs root: tools must be allowed to attach")
    try:
        for name in chosen:
            parts[name]()
    finally:
        subprocess.run([DINST, "stop"], **QUIET, timeout=60)
        for process in running:
            if process.poll() is None:
                process.kill()
                process.wait()
        shutil.rmtree(WORK, ignore_errors=True)
    for tool in skipped:
        print(f"skipped: {tool}")
    print(f"{time.monotonic() - begin:.0f} seconds; load at the end {open('/proc/loadavg').read().split()[0]}")


main()
