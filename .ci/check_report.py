"""Checks the JSON report of a full `roundel tpch` run: every query is there and was verified, and
the verbs layer counted what the design says (Liu, Yin, Blanas 2019, Table 1)."""

import json
import sys


def main() -> None:
    path = sys.argv[1]
    with open(path, encoding="utf-8") as file:
        report = json.load(file)
    queries = report["queries"]
    assert [q["query"] for q in queries] == list(range(1, 23)), "a query is missing"
    assert all(q["verified"] for q in queries), "a query was not verified"
    total = sum(q["seconds"] for q in queries)
    assert abs(report["total_seconds"] - total) < 1e-6, "the total is no sum"
    settings, fabric = report["settings"], report["fabric"]
    design, n, t = settings["design"], settings["workers"], settings["threads"]
    expected = {"MEMQ/SR": n * t, "SEMQ/SR": n, "MESQ/SR": t, "SESQ/SR": 1}[design]
    assert fabric["queue_pairs"] == expected, f"{fabric['queue_pairs']} queue pairs, not {expected}"
    sent = fabric["bytes"].pop("send")
    received = fabric["bytes"].pop("receive")
    assert sent > 0 and received > 0, "no row crossed the exchange"
    assert not any(fabric["bytes"].values()), f"data went by something else: {fabric['bytes']}"
    assert fabric["registered_bytes_max"] <= settings["registered_memory_bytes"], "above the quota"
    print(f"{path}: {design}, {len(queries)} verified, {total:.2f} s")


if __name__ == "__main__":
    main()
