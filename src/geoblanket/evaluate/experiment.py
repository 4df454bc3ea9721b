"""An experiment: a small TOML file that says which settings are compared, with which methods and how exactly.

Keys of `[setting]` hold for all settings. Each `[[vary]]` gives settings of its own: one for every combination of the
values of its keys that are lists (`history_weights`, itself a list, is varied as a list of lists).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Any, get_type_hints

from geoblanket.build.typed_values import as_json, of_type
from geoblanket.errors import InputError, ParameterError
from geoblanket.evaluate.methods import METHODS
from geoblanket.evaluate.settings import Setting

__all__ = ["Experiment", "read_experiment", "shipped_experiments"]

_LARGEST_BYTES = 1 << 20
_LISTS = ("methods",)
"""Keys of settings whose lists are one value, not several."""
_LISTS_OF_LISTS = ("history_weights",)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """What to compare, and how precisely.

    Examples
    --------
    >>> from geoblanket.evaluate import Experiment, Setting
    >>> settings = tuple(Setting(methods=("lp", "expmech"), epsilon=epsilon) for epsilon in (1.0, 2.0, 4.0))
    >>> Experiment(name="mine", title="What does privacy cost?", settings=settings, zones=2).gap
    0.01
    """

    name: str
    title: str
    """What it asks, in a few words."""
    settings: tuple[Setting, ...]
    zones: int = 0
    """How many zones, drawn by how many steps they have; 0 for all."""
    destinations: int = 0
    """How many vehicles with one destination each are looked at too; 0 for none."""
    by_hour_and_speed: bool = False
    """Tell held-out losses by hour and by speed too."""
    reports: tuple[int, ...] = (10,)
    """How many reports in a row the tracking attacker sees: the usual number first, then others to compare."""
    gap: float = 0.01
    """Losses of linear programs are proven to be at most this share above the optimum."""
    time_limit_s: float = 600.0
    """Seconds for a linear program, at most."""
    max_tasks: int = 3000
    """Beyond so many tasks of the loss, a sample of so many is taken."""
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        result: dict[str, Any] = as_json(self)
        return result


@dataclass(frozen=True, kw_only=True)
class _Quick:
    """What makes an experiment quick: fewer of everything."""

    zones: int = 1
    max_places: int = 20
    max_rows: int = 300
    time_limit_s: float = 60.0
    gap: float = 0.02
    epsilon: tuple[float, ...] = (1.0, 2.0, 4.0)

    def of(self, experiment: Experiment) -> Experiment:
        settings = tuple(
            replace(one, max_rows=min(one.max_rows, self.max_rows), max_places=min(one.max_places, self.max_places))
            for one in experiment.settings
            if one.epsilon in self.epsilon
        )
        return replace(
            experiment,
            settings=tuple(dict.fromkeys(settings)),
            zones=min(experiment.zones or self.zones, self.zones),
            gap=max(experiment.gap, self.gap),
            time_limit_s=min(experiment.time_limit_s, self.time_limit_s),
        )


def shipped_experiments() -> dict[str, str]:
    """Return the names and titles of the experiments that come with geoblanket."""
    found = sorted(
        (one for one in _shipped().iterdir() if one.name.endswith(".toml")),
        key=lambda one: one.name,
    )
    return {one.name.removesuffix(".toml"): tomllib.loads(one.read_text("utf-8"))["title"] for one in found}


def read_experiment(name: str, *, quick: bool = False) -> Experiment:
    """Return an experiment by name or from a TOML file.

    Parameters
    ----------
    name
        One of `shipped_experiments()`, or a path that ends in `.toml`.
    quick
        Return its quick version: fewer zones, rows and values of ε, and a wider gap.

    Raises
    ------
    InputError
        If there is no such experiment, or it cannot be read.
    ParameterError
        Lists everything that is wrong.

    Examples
    --------
    >>> from geoblanket.evaluate import read_experiment
    >>> experiment = read_experiment("paper", quick=True)
    >>> sorted({setting.epsilon for setting in experiment.settings})
    [1.0, 2.0, 4.0]
    """
    if name.endswith(".toml"):
        tables, name = _parsed(Path(name)), Path(name).stem
    elif name in (shipped := shipped_experiments()):
        text = (_shipped() / f"{name}.toml").read_text("utf-8")
        tables = tomllib.loads(text)
    else:
        near = get_close_matches(name, shipped, 1)
        raise InputError(
            f"there is no experiment {name[:40]!r}" + (f" (did you mean '{near[0]}'?)" if near else ""),
            hint=f"Give one of {', '.join(shipped)}, or a file that ends in .toml",
        )
    experiment, quickly = _made(name, tables)
    return quickly.of(experiment) if quick else experiment


def _shipped() -> Traversable:
    return files("geoblanket.evaluate") / "experiments"


def _parsed(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise InputError("no such file", path=path)
    try:
        if path.stat().st_size > _LARGEST_BYTES:
            raise InputError(f"has more than {_LARGEST_BYTES} bytes, so it is no experiment", path=path)
        return tomllib.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of very many digits is a plain ValueError
        raise InputError(f"cannot be read as TOML ({error})", path=path) from error


def _made(name: str, tables: Mapping[str, Any]) -> tuple[Experiment, _Quick]:
    problems: list[str] = []
    shared, blocks = tables.get("setting", {}), tables.get("vary", [])
    top = {key: value for key, value in tables.items() if key not in ("setting", "vary", "quick")}
    values = _typed(top, Experiment, problems, left_out=("name", "settings"))
    quick = _Quick(**_typed(tables.get("quick", {}), _Quick, problems))
    settings = []
    for block in blocks:
        for one in _combinations({**shared, **block}):
            try:
                settings.append(Setting(**_typed(one, Setting, problems)))
            except (ParameterError, TypeError) as error:
                problems.append(str(error))
    unknown = {method for one in settings for method in one.methods} - set(METHODS)
    if unknown:
        problems.append(f"unknown methods {', '.join(sorted(unknown))} (known: {', '.join(METHODS)})")
    if len({one.columns for one in settings}) < len(settings):
        problems.append("some of its settings could not be told apart in results: give each a variant of its own")
    if not settings:
        problems.append("it has no settings: give one [[vary]] or more")
    if "title" not in values:
        problems.append("it has no title")
    if problems:
        raise ParameterError(f"The experiment '{name}' is wrong: " + "; ".join(dict.fromkeys(problems)) + ".")
    return Experiment(name=name, settings=tuple(settings), **values), quick


def _combinations(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    choices = {key: value if _is_varied(key, value) else [value] for key, value in block.items()}
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _is_varied(key: str, value: Any) -> bool:
    if key in _LISTS or not isinstance(value, list):
        return False
    return key not in _LISTS_OF_LISTS or all(isinstance(one, list) for one in value)


def _typed(table: Mapping[str, Any], cls: type, problems: list[str], left_out: tuple[str, ...] = ()) -> dict[str, Any]:
    hints = get_type_hints(cls)
    known = [one.name for one in fields(cls) if one.name not in left_out]
    values = {}
    for key, value in table.items():
        if key not in known:
            near = get_close_matches(key, known, 1, 0.5)
            problems.append(f"unknown key '{key[:40]}'" + (f" (did you mean '{near[0]}'?)" if near else ""))
            continue
        try:
            values[key] = of_type(value, hints[key])
        except ValueError as error:
            problems.append(f"{key} {error}")
    return values
