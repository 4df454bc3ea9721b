"""`--set KEY=VALUE`: settings that few people change. Each key is a parameter of what does the command's work.

Docstrings are the words of `--set help`, and of the tables that commands print.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import textwrap
import tomllib
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import typer

from geoblanket.errors import ParameterError

_WANTED: Final = {int: "a whole number", float: "a number", bool: "true or false", str: "text", Path: "a file"}
_SECTION = re.compile(r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[^\n]*\n-+\n|\Z)", re.MULTILINE | re.DOTALL)
_ENTRY = re.compile(r"^(\w[\w, ]*)\n((?: +[^\n]*\n?|\n)+)", re.MULTILINE)
_HELP: Final = "Change another setting. Can be repeated. `--set help` lists all settings."


class Chosen(dict[str, Any]):
    """The settings that were given, by key."""

    def of(self, source: Callable[..., Any]) -> dict[str, Any]:
        """Return the settings that are parameters of a function, or fields of a class."""
        return {name: self[name] for name in parameter_defaults(source) if name in self}


class Settings:
    """The keys that `--set` of one command takes.

    Parameters
    ----------
    sources
        Functions and classes; their parameters and fields with a default are the keys. As "module:name" where importing
        takes long.
    without
        Parameters that are no keys, because they have options of their own or are for callers in Python.
    example
        A function ("module:name") that returns a configuration file with the keys of the first source explained.
    """

    def __init__(
        self, *sources: Callable[..., Any] | str, without: Collection[str] = (), example: str | None = None
    ) -> None:
        self._sources = sources
        self._without = frozenset({"progress", *without})
        self._example = example

    @property
    def option(self) -> Any:
        """The option, for the signature of the command."""
        return typer.Option("--set", metavar="KEY=VALUE", help=_HELP, is_eager=True, callback=self._answer_help)

    def read(self, given: Sequence[str] | None) -> Chosen:
        """Return the settings in `KEY=VALUE` texts.

        Raises
        ------
        ParameterError
            If a key is unknown or repeated, or a value has the wrong type.
        """
        chosen = Chosen()
        for text in given or ():
            key, equals, value = (part.strip() for part in text.partition("="))
            if not equals or key in chosen:
                raise ParameterError(f"--set takes KEY=VALUE, and each key only once. Got '{text}' instead.")
            chosen[key] = _value(key, value, self._hint(key))
        return chosen

    def _hint(self, key: str) -> Any:
        """Return the type of a setting. Sources are imported one by one: a light installation has not all of them."""
        known: list[str] = []
        for source in map(_load, self._sources):
            known += self._keys(source)
            if key in known:
                return parameter_types(source)[key]
        near = get_close_matches(key, known, n=1)
        meant = f" Did you mean '{near[0]}'?" if near else ""
        raise ParameterError(f"There is no setting '{key}'.{meant} The settings are: {', '.join(known)}.")

    def explain(self) -> str:
        """Return every key with its meaning and its default, as TOML."""
        sources = [_load(source) for source in self._sources]
        lines = []
        if self._example is not None:
            lines = [_load(self._example)(), "# Only with --set, not in a file:"]
            sources = sources[1:]
        seen: set[str] = set()
        for source in sources:
            docs = parameter_docs(source)
            for name, default in self._keys(source).items():
                if name in seen:
                    continue
                seen.add(name)
                line = f"# {name} = ..." if default is None else f"{name} = {json.dumps(default, ensure_ascii=False)}"
                lines += [f"# {docs.get(name, '')}".rstrip(), line]
        return "\n".join(lines)

    def _answer_help(self, given: list[str] | None) -> list[str] | None:
        if "help" in (given or ()):
            typer.echo(self.explain())
            raise typer.Exit
        return given

    def _keys(self, source: Callable[..., Any]) -> Mapping[str, Any]:
        return {name: value for name, value in parameter_defaults(source).items() if name not in self._without}


def _load(source: Callable[..., Any] | str) -> Callable[..., Any]:
    if not isinstance(source, str):
        return source
    module, _, attribute = source.partition(":")
    loaded: Callable[..., Any] = attrgetter(attribute)(importlib.import_module(module))
    return loaded


def _value(key: str, text: str, hint: Any) -> Any:
    """Return the value in a text, if a parameter of this type takes it. Text needs no quotes; none is None."""
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text
    kinds = get_args(hint) if get_origin(hint) in {Union, types.UnionType} else (hint,)
    if text == "none" and types.NoneType in kinds:
        return None
    for kind in kinds:
        if (taken := _taken(value, text, kind)) is not None:
            return taken
    wanted = [
        _WANTED.get(kind) or f"one of {', '.join(get_args(kind))}" for kind in kinds if kind is not types.NoneType
    ]
    raise ParameterError(f"The setting '{key}' must be {' or '.join(wanted)}. Got '{text}' instead.")


def _taken(value: Any, text: str, kind: Any) -> Any:
    """Return a value as one type takes it; None if it does not."""
    if get_origin(kind) is Literal:
        return value if value in get_args(kind) else None
    if kind is str:
        return value if isinstance(value, str) else text
    if kind is Path:
        return Path(value) if isinstance(value, str) else None
    if kind is float:
        return float(value) if type(value) in {int, float} else None
    if kind in {int, bool, types.NoneType}:
        return value if type(value) is kind else None
    return value  # the function or class checks it


def parameter_defaults(source: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of a function, or the fields of a class, that have a default."""
    parameters = inspect.signature(source).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


def parameter_types(source: Callable[..., Any]) -> dict[str, Any]:
    """Return the type of each parameter or field."""
    if not inspect.isclass(source):
        return get_type_hints(source)
    return get_type_hints(source.__init__) | get_type_hints(source)


def parameter_docs(source: Callable[..., Any]) -> dict[str, str]:
    """Return what is written about each parameter, field or property, on one line.

    That is a description of pydantic, a docstring's entry, the docstring of a property, or a string below a field.
    """
    described = {name: field.description or "" for name, field in getattr(source, "model_fields", {}).items()}
    found = {**dict(_in_docstring(source)), **described}
    if inspect.isclass(source):
        properties = {name: value.__doc__ or "" for name, value in vars(source).items() if isinstance(value, property)}
        found |= {**dict(_below_fields(source)), **properties}
    return {name: " ".join(text.split()) for name, text in found.items() if text}


def _in_docstring(source: Callable[..., Any]) -> Iterator[tuple[str, str]]:
    for section in _SECTION.findall(inspect.getdoc(source) or ""):
        for names, text in _ENTRY.findall(section):
            yield from ((name.strip(), text) for name in names.split(","))


def _below_fields(source: type) -> Iterator[tuple[str, str]]:
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(source))).body
    except OSError:  # an installation without sources
        return
    for statement, below in pairwise(getattr(definition, "body", ())):
        match statement, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(text))):
                yield name, text
