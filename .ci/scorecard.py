"""Compares the verdicts of `roundel experiment scorecard` with those that are kept; names what has changed.

Use: scorecard.py KEPT NEW [--update]
"""

import json
import shutil
import sys

kept_path, new_path = sys.argv[1:3]
if "--update" in sys.argv[3:]:
    shutil.copyfile(new_path, kept_path)
    sys.exit()


def verdicts(path):
    with open(path) as file:
        return {claim["id"]: claim["holds"] for claim in json.load(file)["claims"]}


kept, new = verdicts(kept_path), verdicts(new_path)
changed = [
    f"{claim}: {'holds' if new.get(claim) else 'does not hold'}, before it {'did' if kept.get(claim) else 'did not'}"
    for claim in sorted(kept.keys() | new.keys())
    if kept.get(claim) != new.get(claim)
]
for line in changed:
    print(line)
if changed:
    print(f"error: {len(changed)} verdicts have changed: explain it, and keep them with --update", file=sys.stderr)
    sys.exit(1)
print(f"{sum(new.values())} of {len(new)} claims hold, as before")
