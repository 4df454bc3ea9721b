from __future__ import annotations

import pytest

from geoblanket.roads.graph import ROAD_CLASSES
from geoblanket.roads.tags import CLASS_SPEEDS_KMH, class_index, direction, listed, may_drive, parse_speed, way_speeds


@pytest.mark.parametrize(
    ("text", "kmh"),
    [
        ("50", 50),
        ("50.5", 50.5),
        ("50 km/h", 50),
        ("50 mph", 80.4672),
        ("50mph", 80.4672),
        ("30 knots", 55.56),
        ("walk", 6),
        ("none", 130),
        ("PT:urban", 50),
        ("IT:rural", 90),
        ("it:motorway", 130),
        ("PT:motorway", 120),
        ("DE:zone30", 30),
        ("DE:zone:20", 20),
        ("BE-VLG:urban", 50),
        ("GB:nsl_single", 97),
        ("50;70", 50),
        ("70; 50 mph", 70),
        ("50|signals", 50),
        ("['70', '50']", 50),
    ],
)
def test_speeds_are_understood(text: str, kmh: float) -> None:
    assert parse_speed(text) == pytest.approx(kmh)


@pytest.mark.parametrize("text", ["signals", "variable", "", "sign", "[]"])
def test_values_that_name_no_speed_say_so(text: str) -> None:
    assert parse_speed(text) is None


@pytest.mark.parametrize(
    "text", ["-50", "inf", "nan", "0", "1e9", "fast", "50 furlongs", "٥٠", "999", "XX:nowhere", "50;fast", "5_0"]
)
def test_nonsense_is_no_speed(text: str) -> None:
    with pytest.raises(ValueError, match="no speed"):
        parse_speed(text)


def test_special_speed_tags_beat_general_ones() -> None:
    tags = {"maxspeed": "50", "maxspeed:forward": "30", "maxspeed:backward": "20 mph", "source:maxspeed": "PT:rural"}
    assert way_speeds(tags).forward_kmh == 30
    assert way_speeds(tags).backward_kmh == pytest.approx(32.18688)
    assert way_speeds({"maxspeed": "50"}) == (50, 50, 0)
    assert way_speeds({"maxspeed:type": "PT:urban"}) == (50, 50, 0)
    assert way_speeds({"maxspeed": "signals", "source:maxspeed": "PT:rural"}) == (90, 90, 0)
    assert way_speeds({}) == (None, None, 0)


def test_unreadable_speeds_are_counted_but_remarks_are_not() -> None:
    assert way_speeds({"maxspeed": "-1", "maxspeed:forward": "fast"}) == (None, None, 2)
    assert way_speeds({"source:maxspeed": "survey 2014", "maxspeed:type": "as signed"}) == (None, None, 0)


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({}, 0),
        ({"oneway": "yes"}, 1),
        ({"oneway": "true"}, 1),
        ({"oneway": "1"}, 1),
        ({"oneway": "-1"}, -1),
        ({"oneway": "reverse"}, -1),
        ({"oneway": "no"}, 0),
        ({"oneway": "sometimes"}, 0),
        ({"junction": "roundabout"}, 1),
        ({"junction": "circular"}, 1),
        ({"junction": "roundabout", "oneway": "-1"}, -1),
        ({"junction": "roundabout", "oneway": "no"}, 0),
        ({"junction": "jughandle"}, 0),
        ({"highway": "motorway"}, 1),
        ({"highway": "motorway", "oneway": "no"}, 0),
        ({"highway": "motorway_link"}, 0),
        ({"oneway": "yes", "oneway:motor_vehicle": "no"}, 0),
    ],
)
def test_direction(tags: dict[str, str], expected: int) -> None:
    assert direction(tags) == expected


@pytest.mark.parametrize(
    ("tags", "open_to_cars"),
    [
        ({}, True),
        ({"access": "no"}, False),
        ({"access": "private"}, False),
        ({"access": "destination"}, True),
        ({"access": "no", "motor_vehicle": "yes"}, True),
        ({"access": "yes", "motor_vehicle": "no"}, False),
        ({"vehicle": "no"}, False),
        ({"vehicle": "no", "motorcar": "permissive"}, True),
        ({"motor_vehicle": "yes", "motorcar": "no"}, False),
        ({"motor_vehicle": "agricultural"}, False),
        ({"bicycle": "no", "foot": "no"}, True),
    ],
)
def test_the_most_special_access_tag_decides(tags: dict[str, str], open_to_cars: bool) -> None:
    assert may_drive(tags) is open_to_cars


def test_class_of_a_list_is_the_most_important() -> None:
    assert ROAD_CLASSES[class_index("['residential', 'tertiary']").number] == "tertiary"
    assert ROAD_CLASSES[class_index('["living_street"]').number] == "living_street"
    assert class_index("busway") == (ROAD_CLASSES.index("road"), False)
    assert class_index("['crossing', 'residential']") == (ROAD_CLASSES.index("residential"), True)
    assert class_index("[") == (ROAD_CLASSES.index("road"), False)
    assert listed("['a', 'b']") == ["a", "b"]


def test_every_class_has_a_speed() -> None:
    assert CLASS_SPEEDS_KMH.keys() == set(ROAD_CLASSES)
