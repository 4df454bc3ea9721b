from __future__ import annotations

from geoblanket.mechanism.bundle.zones import zone_in_words, zone_name, zone_order


def test_a_zone_is_called_by_its_number_or_by_the_name_that_it_was_given() -> None:
    assert zone_in_words(zone_name(3)) == zone_in_words(3) == "zone 3"
    assert zone_in_words("centre") == "zone 'centre'"


def test_zones_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["10", "b", "2", "a", "0"], key=zone_order) == ["0", "2", "10", "a", "b"]
