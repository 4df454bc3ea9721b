"""Renew the tables of results in docs/tables: `.venv/bin/python docs/make_results.py FOLDER ...`.

Long tables become CSV files in a folder named like their page, which includes them. docs/tables/paper.csv has the
paper's claims; results of `--setting published` renew only that.

Each FOLDER holds the results of one city, from `geoblanket reproduce CITY --data ../shared/data --out FOLDER`, or of
several. With results of the experiment `tracked` alone, only the page of tracked vehicles is renewed. docs/results.md
is written by hand from both. Only figures and numbers about groups of vehicles come into the documentation, no traces.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image

from geoblanket._display import city_name
from geoblanket.lab.evaluate.experiment import shipped_experiments
from geoblanket.lab.evaluate.figures import caption
from geoblanket.lab.evaluate.panels import Comparison
from geoblanket.lab.evaluate.report import SOUND, TRACKED, Block, Picture, answers, sections, write_report
from geoblanket.lab.evaluate.results import read_results
from geoblanket.lab.evaluate.sanity import CHECK_NAMES, check_results
from geoblanket.lab.evaluate.tables import Table
from geoblanket.lab.study.paper_chapter import check_paper, paper_chapter, read_facts, write_claims

DOCS = Path(__file__).parent
COMMANDS = "`geoblanket reproduce CITY --data DATA --out FOLDER`, then `docs/make_results.py FOLDER ...`"
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


def with_csv_tables(text: str, page: str) -> str:
    """Move the tables of a page to CSV files in a folder beside it; return the page, which includes them."""
    folder = DOCS / "tables" / page.removesuffix(".md")
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.csv"):
        old.unlink()
    numbers = itertools.count(1)

    def moved(found: re.Match[str]) -> str:
        lines = [line.strip("| ") for line in found[0].splitlines()]
        cells = [[cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)] for line in lines]
        width = len(cells[1])
        rows = [["", *line] if len(line) < width else line for line in cells if line != cells[1]]
        path = folder / f"{next(numbers):02}.csv"
        with path.open("w", encoding="utf-8", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)
        return f"```{{csv-table}}\n:file: {folder.name}/{path.name}\n:header-rows: 1\n```\n"

    return re.sub(r"(?:^\|.*\n)+", moved, text, flags=re.MULTILINE)


def bullets(sentences: Sequence[str]) -> str:
    """Return a list as Markdown."""
    return "\n".join(f"- {sentence}" for sentence in sentences) + "\n"


class Results:
    """What the pages tell, part by part."""

    def __init__(self, folders: Sequence[Path]) -> None:
        tables, abouts = zip(*map(read_results, folders), strict=True)
        self.results = pl.concat(tables)
        self.about = {**abouts[0]}
        for key in ("cities", "experiments"):
            self.about[key] = {name: value for about in abouts for name, value in about[key].items()}
        self.about["notes"] = [note for about in abouts for note in about["notes"]]
        if any(about["software"] != abouts[0]["software"] for about in abouts):
            raise SystemExit("The folders have results of several versions of the software. Make them anew.")
        self.comparison = Comparison.of(self.results, self.about)
        facts = {
            city: known
            for folder, about in zip(folders, abouts, strict=True)
            for city, known in read_facts(folder, about["cities"]).items()
        }
        self.claims = check_paper(self.results, facts)
        self.report = folders[0] / "report-of-all"
        run = {*self.results["experiment"].unique(), "quick"}
        self.missing = [name for name in shipped_experiments() if name not in run]
        write_report(self.results, self.report, about=self.about, chapters=[paper_chapter(self.claims)])

    @property
    def has_tables(self) -> bool:
        """Whether the paper's experiments were run, and not only the one of tracked vehicles."""
        return "paper" in self.about["experiments"]

    def tracked(self) -> Iterator[str]:
        """Yield the parts of the page of tracked vehicles in their order."""
        yield from self._answers(slice(1))
        yield from self._sections(tracked=True)
        yield f"## {SOUND}\n"
        yield self._sanity()
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
        yield from self._sections(tracked=False)
        yield f"## {SOUND}\n"
        yield self._sanity()
        yield "## What was run\n"
        yield self._run()

    def _sections(self, *, tracked: bool) -> Iterator[str]:
        """Yield those sections of the report that are about tracked vehicles, or the others."""
        for heading, blocks in sections(self.results, self.comparison):
            if (heading == TRACKED) == tracked:
                yield f"## {heading}\n"
                yield from map(self._block, blocks)

    def _block(self, block: Block) -> str:
        """Return a part of the report as Markdown; a figure that was drawn is copied to the documentation."""
        match block:
            case Table(city, header, rows, words):
                return f"{city_name(city)}: {words}\n\n{table(header, rows)}"
            case Picture(name):
                picture = self.report / f"{name}.png"
                if not picture.exists():
                    return ""
                shrink(picture, DOCS / "images" / f"results-{name}.png")
                return f"![{caption(name)}](images/results-{name}.png)\n\n*{caption(name)}*\n"
            case _:
                return f"{block}\n"

    def _answers(self, questions: slice) -> Iterator[str]:
        for question, cities in [*answers(self.results, self.about).items()][questions]:
            yield f"## {question}\n"
            yield bullets([f"**{city_name(city)}**: {line}" for city, line in cities.items()])

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


def main(folders: Sequence[Path]) -> None:
    """Renew the pages and their figures."""
    results = Results(folders)
    if "published" in results.about["experiments"]:
        write_claims(results.claims, DOCS / "tables" / "paper.csv")
        return
    renew("tracked-vehicles.md", results.tracked())
    if results.has_tables:
        renew("single-reports.md", results.tables())


def renew(name: str, parts: Iterator[str]) -> None:
    """Replace what was made of a page before."""
    page = DOCS / "tables" / name
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    made = "\n".join(parts).replace("](images/", "](../images/")  # the page lies beside that folder
    page.write_text(f"{before}{BEGIN}\n\n{with_csv_tables(made, name)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    main(parser.parse_args().folders)
