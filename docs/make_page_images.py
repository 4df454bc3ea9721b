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
    """Open the page in a view, once everything is there."""
    page = browser.new_page(
        viewport={"width": 1280, "height": 800}, color_scheme="dark" if dark else "light", reduced_motion="reduce"
    )
    page.set_default_timeout(120_000)
    page.goto(f"{address}/#{view}")
    page.wait_for_selector("body[data-shown=true]", state="attached")
    return page


def save(page: Page, name: str) -> None:
    """Take a picture once the map is drawn."""
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(3000)
    picture = Image.open(BytesIO(page.screenshot())).convert("RGB")
    # A palette makes the files several times smaller, and nobody sees it.
    small = picture.quantize(palette=picture.quantize(256), dither=Image.Dither.FLOYDSTEINBERG)
    small.save(IMAGES / name, optimize=True)


def take_pictures(browser: Browser, address: str) -> None:
    """Take the pictures that the documentation shows."""
    save(opened(browser, address, "story"), "page-story.png")
    page = opened(browser, address, "choose")
    page.get_by_role("button", name="Get a plan").click()
    page.wait_for_selector("#plan[aria-busy=false]")
    save(page, "page-choose.png")
    page = opened(browser, address, "choose?a=4,60,50,1&b=1,60,50,0", dark=True)
    page.locator("#figures").scroll_into_view_if_needed()
    save(page, "page-compare.png")


if __name__ == "__main__":
    with demonstrated() as demo, sync_playwright() as playwright, served(demo) as where:
        take_pictures(playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS), where)
