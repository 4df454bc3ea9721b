"""The attack on many commuters: how far off the attacker is, by mechanism and by what it knows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes

from benchmarks._measure import mean_and_error, show
from benchmarks.home.attacker import errors_m, exact_outside, leaving_times
from benchmarks.home.coarse_location import CoarsePhone
from benchmarks.home.mechanisms import Fenced, Noise, Seen, SilentZone, fence_center, hold, lattice_alone
from benchmarks.home.streets import Commuter, Streets
from geoblanket import RoadGraph
from geoblanket._arrays import Floats
from geoblanket._picture import new_figure, save_figure

EPSILON = 4.0
NIGHTS = (1, 2, 4, 7, 14, 30)
TABLED = (1, 7, 30)
HOMES = 160
OTHERS = 4
"""Every fourth home is also attacked without a fence, which takes longer and varies less."""
ORIGINS = 5
FOUND_M = 10.0
"""Errors below this are drawn as this: possible homes lie 25 m apart."""

NIGHTS_ONLY, COMING, ONE, FIVE_COMING, FIVE = (
    "nights only",
    "1 place, coming",
    "1 place, both ways",
    "5 places, coming",
    "5 places, both ways",
)
KNOWN: dict[str, Sequence[int]] = {
    NIGHTS_ONLY: (),
    COMING: (0,),
    ONE: (0, 1),
    FIVE_COMING: range(0, 2 * ORIGINS, 2),
    FIVE: range(2 * ORIGINS),
}
"""Ways that an attacker knows."""
FENCES = {
    "hold + fence ρ = .5 km": Fenced(500, 250),
    "hold + fence ρ = 1 km": Fenced(1000, 300),
    "hold + fence ρ = 1.5 km": Fenced(1500, 300),
}
MECHANISMS: dict[str, tuple[Callable[[Commuter, Noise], Seen], Sequence[str]]] = {
    "lattice alone": (lattice_alone, (NIGHTS_ONLY, ONE)),
    "hold": (hold, (NIGHTS_ONLY, COMING, ONE, FIVE)),
    "silent zone 500 m": (SilentZone(), (COMING, ONE, FIVE)),
    "Android's coarse location": (CoarsePhone(), (NIGHTS_ONLY, COMING, ONE)),
    **{name: (fence, tuple(KNOWN)) for name, fence in FENCES.items()},
}
LEFT_S = 60.0
TEN, MOST_ORIGINS = "10 places, both ways", 10
CENTERS = 5
"""Fences drawn around each home where everything outside is known: how far off a guess is depends on the centre."""

Errors = dict[tuple[str, str], Floats]
"""By mechanism and attacker: metres, of each home after each number of nights, shape (homes, nights)."""


def attack(streets: Streets, noise: Noise, homes: int) -> Errors:
    """Attack commuters."""
    rng = np.random.default_rng(0)
    found: dict[tuple[str, str], list[list[float]]] = defaultdict(list)
    for number in range(homes):
        commuter = Commuter.drawn(streets, rng, origins=ORIGINS, days=max(NIGHTS))
        for name, (mechanism, attackers) in MECHANISMS.items():
            if name not in FENCES and number % OTHERS:
                continue
            seen = mechanism(commuter, noise)
            parts = {attacker: seen.parts(KNOWN[attacker]) for attacker in attackers}
            if seen.gates is not None:
                left = leaving_times(commuter, LEFT_S, rng)
                parts |= {f"{attacker}, left home ± 1 min": [*parts[attacker], left] for attacker in (ONE, FIVE)}
            for attacker, its_parts in parts.items():
                found[name, attacker].append(errors_m(commuter, seen.homes, its_parts, NIGHTS))
    return {key: np.array(values) for key, values in found.items()}


def limits(streets: Streets, homes: int) -> dict[tuple[str, str], Floats]:
    """Return the errors where everything outside is known exactly, the mean over several fences of each home."""
    rng = np.random.default_rng(1)
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for _ in range(homes):
        commuter = Commuter.drawn(streets, rng, origins=MOST_ORIGINS, days=1)
        for name, fence in FENCES.items():
            fences = [fence.around(commuter, fence_center(commuter.at, fence.radius_m)) for _ in range(CENTERS)]
            for attacker, known in {**KNOWN, TEN: range(2 * MOST_ORIGINS)}.items():
                errors = [
                    errors_m(commuter, seen.homes, [exact_outside(commuter, seen, known)], (1,))[0] for seen in fences
                ]
                found[name, attacker].append(float(np.mean(errors)))
    return {key: np.array(values) for key, values in found.items()}


def commuters(roads: str, *, quick: bool, picture: str | None) -> None:
    """Print how far off homes of commuters are."""
    graph = RoadGraph.load(roads)
    noise = Noise.over(graph, EPSILON)
    streets = Streets.of(graph, noise.metres(graph.lat, graph.lon))
    errors = attack(streets, noise, HOMES // (5 if quick else 1))
    columns = [NIGHTS.index(nights) for nights in TABLED]
    show(
        f"The attacker's error, m: {len(streets.homes):,} possible homes, ε = {EPSILON:g} a report",
        ("mechanism", "what it knows", "homes", *(f"{nights} night{'s' * (nights > 1)}" for nights in TABLED)),
        [
            (*key, f"{len(values)}", *(mean_and_error(values[:, column]) for column in columns))
            for key, values in errors.items()
        ],
    )
    exact = limits(streets, HOMES // (5 if quick else 1))
    show(
        f"The attacker's error, m, everything outside known exactly: {CENTERS} fences around each home",
        ("mechanism", "what it knows", "homes", "any number of nights"),
        [(*key, f"{len(values)}", mean_and_error(values)) for key, values in exact.items()],
    )
    if picture is not None:
        draw(errors, picture)


COLORS = {
    "lattice alone": "#9aa2ae",
    "hold": "#b45309",
    "silent zone 500 m": "#be185d",
    "Android's coarse location": "#4d7c0f",
    "hold + fence ρ = .5 km": "#38bdf8",
    "hold + fence ρ = 1 km": "#0284c7",
    "hold + fence ρ = 1.5 km": "#1e3a8a",
}


def draw(errors: Errors, path: str) -> None:
    """Draw the error against nights, a line for each mechanism."""
    figure = new_figure(width_in=9.0, height_in=4.2)
    axes = figure.subplots(1, 2, sharey=True)
    titles = ("The attacker sees the nights only", "… and knows one place: ways, times and speed")
    for ax, title, wanted in zip(axes, titles, ((NIGHTS_ONLY,), (ONE, COMING)), strict=True):
        ends = []
        for name, color in COLORS.items():
            attacker = next((attacker for attacker in wanted if (name, attacker) in errors), None)
            if attacker is not None:
                means = np.maximum(errors[name, attacker].mean(axis=0), FOUND_M)
                ax.plot(NIGHTS, means, color=color, linewidth=2.4 if name in FENCES else 1.4, marker="o", markersize=3)
                ends.append((float(means[-1]), name, color))
        _label(ax, ends)
        ax.set(xscale="log", yscale="log", xlabel="nights", ylim=(FOUND_M * 0.85, 2000), xlim=(0.92, 33))
        ax.set_xticks(NIGHTS, [str(nights) for nights in NIGHTS])
        ax.set_yticks([10, 30, 100, 300, 1000], ["10 or less", "30", "100", "300", "1,000"])
        ax.minorticks_off()
        ax.spines[["top", "right"]].set_visible(False)
        ax.grid(axis="y", color="#e3e5e8", linewidth=0.8)
        ax.set_title(title, fontsize=9, loc="left")
    axes[0].set_ylabel("attacker's error, m")
    save_figure(figure, path, dpi=120)


def _label(ax: Axes, ends: list[tuple[float, str, str]]) -> None:
    """Write names beside the ends of lines, far enough from each other."""
    lowest = 0.0
    for end, name, color in sorted(ends):
        lowest = max(float(np.log(end)), lowest)
        ax.annotate(
            name, (1.02, np.exp(lowest)), xycoords=("axes fraction", "data"), color=color, fontsize=8, va="center"
        )
        lowest += 0.26
