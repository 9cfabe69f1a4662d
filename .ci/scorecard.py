"""Compares the verdicts of `roundel-lab scorecard` with those that are kept; names what has changed.

Use: scorecard.py KEPT NEW [--update | --some]    with --some, NEW has some of the claims only
"""

import json
import shutil
import sys

kept_path, new_path = sys.argv[1:3]
flags = sys.argv[3:]
if "--update" in flags:
    shutil.copyfile(new_path, kept_path)
    sys.exit()


def verdicts(path):
    """By claim: whether it holds, and whether its numbers are near, where that is told."""
    with open(path) as file:
        return {claim["id"]: (claim["holds"], claim.get("within_25_percent")) for claim in json.load(file)["claims"]}


def told(verdict):
    if verdict is None:
        return "is not there"
    holds, near = verdict
    numbers = {None: "", True: ", numbers within 25 %", False: ", numbers more than 25 % off"}[near]
    return {None: "is not judged", True: "holds", False: "does not hold"}[holds] + numbers


kept, new = verdicts(kept_path), verdicts(new_path)
claims = new.keys() if "--some" in flags else kept.keys() | new.keys()
changed = [
    f"{claim}: {told(new.get(claim))}; before, it {told(kept.get(claim))}"
    for claim in sorted(claims)
    if kept.get(claim) != new.get(claim)
]
for line in changed:
    print(line)
if changed or not new:
    print(f"error: {len(changed)} verdicts have changed: explain it, and keep them with --update", file=sys.stderr)
    sys.exit(1)
judged = [holds for holds, _ in new.values() if holds is not None]
print(f"{sum(judged)} of {len(judged)} parts that are judged hold, as before")
