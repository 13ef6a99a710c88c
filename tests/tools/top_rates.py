#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""top_rates.py - runs dinst top --json, and compares its rates with what redis counted meanwhile.

    top_rates.py rates|cost PORT SESSION OUT COMMAND...

Writes top's objects to OUT. With "rates": the k-th object's rates are of the time between the
objects k-2 and k-1; rates times seconds are calls, and redis (INFO commandstats) is asked all the
time, so that there is a look before and one after each object. What top has counted must lie
between the least and the most that those looks allow, with 10 %. Left out are objects for which
it has not counted all the time: right after it has met a function; half must be left.
With both: what top says that it costs is its limit of 4 %, 3 % of room, and how long the target really stood
(`status` of $DINST_SOCKET): on a busy machine a stop takes long. Prints a line about both;
the exit status is 1 if anything is not so.
"""
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time

WHAT, PORT, SESSION, OUT, COMMAND = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5:]
FUNCTIONS = {"setCommand": "set", "getCommand": "get"}
stops = []  # (seconds, us that it stood still in all)
ended = threading.Event()


def watch_stops():
    """Asks until it ends; before there is a session, and after, the answers are errors."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(os.environ["DINST_SOCKET"])
        with s.makefile("rw") as f:
            while not ended.wait(0.2):
                f.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "status", "params": {"session": SESSION}}) + "\n")
                f.flush()
                answer = json.loads(f.readline())
                if "result" in answer:
                    stops.append((time.monotonic(), answer["result"]["stops_us"]))


def calls(redis):
    """{command: how many} so far."""
    redis.write(b"INFO commandstats\r\n")
    redis.flush()
    text = redis.read(int(redis.readline()[1:]) + 2).decode()
    found = dict(re.findall(r"cmdstat_(\w+):calls=(\d+)", text))
    return {command: int(found.get(command, 0)) for command in FUNCTIONS.values()}


def lines():
    with open(OUT, "rb") as f:
        return f.read().count(b"\n")


def main():
    looks = []  # (objects before, calls, objects after)
    with open(OUT, "wb") as out, socket.create_connection(("127.0.0.1", PORT), 60) as s, s.makefile("rwb") as redis:
        top = subprocess.Popen(COMMAND, stdout=out)
        watcher = threading.Thread(target=watch_stops)
        watcher.start()
        while top.poll() is None:
            before = lines()
            looks.append((before, calls(redis), lines()))
            time.sleep(0.01)
        ended.set()
        watcher.join()
    if top.returncode != 0:
        sys.exit("top: status %d" % top.returncode)
    with open(OUT, encoding="utf-8") as f:
        objects = [json.loads(line) for line in f]
    last, failed, said = len(objects) - 1, False, []

    def least(count, command):
        return max([c[command] for _, c, after in looks if after < count], default=0)

    def most(count, command):
        return min(c[command] for before, c, _ in looks if before >= count)

    for function, command in FUNCTIONS.items() if WHAT == "rates" else ():
        counted = low = high = used = 0
        rows = [next((r for r in o["rows"] if r["function"] == function and not r["sampled"]), None) for o in objects]
        for k in range(2, last + 1):
            if rows[k] is None or rows[k - 1] is None:
                continue
            used += 1
            counted += rows[k]["calls_per_s"] * (objects[k - 1]["seconds"] - objects[k - 2]["seconds"])
            low += max(0, least(k, command) - most(k - 1, command))
            high += most(k, command) - least(k - 1, command)
        failed = failed or used < (last - 1) / 2
        said.append("%.0f of %s in %d refreshes (INFO: %d to %d), " % (counted, function, used, low, high))
        failed = failed or not 0 < low * 0.9 <= counted <= high * 1.1
    stood = 0.0
    if len(stops) > 1:
        stood = 100 * (stops[-1][1] - stops[0][1]) / 1e6 / (stops[-1][0] - stops[0][0])
    cost = objects[-1]["cost_percent"]
    print("%scosts %.2f %% of a CPU, stood for %.2f %%" % ("".join(said), cost, stood))
    return failed or cost >= 7 + stood


sys.exit(main())
