"""A real browser that opens the web page: Debian's Chromium, driven by Playwright."""

from __future__ import annotations

import io
import shutil
import time
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Locator, Page, Request, expect, sync_playwright

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="there is no Chromium; install it, for example with: apt-get install chromium"
)

FLAGS = [
    "--no-sandbox",  # tests may run as root, in a container
    "--use-angle=swiftshader",  # WebGL without a graphics card
    "--enable-unsafe-swiftshader",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]

PATIENCE_MS = 120_000
"""On a busy machine the emulated graphics card takes its time."""
LEFT = "net::ERR_ABORTED"
"""The page was left before an answer came."""

expect.set_options(timeout=PATIENCE_MS)

Open = Callable[..., Page]


@pytest.fixture(scope="module")  # a browser that stays open keeps asyncio from other tests
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield started
        started.close()


def _note_failure(request: Request, wrong: list[str]) -> None:
    if request.failure != LEFT:
        wrong.append(f"{request.url}: {request.failure}")


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Open]:
    """Open the page; afterwards, nothing may have gone wrong in it, and nothing been asked of another host."""
    wrong: list[str] = []
    contexts = []

    def opened(
        address: str, view: str = "story", *, width: int = 900, dark: bool = False, moving: bool = False
    ) -> Page:
        context = browser.new_context(
            viewport={"width": width, "height": 700},
            color_scheme="dark" if dark else "light",
            reduced_motion="no-preference" if moving else "reduce",
        )
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("requestfailed", lambda request: _note_failure(request, wrong))
        page.on("response", lambda answer: wrong.append(answer.url) if answer.status >= 400 else None)
        page.on("request", lambda request: wrong.append(request.url) if not _is_own(request.url, address) else None)
        page.goto(f"{address}/#{view}")
        page.wait_for_selector("body[data-ready=true]", state="attached")
        return page

    yield opened
    wrong_in_use = list(wrong)  # a page that is closed may give up requests
    for context in contexts:
        context.close()
    assert not wrong_in_use


def _is_own(url: str, address: str) -> bool:
    return urlsplit(url).scheme in ("blob", "data") or url.startswith(f"{address}/")


def centre(element: Locator) -> tuple[float, float]:
    box = element.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def pixels(page: Page, frame: str = "#map-a") -> np.ndarray[tuple[int, int, int], np.dtype[np.int16]]:
    picture = page.locator(frame).screenshot()
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).astype(np.int16)


def share_of(page: Page, colour: str) -> float:
    """The share of the map with about this colour, given as #rrggbb."""
    wanted = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)])
    return float((np.abs(pixels(page) - wanted).max(axis=2) < 24).mean())


def wait_until(page: Page, holds: Callable[[], bool]) -> None:
    """Wait for what only a picture shows, however long the machine takes to draw it."""
    end = time.monotonic() + PATIENCE_MS / 1000
    while not holds():
        assert time.monotonic() < end, "what was waited for did not come"
        page.wait_for_timeout(100)
