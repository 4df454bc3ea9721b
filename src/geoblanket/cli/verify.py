"""`geoblanket verify`: whether a bundle or a model keeps its promise; it ends with the verdict and a few notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli._output import JsonOption, print_json, print_table, say
from geoblanket.cli._policy import PolicyOption, read_policy
from geoblanket.cli.bundle import FileArgument, bundle_facts, is_model
from geoblanket.cli.model import model_facts
from geoblanket.errors import InputError, MechanismError, MismatchError, ParameterError, PolicyError

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.storage import Bundle, BundledMechanism

__all__ = ["verify"]

_MOST_NOTES = 5
_MOST_ROWS = 500  # looking for broken triangles takes the third power of the rows


def verify(
    file: FileArgument,
    *,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Demand a signature (FILE.sig) by this Ed25519 key (PEM).")
    ] = None,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="With a key: only say whether the signature is valid.")
    ] = False,
    domain: Annotated[str | None, typer.Option(metavar="SHA256", help="Refuse a bundle of another domain.")] = None,
    minimum_version: Annotated[int, typer.Option(min=0, help="Refuse an older bundle.")] = 0,
    policy: PolicyOption = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="First tell how it was verified, and all that is not covered.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Verify a bundle or a model in exact arithmetic: `OK` and exit code 0, or `NOT OK` and 1.

    A bundle is OK if all its mechanisms keep promises that meet the policy. Of a motion model it is verified what it
    says of those who were learned from: that its ε follows from the noise that it names.
    """
    if is_model(file):
        if public_key is not None or domain is not None or minimum_version or policy is not None:
            raise ParameterError("Keys, domains, versions and policies are for bundles. Leave them out for a model.")
        _verify_model(file, verbose=verbose, json=json)
        return
    from geoblanket.mechanism.bundle.storage import load_bundle
    from geoblanket.mechanism.bundle.trust import Trust

    least = read_policy(policy)
    trust = Trust(public_key=public_key, allow_unsigned=allow_unsigned, domain=domain, minimum_version=minimum_version)
    with _judging(file, json=json):
        bundle = load_bundle(file, trust=trust)
        lattice = bundle.lattice
        if lattice is not None:
            least.check((), bundle.places_e7, bundle.clock, lattice=lattice.spec)
        elif bundle.located:
            least.check(bundle, bundle.places_e7, bundle.clock)
    notes = list(bundle.caveats)
    if public_key is not None:
        notes.insert(0, "The signature is valid." if bundle.signed else "There is no valid signature.")
    if lattice is None and not bundle.located:
        notes += [note for bundled in bundle for note in _broken_triangles(bundled)]
    where = "" if lattice is None else f"Its frame lies from {lattice.spec.plane.where}. "
    verdict = f"OK: {file}: {_size(bundle)}, verified exactly. {where}{bundle.in_one_sentence}"
    if json:
        told = {"guarantee": bundle.guarantee.split("\n"), "notes": notes}
        print_json({"ok": True, "holds": True, "verdict": verdict, **told, **bundle_facts(bundle, file)})
        return
    if verbose:
        guarantee = bundle.guarantee.removesuffix(bundle.in_one_sentence).rstrip()
        for line in (guarantee, *(note for note in notes if note not in guarantee)):
            typer.echo(line)
    _print_verdict(verdict, notes, verbose=verbose)


def _size(bundle: Bundle) -> str:
    """Return what a bundle consists of, in words."""
    if bundle.lattice is not None:
        return f"1 mechanism, a lattice of {bundle.lattice.cells:,} cells"
    zones = len({bundled.zone for bundled in bundle})
    return f"{len(bundle):,} mechanism{'s' * (len(bundle) != 1)} in {zones:,} zone{'s' * (zones != 1)}"


@contextmanager
def _judging(file: Path, *, json: bool) -> Iterator[None]:
    """Turn what is wrong with a file into the verdict, and exit with 1."""
    try:
        yield
    except (InputError, MechanismError, MismatchError, PolicyError) as error:
        problem = f"{error}"
        named = problem if problem.startswith(f"{file}") else f"{file}: {problem[0].lower()}{problem[1:]}"
        verdict = f"NOT OK: {named}"
        if json:
            print_json({"ok": False, "holds": False, "verdict": verdict, "problem": problem})
            say(verdict)
        else:
            typer.echo(verdict)
        raise typer.Exit(1) from error


def _print_verdict(verdict: str, notes: Sequence[str], *, verbose: bool) -> None:
    """End with the verdict and a few notes, so that neither scrolls away."""
    typer.echo(verdict)
    shown = list(notes)
    if len(shown) > _MOST_NOTES:
        where = "above" if verbose else "told with --verbose"
        shown[_MOST_NOTES - 1 :] = [f"{len(shown) - _MOST_NOTES + 1} more notes are {where}."]
    for note in shown:
        typer.echo(f"Note: {note}")


def _verify_model(file: Path, *, verbose: bool, json: bool) -> None:
    from rich.markup import escape

    from geoblanket._training import NOBODY, PART_COLUMNS
    from geoblanket.tracking.motion_model import MotionModel

    with _judging(file, json=json):
        model = MotionModel.load(file)
    training, promise = model.training, model.training.promise
    learned = "nothing was learned from anyone" if training == NOBODY else f"the model was {training.in_words()}"
    sentence = f"In one sentence: a model changes nothing about what reports give away, and {learned}."
    proof = [] if promise is None else [promise.proof()]
    checked = "its file is whole" if promise is None else "its ε follows from the noise that it names"
    verdict = f"OK: {file}: a motion model of {model.place_count:,} places, {checked}. {sentence}"
    notes = [] if (caveat := training.caveat()) is None else [caveat]
    if json:
        rho = {} if promise is None else {"rho": [part.rho for part in promise.parts]}
        told = {"guarantee": [*proof, sentence], "notes": notes, **rho}
        print_json({"ok": True, "holds": True, "verdict": verdict, **told, **model_facts(model, file)})
        return
    if verbose:
        if promise is not None:
            rows = [(escape(name), *numbers) for name, *numbers in promise.rows()]
            print_table("What was counted, and the noise that was added", rows, header=PART_COLUMNS)
        for line in (f"The model comes {model.in_words()}.", *proof):
            typer.echo(line)
    _print_verdict(verdict, notes, verbose=verbose)


def _broken_triangles(bundled: BundledMechanism) -> Iterator[str]:
    from geoblanket.mechanism.bundle.domain import triangle_breaks

    mechanism = bundled.mechanism
    if mechanism.row_count <= _MOST_ROWS and (pairs := triangle_breaks(mechanism.distance_mm)):
        yield (
            f"In {bundled.header().where}: {pairs:,} pair(s) of rows are further apart than by way of a third row. The "
            "promise was verified pair by pair and does not need this."
        )
