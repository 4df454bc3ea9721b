"""`python -m benchmarks [--full]`: every benchmark, one after the other."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from benchmarks._measure import machine

if __name__ == "__main__":
    print(f"Machine: {machine()}\n")
    for path in sorted(Path(__file__).parent.glob("[a-z]*.py")):
        sys.argv = [str(path), *sys.argv[1:]]
        runpy.run_module(f"benchmarks.{path.stem}", run_name="__main__", alter_sys=True)
