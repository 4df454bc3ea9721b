"""One page to hand on: what reports tell, for drivers or for a data-protection officer, on a sheet of A4.

All figures are those of the bundle's `Promise` and of the fence, as `certainty`, `show` and `plan` print them. There
are no symbols: the readers have never heard of ε.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, Literal

from geoblanket import __version__
from geoblanket._files import atomic_output, make_folder
from geoblanket._page import Page
from geoblanket.errors import ParameterError
from geoblanket.mechanism.bundle.storage import Bundle
from geoblanket.mechanism.certainty import times_in_100
from geoblanket.mechanism.promise import DISTANCES_KM, AtRest, Promise, fenced_m, two_digits
from geoblanket.planning.schedules import every
from geoblanket.release.budget import Budget
from geoblanket.release.fence import fenced_right

Reader = Literal["drivers", "officer"]
_BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome", "msedge")
_READERS: Final = {
    "drivers": ("What your vehicle tells about you", "A notice for drivers.", "your", "Questions, and your rights"),
    "officer": ("Location reports: what is promised", "For a data-protection officer.", "a", "Responsible"),
}
"""Title, line below it, whose home, and what the contact is for."""
_APART_M: Final = 1000 * DISTANCES_KM[0]
_TRIPS: Final = "A trip is not secret as a whole: anyone who has all its reports can roughly follow it."
_TO_FILL_IN: Final = "____________________"
_MOST_CAVEATS: Final = 6
_IN_WORDS: Final = {"ε": "epsilon", "δ": "delta", "η": "eta", "ρ": "rho", "Σ": "sum of "}


@dataclass(frozen=True)
class _Facts:
    """What a page tells, as parts of it."""

    promise: Promise
    fence_km: float | None

    def sent(self) -> tuple[str, str]:
        """Return how often something is sent, and how far off it is."""
        interval_s, mean_km = self.promise.interval_s, self.promise.source.mean_error_km
        often = "now and then" if interval_s is None else f"every {every(interval_s)}"
        if mean_km is None:
            return often, "The place that is sent is another one nearby, drawn by chance."
        far = f"{mean_km:.3g} km" if mean_km >= 1 else f"{1000 * mean_km:.0f} m"
        return often, f"The position that is sent is drawn by chance: it is {far} from the true one on average."

    def chances(self) -> list[tuple[str, str]]:
        """Return how often the best guess is right, by what the guesser has seen."""
        right = {"without any report, by chance": 0.5}
        right |= {f"after {what}": each.right for what, each in self.promise.certainties.items()}
        if self.fence_km is not None:
            right["after years of nights inside a fence"] = fenced_right(_APART_M, self.fence_km)
        return [(what, f"{times_in_100(each)} in 100") for what, each in right.items()]

    def between(self) -> str:
        """Return what the guess is between."""
        zone = "" if self.promise.between == "location" else " of one zone"
        return f"two places{zone}, {_APART_M:g} m apart{self.promise.unit.removeprefix('km')}"

    def home(self, your: str) -> Iterator[str]:
        """Yield what becomes of a place that a vehicle returns to every night."""
        if self.promise.between == "location" and self.promise.interval_s is not None:
            at_rest = AtRest(self.promise.epsilon, self.promise.interval_s, self.promise.hold_m)
            near = two_digits(at_rest.found_m["month"])
            yield f"Without a fence, somebody who has a month of nights is about {near} from {your} home."
        if self.fence_km is None:
            yield "This page counts with no fence. A fence hides a home for good."
            return
        yield (
            f"A fence of {self.fence_km:g} km hides {your} home for good: all that happens inside is reported from one "
            "point, which was drawn by chance once. Somebody who sees nights only stays about "
            f"{two_digits(fenced_m(self.fence_km))} off, after any number of them. The ways in and out tell more."
        )

    def kept(self, budget: Budget | None, kept_for: str) -> Iterator[str]:
        """Yield how much is sent at most, and how long it is kept."""
        if budget is not None:
            drawn = int(budget.epsilon / self.promise.costs.largest_per_km + 1e-9)
            most = f"at most {drawn:,} new positions in any {every(budget.window_s)}"
            yield f"A budget is enforced on the vehicle: {most}. After that it draws no new one."
        yield f"The recipient deletes positions after: {kept_for or _TO_FILL_IN}"
        if self.promise.hold_m:
            yield "On the vehicle, one true position is kept, encrypted, until the next new position is drawn."

    def caveats(self) -> list[str]:
        """Return what is not promised, the gravest first."""
        told = [*self.promise.sections()["What is not promised"], _TRIPS]
        if (more := len(told) - _MOST_CAVEATS) > 0:
            told = [*told[: _MOST_CAVEATS - 1], _TRIPS, f"The full report of the bundle names {more} more limits."]
        return _plain(told)

    def assessment(self) -> str:
        """Return the text for a data-protection impact assessment."""
        promise = self.promise
        hour = promise.certainties.get("an hour on the road")
        after = "" if hour is None else f" and {times_in_100(hour.right)} after an hour on the road"
        fenced = "" if self.fence_km is None else f" Homes lie in fences of {self.fence_km:g} km, whose promise lasts."
        return (
            "Positions are perturbed on the vehicle before they are sent (metric differential privacy, epsilon = "
            f"{promise.epsilon:.9g} per {promise.unit}). The guarantee is verified in exact arithmetic whenever the "
            f"mechanism is loaded. The best guess between {self.between()}, is right at most "
            f"{times_in_100(promise.certainties['one report'].right)} times in 100 after one report{after}; 50 would "
            f"be chance.{fenced} The remaining risk is what is not promised above. As long as reports carry a name or "
            "number, they remain personal data."
        )


def handout(
    bundle: Bundle,
    *,
    reader: Reader,
    fence_km: float | None = None,
    budget: Budget | None = None,
    kept_for: str = "",
    contact: str = "",
) -> str:
    """Return a page that prints on one sheet of A4, as HTML; the parameters are those of `write_handout`."""
    if reader not in _READERS:
        raise ParameterError(f"The reader must be one of {', '.join(_READERS)}. Got another one instead.")
    facts = _Facts(bundle.promise, fence_km)
    title, lead, your, ask = _READERS[reader]
    often, distance = facts.sent()
    page = Page(title, lead=lead, sheet=True)
    page.heading("What is collected")
    if reader == "drivers":
        sent = [
            f"Your vehicle sends a position {often}, with the time. {distance} The true one never leaves the vehicle."
        ]
        sent += ["While you rest, the last position is sent again."] if facts.promise.hold_m else []
    else:
        disclosed = f"Besides the position, a report discloses {facts.promise.disclosed}."
        sent = [f"Each vehicle sends a position {often}. {distance}", disclosed, *_plain(facts.promise.learned)]
    page.bullets(sent)
    page.heading("What somebody can find out")
    page.paragraph(
        "Somebody has all that was sent, knows how it works, and computes without limit. The best guess between "
        f"{facts.between()}, both thought equally probable, is right at most:"
    )
    page.table(("what they have seen", "right"), facts.chances())
    for heading, sentences in {
        f"{your[0].upper()}{your[1:]} home": facts.home(your),
        "What is not promised": facts.caveats(),
        "How much, and how long": [*facts.kept(budget, kept_for), f"{ask}: {contact or _TO_FILL_IN}"],
    }.items():
        page.heading(heading)
        page.bullets(sentences)
    if reader == "officer":
        page.heading("For the impact assessment")
        page.note(facts.assessment())
    return page.html(
        footer="All of this holds where the vehicle itself draws what is sent. Made by geoblanket "
        f"{__version__} from the bundle with the SHA-256 {bundle.sha256}, verified exactly."
    )


def write_handout(
    bundle: Bundle,
    out: str | Path,
    *,
    reader: Reader,
    fence_km: float | None = None,
    budget: Budget | None = None,
    kept_for: str = "",
    contact: str = "",
) -> list[Path]:
    """Write a page that prints on one sheet of A4: `drivers.html` or `officer.html`, and a PDF where Chromium is there.

    Parameters
    ----------
    bundle
        What reports are drawn from, loaded and so verified.
    out
        The folder; made where it does not exist.
    reader
        Who reads it: drivers get a notice, an officer a text for a data-protection impact assessment.
    fence_km
        Radius of the fences around homes, kilometres; None: there are none.
    budget
        The budget of each vehicle's ledger; None: it is not mentioned.
    kept_for
        How long recipients keep reports, in words; empty: a line to fill in.
    contact
        Whom to ask, in words; empty: a line to fill in.

    Returns
    -------
    files
        The page, and the PDF if one was written.
    """
    text = handout(bundle, reader=reader, fence_km=fence_km, budget=budget, kept_for=kept_for, contact=contact)
    path = make_folder(out) / f"{reader}.html"
    with atomic_output(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return [path, *_printed(path)]


def _plain(sentences: Iterable[str]) -> list[str]:
    """Return sentences with words instead of symbols."""
    return [reduce(lambda text, symbol: text.replace(*symbol), _IN_WORDS.items(), sentence) for sentence in sentences]


def _printed(page: Path) -> list[Path]:
    """Print a page to a PDF; return where it is, or nothing where there is no Chromium or it cannot be run."""
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        return []
    # Chromium refuses its sandbox to root. The page is our own, and its policy forbids scripts and the network.
    root = ["--no-sandbox"] if getattr(os, "geteuid", lambda: 1)() == 0 else []
    with TemporaryDirectory() as folder:
        made, pdf = Path(folder) / page.with_suffix(".pdf").name, page.with_suffix(".pdf")
        options = ["--headless", "--disable-gpu", *root, "--no-pdf-header-footer", f"--print-to-pdf={made}"]
        command = [browser, *options, f"--user-data-dir={folder}/profile", page.resolve().as_uri()]
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run(command, check=True, capture_output=True, timeout=120)  # noqa: S603 - no shell
        if not made.exists():
            return []
        with atomic_output(pdf) as temporary:
            shutil.copyfile(made, temporary)
    return [pdf]
