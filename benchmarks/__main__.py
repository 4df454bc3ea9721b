"""`python -m benchmarks [--full]`: every benchmark, one after the other."""

from __future__ import annotations

import pkgutil
import runpy
import sys

import benchmarks
from benchmarks._measure import machine

if __name__ == "__main__":
    print(f"Machine: {machine()}\n")
    for module in pkgutil.iter_modules(benchmarks.__path__):
        if not module.name.startswith("_"):
            sys.argv = [module.name, *sys.argv[1:]]
            runpy.run_module(f"benchmarks.{module.name}", run_name="__main__", alter_sys=True)
