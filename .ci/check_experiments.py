#!/usr/bin/env python3
"""Checks the results of all experiments: each one of the catalogue that runs on devices has figures with points above
zero, and the page and the drawings show every figure.

Usage: .ci/check_experiments.py LAB REPORT.json DIRECTORY
"""

import json
import pathlib
import subprocess
import sys


def main() -> None:
    lab, report, directory = sys.argv[1], json.loads(pathlib.Path(sys.argv[2]).read_text()), pathlib.Path(sys.argv[3])
    listed = json.loads(subprocess.run([lab, "experiment", "list", "--json"], check=True, capture_output=True).stdout)
    listed = [experiment for experiment in listed if experiment["on_devices"]]
    outcomes = {outcome["experiment"]: outcome for outcome in report["outcomes"]}
    page = (directory / "report.html").read_text()
    seconds = 0.0
    for experiment in listed:
        outcome = outcomes[experiment["name"]]
        seconds += outcome["seconds"]
        assert outcome["figures"], f"{experiment['name']} has no figure"
        for figure in outcome["figures"]:
            points = [point["median"] for series in figure["series"] for point in series["points"]]
            assert points and any(point and point > 0 for point in points), f"{figure['id']}: {points}"
            assert f'id="{figure["id"]}"' in page, f"{figure['id']} is not on the page"
            assert "<svg" in (directory / f"{figure['id']}.svg").read_text(), f"{figure['id']} is not drawn"
    figures = sum(len(outcome["figures"]) for outcome in report["outcomes"])
    print(f"{len(listed)} experiments, {figures} figures, {seconds:.0f} s")


if __name__ == "__main__":
    main()
