"""The second verifier: that it is independent, right, and not blind; and that bundles of all kinds pass it."""

from __future__ import annotations

import ast
import itertools
import math
import random
import sys
from collections.abc import Callable
from pathlib import Path

import mpmath
import numpy as np
import pytest

from geoblanket.build.building import build_bundle
from geoblanket.build.config import BuildConfig
from geoblanket.mechanism import save_bundle
from tests.audit import hostile, second_verifier
from tests.audit.cities import CITIES
from tests.audit.second_verifier import (
    EARTH_RADIUS_M,
    Distances,
    Rule,
    Unreadable,
    check,
    complete_distances,
    enumerated_distances,
    exceeds,
    great_circle_m,
    nearest_in_plane,
    nearest_on_sphere,
    parse,
    upper_exponential,
)
from tests.mechanism.bundles import PLACES_E7 as FIVE_PLACES
from tests.mechanism.bundles import (
    Arrays,
    Fields,
    forge,
    located,
    save_located,
    save_plain,
    tight,
)
from tests.release.worlds import GRAPH, save_certain, save_walks
from tests.towns import make_town

# ------------------------------------------------------------------------------------------------- what it rests on


def test_it_shares_no_code_with_what_it_verifies() -> None:
    tree = ast.parse(Path(second_verifier.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} <= set(sys.stdlib_module_names)


def hard_pairs() -> list[tuple[tuple[int, int], tuple[int, int]]]:
    rng = random.Random(1)  # noqa: S311 - test data
    pairs = []
    for _ in range(150):
        lat, lon = rng.randrange(-900_000_000, 900_000_001), rng.randrange(-1_800_000_000, 1_800_000_001)
        near = (min(900_000_000, lat + rng.randrange(3)), max(-1_800_000_000, lon - rng.randrange(1, 50)))
        opposite = (-lat + (1 if lat > 0 else -1), lon - 1_800_000_000 if lon > 0 else lon + 1_800_000_000)
        anywhere = (rng.randrange(-900_000_000, 900_000_001), rng.randrange(-1_800_000_000, 1_800_000_001))
        pairs += [((lat, lon), other) for other in (near, opposite, anywhere)]
    poles = [(900_000_000, 5), (899_999_999, 1_799_999_999), (-900_000_000, 0), (0, 1_800_000_000), (0, -1_800_000_000)]
    return pairs + list(itertools.combinations(poles, 2))


def exact_m(one: tuple[int, int], other: tuple[int, int]) -> mpmath.mpf:
    """The great-circle distance by the law of cosines, in a hundred digits, where that formula loses nothing."""
    with mpmath.workdps(100):
        lat, lon, other_lat, other_lon = (mpmath.radians(mpmath.mpf(value) / 10**7) for value in (*one, *other))
        cosine = mpmath.sin(lat) * mpmath.sin(other_lat) + mpmath.cos(lat) * mpmath.cos(other_lat) * mpmath.cos(
            lon - other_lon
        )
        return mpmath.mpf("6371008.8") * mpmath.acos(max(-1, min(1, cosine)))


def test_distances_are_right_everywhere_on_earth() -> None:
    assert EARTH_RADIUS_M == 6371008.8
    for one, other in hard_pairs():
        expected = exact_m(one, other)
        assert abs(great_circle_m(one, other) - expected) < 1e-7
        upper = Distances([one, other]).upper_um(0, 1)
        assert expected * 10**6 <= upper <= expected * 10**6 + 3


def test_exponentials_are_rounded_up_and_not_far() -> None:
    rng = random.Random(2)  # noqa: S311 - test data
    with mpmath.workdps(90):
        for _ in range(300):
            epsilon_micro, distance_pm = rng.randrange(10**9), rng.randrange(10 ** rng.randrange(1, 17))
            exponent = mpmath.mpf(epsilon_micro * distance_pm) / mpmath.mpf(10) ** 21
            bound = upper_exponential(epsilon_micro, distance_pm)
            assert (bound is None) == (exponent > 45)
            if bound is not None:
                exact = mpmath.exp(exponent) * mpmath.mpf(10) ** 40
                assert exact < bound < exact * (1 + mpmath.mpf(10) ** -39) + 2


def test_what_exceeds_does_so_by_a_single_unit() -> None:
    bound = upper_exponential(10**6, 10**15)  # ε = 1 per km, d = 1 km: e
    assert bound is not None
    for other in (1, 1000, 2**60):
        with mpmath.workdps(50):
            most = int(mpmath.floor(mpmath.e * other))
        assert not exceeds(most, other, bound)
        assert exceeds(most + 1, other, bound)
    assert exceeds(1, 0, None)
    assert not exceeds(0, 0, None)
    assert not exceeds(2**62 - 1, 1, None)


SMALL = {
    **{name: make for group in (hostile.BREACHES, hostile.OPEN, hostile.SOUND) for name, make in group.items()},
}


@pytest.mark.parametrize("nearest", [nearest_in_plane, nearest_on_sphere])
@pytest.mark.parametrize("name", [name for name in SMALL if "3" not in name])
def test_products_of_cells_and_single_histories_give_the_same_distances(
    name: str, nearest: second_verifier.Nearness
) -> None:
    contents = parse(SMALL[name]())
    for table in contents.tables:
        if len(contents.places) ** len(table.past_weights) > 20:
            continue
        complete = complete_distances(contents, table, nearest)
        enumerated = enumerated_distances(contents, table, nearest)
        assert {pair: found[0] for pair, found in complete.items()} == {
            pair: found[0] for pair, found in enumerated.items()
        }
        rule = Rule(contents, table, nearest)
        for (row, other), (apart, history, other_history) in complete.items():
            assert row in rule.rows_of(history)
            assert other in rule.rows_of(other_history)
            assert contents.distances.of_histories_pm(history, other_history, table.past_weights) == apart


@pytest.mark.parametrize("name", ["order:2, ties", "order:1, known past", "order:1, few rows"])
def test_and_so_they_do_in_a_city(name: str, tmp_path: Path) -> None:
    contents = parse(CITIES[name].save(tmp_path / "a.bundle").read_bytes())
    for table in contents.tables[:2]:
        complete, enumerated = complete_distances(contents, table), enumerated_distances(contents, table)
        assert {pair: found[0] for pair, found in complete.items()} == {
            pair: found[0] for pair, found in enumerated.items()
        }


# ----------------------------------------------------------------------------------------------- that it is not blind


def put(name: str, index: int, change: Callable[[int], int]) -> Callable[[Fields, Arrays], None]:
    def changed(_: Fields, arrays: Arrays) -> None:
        arrays[name][index] = change(int(arrays[name][index]))

    return changed


def move_weight(amount: int) -> Callable[[Fields, Arrays], None]:
    """Move weight from one output of the first row to another."""

    def changed(_: Fields, arrays: Arrays) -> None:
        arrays["weights"][0] += amount
        arrays["weights"][1] -= amount

    return changed


def test_it_sees_a_sum_a_sign_a_distance_and_a_single_unit(tmp_path: Path) -> None:
    whole = save_located(tmp_path / "whole.bundle").read_bytes()
    assert check(whole, slack_mm=0).holds
    path = tmp_path / "a.bundle"

    def forged(change: Callable[[Fields, Arrays], None]) -> second_verifier.Findings:
        path.write_bytes(whole)
        forge(path, change, new_domain=True)
        return check(path.read_bytes(), slack_mm=0)

    assert "sum" in forged(put("weights", 3, lambda weight: weight + 1)).problems[0]
    assert "negative" in " ".join(forged(put("weights", 3, lambda weight: -weight)).problems)
    assert "stated" in forged(put("distances_mm", 0, lambda apart: apart + 2)).problems[0]
    assert forged(put("distances_mm", 0, lambda apart: apart - 10)).holds
    assert forged(put("history_rows", 0, lambda row: row + 9)).problems
    # The constraints of this mechanism bind, so that the distance rounded down leaves room for a few units only.
    assert not forged(move_weight(2**40)).holds


def test_it_reads_no_byte_that_was_changed(tmp_path: Path) -> None:
    whole = save_located(tmp_path / "whole.bundle").read_bytes()
    for position in [*range(0, len(whole), 97), len(whole) - 1]:
        changed = bytearray(whole)
        changed[position] ^= 4
        with pytest.raises(Unreadable):
            parse(bytes(changed))
    for changed in (bytearray(whole[:-1]), bytearray(whole + b"\0")):
        with pytest.raises(Unreadable):
            parse(bytes(changed))


def test_another_domain_is_told(tmp_path: Path) -> None:
    path = save_located(tmp_path / "a.bundle")
    forge(path, lambda fields, _: fields.update(domain="ab" * 32))
    assert check(path.read_bytes()).problems == ["the domain is another one"]


# ----------------------------------------------------------------------------------------------- bundles of all kinds


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0, 400.0])
@pytest.mark.parametrize("eta_km", [1.5, math.inf])
def test_bundles_in_which_constraints_bind(epsilon: float, eta_km: float, tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    save_bundle(path, [located(tight(epsilon, eta_km=eta_km))], version=1, places_e7=FIVE_PLACES)
    assert check(path.read_bytes(), slack_mm=0).holds
    save_plain(path, tight(epsilon, eta_km=eta_km))
    assert check(path.read_bytes(), slack_mm=0).holds


@pytest.mark.parametrize("epsilon", [2.0, 1000.0])
def test_a_town_whose_every_history_is_listed(epsilon: float, tmp_path: Path) -> None:
    findings = check(save_certain(tmp_path / "a.bundle", epsilon=epsilon).read_bytes(), slack_mm=0)
    assert findings.holds, findings


@pytest.mark.parametrize("name", CITIES)
def test_cities_of_the_builder(name: str, tmp_path: Path) -> None:
    findings = check(CITIES[name].save(tmp_path / "a.bundle").read_bytes(), slack_mm=0)
    assert findings.holds, findings


@pytest.fixture(scope="module")
def walks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Walks on a grid of streets that mostly go straight on."""
    rng = np.random.default_rng(5)
    every = []
    for _ in range(300):
        place, step = int(rng.integers(24)), int(rng.choice([-6, -1, 1, 6]))
        walk = [place]
        for _ in range(12):
            if rng.random() < 0.3:
                step = int(rng.choice([-6, -1, 0, 1, 6]))
            if 0 <= place + step < 24 and abs((place + step) % 6 - place % 6) <= 1:
                place += step
            walk.append(place)
        every.append(walk)
    folder = tmp_path_factory.mktemp("walks")
    GRAPH.save(folder / "grid.roads")
    return save_walks(folder / "walks.parquet", every)


KINDS = [
    ({"context": "none"}, 2.0),
    ({"context": "order:1"}, 0.5),
    ({"context": "order:1"}, 20.0),
    ({"context": "order:2"}, 8.0),
    ({"context": "order:3"}, 8.0),
    ({"context": "blanket", "order": 1}, 8.0),
    ({"context": "blanket", "order": 3, "eta_km": 0.25}, 20.0),
    ({"context": "blanket", "order": 2, "history_weights": (math.inf, 1.0)}, 8.0),
    ({"context": "full", "history_weights": (1.0,)}, 8.0),
]


@pytest.mark.parametrize(("options", "epsilon"), KINDS, ids=str)
def test_builds_of_every_context(options: dict[str, object], epsilon: float, walks: Path, tmp_path: Path) -> None:
    config = BuildConfig(
        epsilon=epsilon,
        max_places=9,
        max_rows=40,
        gap=0.05,
        loss="straight",
        compare=False,
        max_speed_m_s=4.0,
        **options,  # type: ignore[arg-type]
    )
    build_bundle(walks.parent / "grid.roads", walks, tmp_path / "a.bundle", config=config, workers=1)
    findings = check((tmp_path / "a.bundle").read_bytes(), slack_mm=0)
    assert findings.holds, findings


def test_the_bundle_of_a_made_up_city(tmp_path: Path) -> None:
    """From a map and GPS points to a bundle, as in the tour."""
    town = make_town(tmp_path, trips=150, spacing_m=500.0)
    config = BuildConfig(epsilon=4.0, order=2, max_places=12, max_rows=40, gap=0.05, compare=False, loss="straight")
    out = tmp_path / "town.bundle"
    build_bundle(town.roads, town.walks, out, config=config, workers=1)
    findings = check(out.read_bytes(), slack_mm=0)
    assert findings.holds, findings
