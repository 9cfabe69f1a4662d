"""Checks that of a grid of simulated joins the way that the cost model chooses is the fastest, or takes at most 1.15 times as
long, in 90 %.

Use: choices.py REPORT.json
"""

import json
import sys

JOINS = 100
WITHIN, SHARE = 1.15, 0.9

with open(sys.argv[1]) as file:
    figures = [figure for outcome in json.load(file)["outcomes"] for figure in outcome["figures"]]
figure = next(figure for figure in figures if figure["id"] == "ring-choice")
held = {}
for series in figure["series"]:
    ratios = [point["median"] for point in series["points"]]
    held[series["name"]] = sum(ratio <= WITHIN for ratio in ratios)
    if len(ratios) < JOINS:
        sys.exit(f"error: {len(ratios)} joins instead of {JOINS}")
for finding in figure["findings"]:
    print(f"{finding['statement']}: {finding['measured']}")
for name, count in held.items():
    print(f"{name}: the fastest or near it in {count} of {len(ratios)} joins")
if held["as chosen"] < SHARE * len(ratios):
    sys.exit("error: too few choices hold")
