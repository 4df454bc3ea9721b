"""Renew docs/tables/blankets.md from the studies of three cities: `.venv/bin/python docs/make_study.py FOLDER`.

FOLDER/CITY/CITY/study is written by `geoblanket reproduce CITY --data ../shared/data --out FOLDER/CITY`. Rows about the
studies in docs/tables/paper.csv are renewed too. Only figures and numbers about groups of 200 samples or more come into
the documentation, no traces.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl
from PIL import Image

from geoblanket._display import Interval, city_name
from geoblanket.lab.study.paper import CITIES as PAPER_CITIES
from geoblanket.lab.study.paper import Measured, claims_table, judge

DOCS = Path(__file__).parent
PAGE = DOCS / "tables" / "blankets.md"
CITIES = ("porto", "rome", "sanfrancisco")
FIGURES = {"sanfrancisco": ("p-by-region", "p-by-speed")}
COMMAND = "`geoblanket reproduce CITY --data DATA --out FOLDER/CITY`, then `docs/make_study.py FOLDER`"
STUDIED = ("correlation:", "classifier:", "rejected:", "sizes:found", "density:")
BEGIN, END = "<!-- made by make_study.py -->", "<!-- end -->"


def shrink(picture: Path, target: Path) -> None:
    """Write a picture for the documentation: at most 1,100 pixels wide, of few colours."""
    image = Image.open(picture).convert("RGB")
    image.thumbnail((1100, 1100), Image.Resampling.LANCZOS)
    # The usual choice of palette would merge colours that cover little, such as those of a legend.
    image.quantize(256, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE).save(target, optimize=True)


def included(name: str, rows: Iterable[Sequence[str]]) -> str:
    """Write a table with its header as a CSV file; return the lines that include it."""
    path = PAGE.with_suffix("") / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    return f"```{{csv-table}}\n:file: {path.parent.name}/{path.name}\n:header-rows: 1\n```\n"


def claims(studies: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield what each city says about each claim."""
    yield "claim", "the paper", *(f"{city_name(city)}: {what}" for city in studies for what in ("ours", "verdict"))
    tables = {city: {claim["key"]: claim for claim in study["claims"]} for city, study in studies.items()}
    for key, claim in tables["sanfrancisco"].items():  # has what the paper says of both cities
        yield claim["topic"], claim["paper"], *(cell for city in studies for cell in told(tables[city].get(key)))


def told(claim: dict[str, Any] | None) -> tuple[str, str]:
    """Return the number of one city with its interval, and the verdict."""
    if claim is None or claim["measured"] is None:
        return "–", "not measured"
    low, high = claim["interval"]
    between = "" if low is None or low == high else f", {low:.3g} to {high:.3g}"
    return f"{claim['measured']:.3g}{between}{claim['words']}", claim["verdict"].partition(":")[0]


def shares(folder: Path, studies: dict[str, dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield how many hypotheses each city rejects at each order, and how large the effects are."""
    yield "city", "groups by", "|B|", "tested", "rejected", "after correction", "with 200 samples each", "median effect"
    for city, study in studies.items():
        by = study["main"]
        found, equal = (
            pl.read_csv(folder / city / city / "study" / f"{name}.csv") for name in ("rejections", "rejections-equal")
        )
        findings = pl.read_parquet(folder / city / city / "study" / "findings.parquet").filter(by=by, status="tested")
        alike = dict(equal.filter(by=by).select("m", "share").iter_rows())
        effects = dict(findings.group_by("m").agg(pl.col("effect_size").median()).iter_rows())
        for row in found.filter(by=by).sort("m").iter_rows(named=True):
            corrected = row["rejected_adjusted"] / row["tested"]
            numbers = f"{row['share']:.1%}", f"{corrected:.1%}", f"{alike[row['m']]:.1%}", f"{effects[row['m']]:.3f}"
            yield city_name(city), by, f"{row['m']}", f"{row['tested']:,}", *numbers


def renew_claims(studies: dict[str, dict[str, Any]]) -> None:
    """Replace the rows about the studies in the table of all claims."""
    judged = []
    for city in PAPER_CITIES:
        found = {claim["key"]: claim for claim in studies[city]["claims"]}
        measured = {
            key: Measured(claim["measured"], Interval.of(*claim["interval"]), words=claim["words"])
            for key, claim in found.items()
        }
        judged += [claim for claim in judge(measured, city, every=True) if claim.key.startswith(STUDIED)]
    header, *rows = claims_table(judged)
    new = {row[:2]: row for row in rows}
    path = DOCS / "tables" / "paper.csv"
    old = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    if tuple(old[0]) != header:
        raise SystemExit(f"{path} has other columns than the claims of {' and '.join(PAPER_CITIES)}")
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(new.get((row[0], row[1]), row) for row in old)


def main(folder: Path) -> None:
    """Renew the page and its figures."""
    paths = {city: folder / city / city / "study" / "study.json" for city in CITIES}
    studies = {city: json.loads(path.read_text(encoding="utf-8")) for city, path in paths.items()}
    for city, names in FIGURES.items():
        for name in names:
            shrink(folder / city / city / "study" / f"{name}.png", DOCS / "images" / f"study-{city}-{name}.png")
    (version,) = {study["about"]["geoblanket"] for study in studies.values()}
    said = "\n".join(f"- {city_name(city)}: {study['summary'][0]}" for city, study in studies.items())
    parts = [
        f"Made with geoblanket {version}: {COMMAND}.\n",
        f"{said}\n",
        included("rejected", shares(folder, studies)),
        included("claims", claims(studies)),
    ]
    renew_claims(studies)
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    main(parser.parse_args().folder)
