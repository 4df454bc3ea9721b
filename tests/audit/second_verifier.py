"""A second verifier of bundles, which shares no code with geoblanket: bytes of a file in, what is wrong with it out.

It reads the file by its own parser, measures by another formula, follows the rule from histories to rows by linear
scans, and compares big integers with correctly rounded decimals. It needs Python's standard library alone.

What it decides. A device maps *every* history to a row: any present place that is in the zone, or in none and nearest
to one of this zone; and any places at all before it. For every two histories of a zone and regime at a distance d of at
most η, and every output,

    W[row, y] ≤ e^(ε·d) · W[row', y],    d = d(x, x') + Σ w_τ·d(z_τ, z'_τ).

All histories that lead to a leaf of the table are a product: the present place, times the places that count as the
leaf's own at each earlier lag, as the choice at a lag depends on the branch alone. So the smallest distance of two
leaves is the sum of the smallest ones at each lag. `enumerated_distances` does without that thought, history by
history, for small files.

Lengths are whole micrometres, rounded up by more than floats can err, and histories' distances whole picometres: what
is told as a violation is one.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Context, Decimal
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, Final

EARTH_RADIUS_M: Final = 6_371_008.8
ONE: Final = 1 << 62
NEVER: Final = (1 << 63) - 1
"""In the file: the weight of a past that is known, and the distance of rows that no two histories join."""
TIE_UM: Final = 1000
TURN_E7: Final = 3_600_000_000
ROUNDING_MM: Final = 0
"""By so much a stated distance may exceed that of the places."""

_PM_PER_UM: Final = 10**6
_PM_PER_MM: Final = 10**9
_CERTAIN_EXPONENT: Final = 45
_DECIMALS: Final = Context(prec=80)
_SCALE: Final = 40
_CODES: Final = {"|u1": "B", "<i4": "i", "<i8": "q", "<u4": "I", "<f4": "f", "<f8": "d"}

History = tuple[int, ...]
Cell = frozenset[int]


class Unreadable(Exception):  # noqa: N818 - it says what the file is
    """The bytes are not a bundle."""


@dataclass(frozen=True)
class Table:
    """One mechanism of a file: a zone in a regime."""

    zone: str
    regime: str
    epsilon_micro: int
    eta_mm: int
    past_weights: tuple[int, ...]
    weights: list[list[int]]
    stated_mm: list[list[int]]
    histories: list[History]
    rows: list[int]
    output_places: list[int]

    @property
    def name(self) -> str:
        return f"zone '{self.zone}', regime '{self.regime}'"


@dataclass(frozen=True)
class Contents:
    """All of a file."""

    fields: Mapping[str, Any]
    places: list[tuple[int, int]]
    tables: list[Table]
    domain_is_right: bool

    def table(self, zone: str, regime: str) -> Table:
        return next(table for table in self.tables if (table.zone, table.regime) == (zone, regime))

    @cached_property
    def distances(self) -> Distances:
        return Distances(self.places)


@dataclass(frozen=True)
class Violation:
    """Two histories that an output tells apart by more than was promised."""

    zone: str
    regime: str
    history: History
    other: History
    output: int
    """The place that is reported; without coordinates, the column."""
    distance_km: float
    factor: float
    """The ε that holds between them, as a multiple of the promised one; `inf` where no ε would do."""


@dataclass
class Findings:
    """What is wrong with a file."""

    problems: list[str] = field(default_factory=list)
    violations: list[Violation] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        return not self.problems and not self.violations

    @property
    def worst(self) -> float:
        return max((violation.factor for violation in self.violations), default=0.0)

    def __str__(self) -> str:
        worst = max(self.violations, key=lambda violation: violation.factor, default=None)
        return f"{self.problems}, {len(self.violations)} violation(s), the worst {worst}"


# ---------------------------------------------------------------------------------------------------------- the file


def parse(data: bytes) -> Contents:
    """Read a bundle's bytes; raise `Unreadable` unless every byte of them is accounted for."""
    if data[:8] != b"GBBUNDL2":
        raise Unreadable("magic")
    (size,) = struct.unpack_from("<Q", data, 8)
    text = data[48 : 48 + size]
    if len(text) != size or hashlib.sha256(text).digest() != data[16:48]:
        raise Unreadable("header")
    header = json.loads(text)
    parts: dict[str, list[Any]] = {}
    shapes: dict[str, list[int]] = {}
    end = 48 + size
    for name in sorted(header["arrays"]):
        entry = header["arrays"][name]
        start = -(-end // 64) * 64
        code, count = _CODES[entry["dtype"]], math.prod(entry["shape"])
        if any(data[end:start]):
            raise Unreadable("padding")
        end = start + struct.calcsize("<" + code) * count
        if len(data) < end or hashlib.sha256(data[start:end]).hexdigest() != entry["sha256"]:
            raise Unreadable(name)
        parts[name], shapes[name] = list(struct.unpack_from(f"<{count}{code}", data, start)), entry["shape"]
    if end != len(data):
        raise Unreadable("length")
    flat = parts["places_e7"]
    places = list(zip(flat[::2], flat[1::2], strict=True))
    right = not places or domain_of(header["fields"], header["arrays"]) == header["fields"]["domain"]
    narrow = header["arrays"]["distances_mm"]["dtype"] == "<u4"
    return Contents(header["fields"], places, list(_tables(header["fields"], parts, narrow=narrow)), right)


def domain_of(fields: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """Return the hash of what the rows of a file stand for, from its header."""
    described = [
        [one["zone"], one["regime"], one["rows"], one["histories"], len(one["history_weights_micro"])]
        for one in fields["mechanisms"]
    ]
    listed = {
        name: [arrays[name]["dtype"], arrays[name]["shape"], arrays[name]["sha256"]]
        for name in ("places_e7", "histories", "history_rows")
    }
    return hashlib.sha256(json.dumps([{"mechanisms": described}, listed], sort_keys=True).encode()).hexdigest()


def _tables(fields: Mapping[str, Any], parts: Mapping[str, list[Any]], *, narrow: bool) -> Iterator[Table]:
    left = {name: iter(values) for name, values in parts.items()}

    def take(name: str, count: int) -> list[int]:
        taken = list(itertools.islice(left[name], count))
        if len(taken) != count:
            raise Unreadable(name)
        return taken

    for one in fields["mechanisms"]:
        rows, columns, width = one["rows"], one["columns"], 1 + len(one["history_weights_micro"])
        stated = [[0] * rows for _ in range(rows)]
        for (row, other), value in zip(
            itertools.combinations(range(rows), 2), take("distances_mm", rows * (rows - 1) // 2), strict=True
        ):
            stated[row][other] = stated[other][row] = NEVER if narrow and value == 2**32 - 1 else value
        flat = take("weights", rows * columns)
        listed = take("histories", one["histories"] * width)
        take("outputs", columns)
        yield Table(
            zone=one["zone"],
            regime=one["regime"],
            epsilon_micro=one["epsilon_micro"],
            eta_mm=one["eta_mm"],
            past_weights=tuple(one["history_weights_micro"]),
            weights=[flat[row * columns : (row + 1) * columns] for row in range(rows)],
            stated_mm=stated,
            histories=[tuple(listed[start : start + width]) for start in range(0, len(listed), width)],
            rows=take("history_rows", one["histories"]),
            output_places=take("output_places", columns if one["histories"] else 0),
        )
    if any(next(rest, None) is not None for name, rest in left.items() if name != "places_e7"):
        raise Unreadable("more than the header tells")


# --------------------------------------------------------------------------------------------------------- distances


def great_circle_m(one: tuple[int, int], other: tuple[int, int]) -> float:
    """Return the distance in metres of two places in 1e-7 degrees, right to 0.1 µm anywhere on Earth.

    By the angle between vectors, atan2(|a × b|, a · b): it is as good between antipodes as between neighbours.
    """
    if one == other:
        return 0.0
    a, b = _vector(one), _vector(other)
    cross = (a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0])
    return EARTH_RADIUS_M * math.atan2(math.hypot(*cross), sum(x * y for x, y in zip(a, b, strict=True)))


def _vector(place: tuple[int, int]) -> tuple[float, float, float]:
    lat, lon = math.radians(place[0] / 1e7), math.radians(place[1] / 1e7)
    return math.cos(lat) * math.cos(lon), math.cos(lat) * math.sin(lon), math.sin(lat)


class Distances:
    """Distances of places in whole micrometres, never too small, and by at most 3 too large; 0 for the same ones."""

    def __init__(self, places: Sequence[tuple[int, int]]) -> None:
        self.places = places
        self._known: dict[tuple[int, int], int] = {}

    def upper_um(self, one: int, other: int) -> int:
        """Of two places, by their numbers."""
        if self.places[one] == self.places[other]:
            return 0
        key = (one, other) if one < other else (other, one)
        if key not in self._known:
            self._known[key] = math.ceil(great_circle_m(self.places[one], self.places[other]) * 1e6) + 1
        return self._known[key]

    def of_histories_pm(self, one: History, other: History, past_weights: Sequence[int]) -> int | None:
        """Of two histories, picometres; None for infinitely far. A place of −1 is at no distance from any."""
        total = 0
        for place, other_place, weight in zip(one, other, (10**6, *past_weights), strict=True):
            apart = 0 if min(place, other_place) < 0 else self.upper_um(place, other_place)
            if weight == NEVER and apart:
                return None
            total += apart * weight if apart else 0
        return total

    def of_cells_um(self, one: Cell, other: Cell) -> int:
        """The smallest between a place of one and a place of the other."""
        if not one.isdisjoint(other):
            return 0
        return min(self.upper_um(place, other_place) for place in one for other_place in other)


# ---------------------------------------------------------------------------------------------------------- the rule

Nearness = Callable[[Distances, int, Iterable[int]], list[int]]


def nearest_in_plane(distances: Distances, place: int, listed: Iterable[int]) -> list[int]:
    """Return the listed place that is nearest, where a degree of longitude counts the cosine of the place's latitude.

    Cosines are whole multiples of 2^-20, and of equally near places the first one counts. In whole numbers that is
    certain; a machine that computes in floats may see a difference of some 2^-50 the other way round, so that more than
    one place is returned where it is so small.
    """
    lat, lon = distances.places[place]
    cosine = round(math.cos(math.radians(lat * 1e-7)) * 2**20)
    squares: dict[tuple[int, int], int] = {}
    first: dict[tuple[int, int], int] = {}
    for other in sorted(listed):
        north, east = (there - here for there, here in zip(distances.places[other], (lat, lon), strict=True))
        east -= round(Fraction(east, TURN_E7)) * TURN_E7
        apart = (abs(north), abs(east * cosine))  # the same numbers are the same in floats too
        first.setdefault(apart, other)
        squares[apart] = (north << 20) ** 2 + (east * cosine) ** 2
    least = min(squares.values())
    return [first[apart] for apart, square in squares.items() if (square - least) << 48 <= least]


def nearest_on_sphere(distances: Distances, place: int, listed: Iterable[int]) -> list[int]:
    """Return the place itself if it is listed, else the nearest, and those that are as near within a millimetre."""
    if place in (listed := set(listed)):
        return [place]
    apart = {other: distances.upper_um(place, other) for other in listed}
    return [other for other, distance in apart.items() if distance <= min(apart.values()) + TIE_UM]


class Rule:
    """Which rows histories use by a table, by linear scans of what it lists.

    A present place that no zone of the regime has counts as the nearest that some zone has.
    """

    def __init__(self, contents: Contents, table: Table, nearest: Nearness = nearest_in_plane) -> None:
        self.table, self.distances, self.nearest = table, contents.distances, nearest
        self.everywhere = range(len(contents.places))
        inside = {
            history[0] for other in contents.tables if other.regime == table.regime for history in other.histories
        }
        own = {history[0] for history in table.histories}
        self.stand_ins: dict[int, list[int]] = {}
        """The places that the table is for, each with the place of the zone that it counts as."""
        for place in self.everywhere:
            counted = [place] if place in inside else nearest(self.distances, place, inside)
            if kept := [other for other in counted if other in own]:
                self.stand_ins[place] = kept

    def histories(self) -> Iterator[History]:
        """Yield every history: a present place that is or counts as one of the zone, and any places before."""
        earlier = [self.everywhere] * len(self.table.past_weights)
        return itertools.product(self.stand_ins, *earlier)

    def rows_of(self, history: History) -> set[int]:
        """Return the row of a history; more than one where listed places are equally near, or listed twice."""
        return {row for leaf in self._leaves_of(history) for row in self._rows_of_leaf(leaf)}

    def leaves(self) -> list[tuple[int, tuple[Cell, ...]]]:
        """Return each row with the places that lead to it at every lag: all their combinations do, and no others.

        A row stands there as often as it takes.
        """
        return _joined([(row, cells) for leaf, cells in self.reached() for row in self._rows_of_leaf(leaf)])

    def reached(self) -> list[tuple[History, tuple[Cell, ...]]]:
        """Return the listed histories that some history counts as, each with the places that do at every lag."""
        present: dict[int, set[int]] = {}
        for place, counted in self.stand_ins.items():
            for other in counted:
                present.setdefault(other, set()).add(place)
        branches: list[tuple[History, tuple[Cell, ...]]] = [
            ((place,), (frozenset(cell),)) for place, cell in present.items()
        ]
        for _ in self.table.past_weights:
            branches = [longer for prefix, cells in branches for longer in self._longer(prefix, cells)]
        return branches

    def _longer(self, prefix: History, cells: tuple[Cell, ...]) -> Iterator[tuple[History, tuple[Cell, ...]]]:
        counted: dict[int, set[int]] = {}
        listed = self._listed_after(prefix)
        for place in self.everywhere:
            for chosen in self._chosen(listed, place):
                counted.setdefault(chosen, set()).add(place)
        for chosen, places in counted.items():
            yield (*prefix, chosen), (*cells, frozenset(places))

    def _leaves_of(self, history: History) -> list[History]:
        prefixes: list[History] = [(place,) for place in self.stand_ins[history[0]]]
        for place in history[1:]:
            prefixes = [
                (*prefix, chosen) for prefix in prefixes for chosen in self._chosen(self._listed_after(prefix), place)
            ]
        return prefixes

    def _listed_after(self, prefix: History) -> set[int]:
        length = len(prefix)
        return {history[length] for history in self.table.histories if history[:length] == prefix}

    def _chosen(self, listed: set[int], place: int) -> list[int]:
        """Return the listed place that a place counts as: any, or the nearest."""
        return [-1] if -1 in listed else self.nearest(self.distances, place, listed)

    def _rows_of_leaf(self, leaf: History) -> set[int]:
        return {row for history, row in zip(self.table.histories, self.table.rows, strict=True) if history == leaf}


def _joined(leaves: list[tuple[int, tuple[Cell, ...]]]) -> list[tuple[int, tuple[Cell, ...]]]:
    """Join products that differ in one factor alone: there are fewer then, with the same histories in them."""
    for lag in reversed(range(len(leaves[0][1]))):
        together: dict[tuple[int, tuple[Cell, ...], tuple[Cell, ...]], set[int]] = {}
        for row, cells in leaves:
            together.setdefault((row, cells[:lag], cells[lag + 1 :]), set()).update(cells[lag])
        leaves = [(row, (*before, frozenset(cell), *after)) for (row, before, after), cell in together.items()]
    return leaves


# ----------------------------------------------------------------------------------------------------- row distances

Nearest = dict[tuple[int, int], tuple[int, History, History]]
"""For two rows, the first the smaller number: the smallest distance of their histories, picometres, and two that are so
near. Without an entry they are infinitely far apart."""


def complete_distances(contents: Contents, table: Table, nearest: Nearness = nearest_in_plane) -> Nearest:
    """Return the smallest distances over all histories."""
    distances = contents.distances
    leaves = Rule(contents, table, nearest).leaves()
    scales = (10**6, *table.past_weights)
    cells_um: dict[tuple[Cell, Cell], int] = {}
    best: dict[tuple[int, int], tuple[int, tuple[Cell, ...], tuple[Cell, ...]]] = {}

    def apart_um(one: Cell, other: Cell) -> int:
        if (one, other) not in cells_um:
            cells_um[one, other] = cells_um[other, one] = distances.of_cells_um(one, other)
        return cells_um[one, other]

    for (row, cells), (other_row, other_cells) in itertools.combinations(leaves, 2):
        if row == other_row:
            continue
        key = (row, other_row) if row < other_row else (other_row, row)
        least = best[key][0] if key in best else None
        total: int | None = 0
        for one, other, weight in zip(cells, other_cells, scales, strict=True):
            apart = apart_um(one, other)
            if weight == NEVER and apart:
                total = None
            if total is None or (least is not None and total >= least):
                total = None
                break
            total += apart * weight if apart else 0
        if total is not None and (least is None or total < least):
            best[key] = (total, cells, other_cells) if row < other_row else (total, other_cells, cells)
    return {key: (total, *_witness(one, other, distances)) for key, (total, one, other) in best.items()}


def _witness(cells: tuple[Cell, ...], other_cells: tuple[Cell, ...], distances: Distances) -> tuple[History, History]:
    """Return two histories of two products that are as near as any."""
    pairs = [
        min(itertools.product(sorted(one), sorted(other)), key=lambda pair: distances.upper_um(*pair))
        for one, other in zip(cells, other_cells, strict=True)
    ]
    return tuple(pair[0] for pair in pairs), tuple(pair[1] for pair in pairs)


def enumerated_distances(contents: Contents, table: Table, nearest: Nearness = nearest_in_plane) -> Nearest:
    """Return the same, from every history with every other: for small files."""
    rule = Rule(contents, table, nearest)
    every = [(history, row) for history in rule.histories() for row in rule.rows_of(history)]
    best: Nearest = {}
    for (history, row), (other, other_row) in itertools.combinations(every, 2):
        if row == other_row:
            continue
        apart = contents.distances.of_histories_pm(history, other, table.past_weights)
        key = (row, other_row) if row < other_row else (other_row, row)
        if apart is not None and (key not in best or apart < best[key][0]):
            best[key] = (apart, history, other) if row < other_row else (apart, other, history)
    return best


# ---------------------------------------------------------------------------------------------------------- verdicts


def exceeds(weight: int, other_weight: int, bound: int | None) -> bool:
    """Whether weight > e^(ε·d)·other_weight, for certain, where the bound is that of `upper_exponential`."""
    if weight <= other_weight:
        return False
    return other_weight == 0 or (bound is not None and weight * 10**_SCALE > bound * other_weight)


@lru_cache(maxsize=1 << 16)
def upper_exponential(epsilon_micro: int, distance_pm: int) -> int | None:
    """Return 10^40·e^(ε·d), rounded up; None where it is more than any ratio of weights can be."""
    exponent = Decimal(epsilon_micro * distance_pm).scaleb(-21, _DECIMALS)
    if exponent > _CERTAIN_EXPONENT:
        return None
    # The standard library's exp is correctly rounded: the next number is above the true value.
    above = exponent.exp(_DECIMALS).next_plus(_DECIMALS)
    return int(above.scaleb(_SCALE, _DECIMALS)) + 1


def factor(weight: int, other_weight: int, *, epsilon_micro: int, distance_pm: int) -> float:
    """Return the ε that holds between two weights, as a multiple of the promised one."""
    if weight <= other_weight:
        return 0.0
    promised = epsilon_micro * distance_pm / 1e21
    if other_weight == 0 or promised == 0:
        return math.inf
    return (math.log(weight) - math.log(other_weight)) / promised


def check(data: bytes, *, slack_mm: int = ROUNDING_MM, nearest: Nearness = nearest_in_plane) -> Findings:
    """Return what is wrong with a bundle.

    Parameters
    ----------
    slack_mm
        What distances may be off by: a file may state a millimetre more than there is. What the builder writes is
        rounded down, and needs none.
    nearest
        Which of the places that a table lists a place counts as.
    """
    contents = parse(data)
    findings = Findings()
    if not contents.domain_is_right:
        findings.problems.append("the domain is another one")
    findings.problems += _shared_places(contents.tables)
    for table in contents.tables:
        problems = list(_problems_of(table, len(contents.places)))
        findings.problems += [f"{table.name}: {problem}" for problem in problems]
        if problems:
            continue
        rows = complete_distances(contents, table, nearest) if contents.places else as_stated(table)
        findings.problems += [f"{table.name}: {problem}" for problem in _too_far(table, rows, slack_mm)]
        findings.violations += violations_of(table, rows, slack_mm=slack_mm)
    findings.violations.sort(key=lambda violation: -violation.factor)
    return findings


def violations_of(table: Table, nearest: Nearest, *, slack_mm: int = ROUNDING_MM) -> Iterator[Violation]:
    """Yield each pair of rows that breaks the promise, with two of their histories and the output that is worst."""
    for (row, other_row), (distance_pm, history, other) in nearest.items():
        if distance_pm > table.eta_mm * _PM_PER_MM:
            continue
        allowed_pm = distance_pm + slack_mm * _PM_PER_MM
        how = {"epsilon_micro": table.epsilon_micro, "distance_pm": allowed_pm}
        bound = upper_exponential(**how)
        for one, two, first, second in ((row, other_row, history, other), (other_row, row, other, history)):
            pairs = list(zip(table.weights[one], table.weights[two], strict=True))
            if not any(weight > smaller and exceeds(weight, smaller, bound) for weight, smaller in pairs):
                continue
            column = max(range(len(pairs)), key=lambda column: factor(*pairs[column], **how))
            yield Violation(
                zone=table.zone,
                regime=table.regime,
                history=first,
                other=second,
                output=table.output_places[column] if table.output_places else column,
                distance_km=distance_pm / 1e15,
                factor=factor(*pairs[column], **how),
            )


def as_stated(table: Table) -> Nearest:
    """Without coordinates, what the file states is all there is; a row is its own history."""
    pairs = itertools.combinations(range(len(table.weights)), 2)
    return {
        (row, other): (table.stated_mm[row][other] * _PM_PER_MM, (row,), (other,))
        for row, other in pairs
        if table.stated_mm[row][other] != NEVER
    }


def _shared_places(tables: Iterable[Table]) -> Iterator[str]:
    zones: dict[tuple[str, int], str] = {}
    for table in tables:
        for place in sorted({history[0] for history in table.histories}):
            if zones.setdefault((table.regime, place), table.zone) != table.zone:
                yield f"regime '{table.regime}': two zones have the place {place}"


def _problems_of(table: Table, place_count: int) -> Iterator[str]:
    for number, weights in enumerate(table.weights):
        if sum(weights) != ONE:
            yield f"row {number} does not sum to 2^62"
        if min(weights) < 0:
            yield f"row {number} has a negative weight"
    if len(set(table.histories)) != len(table.histories):
        yield "a history is listed twice"
    if any(history[0] < 0 for history in table.histories):
        yield "a present place is any"
    if _any_beside_listed(table.histories):
        yield "any place will do, and another is listed beside it"
    if any(not -1 <= place < place_count for history in table.histories for place in history):
        yield "a history has a place that does not exist"
    if any(not 0 <= place < place_count for place in table.output_places):
        yield "an output has a place that does not exist"
    if any(not 0 <= row < len(table.weights) for row in table.rows):
        yield "a history has a row that does not exist"


def _any_beside_listed(histories: Sequence[History]) -> bool:
    listed: dict[History, set[int]] = {}
    for history in histories:
        for lag in range(1, len(history)):
            listed.setdefault(history[:lag], set()).add(history[lag])
    return any(-1 in places and len(places) > 1 for places in listed.values())


def _too_far(table: Table, nearest: Nearest, slack_mm: int) -> Iterator[str]:
    for (row, other), (distance_pm, history, other_history) in nearest.items():
        stated = table.stated_mm[row][other]
        if stated == NEVER or stated * _PM_PER_MM > distance_pm + slack_mm * _PM_PER_MM:
            yield (
                f"rows {row} and {other} are stated to be {stated} mm apart, and their histories {history} and "
                f"{other_history} are {distance_pm / _PM_PER_MM:.3f} mm"
            )
