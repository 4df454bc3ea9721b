"""Vectors of fences: centres from words, positions on the edge of discs, changes of a list, texts that are refused."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

import numpy as np

from geoblanket.errors import ParameterError
from geoblanket.release.fence import MOST_FENCES, Fence, Fences, point_in_disc
from tests.conformance.vectors import Json, words_left
from tests.predictable import predictable_words

_HALF_CIRCLE_E7: Final = 1_800_000_000
PLACES: Final[dict[str, tuple[float, float, float, float]]] = {
    "a home": (41.1496123, -8.6109654, 1.0, 300.0),
    "the smallest": (48.8566, 2.3522, 0.1, 0.0),
    "the largest": (-33.8688, 151.2093, 10.0, 2000.0),
    "a radius that is rounded": (35.6762, 139.6503, 1.2341, 0.2),
    "at nought": (0.0, 0.0, 0.5, 250.0),
    "west of 180 degrees": (-17.75, 179.9999999, 2.0, 300.0),
    "at 180 degrees": (-17.75, 180.0, 2.0, 300.0),
    "east of 180 degrees": (65.5, -179.995, 1.5, 300.0),
    "in the far north": (83.0, 25.0, 3.0, 500.0),
    "in the far south": (-82.9999, -120.0, 3.0, 500.0),
}
"""Latitude and longitude, degrees; radius, kilometres; margin, metres."""


def drawn_vector(name: str, lat: float, lon: float, radius_km: float, margin_m: float, *, cases: int = 15) -> Json:
    """Return the fence that words lead to, and what positions count as."""
    rng = random.Random(name)  # noqa: S311
    words = [rng.getrandbits(62) for _ in range(200)]
    with predictable_words(np.array(words, np.int64)):
        fence = Fence.draw(lat, lon, radius_km=radius_km, margin_m=margin_m, name=name)
        left = words_left()
    fences = Fences([fence])
    return {
        "name": name,
        "place": [lat, lon],
        "radius_km": radius_km,
        "margin_m": margin_m,
        "words": [str(word) for word in words[: len(words) - left]],
        "text": fences.as_json(),
        "positions": [[*position, *fences.apply_e7(*position)] for position in positions(fence, rng, cases)],
    }


def positions(fence: Fence, rng: random.Random, count: int) -> Iterator[tuple[int, int]]:
    """Yield positions, 1e-7 degrees: on the edge of a disc and a unit off, near and far, and on the other side."""
    plane, (x, y), radius = fence._plane, fence._center, fence.radius_m
    for east, north in ((1, 0), (-1, 0), (0, 1), (0, -1)):
        for apart in (radius, radius + 1):
            yield plane.e7_of_unit(x + east * apart, y + north * apart)
    for _ in range(count):
        east = rng.randint(-radius, radius)
        north = int((radius**2 - east**2) ** 0.5) * rng.choice([-1, 1])
        yield plane.e7_of_unit(x + east, y + north)
        yield plane.e7_of_unit(x + east, y + north + rng.choice([-1, 1]))
        yield plane.e7_of_unit(x + rng.randint(-2 * radius, 2 * radius), y + rng.randint(-2 * radius, 2 * radius))
        # Along the disc's own latitudes, all around the Earth: clamped to the edge of the frame.
        yield fence.lat_e7 + rng.randint(-(10**5), 10**5), rng.randrange(-_HALF_CIRCLE_E7, _HALF_CIRCLE_E7)
        yield rng.randint(-(9 * 10**8), 9 * 10**8), rng.randrange(-_HALF_CIRCLE_E7, _HALF_CIRCLE_E7)
    yield fence.lat_e7, fence.lon_e7
    yield fence.lat_e7, (fence.lon_e7 + 2 * _HALF_CIRCLE_E7) % (2 * _HALF_CIRCLE_E7) - _HALF_CIRCLE_E7
    for lat_e7 in (-(9 * 10**8), 9 * 10**8):
        yield lat_e7, fence.lon_e7


def disc_vector(reach: int) -> Json:
    """Return the points of a small disc that words lead to, those on its edge among them."""
    rng = random.Random(reach)  # noqa: S311
    words = [rng.getrandbits(62) for _ in range(600)]
    with predictable_words(np.array(words, np.int64)):
        points = [point_in_disc(reach) for _ in range(60)]
        left = words_left()
    assert (reach, 0) in points
    return {"reach": reach, "words": [str(word) for word in words[: len(words) - left]], "points": points}


def changes_vector() -> list[Json]:
    """Return a list of fences after each of some changes, and which changes are refused."""
    rng = random.Random("changes")  # noqa: S311
    home, work = (41.1496123, -8.6109654), (41.18, -8.70)
    fences = Fences()
    result: list[Json] = []

    def change(step: Json) -> None:
        nonlocal fences
        words = [rng.getrandbits(62) for _ in range(100)]
        error = None
        with predictable_words(np.array(words, np.int64)):
            try:
                fences = _changed(fences, step)
            except ParameterError as raised:
                error = type(raised).__name__
            used = words[: len(words) - words_left()]
        result.append({**step, "words": [str(word) for word in used], "error": error, "text": fences.as_json()})

    def add(place: tuple[float, float], name: str = "home", radius_km: float = 1.0, margin_m: float = 300.0) -> None:
        change({"do": "add", "place": place, "name": name, "radius_km": radius_km, "margin_m": margin_m})

    add(home)
    exported = fences.as_json()
    add(home, "again")
    add((home[0] + 0.001, home[1]), "the same place, more or less")
    add(work)  # the name is taken
    add(work, "work", radius_km=0.5)
    for radius_km in (0.0, 0.0999, 10.001, -1.0):
        add((50.0, 5.0), "radius", radius_km)
    for margin_m in (-1.0, 2000.5):
        add((50.0, 5.0), "margin", 1.0, margin_m)
    for name in ("", "two\nlines", "x" * 61, "\u202eturned", "\x1b[2J"):
        add((50.0, 5.0), name)
    for place in ((83.1, 0.0), (-84.0, 0.0), (90.1, 0.0), (0.0, -180.1)):
        add(place, "place")
    change({"do": "remove", "name": "nobody"})
    change({"do": "remove", "name": "home"})
    change({"do": "remove", "name": "home"})
    add(home, "another name", radius_km=5.0)  # gets the former one back
    change({"do": "import", "content": exported})  # the same one
    change({"do": "remove", "name": "home"})
    change({"do": "import", "content": exported})  # in use on the other device: in use
    change({"do": "import", "content": fences.without("home").as_json()})  # in use here: still in use
    with predictable_words(np.array([rng.getrandbits(62) for _ in range(1000)], np.int64)):
        other = Fence.draw(*home, radius_km=1.0, name="home of another device")
        elsewhere = Fence.draw(52.0, 13.0, radius_km=1.0, name="elsewhere")
        many = [Fence.draw(10.0 + number, 20.0, radius_km=0.2, name=f"n {number}") for number in range(MOST_FENCES)]
    change({"do": "import", "content": Fences([other]).as_json()})
    for distance_m in (1990, 2015):  # second draws lie up to twice the reach apart
        first, *_ = fences
        lat_e7 = first.lat_e7 + distance_m * 10**7 // 111_195
        change({"do": "import", "content": Fences([replace(first, lat_e7=lat_e7, name=f"{distance_m} m")]).as_json()})
    change({"do": "import", "content": Fences([*fences, other]).as_json()})  # both travel together
    change({"do": "import", "content": Fences([replace(elsewhere, name="work")]).as_json()})
    change({"do": "import", "content": Fences([replace(elsewhere, active=False)]).as_json()})
    change({"do": "import", "content": Fences(many).as_json()})
    change({"do": "import", "content": "{}"})
    for number in range(MOST_FENCES - len(fences) + 1):
        add((20.0 + number, 30.0), f"ümläut {number} 🚕", radius_km=0.1, margin_m=0.0)
    return result


def _changed(fences: Fences, step: Json) -> Fences:
    if step["do"] == "remove":
        return fences.without(step["name"])
    if step["do"] == "import":
        return fences.with_all(Fences.parsed(step["content"]))
    options = {name: step[name] for name in ("name", "radius_km", "margin_m")}
    return fences.with_place(*step["place"], **options)[0]


def overlapping_vector() -> Json:
    """Return what positions count as where discs overlap, and one of them is not in use."""
    rng = random.Random("overlapping")  # noqa: S311
    with predictable_words(np.array([rng.getrandbits(62) for _ in range(400)], np.int64)):
        drawn = [Fence.draw(45.0 + 0.004 * number, 9.0, radius_km=0.8, name=f"number {number}") for number in range(5)]
    fences = Fences([replace(drawn[0], active=False), *drawn[1:]])
    points = [position for fence in fences for position in positions(fence, rng, 8)]
    return {"text": fences.as_json(), "positions": [[*point, *fences.apply_e7(*point)] for point in points]}


def texts() -> tuple[list[Json], list[str]]:
    """Return texts that are taken, with how they are written again, and texts that are refused."""
    part = {
        "name": "home", "lat_e7": 450093342, "lon_e7": -299991611, "reach_m": 1000, "radius_m": 1302,
        "south_e7": 444824044, "west_e7": -312895387, "active": True,
    }  # fmt: skip
    whole = json.dumps({"format": 1, "fences": [part]})

    def text(**changes: Any) -> str:
        return json.dumps({"format": 1, "fences": [{**part, **changes}]})

    taken = [
        whole,
        json.dumps({"fences": [dict(reversed(part.items()))], "format": 1}, indent=3),
        whole.replace("home", "h\\u00f6m\\u00e9 \\ud83c\\udfe0 \\/ \\u0041"),
        whole.replace("home", "hömé 🏠"),
        f"\r\n\t {whole} \n",
        '{"format": 1, "fences": []}',
    ]
    refused = [
        *("", " ", "[]", "null", "1", '"fences"', "{}", "{", whole[:-1], whole + "}", f"[{whole}]", "\ufeff" + whole),
        '{"format": 1}', '{"fences": []}', '{"format": 2, "fences": []}', '{"format": "1", "fences": []}',
        '{"format": 1, "fences": {}}', '{"format": 1, "fences": [[]]}', '{"format": 1, "fences": [null]}',
        '{"format": 1, "fences": [], "more": 1}', '{"format": 1, "format": 1, "fences": []}',
        whole.replace('"name"', '"name": "x", "name"'), whole.replace('"active": true', '"active": true, "more": 1'),
        whole.replace(', "active": true', ""), whole.replace("1302", "1302.0"), whole.replace("1302", "1.302e3"),
        whole.replace("1302", "01302"), whole.replace("1302", "+1302"), whole.replace("1302", "NaN"),
        whole.replace("1302", "Infinity"), whole.replace("1302", "1e400"), whole.replace("1302", "9" * 5000),
        whole.replace("1302", f"{2**53 + 1}"), whole.replace("1302", "true"), whole.replace("1302", '"1302"'),
        whole.replace("1302", "null"), whole.replace('"home"', "'home'"), whole.replace("home", "ho\tme"),
        whole.replace("home", "\\ud800"), whole.replace("home", "\\u202e"), whole.replace("}]", "},]"),
        "[" * 20_000, '{"format": 1, "fences": ' + "[" * 20_000 + "]" * 20_000 + "}",
        text(name=""), text(name="x" * 61), text(name=5), text(name=None), text(active=1), text(active="true"),
        text(reach_m=99), text(reach_m=10_001, radius_m=10_001), text(reach_m=-1000), text(radius_m=999),
        text(radius_m=12_003), text(reach_m=0, radius_m=0), text(lat_e7=900_000_001), text(lat_e7=-900_000_001),
        text(lon_e7=1_800_000_000), text(lon_e7=-1_800_000_001), text(lat_e7=460093342), text(lon_e7=-289991611),
        text(south_e7=449_980_000), text(south_e7=850_000_000), text(south_e7=2**70), text(west_e7=1_800_000_000),
        text(west_e7=-1_800_000_001), text(west_e7=-(2**70)), text(west_e7=-299_900_000),
        json.dumps({"format": 1, "fences": [part, part]}),
        json.dumps({"format": 1, "fences": [{**part, "name": f"n {number}"} for number in range(MOST_FENCES + 1)]}),
    ]  # fmt: skip
    return [{"text": one, "again": Fences.parsed(one).as_json()} for one in taken], refused


def is_refused(text: str) -> bool:
    """Return whether a text is no list of fences."""
    try:
        Fences.parsed(text)
    except ParameterError:
        return True
    return False


def fence_vectors() -> Json:
    """Return all of it."""
    taken, refused = texts()
    return {
        "drawn": [drawn_vector(name, *numbers) for name, numbers in PLACES.items()],
        "discs": [disc_vector(reach) for reach in (1, 2, 3)],
        "overlapping": overlapping_vector(),
        "changes": changes_vector(),
        "taken": taken,
        "refused": refused,
    }
