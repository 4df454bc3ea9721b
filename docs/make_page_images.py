"""Make the pictures of the web page anew, in Chromium: `.venv/bin/python docs/make_page_images.py`."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

IMAGES = Path(__file__).parent / "images"
COMMAND = str(Path(sys.executable).with_name("geoblanket"))
FLAGS = ["--no-sandbox", "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--disable-background-networking"]


def run(*arguments: str | Path) -> None:
    """Run a command of geoblanket."""
    subprocess.run([COMMAND, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def build_bundles(folder: Path) -> list[Path]:
    """Make a synthetic city, a bundle for each of some ε and history weights, and a lattice."""
    roads, traces, walks = folder / "city.roads", folder / "traces.parquet", folder / "walks.parquet"
    run("city", "--out", folder / "city", "--formats", "porto")
    run("roads", "import", folder / "city" / "roads.osm.pbf", "--out", roads)
    run("traces", "import", "--format", "porto", folder / "city" / "porto.csv", "--out", traces)
    run("match", "--traces", traces, "--roads", roads, "--spacing", "250", "--out", walks)
    made = []
    for epsilon in ("1", "2", "4", "8"):
        for weight in ("0", "1"):
            made.append(folder / f"epsilon-{epsilon}-weight-{weight}.bundle")
            inputs: list[str | Path] = ["--roads", roads, "--walks", walks, "--out", made[-1]]
            privacy = ["--epsilon", epsilon, "--history-weights", weight, "--context", "markov:1"]
            size = ["--loss", "straight", "--max-places", "45", "--max-rows", "150", "--gap", "0.05"]
            run("build", *inputs, *privacy, *size)
    made.append(folder / "lattice.bundle")
    run("lattice", "--roads", roads, "--epsilon", "4", "--out", made[-1])
    return made


@contextmanager
def served(folder: Path, bundles: list[Path]) -> Iterator[str]:
    """Serve them, and yield the address of the page."""
    files = [*bundles, "--roads", folder / "city.roads", "--walks", folder / "walks.parquet"]
    arguments = [COMMAND, "serve", *map(str, files), "--port", "0", "--no-access-log"]
    with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
        if process.stderr is None:
            raise RuntimeError("The service says nothing.")
        found = next(filter(None, (re.search(r"http://\S+", line) for line in process.stderr)))
        try:
            yield found.group()
        finally:
            process.terminate()


def opened(browser: Browser, address: str, view: str, *, dark: bool = False) -> Page:
    """Open the page in a view."""
    page = browser.new_page(
        viewport={"width": 1360, "height": 850}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page.goto(f"{address}/#{view}")
    page.wait_for_selector("body[data-ready=true]", state="attached")
    return page


def save(page: Page, name: str) -> None:
    """Take a picture once the map is drawn."""
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(3000)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    # A palette makes the files several times smaller, and nobody sees it.
    picture.quantize(128, dither=Image.Dither.NONE).save(IMAGES / name, optimize=True)


def take_pictures(browser: Browser, address: str) -> None:
    """Take the pictures that the documentation shows."""
    save(opened(browser, address, "explore"), "page-explore.png")
    page = opened(browser, address, "compare", dark=True)
    page.locator("#epsilon-b").fill("3")
    save(page, "page-compare.png")
    page = opened(browser, address, "replay")
    page.locator("#chart svg").wait_for()
    page.locator("#step").fill("24")
    page.locator("#chart").scroll_into_view_if_needed()
    save(page, "page-replay.png")
    page.locator("#kind-a").select_option("lattice")
    page.locator("#way-chart svg").wait_for()
    page.locator("#way-chart").scroll_into_view_if_needed()
    save(page, "page-parked.png")


if __name__ == "__main__":
    with TemporaryDirectory() as name, sync_playwright() as playwright:
        made = build_bundles(Path(name))
        with served(Path(name), made) as where:
            take_pictures(playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS), where)
