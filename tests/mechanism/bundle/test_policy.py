from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from geoblanket._arrays import Indices
from geoblanket.errors import InputError, ParameterError, PolicyError
from geoblanket.mechanism import ZoneBundle
from geoblanket.mechanism.bundle.policy import ANYTHING, DEFAULT_POLICY, Policy
from geoblanket.mechanism.problem import NEVER_MM
from tests.mechanism.bundles import PLACES_E7


@dataclass(frozen=True)
class Table:
    zone: str = "a"
    regime: str = "day"
    epsilon_micro: int = 2_000_000
    eta_mm: int = 5_000_000
    history_weights_micro: tuple[int, ...] = (1_000_000, 500_000)
    histories: Indices = field(default_factory=lambda: np.arange(5, dtype=np.int32)[:, None])


SOUND = Table()


def bundle(*tables: Table, places_e7: Indices = PLACES_E7) -> ZoneBundle:
    header: Any = SimpleNamespace(mechanisms=tables, clock=None)
    mechanisms: Any = tables
    return ZoneBundle(header=header, sha256="", signed=False, mechanisms=mechanisms, places_e7=places_e7)


def test_a_sound_bundle_is_accepted() -> None:
    DEFAULT_POLICY.check(bundle(SOUND))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (replace(SOUND, histories=SOUND.histories[:1]), r"only 1 place\(s\) are hidden among each other, fewer than 4"),
        (replace(SOUND, eta_mm=0), "its η is 0 km, less than 1 km"),
        (replace(SOUND, eta_mm=999_999), "its η is 0.999999 km"),
        (replace(SOUND, epsilon_micro=0), "its ε is 0, so that reports cost nothing"),
        (replace(SOUND, epsilon_micro=20_000_001), "more than 20"),
        (replace(SOUND, epsilon_micro=20_000_000, history_weights_micro=(4_000_000,) * 2), "costs up to"),
        (replace(SOUND, history_weights_micro=(NEVER_MM,)), "an earlier place counts inf times"),
        (replace(SOUND, history_weights_micro=(4_000_001,)), "more than 4"),
    ],
)
def test_what_gives_a_vehicle_away_is_refused(table: Table, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        DEFAULT_POLICY.check(bundle(SOUND, table))
    if table.epsilon_micro:
        ANYTHING.check(bundle(table))


def test_devices_in_javascript_have_the_same_defaults() -> None:
    source = (Path(__file__).parents[3] / "clients" / "javascript" / "src" / "policy.js").read_text("utf-8")
    defaults = re.search(r"DEFAULT_POLICY = Object.freeze\(\{(.*?)\}\)", source, re.DOTALL)
    assert defaults is not None
    found = {name: float(value) for name, value in re.findall(r"(\w+): ([\d.]+)", defaults[1])}
    words = {name: re.sub("[A-Z]", lambda letter: f"_{letter[0].lower()}", name) for name in found}
    assert {words[name]: value for name, value in found.items()} == {
        name: getattr(DEFAULT_POLICY, name)
        for name in ("largest_epsilon", "largest_cost", "smallest_extent_m", "largest_rounding_m")
    }


def test_places_that_are_crowded_are_refused() -> None:
    crowd = (PLACES_E7[:1] + np.arange(5)[:, None] * [5000, 0]).astype(np.int32)
    with pytest.raises(PolicyError, match="at most 222 m apart, less than 400 m"):
        DEFAULT_POLICY.check(bundle(SOUND, places_e7=crowd))
    replace(DEFAULT_POLICY, smallest_extent_m=200.0).check(bundle(SOUND, places_e7=crowd))


def test_places_that_no_chain_within_eta_joins_do_not_hide_each_other() -> None:
    apart = (PLACES_E7[:1] + np.arange(5)[:, None] * [500_000, 0]).astype(np.int32)
    with pytest.raises(PolicyError, match=r"only 1 place\(s\)"):
        DEFAULT_POLICY.check(bundle(SOUND, places_e7=apart))


def test_without_places_nothing_is_known() -> None:
    with pytest.raises(PolicyError, match="it has no places"):
        ANYTHING.check(bundle(SOUND, places_e7=np.empty((0, 2), np.int32)))


def test_a_policy_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("largest_epsilon = 4\nfewest_places = 20\nlargest_weight = inf\n")
    assert Policy.read(path) == Policy(largest_epsilon=4, fewest_places=20, largest_weight=math.inf)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("largest_epsilonn = 4", "unknown key 'largest_epsilonn'"),
        ("largest_epsilon = '4'", "'largest_epsilon' must be a number"),
        ("fewest_places = true", "must be a number"),
        ("largest_epsilon = nan", "must be 0 or more"),
        ("largest_cost = -1", "must be 0 or more"),
        ("=", "is not a TOML file"),
        ("\xff", "is not a TOML file"),
    ],
)
def test_policies_that_cannot_be_read(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "policy.toml"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InputError, match=words) as caught:
        Policy.read(path)
    assert str(path) in str(caught.value)
    with pytest.raises(InputError, match="cannot be read"):
        Policy.read(tmp_path / "none.toml")


def test_a_policy_out_of_range() -> None:
    with pytest.raises(ParameterError, match="largest epsilon of a policy must be 0 or more"):
        Policy(largest_epsilon=-1.0)
