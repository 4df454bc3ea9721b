"""How smoothly the map of the web page pans and zooms over a large city; run `python -m benchmarks.web_page`.

In a headless Chromium without a graphics card, so that the GPU is emulated on the processor and takes nearly all of the
time. The same city without its roads tells what the emulation takes for an empty map; the page's own work, in its
process, is counted apart, and is what remains with a graphics card. Needs Chromium: `apt-get install chromium`.
"""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from playwright.sync_api import Browser, CDPSession, Page, sync_playwright

from benchmarks._measure import machine, show

SECONDS = 5.0
COMMAND = str(Path(sys.executable).with_name("geoblanket"))
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking"]
COUNT_FRAMES = """() => {
  window.frames_ = [];
  const next = (time) => { window.frames_.push(time); requestAnimationFrame(next); };
  requestAnimationFrame(next);
}"""


def make_files(folder: Path) -> int:
    """Write the roads of a large synthetic city and a bundle of its places; return how many roads there are."""
    from geoblanket._geodesy import haversine_m
    from geoblanket.city.model import make_city
    from geoblanket.mechanism import BundledMechanism, Mechanism, Problem, save_bundle
    from geoblanket.mechanism.bundle.clock import Clock
    from geoblanket.roads.places import choose_places
    from geoblanket.roads.zones import partition_zones

    graph = make_city("large").graph
    graph.save(folder / "roads")
    places = choose_places(graph, spacing_m=500)
    zones = partition_zones(graph, places, max_places=60)
    parts = []
    for number, name in enumerate(zones.ids):
        members = zones.members(number)
        lat, lon = places.lat[members], places.lon[members]
        distance = haversine_m(lat[:, None], lon[:, None], lat, lon) / 1000
        problem = Problem(distance, np.full(len(members), 1 / len(members)), distance, epsilon=2.0)
        weights = np.exp(-distance)
        mechanism = Mechanism.from_probabilities(weights / weights.sum(axis=1, keepdims=True), problem)
        parts += [
            BundledMechanism.of(mechanism, zone=name, regime=regime, histories=members, output_places=members)
            for regime in ("all day", "start")
        ]
    clock = Clock(30_000, "UTC", (("all day", tuple(range(24))),))
    save_bundle(folder / "bundle", parts, version=1, places_e7=places.coordinates_e7, clock=clock)
    return len(graph.one_of_each_road())


@contextmanager
def served(*arguments: str | Path) -> Iterator[str]:
    """Serve the page, and yield its address."""
    command = [COMMAND, "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        if process.stderr is None:
            raise RuntimeError("The service says nothing.")
        words = next(line for line in process.stderr if "http://" in line).split()
        try:
            yield next(word for word in words if word.startswith("http://"))
        finally:
            process.terminate()


@dataclass(frozen=True)
class Smoothness:
    """What some seconds of moving the map showed."""

    frames_per_s: float
    median_ms: float
    page_ms: float
    """CPU time of the page's process for each frame, all threads, milliseconds."""
    gpu_ms: float
    """CPU time of the emulated GPU for each frame, milliseconds."""


def cpu_s(session: CDPSession) -> dict[str, float]:
    """Return the CPU time of the browser's processes by their kind, seconds."""
    result: dict[str, float] = {}
    for process in session.send("SystemInfo.getProcessInfo")["processInfo"]:
        kind = str(process["type"]).lower()
        result[kind] = result.get(kind, 0.0) + float(process["cpuTime"])
    return result


def moved(page: Page, session: CDPSession, move: Callable[[int], None]) -> Smoothness:
    """Move the map for some seconds."""
    page.evaluate("window.frames_ = []")
    before, end, number = cpu_s(session), time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        move(number)
        number += 1
        time.sleep(0.008)
    times = np.array(page.evaluate("window.frames_"))
    spent = {kind: value - before.get(kind, 0.0) for kind, value in cpu_s(session).items()}
    frames = len(times) - 1
    return Smoothness(
        frames_per_s=1000 * frames / float(times[-1] - times[0]),
        median_ms=float(np.median(np.diff(times))),
        page_ms=1000 * spent.get("renderer", 0.0) / frames,
        gpu_ms=1000 * spent.get("gpu", 0.0) / frames,
    )


def measure_page(browser: Browser, address: str) -> dict[str, Smoothness]:
    """Pan and zoom, near and over the whole city."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto(address)
    page.wait_for_selector("body[data-ready=true]", state="attached", timeout=120_000)
    page.wait_for_timeout(3000)
    page.evaluate(COUNT_FRAMES)
    session = browser.new_browser_cdp_session()
    box = page.locator("#map-a").bounding_box()
    if box is None:
        raise RuntimeError("The map cannot be seen.")
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)

    def pan() -> Smoothness:
        page.mouse.down()
        found = moved(page, session, lambda n: page.mouse.move(x + 250 * math.sin(n / 12), y + 150 * math.cos(n / 9)))
        page.mouse.up()
        return found

    result = {"pan, one zone": pan()}
    result["zoom"] = moved(page, session, lambda n: page.mouse.wheel(0, -40 if n // 40 % 2 else 40))
    for _ in range(5):
        page.mouse.wheel(0, 500)
        page.wait_for_timeout(800)
    result["pan, whole city"] = pan()
    page.close()
    return result


if __name__ == "__main__":
    chromium = shutil.which("chromium")
    if chromium is None:
        print("The web page: there is no Chromium to measure it in; install it with: apt-get install chromium")
    else:
        with TemporaryDirectory() as name, sync_playwright() as playwright:
            files = Path(name)
            roads = make_files(files)
            started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            rows = []
            with_roads: tuple[str | Path, ...] = ("--roads", files / "roads")
            for title, options in ((f"{roads:,} roads", with_roads), ("no roads", ())):
                with served(files / "bundle", *options) as where:
                    rows += [
                        (
                            f"{title}: {what}",
                            f"{found.frames_per_s:.1f}",
                            f"{found.median_ms:.0f}",
                            f"{found.page_ms:.0f}",
                            f"{found.gpu_ms:.0f}",
                        )
                        for what, found in measure_page(started, where).items()
                    ]
            started.close()
        print(f"Machine: {machine()}")
        show(
            "The map of the web page, 880 × 750 pixels, with an emulated GPU",
            ("", "frames/s", "median, ms", "page's CPU, ms/frame", "emulated GPU, ms/frame"),
            rows,
        )
