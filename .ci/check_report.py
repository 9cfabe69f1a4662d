"""Checks the JSON report of a full `roundel tpch` run: every query is there and was verified."""

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
    design = report["settings"]["design"]
    print(f"{path}: {design}, {len(queries)} verified, {total:.2f} s")


if __name__ == "__main__":
    main()
