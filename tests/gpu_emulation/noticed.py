"""Tries the bugs of test_kernel_bugs.py and writes down with which programs and which emulator each is noticed, so that the test need not compile
all of them.

    python tests/gpu_emulation/noticed.py [--jobs N]

Compiles those whose program or emulator have changed: seconds for one, ten minutes for all. Fails where a bug is not noticed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import pathlib
import sys
import tempfile

import test_kernel_bugs as bugs


def notice(name: str, file: str, bug: bugs.Bug, before: str | None) -> str:
    """The bug's hash: `before`, where nothing has changed."""
    with tempfile.TemporaryDirectory() as folder:
        source = bugs.write_program(pathlib.Path(folder), file, bug.place, bug.changed)
        now = bugs.hash_of(bug, source)
        if now != before:
            bugs.must_notice(bug, source)
            print(name, flush=True)
        return now


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    before, after, failed = bugs.noticed_before(), {}, False
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        trials = {name: pool.submit(notice, name, *bug, before.get(name)) for name, bug in zip(bugs.NAMES, bugs.BUGS, strict=True)}
    for name, trial in trials.items():
        if error := trial.exception():
            failed = True
            print(f"{name}: {error}", file=sys.stderr)
        else:
            after[name] = trial.result()
    bugs.NOTICED.write_text(json.dumps(after, indent=0) + "\n")
    return failed


if __name__ == "__main__":
    sys.exit(main())
