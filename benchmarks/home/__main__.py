"""`python -m benchmarks.home ROADS [WALKS] [--picture FILE] [--quick]`: the tables of the attack on homes."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import geoblanket
from benchmarks._measure import machine, took
from benchmarks.home.commuters import commuters
from benchmarks.home.road_and_rest import road_and_rest


def main(arguments: Sequence[str]) -> None:
    """Print the tables."""
    options = {name: arguments[arguments.index(name) + 1] for name in ("--picture",) if name in arguments}
    paths = [argument for argument in arguments if not argument.startswith("--") and argument not in options.values()]
    if not 1 <= len(paths) <= 2:
        print("Usage: python -m benchmarks.home ROADS [WALKS] [--picture FILE] [--quick]")
        return
    quick, started = "--quick" in arguments, time.perf_counter()
    print(f"python -m benchmarks.home {' '.join(arguments)}\ngeoblanket {geoblanket.__version__}; {machine()}")
    commuters(paths[0], quick=quick, picture=options.get("--picture"))
    if len(paths) > 1:
        road_and_rest(*paths, quick=quick)
    print(took(started))


if __name__ == "__main__":
    main(sys.argv[1:])
