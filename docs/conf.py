"""Sphinx's settings for the site: `make docs`. Building and reading it need no internet."""

from __future__ import annotations

import posixpath
import sys
import tomllib
from pathlib import Path
from typing import Any, Generic, TypeVar, get_type_hints

import numpy.typing as npt

Scalar = TypeVar("Scalar")


class NDArray(Generic[Scalar]):
    """An array of scalars, to be shown by its name."""


class ArrayLike:
    """What can be made an array, to be shown by its name."""


# NumPy's own are aliases of long unions, and would be written out wherever they are used. Nothing runs with these.
NDArray.__module__ = ArrayLike.__module__ = "numpy.typing"
npt.NDArray, npt.ArrayLike = NDArray, ArrayLike  # type: ignore[assignment]

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))

import api_pages  # noqa: E402
import command_pages  # noqa: E402
from outside_links import with_includes, with_site_links  # noqa: E402
from sphinx.ext.napoleon import Config  # noqa: E402
from sphinx.ext.napoleon.docstring import NumpyDocstring  # noqa: E402
from sphinx.util.typing import stringify_annotation  # noqa: E402

PROJECT = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REPOSITORY = PROJECT["urls"]["Repository"]
NAMES = api_pages.public_names()
ALIASES = api_pages.aliases(NAMES)
LISTINGS = {"api": lambda: api_pages.listing(NAMES), "command-line": command_pages.listing}
"""Pages whose second half is made here."""
NUMPYDOC: Any = Config(napoleon_use_rtype=False, napoleon_attr_annotations=False)

project = PROJECT["name"]
release = PROJECT["version"]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]
exclude_patterns = ["_ext"]
smartquotes_action = "D"  # dashes; quotation marks stay, as many are of code
default_role = "py:obj"  # `Device.open` in docstrings: a link where there is such a name, else code
highlight_language = "text"

myst_heading_anchors = 4  # as on GitHub
nb_execution_mode = "off"  # notebooks show the outputs that they were stored with; tests run them
nb_ipywidgets_js: dict[str, Any] = {}  # by default from another host

autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "model_config, title_of_errors"}  # of pydantic models
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented_params"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100
toc_object_entries_show_parents = "hide"

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = f"geoblanket {release}"
html_logo = html_favicon = "../src/geoblanket/serve/service/page/icon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False  # LICENSE says it
html_show_search_summary = False  # it needs a server: browsers keep pages from reading other files


def write_api_pages(app: Any) -> None:  # noqa: ARG001 (the event's)
    """Write the pages of public names into docs/api, which git ignores."""
    api_pages.write_pages(DOCS / "api", NAMES)


def complete_page(app: Any, docname: str, source: list[str]) -> None:  # noqa: ARG001 (the event's)
    """Add what is made at build time to a page, and make its links lead somewhere in the site."""
    text = with_includes(source[0], DOCS)
    if not any((DOCS / "notebooks").glob("*.ipynb")):
        text = text.replace("\nnotebooks/*\n", "\n")  # Sphinx would warn
    text = with_site_links(text, DOCS, REPOSITORY, folder=posixpath.dirname(docname) or ".")
    source[0] = text + ("\n" + LISTINGS[docname]() if docname in LISTINGS else "")


def find_public_name(app: Any, env: Any, node: Any, contnode: Any) -> Any:
    """Resolve a name by the module that defines it, or by its last part alone."""
    if node.get("refdomain") != "py":
        return None
    from sphinx.util.nodes import make_refnode

    head, dot, rest = node["reftarget"], "", ""
    while head and head not in ALIASES:
        head, _, last = head.rpartition(".")
        dot, rest = ".", f"{last}.{rest}".strip(".")
    path = f"{ALIASES[head]}{dot}{rest}" if head else ""
    known = env.domains["py"].objects.get(path)
    return known and make_refnode(app.builder, node["refdoc"], known.docname, known.node_id, contnode, path)


def format_docstring(app: Any, what: Any, name: str, value: Any, options: Any, lines: list[str]) -> None:  # noqa: PLR0917 (the event's)
    """Turn a numpydoc docstring into reStructuredText."""
    # A list of fields is one of parameters too: those of the constructor.
    sections = ["Parameters" if line == "Attributes" else line for line in lines]
    fields = api_pages.described_fields(value)
    if fields:
        first = next((number for number, line in enumerate(sections) if line.startswith("---")), len(sections) + 1) - 1
        types = {field: stringify_annotation(hint, "smart") for field, hint in get_type_hints(value).items()}
        described = [f"{field} : {types[field]}\n    {text}" for field, text in fields.items()]
        sections[first:first] = "\n".join(["Parameters", "----------", *described, ""]).split("\n")
    if what in ("attribute", "property"):
        what = "method"  # of an attribute, Napoleon would take the words before a colon as a type
    lines[:] = NumpyDocstring(sections, NUMPYDOC, app, what, name, value, options).lines()


def setup(app: Any) -> None:
    """Connect what this file adds to Sphinx."""
    app.connect("builder-inited", write_api_pages)
    app.connect("source-read", complete_page)
    app.connect("missing-reference", find_public_name)
    app.connect("autodoc-process-docstring", format_docstring)
