"""Checks the JSON report of a full `roundel tpch` run: every query is there and was verified, and
the verbs layer counted what the design says (Liu, Yin, Blanas 2019, Table 1)."""

import json
import sys


def verbs(design: str) -> tuple[list[str], list[str]]:
    """By what the rows of a design travel, and what is said about them besides."""
    return {
        "SR": (["send", "receive"], []),
        "RD": (["read"], ["write"]),
        "WR": (["write_with_immediate", "receive"], ["write"]),
        "WR:mq": (["write"], []),
        "WR:buffers": (["write"], []),
        "WR:buffers-all": (["write"], []),
    }[design.split("/")[1]]


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
    endpoints = t if design.startswith("ME") else 1
    expected = endpoints * (n if "MQ/" in design else 1)
    assert fabric["queue_pairs"] == expected, f"{fabric['queue_pairs']} queue pairs, not {expected}"
    rows, others = verbs(design)
    counted = {name: count for name, count in fabric["bytes"].items() if count}
    # Credit is written to memory where there is no immediate data.
    besides = {*others, "write"} - set(rows)
    assert {*rows, *others} <= set(counted) <= {*rows, *besides}, f"data went by something else: {counted}"
    about = sum(counted.get(name, 0) for name in besides)
    moved = counted[rows[0]]
    assert about * 4 < moved, f"{about} bytes about {moved} bytes of messages"
    assert fabric["registered_bytes_max"] <= settings["registered_memory_bytes"], "above the quota"
    print(f"{path}: {design}, {len(queries)} verified, {total:.2f} s")


if __name__ == "__main__":
    main()
