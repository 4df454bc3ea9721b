"""Values from outside, checked by pydantic: parameters that users write, and dataclasses that were stored as JSON.

Everything wrong with parameters is reported at once, in our own words. Of stored values no key, type or number is taken
on trust.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from geoblanket._display import call_repr
from geoblanket.errors import InputError, ParameterError

__all__ = ["Number", "Parameters", "WrongParametersError", "as_json", "read_dataclass", "read_toml", "unknown_name"]

_MAX_BYTES: Final = 1 << 20
_EXPECTED: Final = {
    "bool_type": "true or false",
    "dataclass_exact_type": "text",
    "dict_type": "a table of names and values",
    "float_type": "a number",
    "int_type": "a whole number",
    "is_instance_of": "a path",
    "string_type": "text",
    "tuple_type": "a list",
}
"""What pydantic's errors of type mean."""
_WORDS: Final = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def _number(value: Any) -> Any:
    """Let text stand for infinity, as in records; refuse NaN, and whole numbers that a float cannot hold."""
    if value in ("inf", "-inf"):
        return float(value)
    if (type(value) is int and abs(value) >= 1 << 53) or (isinstance(value, float) and math.isnan(value)):
        raise ValueError("must be a number, not NaN or one of too many digits")
    return value


Number = Annotated[float, BeforeValidator(_number)]
"""A float: not NaN, and possibly infinite."""


class WrongParametersError(ParameterError):
    """Parameters are wrong.

    Parameters
    ----------
    title
        Which ones.
    problems
        The parameter and what is wrong with it, for all of them; no parameter if a problem concerns several.
    """

    def __init__(self, title: str, problems: Sequence[tuple[str, str]]) -> None:
        self.title = title
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__(f"{title}: {'; '.join(' '.join(filter(None, problem)) for problem in self.problems)}.")

    def __reduce__(self) -> tuple[type[WrongParametersError], tuple[str, Sequence[tuple[str, str]]]]:
        return type(self), (self.title, self.problems)


class Parameters(BaseModel):
    """Checked parameters.

    Raises
    ------
    WrongParametersError
        With everything that is wrong: unknown names, wrong types, values out of range, contradictions.
    """

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")
    title_of_errors: ClassVar[str] = "Parameters are wrong"

    def __init__(self, /, **values: Any) -> None:
        problems: list[tuple[str, str]] = []
        try:
            super().__init__(**values)
        except ValidationError as error:
            wrong: dict[Any, Any] = {}
            for detail in error.errors(include_url=False):
                wrong.setdefault(detail["loc"][0], detail)
            problems = [_in_words(type(self), detail) for detail in wrong.values()]
            others = {name: value for name, value in values.items() if name not in wrong}
            for name, field in type(self).model_fields.items():
                if name in wrong and field.is_required() and field.examples:
                    others[name] = field.examples[0]
            try:  # what the others contradict is reported too
                super().__init__(**others)
            except ValidationError:
                raise WrongParametersError(self.title_of_errors, problems) from None
        problems += [("", contradiction) for contradiction in self.contradictions()]
        if problems:
            raise WrongParametersError(self.title_of_errors, problems) from None

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with some parameters changed, checked again."""
        return type(self)(**{**dict(self), **changes})

    def __repr__(self) -> str:
        fields = type(self).model_fields
        return call_repr(self, {name: value for name, value in self if value != fields[name].default})

    def contradictions(self) -> Iterator[str]:
        """Yield what is wrong between parameters that are each in order."""
        yield from ()


def _in_words(model: type[BaseModel], detail: Any) -> tuple[str, str]:
    """Return the parameter that pydantic refuses, and why."""
    name, value, context = str(detail["loc"][0]), detail["input"], detail.get("ctx", {})
    match detail["type"]:
        case "missing":
            return name, "is missing"
        case "extra_forbidden":
            return "", unknown_name(f"key '{name}'", name, model.model_fields)
        case "value_error":
            problem = context["error"]  # ours are whole sentences
            return "" if isinstance(problem, ParameterError) else name, str(problem).rstrip(".")
        case "literal_error":
            words = f"must be {context['expected'].replace(chr(39), '')}"
        case "too_short":
            words = f"must have at least {context['min_length']} value(s), got {context['actual_length']}"
        case "too_long":
            words = f"must have at most {context['max_length']} value(s), got {context['actual_length']}"
        case "string_too_long":
            words = f"must have at most {context['max_length']} characters"
        case kind if kind in _EXPECTED:
            words = f"must be {_EXPECTED[kind]}, not {_WORDS.get(type(value), 'something else')}"
        case "greater_than" | "greater_than_equal" | "less_than_equal":
            got = f"{value:g}" if isinstance(value, float) else str(value)[:30]
            words = f"must be {_range(model.model_fields[name], context)}, got {got}"
        case _:
            words = "is of another type"
    return name, words


def _range(field: FieldInfo, context: Mapping[str, Any]) -> str:
    bounds = {key: getattr(limit, key) for limit in field.metadata for key in ("ge", "le", "gt") if hasattr(limit, key)}
    bounds = bounds or dict(context)
    if "ge" in bounds and "le" in bounds:
        return f"from {bounds['ge']:g} to {bounds['le']:g}"
    return f"more than {bounds['gt']:g}" if "gt" in bounds else f"{bounds['ge']:g} or more"


def unknown_name(what: str, name: str, known: Mapping[str, Any]) -> str:
    """Return the words for a name that is not known, with a guess at the one that was meant."""
    near = get_close_matches(name, known, 1, 0.5)
    return f"unknown {what[:80]} " + (f"(did you mean '{near[0]}'?)" if near else f"(known: {', '.join(known)})")


def read_toml(path: Path, *, hint: str | None = None) -> dict[str, Any]:
    """Return the tables of a TOML file; raise InputError if it cannot be read, or is too large for parameters."""
    if not path.is_file():
        raise InputError("no such file", path=path, hint=hint)
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise InputError(f"has more than {_MAX_BYTES} bytes, too many for a file of parameters", path=path)
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a number of very many digits is a plain ValueError
        raise InputError(f"cannot be read as TOML ({error})", path=path) from error


Made = TypeVar("Made")


def read_dataclass(cls: type[Made], values: Any) -> Made:
    """Return the dataclass that `as_json` gave as `values`; raise ValueError if a key or a type is another.

    A whole number may stand for a float.
    """
    try:
        made: Made = _adapter(cls).validate_python(values)  # type: ignore[arg-type]  # classes are hashable
    except ValidationError as error:
        wrong = {".".join(map(str, detail["loc"])) or "all of it" for detail in error.errors()}
        raise ValueError(f"not {cls.__name__}: {', '.join(sorted(wrong))} is missing or wrong") from None
    # Pydantic also takes text for numbers, true for 1 and keys that it does not know: none of them is written.
    if not _same(as_json(made), values):
        raise ValueError(f"not {cls.__name__}: a key or a type is another")
    return made


def as_json(value: Any) -> Any:
    """Return dataclasses, mappings, sequences and numbers as JSON values; infinity becomes "inf" or "-inf"."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: as_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [as_json(item) for item in value]
    return str(value) if isinstance(value, float) and math.isinf(value) else value


@cache
def _adapter(cls: type) -> TypeAdapter[Any]:
    return TypeAdapter(cls)


def _same(written: Any, given: Any) -> bool:
    """Whether JSON values are the same; True is not 1, and NaN is never the same."""
    if isinstance(written, dict) and isinstance(given, Mapping):
        return written.keys() == given.keys() and all(_same(item, given[key]) for key, item in written.items())
    if isinstance(written, list) and isinstance(given, list | tuple):
        return len(written) == len(given) and all(map(_same, written, given))
    return written == given and (type(written) is type(given) or (type(written) is float and type(given) is int))
