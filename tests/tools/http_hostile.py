#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""http_hostile.py - what a bad client may try at dinstd's HTTP port.

    http_hostile.py PORT PID TOKEN SECONDS [SEED]

Each attack is followed by an honest scrape that has to succeed; at the end the daemon must
be the same process, with no more memory and descriptors than it may have. TOKEN is the right
one, or "" where the daemon was started without. Prints what failed; exit status 0 if nothing did.
"""
import errno
import json
import os
import random
import socket
import sys
import time

PORT, PID, TOKEN, SECONDS = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], float(sys.argv[4])
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else int(time.time())
HOST = b"Host: 127.0.0.1\r\n"
rng = random.Random(SEED)
failures = []


def connect(timeout=60):
    return socket.create_connection(("127.0.0.1", PORT), timeout)


def exchange(raw, timeout=60, shut=False):
    """All that comes back for these bytes; b"" if it hangs up at once."""
    got = b""
    try:
        with connect(timeout) as s:
            s.sendall(raw)
            if shut:
                s.shutdown(socket.SHUT_WR)
            while True:
                piece = s.recv(65536)
                if not piece:
                    break
                got += piece
    except (ConnectionError, BrokenPipeError):
        pass
    except socket.timeout:
        got += b"<timeout>"
    except OSError as e:
        if e.errno != errno.ENOTCONN:
            raise
    return got


def request(method, path, headers=b"", body=b"", host=HOST):
    return (method + b" " + path + b" HTTP/1.1\r\n" + host + headers + b"Connection: close\r\n" +
            (b"Content-Length: %d\r\n" % len(body) if body or method == b"POST" else b"") + b"\r\n" + body)


def status(answer):
    parts = answer.split(b" ", 2)
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else 0


def expect(what, wanted, raw, **more):
    got = exchange(raw, **more)
    if status(got) not in (wanted if isinstance(wanted, tuple) else (wanted,)):
        failures.append("%s: %r instead of %r: %r" % (what, status(got), wanted, got[:200]))
    return got


def honest(what):
    got = exchange(request(b"GET", b"/metrics"))
    if status(got) != 200 or b"dinst_build_info" not in got:
        failures.append("after %s no scrape: %r" % (what, got[:100]))


def resident():
    with open("/proc/%d/status" % PID) as f:
        return int([line for line in f if line.startswith("VmRSS")][0].split()[1])


def descriptors():
    return len(os.listdir("/proc/%d/fd" % PID))


def post(path, value, headers=None, raw=None):
    body = raw if raw is not None else json.dumps(value).encode()
    if headers is None:
        headers = b"Content-Type: application/json\r\n"
        if TOKEN:
            headers += b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
    return request(b"POST", path, headers, body)


# ------------------------------------------------------------------ who may what

def rights():
    got = expect("the page", 200, request(b"GET", b"/"))
    for header in (b"Content-Security-Policy: default-src 'none'", b"X-Content-Type-Options: nosniff", b"Cache-Control: no-store"):
        if header not in got:
            failures.append("the page has no %r" % header)
    if b"Access-Control-" in got:
        failures.append("the page allows other origins")
    for host in (b"evil.example", b"evil.example:%d" % PORT, b"127.0.0.1.evil.example", b"localhost.evil", b"", b"[::1", b"127.0.0.1:x",
                 b"127.0.0.1@evil", b"a" * 5000):
        for path in (b"/", b"/metrics", b"/api/state"):
            expect("host %r" % host[:40], (400, 403), request(b"GET", path, host=b"Host: " + host + b"\r\n"))
    expect("no host", (400, 403), request(b"GET", b"/metrics", host=b""))
    for host in (b"localhost", b"LOCALHOST:%d" % PORT, b"127.0.0.1:%d" % PORT, b"[::1]:%d" % PORT):
        expect("host %r" % host, 200, request(b"GET", b"/metrics", host=b"Host: " + host + b"\r\n"))
    for path in (b"/../../etc/passwd", b"/%2e%2e/%2e%2e/etc/passwd", b"//etc/passwd", b"/page.js/..", b"/api", b"/api/", b"/token", b"/PAGE.JS", b"/metrics/"):
        expect("path %r" % path, 404, request(b"GET", path))
    for method in (b"PUT", b"DELETE", b"POST", b"PATCH", b"TRACE", b"OPTIONS"):
        got = expect("%r /metrics" % method, 405, request(method, b"/metrics"))
        if b"Access-Control-" in got:
            failures.append("%r allows other origins" % method)
    expect("GET of a change", 405, request(b"GET", b"/api/remove"))
    wrong = (b"", b"Authorization: Bearer \r\n", b"Authorization: Bearer x\r\n", b"Authorization: Basic " + b"eDp5\r\n",
             b"Authorization: Bearer " + (TOKEN[:-1] if TOKEN else "y" * 64).encode() + b"\r\n",
             b"Authorization: Bearer " + (TOKEN + "0").encode() + b"\r\n", b"Authorization: " + TOKEN.encode() + b"\r\n")
    for headers in wrong:
        for path in (b"/api/insert", b"/api/remove"):
            expect("a change with %r" % headers[:40], 401 if TOKEN else 403,
                   post(path, {"all": True}, headers + b"Content-Type: application/json\r\n"))
    if not TOKEN:
        return
    auth = b"Authorization: Bearer " + TOKEN.encode() + b"\r\n"
    expect("a form", 400, post(b"/api/remove", {"all": True}, auth + b"Content-Type: text/plain\r\n"))
    for raw in (b"", b"[]", b"null", b"{", b"\xff\xfe", b"[" * 5000, b'{"session":' * 100, b'{"session": 7}', b'{"session": "nobody"}', b'{"a": "\\ud800"}'):
        expect("body %r" % raw[:20], 400, post(b"/api/remove", None, raw=raw))
    expect("a long body", 413, post(b"/api/remove", None, raw=b" " * 20000))


# ------------------------------------------------------------------------ attacks

def garbage():
    for _ in range(20):
        exchange(bytes(rng.randrange(256) for _ in range(rng.randrange(1, 4000))), timeout=3, shut=True)


def big_heads():
    exchange(b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\n" + HOST + b"\r\n", shut=True)
    exchange(b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"b" * 200000 + b"\r\n\r\n", shut=True)
    exchange(b"GET / HTTP/1.1\r\n" + HOST + b"".join(b"X%d: y\r\n" % i for i in range(20000)) + b"\r\n", shut=True)
    exchange(b"GET /?" + b"&".join(b"a%d=b" % i for i in range(5000)) + b" HTTP/1.1\r\n" + HOST + b"\r\n", shut=True)


def bodies():
    for length in (b"-1", b"18446744073709551615", b"99999999999999999999999", b"abc", b"5, 6"):
        exchange(b"POST /api/insert HTTP/1.1\r\n" + HOST + b"Content-Length: " + length + b"\r\n\r\nhello", timeout=2, shut=True)
    exchange(b"POST /api/insert HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\nx\r\n0\r\n\r\n", timeout=2, shut=True)
    exchange(b"GET /metrics HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", timeout=2, shut=True)
    auth = b"Content-Type: application/json\r\nAuthorization: Bearer " + TOKEN.encode() + b"\r\n"
    chunks = b"".join(b"400\r\n" + b" " * 1024 + b"\r\n" for _ in range(200))
    exchange(b"POST /api/insert HTTP/1.1\r\n" + HOST + auth + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n" + chunks + b"0\r\n\r\n", timeout=5)


def hang_up():
    """Leaves at every moment of an exchange."""
    raw = request(b"GET", b"/metrics")
    for cut in range(0, len(raw), 5):
        with connect() as s:
            s.sendall(raw[:cut])
    for _ in range(60):
        with connect() as s:
            s.sendall(raw)
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")


def pipelines():
    raw = b"GET /metrics HTTP/1.1\r\n" + HOST + b"\r\n"
    exchange(raw * 200 + request(b"GET", b"/-/healthy"))


def silence():
    """More connections than there may be, which say nothing or not all: honest ones get in."""
    crowd = []
    try:
        for i in range(150):
            s = connect()
            s.sendall(b"GET /metrics HTTP/1.1\r\nX-Slow: "[:rng.randrange(0, 30)])
            crowd.append(s)
            if i % 25 == 24:
                honest("%d silent connections" % (i + 1))
    except OSError as e:
        failures.append("silence: %s" % e)
    for s in crowd:
        s.close()


def promised_bodies():
    """More connections than there may be, with whole heads that promise bodies which never come."""
    crowd = []
    try:
        for i in range(150):
            s = connect()
            s.sendall(b"GET /metrics HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\n")
            crowd.append(s)
            if i % 25 == 24:
                honest("%d bodies that do not come" % (i + 1))
    except OSError as e:
        failures.append("promised bodies: %s" % e)
    for s in crowd:
        s.close()


def slow_readers():
    """Asks much and takes nothing."""
    crowd = []
    for _ in range(30):
        s = connect()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
        try:
            s.sendall((b"GET /api/state HTTP/1.1\r\n" + HOST + b"\r\n") * 50)
        except OSError:
            pass
        crowd.append(s)
    honest("slow readers")
    for s in crowd:
        s.close()


def arguments():
    odd = [b"", b"x", b"-1", b"0", b"4294967296", b"99999999999999999999", b"%00", b"%ff%fe", b"1,2,,3", b"1;2", b"a" * 3000, b"..", b"%27%22%3Cscript%3E",
           b",".join(b"%d" % i for i in range(500))]
    for path in (b"/api/values?session=", b"/api/history?session=base&ids=", b"/api/history?session=base&ids=1&since=", b"/api/heat?session=base&id=",
                 b"/api/recording?session="):
        for value in odd:
            got = exchange(request(b"GET", path + value))
            if status(got) not in (200, 400, 403, 404, 413, 414, 431):
                failures.append("%r%r: %r" % (path, value[:30], got[:100]))
            if b"<script" in got:
                failures.append("%r: it comes back as it was" % value)


def fuzz():
    """Requests with bytes changed, doubled, left out and put elsewhere."""
    seeds = [request(b"GET", b"/metrics"), request(b"GET", b"/api/state"), post(b"/api/insert", {"session": "base", "metric": "calls", "focus": []}),
             post(b"/api/remove", {"ids": [1, 2]}, b"Content-Type: application/json\r\n"), request(b"GET", b"/api/history?session=base&ids=1,2&since=0")]
    end = time.time() + SECONDS
    count = 0
    while time.time() < end:
        raw = bytearray(rng.choice(seeds))
        for _ in range(rng.randrange(1, 6)):
            at, how = rng.randrange(len(raw)), rng.randrange(4)
            if how == 0:
                raw[at] = rng.randrange(256)
            elif how == 1:
                del raw[at:at + rng.randrange(1, 9)]
            elif how == 2:
                raw[at:at] = raw[at:at + rng.randrange(1, 40)]
            else:
                raw[at:at] = bytes(rng.choice(b"\r\n\0 :%/{}[]\"\xff") for _ in range(rng.randrange(1, 5)))
            if not raw:
                raw = bytearray(b"\r\n")
        exchange(bytes(raw), timeout=0.7, shut=True)
        count += 1
    return count


def main():
    honest("the start")
    before, open_before = resident(), descriptors()
    rights()
    count = 0
    for attack in (garbage, big_heads, bodies, hang_up, pipelines, silence, promised_bodies, slow_readers, arguments, fuzz):
        try:
            count = attack() or count
        except OSError as e:
            failures.append("%s: %s" % (attack.__name__, e))
        honest(attack.__name__)
    honest("all of it")
    # what hung up or says nothing is let go in time
    end = time.time() + 90
    while time.time() < end and descriptors() > open_before + 8:
        time.sleep(0.1)
    after, open_after = resident(), descriptors()
    if after > before + 48 * 1024:
        failures.append("memory: %d KiB, %d KiB before" % (after, before))
    if open_after > open_before + 8:
        failures.append("descriptors: %d, %d before" % (open_after, open_before))
    for failure in failures[:20]:
        print("seed %d: %s" % (SEED, failure))
    print("%d mutated requests, seed %d; resident %d KiB before, %d KiB after" % (count, SEED, before, after))
    return 1 if failures else 0


sys.exit(main())
