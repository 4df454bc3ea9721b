"""Statements of what something was learned from: what they mean, and that none can be made to promise more."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import opendp.prelude as dp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from geoblanket._training import (
    NOBODY,
    NOT_SAID,
    PART_COLUMNS,
    WALKS,
    PrivatePart,
    ReleasedReports,
    Training,
    TrainingPromise,
    UnitsCounted,
    epsilon_of,
)
from tests.promises import promise, promised

dp.enable_features("contrib")

REPORTS = ReleasedReports("ab", 4.0, 55)


def by_opendp(scale: float, delta: float) -> float:
    """Return the ε of discrete Gaussian noise on a number that a unit changes by 1 at most."""
    noise = dp.m.make_gaussian(dp.atom_domain(T=int), dp.absolute_distance(T=int), scale=scale)
    curve: Any = dp.c.make_zCDP_to_approxDP(noise)
    return float(curve.map(1).epsilon(delta=delta))


@pytest.mark.parametrize("scale", [0.1, 0.5, 1.0, 3.0, 40.0, 1000.0, 1e6])
@pytest.mark.parametrize("delta", [1e-15, 1e-9, 1e-6, 1e-3, 0.3])
def test_epsilon_is_that_of_opendp(scale: float, delta: float) -> None:
    assert epsilon_of(1 / (2 * scale**2), delta) == pytest.approx(by_opendp(scale, delta), rel=1e-9, abs=1e-15)


@settings(deadline=None, max_examples=60)
@given(rho=st.floats(1e-9, 1e3), delta=st.floats(1e-15, 0.4))
def test_epsilon_is_the_least_over_all_orders(rho: float, delta: float) -> None:
    def of_order(order: float) -> float:
        return order * rho + (order * math.log1p(-1 / order) - math.log(delta * (order - 1))) / (order - 1)

    least = max(0.0, min(of_order(1 + math.exp(power / 20)) for power in range(-300, 500)))
    assert least * 0.99 - 1e-6 <= epsilon_of(rho, delta) <= least * (1 + 1e-9) + 1e-12


def test_epsilon_at_the_ends() -> None:
    assert epsilon_of(0, 1e-6) == 0
    assert 0 <= epsilon_of(5e-324, 1e-6) < 1e-90
    assert epsilon_of(1e300, 1e-6) >= 1e300
    for rho, delta in ((math.inf, 0.1), (math.nan, 0.1), (-1.0, 0.1), (1.0, 0.0), (1.0, 1.0), (1.0, math.nan)):
        assert epsilon_of(rho, delta) == math.inf


promises = st.builds(
    promise,
    st.floats(0.05, 20),
    st.floats(1e-12, 1e-4),
    shares=st.lists(st.floats(0.05, 1), min_size=1, max_size=5).map(lambda some: tuple(x / sum(some) for x in some)),
    unit=st.sampled_from(["vehicle", "trip"]),
    units=st.integers(2, 5000),
    rho_before=st.floats(0, 5),
)


@settings(deadline=None, max_examples=30)
@given(promises)
def test_what_is_written_is_read(made: TrainingPromise) -> None:
    text = json.dumps(made.as_json())
    assert TrainingPromise.parsed(json.loads(text)) == made
    whole = Training("private", made)
    assert Training.parsed(json.loads(json.dumps(whole.as_json()))) == whole


@settings(deadline=None, max_examples=30)
@given(promises, st.floats(0.01, 0.99), st.sampled_from(["epsilon", "delta", "noise"]), st.data())
def test_a_smaller_epsilon_delta_or_noise_is_refused(
    made: TrainingPromise, factor: float, number: str, data: st.DataObject
) -> None:
    fields = made.as_json()
    if number == "noise":
        fields["parts"][data.draw(st.integers(0, len(made.parts) - 1))]["scale"] *= factor
    else:
        fields[number] *= factor
    with pytest.raises(ValueError, match="cannot be true"):
        TrainingPromise.parsed(fields)


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no units": lambda value: value.update(units=1),
    "another unit": lambda value: value.update(unit="city"),
    "δ of 1 in 400": lambda value: value.update(delta=1 / 400),
    "δ of 0": lambda value: value.update(delta=0.0),
    "no ε": lambda value: value.update(epsilon=math.inf),
    "NaN": lambda value: value.update(epsilon=math.nan),
    "true": lambda value: value.update(epsilon=True),
    "a text": lambda value: value.update(epsilon="1"),
    "a large ε": lambda value: value.update(epsilon=10**400),
    "a large bound": lambda value: value["parts"][0].update(bound=10**400),
    "a large noise": lambda value: value["parts"][0].update(scale=10**400),
    "a larger bound": lambda value: value["parts"][0].update(bound=9),
    "a float as a bound": lambda value: value["parts"][0].update(bound=8.0),
    "a bound of 0": lambda value: value["parts"][0].update(bound=0),
    "no noise": lambda value: value["parts"][0].update(scale=0.0),
    "hardly any noise": lambda value: value["parts"][0].update(scale=5e-324),
    "noise below 0": lambda value: value["parts"][0].update(scale=-1e9),
    "no numbers": lambda value: value["parts"][0].update(cells=0),
    "a gift": lambda value: value.update(rho_before=-1.0),
    "one more part": lambda value: value["parts"].append(value["parts"][0]),
    "no parts": lambda value: value["parts"].clear(),
    "many parts": lambda value: value["parts"].extend([value["parts"][0]] * 100),
    "a part that is none": lambda value: value["parts"].append(None),
    "parts that are none": lambda value: value.update(parts={}),
    "words for a terminal": lambda value: value.update(rule="\x1b[2J"),
    "a name for a terminal": lambda value: value["parts"][0].update(name="\x1b[2J"),
    "noise without a name": lambda value: value.update(noise_id="[bold]"),
    "a long name of noise": lambda value: value.update(noise_id="a" * 201),
    "no words": lambda value: value.update(rule=""),
    "a long name": lambda value: value["parts"][0].update(name="a" * 201),
    "one more field": lambda value: value.update(more=1),
    "one field less": lambda value: value.pop("rho_before"),
    "units counted somehow": lambda value: value.update(units_are="somehow"),
    "units counted with noise that no part names": lambda value: value.update(units_are="noisy"),
}


@pytest.mark.parametrize("name", EDITS)
def test_what_cannot_be_a_promise_is_refused(name: str) -> None:
    fields = promise().as_json()
    EDITS[name](fields)
    with pytest.raises(ValueError, match="statement"):
        TrainingPromise.parsed(fields)
    with pytest.raises(ValueError, match="statement"):
        Training.parsed({"source": "private", "promise": fields})


@pytest.mark.parametrize(
    "value",
    [
        None, [], "walks", {}, {"source": None}, {"source": ["walks"]}, {"source": "everyone"}, {"source": "private"},
        {"source": "walks", "promise": promise().as_json()}, {"source": "nobody", "more": 1},
        {"source": "private", "promise": None}, {"source": "released"}, {"source": "released", "released": []},
        {"source": "nobody", "released": [asdict(REPORTS)]}, {"source": "released", "released": asdict(REPORTS)},
        {"source": "released", "released": [{}]}, {"source": "released", "released": [asdict(REPORTS)] * 1001},
        *({"source": "released", "released": [asdict(REPORTS) | wrong]} for wrong in (
            {"epsilon": -1.0}, {"epsilon": math.inf}, {"epsilon": math.nan}, {"epsilon": True}, {"epsilon": "4"},
            {"most_reports": 0}, {"most_reports": 1.5}, {"table": "\x1b[2J"}, {"table": "a" * 65}, {"more": 1},
        )),
    ],
)  # fmt: skip
def test_what_cannot_be_a_statement_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="learned from"):
        Training.parsed(value)


def test_more_than_the_noise_allows_may_be_spent() -> None:
    assert TrainingPromise.parsed(replace(promise(), epsilon=1.5).as_json()).epsilon == 1.5


def test_in_words() -> None:
    assert promised().in_words() == "learned with ε = 1, δ = 1e-06 for each vehicle"
    before = promise(unit="trip", rho_before=promise().rho)
    assert before.total_epsilon == pytest.approx(epsilon_of(2 * before.rho, 1e-6))
    assert before.in_words() == (
        f"learned with ε = 1, δ = 1e-06 for each trip (ε = {before.total_epsilon:.3g} with what was learned from the "
        "same walks before)"
    )
    assert NOBODY.in_words() == "learned from nobody's trips"
    assert WALKS.in_words() == "learned without privacy for those in the traces"
    assert NOT_SAID.in_words() == "learned from what its file does not say"


def test_the_proof_has_every_figure() -> None:
    made = replace(promise(), parts=(PrivatePart("visits", 1200, 8, 200.0),))
    assert made.rows() == [("visits", "1,200", "25", "0.0008")]
    assert len(made.rows()[0]) == len(PART_COLUMNS)
    said: dict[UnitsCounted, str] = {
        "declared": "400 as declared", "noisy": "about 400, counted with noise", "exact": "400, counted exactly",
    }  # fmt: skip
    for how, words in said.items():
        proof = replace(made, units_are=how).proof()
        assert f"The counts of each vehicle ({words}) were scaled to length 1" in proof
    assert f"ρ = 0.0008, and for δ = 1e-06 that means ε = {epsilon_of(0.0008, 1e-6):.6g}" in made.proof()


def test_together_no_more_than_the_weaker_is_claimed() -> None:
    strong, weak = promised(1.0), promised(4.0)
    for training in (NOBODY, WALKS, NOT_SAID, strong):
        assert training.together(training) == training
        assert training.together(NOBODY) == NOBODY.together(training) == training
        assert training.together(WALKS) == WALKS.together(training) == WALKS
    assert strong.together(NOT_SAID) == NOT_SAID.together(strong) == NOT_SAID
    assert strong.together(weak) == weak.together(strong) == WALKS
    # The same numbers twice, from the same walks: they would add up.
    again, unnamed = (Training("private", promise(noise_id=name)) for name in ("abcd", ""))
    assert strong.together(again) == unnamed.together(unnamed) == WALKS


REPORTS_TOO = {
    NOBODY: "learned from released reports, ε = 4 per km for each and at most 55 of one vehicle",
    WALKS: "learned without privacy for those in the traces, and from released reports, ε = 4 per km for each",
    NOT_SAID: "learned from what its file does not say, and from released reports, ε = 4 per km for each",
    promised(): "learned with ε = 1, δ = 1e-06 for each vehicle, and from released reports, ε = 4 per km for each",
}


@pytest.mark.parametrize("other", REPORTS_TOO)
def test_released_reports_are_named_beside_every_other_source(other: Training) -> None:
    reported = Training("released", released=(REPORTS,))
    both = other.together(reported)
    assert both == reported.together(other) == both.together(reported) == both.together(both)
    assert both.source == ("released" if other == NOBODY else other.source)
    assert both.promise == other.promise
    assert both.in_words().startswith(REPORTS_TOO[other])
    assert "adds up over all reports of a vehicle" in str(both.caveat())
    assert Training.parsed(json.loads(json.dumps(both.as_json()))) == both


def test_of_several_tables_of_reports_the_weakest_counts() -> None:
    reported = Training("released", released=(REPORTS,))
    weaker = Training("released", released=(ReleasedReports("cd", 20.0, 5),))
    assert "ε = 20 per km for each and at most 60 of one vehicle" in reported.together(weaker).in_words()
    unknown = reported.together(weaker).together(Training("released", released=(ReleasedReports(),)))
    assert unknown.in_words() == "learned from released reports, ε unknown"
    assert "count on no privacy" in str(unknown.caveat())
    many = Training("released", released=tuple(ReleasedReports(f"{table:x}", 1.0) for table in range(1000)))
    assert Training.parsed(many.together(reported).as_json()).report_epsilon is None


def test_a_promise_of_an_earlier_version_says_what_its_epsilon_does_not_cover() -> None:
    before = promise().as_json()
    del before["units_are"]
    read = Training.parsed({"source": "private", "promise": before})
    assert read.as_json() == {"source": "private", "promise": before}
    assert "chose the unit by a look at the walks and counted the vehicles exactly" in str(read.caveat())
    assert "exactly" not in str(promised().caveat())
