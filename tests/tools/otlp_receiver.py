#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""otlp_receiver.py - takes OTLP/HTTP exports in JSON, and is strict about them.

    otlp_receiver.py PORT FILE [STATUS...]

Answers the first requests with the given statuses (503 has a Retry-After of a second, 0 hangs
up without an answer), all others with 200. Every export is checked against the shape of
opentelemetry/proto/collector/metrics/v1 in its JSON mapping; FILE gets a line per request:
"STATUS ok" or "STATUS bad: why", and beside it FILE.json holds the last export.
"""
import http.server
import json
import os
import re
import sys
import time

PORT, FILE = int(sys.argv[1]), sys.argv[2]
statuses = [int(s) for s in sys.argv[3:]]


class Bad(Exception):
    pass


def need(condition, text):
    if not condition:
        raise Bad(text)


def keys(value, required, optional, where):
    need(isinstance(value, dict), where + " is no object")
    missing, more = set(required) - set(value), set(value) - set(required) - set(optional)
    need(not missing, "%s lacks %s" % (where, missing))
    need(not more, "%s has %s" % (where, more))


def unsigned(value, where):
    """64-bit numbers are strings."""
    need(isinstance(value, str) and re.fullmatch("[0-9]+", value) and int(value) < 2**64, "%s: %r" % (where, value))
    return int(value)


def real(value, where):
    need(isinstance(value, (int, float)) and not isinstance(value, bool), "%s: %r" % (where, value))


def attributes(value, where):
    need(isinstance(value, list), where + " is no list")
    seen = set()
    for one in value:
        keys(one, ["key", "value"], [], where)
        need(isinstance(one["key"], str) and one["key"] and one["key"] not in seen, "%s: key %r" % (where, one["key"]))
        seen.add(one["key"])
        need(isinstance(one["value"], dict) and len(one["value"]) == 1, "%s: %r" % (where, one))
        kind, content = next(iter(one["value"].items()))
        if kind == "stringValue":
            need(isinstance(content, str), "%s: %r" % (where, one))
        elif kind == "intValue":
            need(isinstance(content, str) and re.fullmatch("-?[0-9]+", content), "%s: %r" % (where, one))
        else:
            raise Bad("%s: %r" % (where, one))
    return {one["key"]: next(iter(one["value"].values())) for one in value}


def times(point, where, cumulative):
    at = unsigned(point["timeUnixNano"], where)
    need(abs(at / 1e9 - time.time()) < 600, "%s: time %d" % (where, at))
    if "startTimeUnixNano" in point:
        need(unsigned(point["startTimeUnixNano"], where) <= at, where + " starts after its end")


def number_point(point, where):
    need(("asInt" in point) != ("asDouble" in point), where + " has not one value")
    keys(point, ["attributes", "timeUnixNano"], ["asInt", "asDouble", "startTimeUnixNano"], where)
    if "asInt" in point:
        need(isinstance(point["asInt"], str) and re.fullmatch("-?[0-9]+", point["asInt"]), where)
    else:
        real(point["asDouble"], where)


def histogram_point(point, where):
    keys(point, ["attributes", "timeUnixNano", "count", "sum", "scale", "zeroCount", "positive"], ["min", "max", "startTimeUnixNano"], where)
    real(point["sum"], where)
    need(isinstance(point["scale"], int) and -10 <= point["scale"] <= 20, where + ": scale")
    keys(point["positive"], ["offset", "bucketCounts"], [], where)
    need(isinstance(point["positive"]["offset"], int), where + ": offset")
    counts = [unsigned(c, where) for c in point["positive"]["bucketCounts"]]
    count = unsigned(point["count"], where)
    need(sum(counts) + unsigned(point["zeroCount"], where) == count, where + ": buckets do not add up")
    if counts and "max" in point:
        base = 2 ** 2 ** -point["scale"]
        last = point["positive"]["offset"] + len(counts)
        need(base ** (last - 2) < point["max"] <= base ** (last + 1), "%s: max %r is not in the last bucket" % (where, point["max"]))
        need(counts[0] and counts[-1], where + ": empty buckets at an end")


def metric(m, where):
    keys(m, ["name", "description", "unit"], ["sum", "gauge", "exponentialHistogram"], where)
    need(re.fullmatch("[A-Za-z][A-Za-z0-9_.]*", m["name"]), where + ": name %r" % m["name"])
    where += " " + m["name"]
    need(m["unit"] in ("1", "s", "By"), where + ": unit")
    kinds = [k for k in ("sum", "gauge", "exponentialHistogram") if k in m]
    need(len(kinds) == 1, where + " has not one kind")
    data, kind = m[kinds[0]], kinds[0]
    keys(data, {"gauge": ["dataPoints"], "sum": ["dataPoints", "aggregationTemporality", "isMonotonic"],
                "exponentialHistogram": ["dataPoints", "aggregationTemporality"]}[kind], [], where)
    if kind != "gauge":
        need(data["aggregationTemporality"] == 2, where + ": temporality")
    need(data["dataPoints"], where + " has no points")
    seen = set()
    for point in data["dataPoints"]:
        labels = attributes(point.get("attributes"), where)
        need(json.dumps(labels, sort_keys=True) not in seen, where + ": two points of " + str(labels))
        seen.add(json.dumps(labels, sort_keys=True))
        times(point, where, kind != "gauge")
        (histogram_point if kind == "exponentialHistogram" else number_point)(point, where)


def export(root):
    keys(root, ["resourceMetrics"], [], "the export")
    for r, resource in enumerate(root["resourceMetrics"]):
        where = "resource %d" % r
        keys(resource, ["resource", "scopeMetrics"], [], where)
        keys(resource["resource"], ["attributes"], [], where)
        about = attributes(resource["resource"]["attributes"], where)
        need("service.name" in about and "host.name" in about, where + " says not what it is")
        for scope in resource["scopeMetrics"]:
            keys(scope, ["scope", "metrics"], [], where)
            keys(scope["scope"], ["name", "version"], [], where)
            names = [m.get("name") for m in scope["metrics"]]
            need(len(names) == len(set(names)), where + ": two metrics of one name")
            for m in scope["metrics"]:
                metric(m, where)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status = statuses.pop(0) if statuses else 200
        try:
            need(self.path == "/v1/metrics", "path " + self.path)
            need(self.headers["Content-Type"] == "application/json", "type")
            root = json.loads(body)
            export(root)
            with open(FILE + ".json.new", "w", encoding="utf-8") as f:
                json.dump(root, f, indent=1)
            os.replace(FILE + ".json.new", FILE + ".json")
            word = "ok"
        except (Bad, ValueError, KeyError, TypeError) as e:
            word = "bad: %s" % e
        with open(FILE, "a", encoding="utf-8") as f:
            f.write("%d %s\n" % (status, word))
        if status == 0:
            self.close_connection = True
            self.connection.close()
            return
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", "1")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *args):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
