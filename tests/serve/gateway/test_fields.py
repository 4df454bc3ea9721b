"""What may pass besides the position."""

from __future__ import annotations

import pytest

from geoblanket.errors import ParameterError
from geoblanket.serve.gateway.messages import BETRAYING, HARMLESS, RESERVED, AllowList
from tests.serve.gateway.living import location


def test_nothing_passes_by_itself() -> None:
    assert AllowList().passing(location()) == {}


@pytest.mark.parametrize("name", [*BETRAYING, "anything"])
def test_what_betrays_a_place_needs_the_flag(name: str) -> None:
    with pytest.raises(ParameterError, match="may betray the place"):
        AllowList([name])
    assert AllowList([name], betraying=True).passing({name: 3}) == {name: 3}


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_the_position_itself_is_never_allowed(name: str) -> None:
    with pytest.raises(ParameterError, match="holds the true position"):
        AllowList([name], betraying=True)


def test_lists_do_not_overlap() -> None:
    assert not HARMLESS.keys() & BETRAYING.keys()
    assert not RESERVED & (HARMLESS.keys() | BETRAYING.keys())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batt", "41.1051373"),
        ("batt", 411_051_373),
        ("batt", True),
        ("batt", {"lat": 41.1}),
        ("tid", "41.1051373"),
        ("tid", "\x00a"),
        ("charge", 1),
        ("versionFw", "x" * 65),
        ("versionFw", ["x"]),
    ],
)
def test_harmless_names_take_only_values_of_their_kind(name: str, value: object) -> None:
    assert AllowList([name]).passing({name: value}) == {}


@pytest.mark.parametrize("value", [None, [1], {"a": 1}, "x" * 65, "a\nb", float("nan"), 1e300, 10**400])
def test_values_are_small_scalars(value: object) -> None:
    assert AllowList(["vel"], betraying=True).passing({"vel": value}) == {}
