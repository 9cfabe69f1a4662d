#!/usr/bin/env python3
"""TPC-H over a cluster of two virtual machines that are joined by a cable, over RDMA.

Usage: .ci/two_hosts.py ROUNDEL LOSS [ARGUMENTS OF roundel tpch...]

LOSS percent of the frames are lost on the cable, in each direction.
"""

import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
WORKER = ("printf %064d 7 >/run/token; chmod 600 /run/token; "
          "{program} worker --listen {address}:7070 --token-file /run/token >/dev/null & ")
FIRST = WORKER + ("sleep 3; {program} tpch --cluster 10.9.1.1:7070,10.9.1.2:7070 --token-file /run/token "
                  "--fabric rdma {arguments}; status=$?; nc b 9999 </dev/null; exit $status")
SECOND = WORKER + "nc -l -p 9999; true"


def main():
    program = pathlib.Path(sys.argv[1]).resolve()
    arguments = " ".join(sys.argv[3:] or ["--scale", "0.01", "--queries", "1,3,5,10,18"])
    sys.exit(subprocess.run(
        [HERE.parent / "vm/run", "pair", "--memory", "3072", "--timeout", "500", "--loss", sys.argv[2], "--share", str(program.parent),
         "--first", FIRST.format(program=program, address="10.9.1.1", arguments=arguments),
         "--second", SECOND.format(program=program, address="10.9.1.2")]).returncode)


if __name__ == "__main__":
    main()
