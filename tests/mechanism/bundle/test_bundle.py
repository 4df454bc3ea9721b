from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from geoblanket._arrays import Indices, Ints
from geoblanket._training import NOBODY, NOT_SAID, WALKS, Training
from geoblanket.errors import InputError, MismatchError, OutputError, ParameterError
from geoblanket.mechanism.bundle.facts import BundleFacts
from geoblanket.mechanism.bundle.header import Clock
from geoblanket.mechanism.bundle.storage import BundledMechanism, load_bundle, save_bundle
from geoblanket.mechanism.mechanism import Mechanism
from geoblanket.mechanism.problem import NEVER_MM
from tests.mechanism.bundles import (
    DOMAIN,
    OUTPUT_PLACES,
    PLACES_E7,
    distance_km,
    forge,
    load_zones,
    located,
    save_located,
    save_plain,
    tight,
)
from tests.promises import promise, promised


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    bundle = load_zones(save_located(tmp_path / "a.bundle"))
    assert [(bundled.zone, bundled.regime) for bundled in bundle] == [("centre", "day"), ("centre", "night")]
    assert (bundle.version, bundle.snapping_radius_mm, bundle.signed, len(bundle)) == (3, 50_000, False, 2)
    np.testing.assert_array_equal(bundle.places_e7, PLACES_E7)
    day = bundle.get("centre", "day")
    np.testing.assert_array_equal(day.mechanism.weights, tight().weights[:, day.outputs])
    np.testing.assert_array_equal(day.mechanism.distance_mm, tight().distance_mm)
    np.testing.assert_array_equal(day.output_places, OUTPUT_PLACES[day.outputs])
    assert day.mechanism.epsilon == 2.0


def test_outputs_without_mass_take_no_room_and_keep_their_numbers(tmp_path: Path) -> None:
    mechanism = tight()
    wide = np.zeros((5, 4000), np.int64)
    wide[:, np.arange(7) * 500 + 3] = mechanism.weights
    spread = Mechanism.verified(
        wide,
        distance_mm=mechanism.distance_mm,
        epsilon_micro=mechanism.epsilon_micro,
        eta_mm=mechanism.eta_mm,
    )
    path = save_plain(tmp_path / "a.bundle", spread)
    assert path.stat().st_size < 2000
    day = load_zones(path).get("centre", "day")
    np.testing.assert_array_equal(day.mechanism.weights, wide[:, day.outputs])
    assert day.outputs.tolist() == [3, 503, 1503, 2003, 2503]
    drawn = {day.sample(4) for _ in range(50)}
    assert drawn <= set(day.outputs.tolist())
    assert 2503 in drawn


def test_the_same_input_gives_the_same_bytes_in_any_order(tmp_path: Path) -> None:
    first = save_located(tmp_path / "a.bundle").read_bytes()
    save_bundle(
        tmp_path / "b.bundle",
        [located(tight(4.0), regime="night"), located(tight(2.0))],
        version=3,
        places_e7=PLACES_E7.tolist(),
        snapping_radius_mm=50_000,
    )
    assert (tmp_path / "b.bundle").read_bytes() == first


def test_distances_beyond_32_bits_and_pairs_never_compared_are_kept(tmp_path: Path) -> None:
    for far in (2**33, NEVER_MM):
        distance = np.array([[0, far, 5], [far, 0, NEVER_MM], [5, NEVER_MM, 0]])
        mechanism = Mechanism.verified(np.full((3, 1), 2**62), distance_mm=distance, epsilon_micro=10, eta_mm=2**63 - 2)
        loaded = load_zones(save_plain(tmp_path / "a.bundle", mechanism)).get("centre", "day").mechanism
        np.testing.assert_array_equal(loaded.distance_mm, distance)


def test_the_domain_does_not_change_with_epsilon_and_does_with_a_place(tmp_path: Path) -> None:
    def domain(mechanism: Mechanism, places: Indices) -> str:
        return save_bundle(tmp_path / "a.bundle", [located(mechanism)], version=1, places_e7=places)

    moved = PLACES_E7.copy()
    moved[4] += 100_000
    assert domain(tight(2.0), PLACES_E7) == domain(tight(3.0), PLACES_E7)
    assert domain(tight(2.0), PLACES_E7) != domain(tight(2.0), moved)


def test_the_guarantee_says_what_holds_and_what_does_not(tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    text = str(load_bundle(save_located(path)).promise)
    for words in ("ε = 2 per km for any d; ε = 4", "2 mechanisms, 10 rows, 20 pairs", "checked on the map", "50 m"):
        assert words in text
    assert "Every report discloses the zone, the regime" in text
    assert "chain" not in text
    text = str(load_bundle(save_plain(path, tight(eta_km=3.2))).promise)
    beyond = np.count_nonzero(distance_km() > 3.2) // 2
    for words in ("d ≤ η = 3.2 km", f"{beyond} pairs of rows are further apart", "no coordinates"):
        assert words in text
    assert "between the parts" not in text


def test_parts_without_a_chain_between_them_are_told(tmp_path: Path) -> None:
    distance = np.array([[0, 1000, 10**8], [1000, 0, 10**8], [10**8, 10**8, 0]])
    half = 2**61
    mechanism = Mechanism.verified(
        np.array([[half, half, 0], [half, half, 0], [0, 0, 2**62]]),
        distance_mm=distance,
        epsilon_micro=10**6,
        eta_mm=5 * 10**6,
    )
    text = str(load_bundle(save_plain(tmp_path / "a.bundle", mechanism)).promise)
    assert "In 1 mechanism no chain joins all rows: between the parts nothing is promised." in text


def with_history(weight: float, distance_mm: Ints, rows: list[int] | None = None) -> BundledMechanism:
    """Constant rows for the histories (0, 0), (1, 0), (0, 1), so that only distances matter."""
    mechanism = Mechanism.verified(
        np.full((len(distance_mm), 1), 2**62), distance_mm=distance_mm, epsilon_micro=10**6, eta_mm=2**63 - 2
    )
    return BundledMechanism.of(
        mechanism,
        zone="centre",
        regime="day",
        history_weights=[weight],
        histories=[[0, 0], [1, 0], [0, 1]],
        history_rows=rows,
        output_places=[0],
    )


def test_distances_of_histories_count_the_past_by_its_weight(tmp_path: Path) -> None:
    near = int(distance_km()[0, 1] * 10**6)
    half = near // 2
    # Place 1 tells no pasts apart: its row is as near to that of (0, 1) as the places are.
    right = np.array([[0, near, half], [near, 0, near], [half, near, 0]])
    part = with_history(0.5, right)
    assert part.epsilon_per_location == 1.5
    save_bundle(tmp_path / "a.bundle", [part], version=1, places_e7=PLACES_E7)
    bundle = load_zones(tmp_path / "a.bundle")
    assert bundle.get("centre", "day").history_weights_micro == (500_000,)
    assert "Earlier places count in d, the latest first, times 0.5." in str(bundle.promise)
    wrong = right.copy()
    wrong[0, 2] = wrong[2, 0] = half + 5
    with pytest.raises(ParameterError, match="rows 0 and 2 are said to be further apart"):
        save_bundle(tmp_path / "b.bundle", [with_history(0.5, wrong)], version=1, places_e7=PLACES_E7)
    assert not (tmp_path / "b.bundle").exists()


def test_a_known_past_puts_other_pasts_out_of_reach(tmp_path: Path) -> None:
    near = int(distance_km()[0, 1] * 10**6)
    never = np.array([[0, near, NEVER_MM], [near, 0, near], [NEVER_MM, near, 0]])
    part = with_history(np.inf, never)
    save_bundle(tmp_path / "a.bundle", [part], version=1, places_e7=PLACES_E7)
    bundle = load_zones(tmp_path / "a.bundle")
    assert bundle.get("centre", "day").epsilon_per_location == 1.0
    assert "times ∞ (the past is taken as known)" in str(bundle.promise)
    with pytest.raises(ParameterError, match="further apart"):
        save_bundle(tmp_path / "b.bundle", [with_history(2.0, never)], version=1, places_e7=PLACES_E7)


def test_rows_shared_by_histories_are_as_near_as_the_nearest_two(tmp_path: Path) -> None:
    near = int(distance_km()[0, 1] * 10**6)
    for claimed, holds in ((near // 2, True), (near, False)):
        # Row 0 stands for (0, 0) and (1, 0); row 1 for (0, 1), half as far from (0, 0).
        part = with_history(0.5, np.array([[0, claimed], [claimed, 0]]), [0, 0, 1])
        if holds:
            save_bundle(tmp_path / "a.bundle", [part], version=1, places_e7=PLACES_E7)
        else:
            with pytest.raises(ParameterError, match="further apart"):
                save_bundle(tmp_path / "a.bundle", [part], version=1, places_e7=PLACES_E7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"version": -1}, "version"),
        ({"version": True}, "version"),
        ({"snapping_radius_mm": 1.5}, "snapping_radius_mm"),
        ({"domain": "xyz"}, "SHA-256"),
        ({"domain": None}, "either places_e7"),
        ({"places_e7": PLACES_E7}, "either places_e7"),
        ({"domain": None, "places_e7": PLACES_E7}, "histories need coordinates"),
    ],
)
def test_bad_options_are_refused_before_writing(tmp_path: Path, options: dict[str, object], words: str) -> None:
    part = BundledMechanism.of(tight(), zone="centre", regime="day")
    given: dict[str, object] = {"version": 1, "domain": DOMAIN, **options}
    with pytest.raises(ParameterError, match=words):
        save_bundle(tmp_path / "a.bundle", [part], **given)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_bad_parts_are_refused(tmp_path: Path) -> None:
    part = BundledMechanism.of(tight(), zone="centre", regime="day")
    for parts, words in (([], "at least one"), ([part, part], "same zone and regime")):
        with pytest.raises(ParameterError, match=words):
            save_bundle(tmp_path / "a.bundle", parts, version=1, domain=DOMAIN)
    with pytest.raises(ParameterError, match="both histories and output_places"):
        BundledMechanism.of(tight(), zone="a", regime="b", histories=np.arange(5))
    with pytest.raises(ParameterError, match="7 values"):
        BundledMechanism.of(tight(), zone="a", regime="b", histories=np.arange(5), output_places=[0])
    with pytest.raises(ParameterError, match="whole numbers"):
        BundledMechanism.of(tight(), zone="a", regime="b", histories=np.ones(5), output_places=OUTPUT_PLACES)
    with pytest.raises(ParameterError, match="1 column"):
        BundledMechanism.of(tight(), zone="a", regime="b", histories=np.eye(5, dtype=int), output_places=OUTPUT_PLACES)
    with pytest.raises(ParameterError, match="history_weights"):
        BundledMechanism.of(tight(), zone="a", regime="b", history_weights=[-1.0])


def test_an_unknown_zone_is_a_mismatch(tmp_path: Path) -> None:
    with pytest.raises(MismatchError, match="no mechanism for zone 'centre', regime 'dusk'"):
        load_zones(save_plain(tmp_path / "a.bundle")).get("centre", "dusk")


def test_a_header_that_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    mechanism = Mechanism.verified(
        np.full((1, 1), 2**62), distance_mm=np.zeros((1, 1), np.int64), epsilon_micro=1, eta_mm=1
    )
    bundled = BundledMechanism.of(mechanism, zone="z" * 200, regime="r")
    parts = [BundledMechanism(**{**vars(bundled), "regime": f"{i:0200d}"}) for i in range(2500)]
    with pytest.raises(OutputError, match="header"):
        save_bundle(tmp_path / "a.bundle", parts, version=1, domain=DOMAIN)


KILLED = """
import os, signal, sys
from pathlib import Path
import geoblanket._files
from tests.mechanism.bundles import save_plain
geoblanket._files.sync_to_disk = lambda path: os.kill(os.getpid(), signal.SIGKILL)
save_plain(Path(sys.argv[1]), version=4)
"""


def test_a_kill_while_writing_leaves_no_part_of_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "a.bundle"
    for before in (None, save_plain(tmp_path / "old.bundle").read_bytes()):
        if before is not None:
            path.write_bytes(before)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(path)], check=False, cwd=Path(__file__).parents[3], env=dict(os.environ)
        )
        assert done.returncode == -signal.SIGKILL
        assert (path.read_bytes() if path.exists() else None) == before


def test_what_is_done_to_the_file_later_changes_nothing(tmp_path: Path) -> None:
    path = save_located(tmp_path / "a.bundle")
    day = load_zones(path).get("centre", "day")
    before = day.mechanism.weights
    with path.open("r+b") as file:
        file.write(bytes(path.stat().st_size))
    np.testing.assert_array_equal(day.mechanism.weights, before)


CLOCK = Clock(30_000, "Europe/Lisbon", (("day", tuple(range(6, 22))), ("night", (0, 1, 2, 3, 4, 5, 22, 23))))


def with_clock(path: Path, *, regimes: tuple[str, ...] = ("day", "night", "start"), zones: str = "ab") -> None:
    parts = [
        located(tight(), zone=zone, regime=regime, first=5 * number)
        for number, zone in enumerate(zones)
        for regime in regimes
    ]
    elsewhere = PLACES_E7 + np.array([0, 10_000_000], np.int32)
    save_bundle(path, parts, version=1, places_e7=np.concatenate([PLACES_E7, elsewhere]), clock=CLOCK)


def test_a_clock_tells_which_regime_is_used_when(tmp_path: Path) -> None:
    with_clock(tmp_path / "a.bundle")
    clock = load_bundle(tmp_path / "a.bundle").clock
    assert clock == CLOCK
    assert clock is not None
    assert [clock.regime(hour) for hour in (0, 5, 6, 21, 22)] == ["night", "night", "day", "day", "night"]
    assert (clock.interval_s, clock.start, clock.names) == (30.0, "start", frozenset({"day", "night", "start"}))
    assert load_bundle(save_plain(tmp_path / "b.bundle")).clock is None


def test_every_zone_needs_a_mechanism_for_each_regime_of_the_clock(tmp_path: Path) -> None:
    for regimes in (("day", "night"), ("day", "start"), ("day", "dusk", "night", "start")):
        with pytest.raises(ParameterError, match="one mechanism for each regime"):
            with_clock(tmp_path / "a.bundle", regimes=regimes)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("interval_ms", "regimes", "words"),
    [
        (0, (("day", tuple(range(24))),), "interval"),
        (30_000, (("day", tuple(range(23))),), "every hour"),
        (30_000, (("day", tuple(range(24))), ("night", (0,))), "every hour"),
        (30_000, (("day", tuple(range(23, -1, -1))),), "ascend"),
        (30_000, (("night", tuple(range(12))), ("day", tuple(range(12, 24)))), "order of their names"),
        (30_000, (("day", tuple(range(24))), ("night", ())), "must have hours"),
        (30_000, (("start", tuple(range(24))),), "another name than 'start'"),
    ],
)
def test_a_clock_that_leaves_a_question_open_is_refused(
    interval_ms: int, regimes: tuple[tuple[str, tuple[int, ...]], ...], words: str
) -> None:
    with pytest.raises(ParameterError, match=words):
        Clock(interval_ms, "UTC", regimes)


@pytest.mark.parametrize(
    "change",
    [
        lambda clock: clock.update(extra=1),
        lambda clock: clock.update(interval_ms=30_000.0),
        lambda clock: clock.update(interval_ms=True),
        lambda clock: clock.update(time_zone="a\x1b[2J"),
        lambda clock: clock.update(regimes={"day": list(range(24))}),
        lambda clock: clock["regimes"][0].append(1),
        lambda clock: clock["regimes"][0][1].append(3),
        lambda clock: clock["regimes"][0].__setitem__(0, "dusk"),
        lambda clock: clock.update(start="beginning"),
    ],
)
def test_a_forged_clock_is_refused(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    with_clock(tmp_path / "a.bundle")
    forge(tmp_path / "a.bundle", lambda fields, _: change(fields["clock"]))
    with pytest.raises(InputError, match="is not a bundle of mechanisms that can be used"):
        load_bundle(tmp_path / "a.bundle")


def of_training(path: Path, training: Training) -> Path:
    save_bundle(path, [located(tight())], version=1, places_e7=PLACES_E7, training=training)
    return path


@pytest.mark.parametrize("training", [NOBODY, WALKS, NOT_SAID, promised()])
def test_it_says_what_it_was_learned_from(tmp_path: Path, training: Training) -> None:
    bundle = load_bundle(of_training(tmp_path / "a.bundle", training))
    assert bundle.training == training
    learned = "nothing was learned from anyone" if training == NOBODY else f"the mechanisms were {training.in_words()}"
    assert str(bundle.promise).split("\n")[-1] == (
        "In one sentence: each report changes the odds between two histories of one zone and regime, d km apart, by at "
        f"most a factor of e^(2·d), with {bundle.promise.added_m:,.0f} m added to d for coordinates amid the "
        "places; disclosed: the zone, the regime, and when a report was made; "
        f"{learned}."
    )
    facts = BundleFacts.of(bundle, name="a", size=1)
    assert Training.parsed(facts.training) == training
    assert facts.training_in_words == training.in_words()


def test_in_one_sentence_the_weakest_mechanism_counts(tmp_path: Path) -> None:
    parts = [located(tight(2.0, eta_km=1.5)), located(tight(4.0), regime="night")]
    save_bundle(tmp_path / "a.bundle", parts, version=1, places_e7=PLACES_E7)
    assert "at most a factor of e^(4·d)," in load_bundle(tmp_path / "a.bundle").promise.in_one_sentence
    assert "d ≤ 1.5 km apart" in load_bundle(tmp_path / "a.bundle").promise.in_one_sentence


def test_files_from_before_there_were_statements_say_nothing(tmp_path: Path) -> None:
    path = of_training(tmp_path / "a.bundle", WALKS)
    forge(path, lambda fields, _: fields.pop("training"))
    assert load_bundle(path).training == NOT_SAID
    # One content has one text.
    assert path.read_bytes() == of_training(tmp_path / "b.bundle", NOT_SAID).read_bytes()


@pytest.mark.parametrize(
    "statement",
    [
        None, {}, "walks", {"source": "not said"}, {"source": "everyone"}, {"source": "walks", "more": 1},
        {"source": "private"}, promised().as_json() | {"source": "walks"},
        {"source": "private", "promise": promise(4.0).as_json() | {"epsilon": 1.0}},
    ],
)  # fmt: skip
def test_a_statement_that_cannot_be_true_is_refused(tmp_path: Path, statement: object) -> None:
    path = of_training(tmp_path / "a.bundle", WALKS)
    forge(path, lambda fields, _: fields.update(training=statement))
    with pytest.raises(InputError, match=r"a\.bundle: is not a bundle of mechanisms that can be used"):
        load_bundle(path)
    with pytest.raises(InputError):
        load_bundle(path)


def test_none_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="cannot be true"):
        of_training(tmp_path / "a.bundle", Training("private", replace(promise(), epsilon=0.5)))
