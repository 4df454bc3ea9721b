"""An experiment: a small TOML file that says which settings are compared, with which methods and how exactly.

Keys of `[setting]` hold for all settings. Each `[[vary]]` gives settings of its own: one for every combination of the
values of its keys that are lists (`history_weights`, itself a list, is varied as a list of lists).
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import product
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar

from pydantic import Field

from geoblanket._arguments import checked
from geoblanket.build.validation import Number, Parameters, WrongParametersError, as_json, read_toml
from geoblanket.errors import InputError
from geoblanket.evaluate.methods import METHODS, is_own
from geoblanket.evaluate.settings import Setting

__all__ = ["Experiment", "read_experiment", "shipped_experiments"]

_Model = TypeVar("_Model", bound=Parameters)
_LISTS = ("methods",)
"""Keys of settings whose lists are one value, not several."""
_LISTS_OF_LISTS = ("history_weights",)


class Experiment(Parameters):
    """What is compared, and how exactly.

    Examples
    --------
    >>> from geoblanket.evaluate import Experiment, Setting
    >>> settings = tuple(Setting(methods=("lp", "expmech"), epsilon=epsilon) for epsilon in (1.0, 2.0, 4.0))
    >>> Experiment(name="mine", title="What does privacy cost?", settings=settings, zones=2).gap
    0.01
    """

    title_of_errors: ClassVar[str] = "The experiment is wrong"

    name: str
    title: str
    """What it asks, in a few words."""
    settings: tuple[Setting, ...]
    zones: int = 0
    """How many zones, drawn by how many steps they have; 0 for all."""
    destinations: int = 0
    """How many vehicles with one destination each are looked at too; 0 for none."""
    by_hour_and_speed: bool = False
    """Report held-out losses by hour and by speed too."""
    reports: Annotated[tuple[int, ...], Field(strict=False)] = (10,)
    """How many reports in a row an attacker sees in hindsight: the usual number first, then others to compare."""
    gap: Number = 0.01
    """Losses of linear programs are proven to exceed the optimum by at most this share."""
    time_limit_s: Number = 600.0
    """Seconds for a linear program, at most."""
    max_tasks: int = 3000
    """The most tasks of the loss; of more, a sample of this size is drawn."""
    seed: int = 0

    def as_json(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            name: [as_json(dict(setting)) for setting in self.settings] if name == "settings" else as_json(value)
            for name, value in self
        }

    def with_methods(self, methods: Sequence[str]) -> Experiment:
        """Return the same with more methods in every setting, such as `FILE.py:FUNCTION`."""
        settings = (setting.replaced(methods=(*setting.methods, *methods)) for setting in self.settings)
        return self.replaced(settings=tuple(settings)) if methods else self

    def contradictions(self) -> Iterator[str]:
        """Yield what is wrong between parameters that are each in order."""
        named = {method for setting in self.settings for method in setting.methods}
        unknown = {method for method in named if method not in METHODS and not is_own(method)}
        if unknown:
            yield f"unknown methods {', '.join(sorted(unknown))} (known: {', '.join(METHODS)})"
        for setting in self.settings:
            known = [METHODS[method] for method in setting.methods if method in METHODS]
            wrong = [
                method.key for method in known if (method.uses_past if setting.city_wide else method.only_city_wide)
            ]
            if wrong:
                where = "cannot be compared city-wide" if setting.city_wide else "can only be compared city-wide"
                yield f"{', '.join(wrong)} {where} (city_wide = {str(setting.city_wide).lower()})"
                break
        if len({setting.columns for setting in self.settings}) < len(self.settings):
            yield "some of its settings could not be told apart in results: give each a variant of its own"


class _Quick(Parameters):
    """What makes an experiment quick: fewer of everything."""

    zones: int = 1
    max_places: int = 20
    max_rows: int = 300
    time_limit_s: Number = 60.0
    gap: Number = 0.02
    epsilon: Annotated[tuple[Number, ...], Field(strict=False)] = (1.0, 2.0, 4.0)

    def of(self, experiment: Experiment) -> Experiment:
        settings = [
            setting.replaced(
                max_rows=min(setting.max_rows, self.max_rows), max_places=min(setting.max_places, self.max_places)
            )
            for setting in experiment.settings
            if setting.epsilon in self.epsilon
        ]
        return experiment.replaced(
            settings=tuple(dict.fromkeys(settings)),
            zones=min(experiment.zones or self.zones, self.zones),
            gap=max(experiment.gap, self.gap),
            time_limit_s=min(experiment.time_limit_s, self.time_limit_s),
        )


def shipped_experiments() -> dict[str, str]:
    """Return the names and titles of the experiments that come with geoblanket."""
    shipped = sorted((file for file in _shipped().iterdir() if file.name.endswith(".toml")), key=lambda file: file.name)
    return {file.name.removesuffix(".toml"): tomllib.loads(file.read_text("utf-8"))["title"] for file in shipped}


@checked
def read_experiment(name: str, *, quick: bool = False) -> Experiment:
    """Return an experiment by its name or from a TOML file.

    Parameters
    ----------
    name
        One of `shipped_experiments()`, or a path that ends in `.toml`.
    quick
        Take its quick version: fewer zones, rows and values of ε, and a wider gap.

    Raises
    ------
    InputError
        If there is no such experiment, or it cannot be read.
    ParameterError
        With everything that is wrong in it.

    Examples
    --------
    >>> from geoblanket.evaluate import read_experiment
    >>> experiment = read_experiment("paper", quick=True)
    >>> sorted({setting.epsilon for setting in experiment.settings})
    [1.0, 2.0, 4.0]
    """
    if name.endswith(".toml"):
        tables, name = read_toml(Path(name)), Path(name).stem
    elif name in (shipped := shipped_experiments()):
        tables = tomllib.loads((_shipped() / f"{name}.toml").read_text("utf-8"))
    else:
        near = get_close_matches(name, shipped, 1)
        raise InputError(
            f"there is no experiment {name[:40]!r}" + (f" (did you mean '{near[0]}'?)" if near else ""),
            hint=f"Give one of {', '.join(shipped)}, or a file that ends in .toml",
        )
    experiment, quick_version = _made(name, tables)
    return quick_version.of(experiment) if quick else experiment


def _shipped() -> Traversable:
    return files("geoblanket.evaluate") / "experiments"


def _made(name: str, tables: Mapping[str, Any]) -> tuple[Experiment, _Quick]:
    title = f"The experiment '{name}' is wrong"
    problems: list[tuple[str, str]] = []

    def checked(model: type[_Model], values: Mapping[str, Any]) -> _Model | None:
        try:
            return model(**values)
        except WrongParametersError as error:
            problems.extend(error.problems)
            return None

    shared, quick, blocks = tables.get("setting", {}), tables.get("quick", {}), tables.get("vary", [])
    if not isinstance(blocks, list) or not all(isinstance(table, Mapping) for table in (shared, quick, *blocks)):
        raise WrongParametersError(title, [("", "[setting] and [quick] must be tables, and [[vary]] a list of tables")])
    top = {key: value for key, value in tables.items() if key not in ("setting", "vary", "quick")}
    problems += [("", f"unknown key '{key}'") for key in ("name", "settings") if key in top]
    quick_version = checked(_Quick, quick)
    settings = [checked(Setting, values) for block in blocks for values in _combinations({**shared, **block})]
    experiment = checked(Experiment, {**top, "name": name, "settings": tuple(filter(None, settings))})
    if not settings:
        problems.append(("", "it has no settings: give one [[vary]] or more"))
    if problems or experiment is None or quick_version is None:
        raise WrongParametersError(title, problems)
    return experiment, quick_version


def _combinations(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    choices = {key: value if _is_varied(key, value) else [value] for key, value in block.items()}
    for values in product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


def _is_varied(key: str, value: Any) -> bool:
    if key in _LISTS or not isinstance(value, list):
        return False
    return key not in _LISTS_OF_LISTS or all(isinstance(item, list) for item in value)
