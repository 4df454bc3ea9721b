"""Renew docs/results-tracked.md and docs/results-tables.md: `.venv/bin/python docs/make_results.py FOLDER`.

FOLDER holds the results of `geoblanket evaluate paper --data ../shared/data --out FOLDER`; without results there, that
command is run first, and goes on where it was interrupted. With results of the experiment `tracked` alone, only the
page of tracked vehicles is renewed. docs/results.md is written by hand from both. Only figures and numbers about groups
of vehicles come into the documentation, no traces.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from PIL import Image

from geoblanket.evaluate.experiment import shipped_experiments
from geoblanket.evaluate.measures.catalogue import Measure
from geoblanket.evaluate.report.comparison import Comparison
from geoblanket.evaluate.report.figures import SWEEPS, caption, sweep_name
from geoblanket.evaluate.report.tables import (
    Table,
    efficiency_table,
    gain_table,
    hour_table,
    loss_table,
    privacy_table,
    sweep_table,
    tracked_table,
)
from geoblanket.evaluate.report.writing import (
    SOUND,
    answers,
    compared_with,
    write_report,
)
from geoblanket.evaluate.results import read_results
from geoblanket.evaluate.sanity import CHECK_NAMES, check_results
from geoblanket.evaluate.settings import Varied
from geoblanket.study.comparison import WHY_NOT_ALIKE, paper_chapter, paper_claims, read_training
from geoblanket.study.paper import CLAIM_COLUMNS, CLAIMS_HEADING

DOCS = Path(__file__).parent
DATA = DOCS.parents[1] / "shared" / "data"
COMMANDS = "`geoblanket evaluate paper --data DATA --out FOLDER`, then `docs/make_results.py FOLDER`"
BEGIN, END = "<!-- made by make_results.py -->", "<!-- end -->"


def stamp(version: str, commands: str) -> str:
    """Return which version made a page, and how, as `tests/test_docs.py` reads it."""
    return f"Made with geoblanket {version}: {commands}."


def shrink(picture: Path, target: Path) -> None:
    """Write a picture for the documentation: at most 1,100 pixels wide, of few colours."""
    image = Image.open(picture).convert("RGB")
    image.thumbnail((1100, 1400), Image.Resampling.LANCZOS)
    image.quantize(128, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(target, optimize=True)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def captioned(made: Table) -> str:
    """Return a table of the report as Markdown, below its caption."""
    return f"{made.caption}\n\n{table(made.header, made.rows)}"


def bullets(sentences: Sequence[str]) -> str:
    """Return a list as Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences) + "\n"


class Results:
    """What the pages tell, part by part."""

    def __init__(self, folder: Path) -> None:
        self.results, self.about = read_results(folder)
        self.comparison = Comparison.of(self.results, self.about)
        self.training = read_training(folder, self.about["cities"])
        self.report = folder / "report"
        run = {*self.results["experiment"].unique(), "quick"}
        self.missing = [name for name in shipped_experiments() if name not in run]
        write_report(self.results, self.report, about=self.about, chapters=[paper_chapter(self.training)])

    @property
    def has_tables(self) -> bool:
        """Whether the paper's experiments were run, and not only the one of tracked vehicles."""
        return "paper" in self.about["experiments"]

    def tracked(self) -> Iterator[str]:
        """Yield the parts of the page of tracked vehicles in their order."""
        yield from self._answers(slice(1))
        yield "## In zones, which are disclosed\n"
        for panel in self.comparison.main:
            equal_cost = self.comparison.equal_cost(panel.city)
            yield captioned(tracked_table(panel))
            if equal_cost is not None and equal_cost.has(Measure.TRACKED_ERROR):
                yield captioned(tracked_table(equal_cost, equal_cost=True))
        yield "## The whole city, no zone disclosed\n"
        for panel in self.comparison.whole_city:
            if panel.has(Measure.TRACKED_ERROR):
                yield captioned(tracked_table(panel))
        yield "## The same budget for an hour\n"
        for hours in self.comparison.hours:
            yield captioned(hour_table(hours))
        yield f"## {SOUND}\n"
        broken = {violation.check for violation in check_results(self.results)}
        yield (self._sanity() if broken else f"All {len(CHECK_NAMES)} checks hold: {'; '.join(CHECK_NAMES)}.\n")
        yield self._run()
        if self.about["notes"]:
            yield f"Notes on single methods:\n\n{bullets(self.about['notes'])}"

    def tables(self) -> Iterator[str]:
        """Yield the parts of the page of single reports in their order."""
        if self.missing:
            zones = self.about["experiments"]["paper"]["zones"]
            yield (
                f"> **Not everything was run for this page.** The main experiment looks at {zones or 'all'} of each "
                f"city's zones, and these are missing: {', '.join(self.missing)}.\n"
            )
        yield from self._answers(slice(1, None))
        yield "## Loss against ε\n"
        yield from self.figures("loss", "gain", "loss-in-use")
        for panel in self.comparison.main:
            yield captioned(loss_table(panel))
            if (pair := self.comparison.pair(panel)) is not None:
                yield captioned(gain_table(panel, pair[0], compared_with(panel.methods, pair[0])))
        yield from self.figures("one-destination", "case-ii")
        yield "## Leakage and attackers\n"
        yield from self.figures("leakage", "inference", "context-inference")
        for panel in self.comparison.main:
            yield captioned(privacy_table(panel))
        yield "## Reports in a row\n"
        yield from self.figures("tracking", sweep_name(Varied.REPORTS))
        yield "## Utility against privacy\n"
        yield from self.figures("pareto", "equal-cost")
        yield "## What else matters\n"
        yield from self._sweeps()
        yield "## Time, memory and size\n"
        yield from self.figures("build-time")
        for panel in self.comparison.main:
            yield captioned(efficiency_table(panel))
        yield f"## {CLAIMS_HEADING}\n"
        yield f"{WHY_NOT_ALIKE}\n"
        yield from self._paper()
        yield f"## {SOUND}\n"
        yield self._sanity()
        yield "## What was run\n"
        yield self._run()

    def figures(self, *names: str) -> Iterator[str]:
        """Yield figures as Markdown, as far as the report has them, and copy them to the documentation."""
        for name in names:
            picture = self.report / f"{name}.png"
            if picture.exists():
                shrink(picture, DOCS / "images" / f"results-{name}.png")
                yield f"![{caption(name)}](images/results-{name}.png)\n\n*{caption(name)}*\n"

    def _answers(self, questions: slice) -> Iterator[str]:
        for question, cities in [*answers(self.results, self.about).items()][questions]:
            yield f"## {question}\n"
            yield bullets([f"**{city.title()}**: {line}" for city, lines in cities.items() for line in lines])

    def _sweeps(self) -> Iterator[str]:
        for along, name in SWEEPS.items():
            panels = self.comparison.sweep(along)
            if along == Varied.REPORTS or not panels:
                continue
            yield f"### {name[0].upper()}{name[1:]}\n"
            yield from self.figures(sweep_name(along))
            for panel in panels:
                if (pair := self.comparison.pair(panel)) is not None:
                    yield captioned(sweep_table(panel, name, pair))

    def _paper(self) -> Iterator[str]:
        claims = paper_claims(self.comparison, self.training)
        for city in dict.fromkeys(claim.city for claim in claims):
            rows = [claim.cells for claim in claims if claim.city == city]
            yield f"### {city.title()}\n\n{table(CLAIM_COLUMNS, rows)}"

    def _sanity(self) -> str:
        violations = check_results(self.results)
        broken = {violation.check for violation in violations}
        checks = [(name, "**violated**" if name in broken else "holds") for name in CHECK_NAMES]
        details = [f"**{violation.check}**: {violation.where}: {violation.detail}" for violation in violations]
        return table(("in every setting and zone", "result"), checks) + ("\n" + bullets(details) if details else "")

    def _run(self) -> str:
        rows = []
        for name, experiment in self.about["experiments"].items():
            settings: list[dict[str, Any]] = experiment["settings"]
            zones = f"{experiment['zones']}" if experiment["zones"] else "all"
            rows.append((name, experiment["title"], f"{len(settings)}", zones, f"{experiment['gap']:g}"))
        software = dict(self.about["software"])
        made = stamp(software.pop("geoblanket"), COMMANDS)
        others = ", ".join(f"{name} {version}" for name, version in software.items())
        header = ("experiment", "what it asks", "settings", "zones of a city, drawn", "gap of searches")
        return f"{table(header, rows)}\n{self.results.height:,} numbers. {made}\nWith {others}.\n"


def main(folder: Path) -> None:
    """Run the evaluation, if it was not, and renew the pages and their figures."""
    if not (folder / "results.parquet").exists():
        geoblanket = Path(sys.executable).with_name("geoblanket")
        words = ["evaluate", "paper", "--data", DATA, "--out", folder, "--no-report"]
        resume = ["--resume"] if (folder / "unfinished").exists() else []
        subprocess.run([str(word) for word in (geoblanket, *words, *resume)], check=True)
    results = Results(folder)
    renew("results-tracked.md", results.tracked())
    if results.has_tables:
        renew("results-tables.md", results.tables())


def renew(name: str, parts: Iterator[str]) -> None:
    """Replace what was made of a page before."""
    page = DOCS / name
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(parts)
    page.write_text(f"{before}{BEGIN}\n\n{made}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    main(parser.parse_args().folder)
