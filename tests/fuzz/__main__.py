"""Long runs, each target in a process of its own: `python -m tests.fuzz --executions 100000 --target walks`."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.fuzz.engine import SECONDS_PER_EXECUTION, fuzz
from tests.fuzz.seeds import make_seeds
from tests.fuzz.targets import TARGETS

_BATCH = 2000
"""Executions of one process: a new one begins with little memory."""
_MEMORY_BYTES = 12 << 30
_STARTING_S = 120.0


def main() -> int:
    options = _options()
    if options.replay:
        return _replay(options)
    if options.worker:
        return _work(options)
    names = options.target or list(TARGETS)
    options.finds.mkdir(parents=True, exist_ok=True)
    begin = time.monotonic()
    with ThreadPoolExecutor(options.workers) as pool:
        reports = list(pool.map(lambda name: _supervise(name, options), names))
    finds = sum(report["finds"] for report in reports)
    executions = sum(report["executions"] for report in reports)
    print(f"{executions:,} executions, {finds} finds, {time.monotonic() - begin:.0f} s")  # noqa: T201
    return 1 if finds else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--executions", type=int, default=1_000_000, help="of each target")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each target, at most")
    parser.add_argument("--target", action="append", choices=list(TARGETS), help="may be given several times")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--finds", type=Path, default=Path("fuzz-finds"), help="folder for files that do harm")
    parser.add_argument("--replay", type=Path, action="append", help="read such a file again; needs its --target")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _supervise(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Run a target in processes, one after the other; a process that dies or hangs is a find."""
    report = {"executions": 0, "accepted": 0, "finds": 0}
    kinds: set[str] = set()
    found: set[str] = set()
    begin = time.monotonic()
    batch = 0
    while report["executions"] < options.executions and time.monotonic() - begin < options.seconds:
        with tempfile.TemporaryDirectory(prefix="fuzz-", dir=_memory_folder()) as place:
            count = min(_BATCH, options.executions - report["executions"])
            result = _batch(name, Path(place), count, options, seed=options.seed * 1_000_003 + batch, begin=begin)
            batch += 1
            report["executions"] += result["executions"]
            report["accepted"] += result["accepted"]
            kinds |= set(result["kinds"])
            for what, data in result["finds"].items():
                if what not in found:
                    found.add(what)
                    _keep(options.finds, name, what, bytes.fromhex(data))
    report["finds"] = len(found)
    rate = report["executions"] / max(1e-9, time.monotonic() - begin)
    print(  # noqa: T201
        f"{name:15} {report['executions']:>9,} executions {report['accepted']:>8,} accepted {len(kinds):>5} kinds "
        f"{len(found):>3} finds {time.monotonic() - begin:>7.0f} s {rate:>6.0f}/s",
        flush=True,
    )
    return report


def _batch(
    name: str, place: Path, count: int, options: argparse.Namespace, *, seed: int, begin: float
) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.fuzz", "--worker", "--target", name, "--folder", str(place)]
    command += ["--executions", str(count), "--seed", str(seed)]
    if options.seconds < float("inf"):
        command += ["--seconds", str(max(1.0, options.seconds - (time.monotonic() - begin)))]
    environment = {**os.environ, "POLARS_MAX_THREADS": "2", "OPENBLAS_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    hung = _wait(process, place)
    output = process.communicate()[0]
    if process.returncode == 0:
        result: dict[str, Any] = json.loads(output)
        return result
    what = "find: hangs in native code" if hung else f"find: the process died ({process.returncode})"
    data = next((file.read_bytes() for file in place.glob("input.*")), b"")
    done = (place / "executions").stat().st_size if (place / "executions").exists() else 1
    return {"executions": max(1, done), "accepted": 0, "kinds": [], "finds": {what: data.hex()}}


def _wait(process: subprocess.Popen[bytes], place: Path) -> bool:
    """Wait for a process; end it if it reads the same file for too long. Return whether that was so."""
    begin = time.time()
    while process.poll() is None:
        time.sleep(0.2)
        times = [file.stat().st_mtime for file in place.glob("input.*")]
        last = max([*times, begin + _STARTING_S])
        if time.time() - last > 3 * SECONDS_PER_EXECUTION:
            process.kill()
            return True
    return False


def _work(options: argparse.Namespace) -> int:
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    seeds = make_seeds(_folder(options.folder / "seeds"))
    outcome = fuzz(
        TARGETS[options.target[0]],
        seeds,
        options.folder,
        executions=options.executions,
        seconds=options.seconds,
        seed=options.seed,
    )
    finds = {what: data.hex() for what, data in outcome.finds.items()}
    result = {"executions": outcome.executions, "accepted": outcome.accepted, "kinds": sorted(outcome.kinds)}
    sys.stdout.write(json.dumps({**result, "finds": finds}))
    return 0


def _replay(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as place:
        seeds = make_seeds(_folder(Path(place) / "seeds"))
        failed = False
        for name, file in zip(options.target, options.replay, strict=True):
            path = Path(shutil.copy(file, Path(place) / f"input.{TARGETS[name].ending}"))
            try:
                TARGETS[name].run(path, seeds)
            except Exception:
                failed = True
                traceback.print_exc()
    return int(failed)


def _keep(folder: Path, name: str, what: str, data: bytes) -> None:
    path = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}.{TARGETS[name].ending}"
    path.write_bytes(data)
    path.with_name(f"{path.name}.txt").write_text(what + "\n", encoding="utf-8")
    print(f"{name}: {what} ({path})", flush=True)  # noqa: T201


def _folder(path: Path) -> Path:
    path.mkdir()
    return path


def _memory_folder() -> str | None:
    """Return a folder in memory, where there is one: a disk would be the slowest part."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


if __name__ == "__main__":
    sys.exit(main())
