"""Renew docs/tables/mechanisms.md: `.venv/bin/python docs/make_results.py FOLDER`.

FOLDER holds a folder of results for each city, porto, rome and sanfrancisco, of `geoblanket reproduce CITY --data
../shared/data --experiment tracked --experiment small_zones --out FOLDER/CITY`. Tables become CSV files, which the page
includes. A city without results in FOLDER keeps its rows.
With `--claims`, each FOLDER holds the results of one city with `--setting published`; docs/tables/paper.csv is renewed
instead. docs/results.md is written by hand. Only numbers about groups of vehicles come into the documentation.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

from geoblanket._display import UNKNOWN, city_name, number
from geoblanket.lab.evaluate.experiment import Varied
from geoblanket.lab.evaluate.measures import Measure
from geoblanket.lab.evaluate.panels import Panel, label_of, main_panels, saved, sweep_panels, whole_city_panels
from geoblanket.lab.evaluate.results import read_results
from geoblanket.lab.evaluate.sanity import CHECK_NAMES, Violation, check_results
from geoblanket.lab.evaluate.tables import gain_cell, loss_cell
from geoblanket.lab.study.paper import Claim
from geoblanket.lab.study.paper_chapter import check_paper, read_facts, write_claims

DOCS = Path(__file__).parent
PAGE = DOCS / "tables" / "mechanisms.md"
CITIES = ("porto", "rome", "sanfrancisco")
EXPERIMENTS = ("tracked", "small_zones")
COMMAND = f"`geoblanket reproduce CITY --data DATA --experiment {' --experiment '.join(EXPERIMENTS)} --out FOLDER/CITY`"
BEGIN, END = "<!-- made by make_results.py -->", "<!-- end -->"
ZONES = (
    "city", "zones", "the same for all", "ε or cost per km", "method", "a location costs", "rows",
    "loss by one report, km", "tracked loss, km", "below LP", "below LP+Markov1",
    "error by one report, km", "tracked error, km",
)  # fmt: skip
LOSSES, ERRORS = (Measure.HELD_OUT_LOSS, Measure.TRACKED_LOSS), (Measure.SINGLE_ERROR, Measure.TRACKED_ERROR)
JUDGED = ("city", "zones", "held-out vehicles", "steps", "tracked error by zones alone, km")
WHOLE_CITY = ("city", "ε per km", "method", "error by one report, km", "tracked error, km", "tracked loss, km")


def in_zones(panel: Panel) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one comparison in zones."""
    same = "cost of a location" if panel.along == Varied.EQUAL_COST else "ε of a report"
    for point in panel.points:
        for method in panel.methods:
            cost, rows = (panel.number(method, name, point) for name in (Measure.EPSILON_PER_LOCATION, Measure.ROWS))
            yield (
                city_name(panel.city), size(panel), same, number(point), label_of(method),
                UNKNOWN if cost is None else number(cost), UNKNOWN if rows is None else f"{rows:,.0f}",
                *(loss_cell(panel.value(method, name, point)) for name in LOSSES),
                *(gain_cell(None if method == other else saved(panel, method, other, point, Measure.TRACKED_LOSS))
                  for other in ("lp", "lp_markov1")),
                *(loss_cell(panel.value(method, name, point)) for name in ERRORS),
            )  # fmt: skip


def size(panel: Panel) -> str:
    """Return how large the zones of a comparison are."""
    return f"{panel.setting['max_places']:g} places, {panel.setting['spacing_m']:g} m"


def in_whole_city(panel: Panel) -> Iterator[tuple[str, ...]]:
    """Yield the rows of one comparison without zones."""
    measures = (*ERRORS, Measure.TRACKED_LOSS)
    for point in panel.points:
        for method in panel.methods:
            cells = (loss_cell(panel.value(method, name, point)) for name in measures)
            yield city_name(panel.city), number(point), label_of(method), *cells


def judged(panel: Panel) -> tuple[str, ...]:
    """Return how many held-out vehicles and steps judge a city, and what zones alone tell."""
    (_, vehicles), (_, steps), (_, blind) = (
        panel.first_series(panel.methods, name)[0]
        for name in (Measure.HELD_OUT_VEHICLES, Measure.HELD_OUT_STEPS, Measure.TRACKED_ERROR_PRIOR)
    )
    counts = f"{vehicles.value:,.0f}", f"{steps.value:,.0f}", f"{blind.value:.3f}"
    return city_name(panel.city), size(panel), *counts


def included(name: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a table as a CSV file; return the lines that include it. Cities without new rows keep their old ones."""
    path = PAGE.with_suffix("") / f"{name}.csv"
    path.parent.mkdir(exist_ok=True)
    by_city: dict[str, list[Sequence[str]]] = {city_name(city): [] for city in CITIES}
    for row in rows:
        by_city[row[0]].append(row)
    if path.exists():
        with path.open(encoding="utf-8", newline="") as file:
            old = list(csv.reader(file))[1:]
        for city in [city for city, new in by_city.items() if not new]:
            by_city[city] = [row for row in old if row[0] == city]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *chain.from_iterable(by_city.values())])
    return f"```{{csv-table}}\n:file: {path.parent.name}/{path.name}\n:header-rows: 1\n```\n"


def renew(folder: Path) -> None:
    """Replace what was made of the page before."""
    zones, whole, judges, versions = [], [], [], set()
    violations: list[Violation] = []
    for city in [city for city in CITIES if (folder / city).exists()]:
        results, made = read_results(folder / city)
        for experiment in EXPERIMENTS:
            part = results.filter(experiment=experiment)
            plain = main_panels(part)
            equal = [panel for panel in sweep_panels(part) if panel.along == Varied.EQUAL_COST]
            zones += [row for panel in (*plain, *equal) for row in in_zones(panel)]
            whole += [row for panel in whole_city_panels(part) for row in in_whole_city(panel)]
            judges += [judged(panel) for panel in plain]
        violations += check_results(results)
        versions.add(made["software"]["geoblanket"])
    (version,) = versions
    sound = f"All {len(CHECK_NAMES)} checks of the comparison hold."
    if violations:
        sound = "\n".join(f"- **{one.check}**: {one.where}: {one.detail}" for one in violations)
    parts = [
        f"Made with geoblanket {version}: {COMMAND}, then `docs/make_results.py FOLDER`. {sound}\n",
        included("judged", JUDGED, judges),
        included("zones", ZONES, zones),
        included("whole-city", WHOLE_CITY, whole),
    ]
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n" + "\n".join(parts) + f"{END}{after}", encoding="utf-8")


def renew_claims(folders: Sequence[Path]) -> None:
    """Write the paper's claims with the numbers of some cities."""
    claims: list[Claim] = []
    for folder in folders:
        results, made = read_results(folder)
        claims += check_paper(results, read_facts(folder, made["cities"]))
    write_claims(claims, DOCS / "tables" / "paper.csv")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", type=Path, nargs="+", metavar="FOLDER")
    parser.add_argument("--claims", action="store_true")
    options = parser.parse_args()
    if options.claims:
        renew_claims(options.folders)
    else:
        renew(options.folders[0])
