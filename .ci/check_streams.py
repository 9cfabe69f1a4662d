"""Checks the JSON report of `roundel tpch --streams` through multiplexers beside that over endpoints: every query of every
stream was right, each process had one connection to each other, and registered memory stayed within its quota and was at
most half of that of endpoints.

Usage: check_streams.py MULTIPLEXER.json ENDPOINT.json
"""

import json
import sys


def read(path: str) -> dict:
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    assert "error" not in report, report["error"]
    assert report["queries_done"] == sum(q["runs"] for q in report["queries"]) > 0, "no query was run"
    assert all(q["verified"] for q in report["queries"] if q["runs"]), "a query was not verified"
    most = report["fabric"]["registered_bytes_max"]
    assert most <= report["settings"]["registered_memory_bytes"], f"{most} bytes registered, above the quota"
    return report


def main() -> None:
    multiplexer, endpoint = (read(path) for path in sys.argv[1:3])
    for report, exchange in ((multiplexer, "multiplexer"), (endpoint, "endpoint")):
        assert report["settings"]["exchange"] == exchange, f"it ran over {report['settings']['exchange']}"
    pairs = multiplexer["fabric"]["device_queue_pairs"]
    assert pairs == multiplexer["processes"] - 1, f"{pairs} queue pairs in one of {multiplexer['processes']} processes"
    for of in ("registered_bytes_max", "registered_bytes_sum"):
        own, other = (report["fabric"][of] for report in (multiplexer, endpoint))
        assert 2 * own <= other, f"{of}: {own} through multiplexers, {other} over endpoints"
    for report in (multiplexer, endpoint):
        fabric = report["fabric"]
        print(f"{report['settings']['exchange']}: {report['settings']['streams']} streams, {report['queries_done']} queries "
              f"in {report['elapsed_seconds']:.0f} s, all right; {fabric['device_queue_pairs']} queue pairs and "
              f"{fabric['registered_bytes_max'] >> 20} MiB registered in a process, "
              f"{fabric['registered_bytes_sum'] >> 20} MiB in all")


if __name__ == "__main__":
    main()
