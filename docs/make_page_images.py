"""Make the pictures of the web page anew, in Chromium: `.venv/bin/python docs/make_page_images.py [DEMO]`.

They show what `make demo` makes, in the folder DEMO if that is given and else made anew.
"""

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
LATTICE = 3
"""Which of the bundles in the list is shown: a lattice of a larger ε."""


@contextmanager
def demonstrated() -> Iterator[Path]:
    """Yield the folder of a demonstration."""
    if len(sys.argv) > 1:
        yield Path(sys.argv[1])
        return
    with TemporaryDirectory() as name:
        command = [sys.executable, str(Path(__file__).with_name("demo.py")), name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        yield Path(name)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve its bundles, and yield the address of the page."""
    city = {"--roads": "city.roads", "--walks": "walks-250.parquet"}
    options = [str(word) for option, name in city.items() for word in (option, folder / name)]
    bundles = [str(path) for path in sorted(folder.glob("bundles/*.bundle"))]
    arguments = [COMMAND, "serve", *bundles, *options, "--port", "0"]
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
    save(opened(browser, address, "start"), "page-start.png")
    page = opened(browser, address, "explore")
    page.locator("#bundle").select_option(index=LATTICE)
    save(page, "page-explore.png")
    page = opened(browser, address, "home", dark=True)
    page.locator("#bundle").select_option(index=LATTICE)
    page.locator("#home-chart svg").wait_for()
    save(page, "page-home.png")
    page = opened(browser, address, "replay")
    page.locator("#bundle").select_option(index=LATTICE)
    page.locator("#way-chart svg").wait_for()
    page.locator("#way-step").fill("24")
    page.locator("#way-chart").scroll_into_view_if_needed()
    save(page, "page-replay.png")


if __name__ == "__main__":
    with demonstrated() as demo, sync_playwright() as playwright, served(demo) as where:
        take_pictures(playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS), where)
