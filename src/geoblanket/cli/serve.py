"""`geoblanket serve` and `geoblanket gateway`: bundles over HTTP; true positions of trackers in, perturbed ones out."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket._display import counted
from geoblanket.cli import _options as options
from geoblanket.cli._output import progress_bars, say
from geoblanket.cli._settings import Settings

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.policy import Policy
    from geoblanket.serve.limits import Limits
    from geoblanket.serve.service.bundles import BundleStore
    from geoblanket.serve.service.receiver import Receiver
    from geoblanket.serve.service.report import ReportWorker

_GATEWAY_CONFIG = Path("gateway.toml")


@dataclass(frozen=True)
class _ServeSettings:
    """Settings of `serve` besides those of `Trust`."""

    allow_host: str = ""
    """More names to accept in the Host header, separated by commas, such as that of a reverse proxy."""
    access_log: bool = False
    """Log a line for each request, without its content."""


_SERVE = Settings(_ServeSettings, "geoblanket.mechanism.bundle.trust:Trust", without=("public_key", "domain"))


def serve(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[BUNDLE]...", help="Bundles to serve; with --roads, none are needed.", show_default=False
        ),
    ] = None,
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8642,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve only bundles signed by this Ed25519 key (PEM).")
    ] = None,
    policy: options.PolicyFile = None,
    roads: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Roads for the map of the web page, and for the drives that it replays.",
            show_default="no roads, and no drives",
        ),
    ] = None,
    walks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Walks that the bundles were built from. The page replays held-out ones, which are true paths of "
            "vehicles: only for an address that no other machine can reach.",
            show_default="only made-up drives are replayed",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Motion model for the page's tracker, from `geoblanket model`. With it the service also receives "
            "reports that were made with the first bundle, and estimates where their vehicles are.",
            show_default="for the page, from the roads and training walks; no reports are received",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also make reports for this machine's vehicle, with the first bundle and within this ledger, from "
            "`geoblanket ledger create`. Only for an address that no other machine can reach.",
            show_default="no reports",
        ),
    ] = None,
    set_: Annotated[list[str] | None, _SERVE.option] = None,
) -> None:
    """Serve verified bundles over HTTP, with a page that explains them. With a ledger, also report for this vehicle.

    Every bundle is verified in exact arithmetic first. If one fails, nothing is served. A replaced file is verified
    again, and served unless it fails or is older.

    Ctrl-C or SIGTERM stops the service cleanly.
    """
    from geoblanket.errors import ParameterError
    from geoblanket.mechanism.bundle.trust import Trust
    from geoblanket.serve.limits import LOOPBACK_NAMES, Limits
    from geoblanket.serve.metrics import configure_logs
    from geoblanket.serve.server import is_loopback, listen, make_server, url_of
    from geoblanket.serve.service.app import create_app
    from geoblanket.serve.service.bundles import BundleStore
    from geoblanket.serve.service.explorer import Explorer

    settings = _SERVE.read(set_)
    chosen = _ServeSettings(**settings.of(_ServeSettings))
    local = is_loopback(host)
    if not files and (roads is None or ledger is not None or model is not None):
        raise ParameterError(
            "Give at least one bundle to serve. Without one, the page needs --roads, and nothing else."
        )
    for option, path, what in (
        ("--ledger", ledger, "Reports contain true locations, and are accepted"),
        ("--walks", walks, "Walks are true paths of vehicles, and are shown"),
    ):
        if path is not None and not local:
            raise ParameterError(
                f"{what} only on a loopback address, such as 127.0.0.1. Leave out {option}, or --host."
            )
    names = frozenset(name.strip().lower() for name in chosen.allow_host.split(",") if name.strip())
    least = options.read_policy(policy)
    trust = Trust(public_key=public_key, **settings.of(Trust))
    with progress_bars() as progress:
        store = BundleStore(files or [], trust=trust, policy=least, progress=progress)
    explorer = Explorer(store, roads=roads, walks=walks, model=model)
    limits = Limits()
    tracking = None if model is None else _open_receiver(store, limits, model)
    if not local:
        say(f"WARNING: {host} can be reached from other machines. This service has no encryption and no login.")
    hosts = names | LOOPBACK_NAMES if local or names else None
    with listen(host, port) as listener:
        reports = None if ledger is None else _open_reports(store, limits, ledger, policy=least)
        app = create_app(store, reports=reports, tracking=tracking, explorer=explorer, limits=limits, hosts=hosts)
        configure_logs(access=chosen.access_log)
        parts = (
            counted(len(store.bundles), "bundle") if store.bundles else "the page",
            "" if reports is None else "this vehicle's reports",
            "" if tracking is None else "estimates of where vehicles are",
        )
        what = " and ".join(filter(None, parts))
        ready = partial(say, f"Serving {what} on {url_of(listener)} (Ctrl-C stops).")
        make_server(app, limits=limits, on_ready=ready).run(sockets=[listener])
    say("Stopped.")


def _open_reports(store: BundleStore, limits: Limits, ledger: Path, *, policy: Policy) -> ReportWorker:
    import resource

    from geoblanket.release.device import Device
    from geoblanket.serve.service.report import ReportWorker

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold where the vehicle was
    bundle = store.bundles[0].bundle
    sealing = options.sealing()
    return ReportWorker(lambda: Device.open(bundle, ledger=ledger, policy=policy, **sealing), limits=limits)


def _open_receiver(store: BundleStore, limits: Limits, model: Path) -> Receiver:
    from geoblanket.serve.service.receiver import Receiver
    from geoblanket.tracking.motion_model import MotionModel

    return Receiver(store.bundles[0].bundle, MotionModel.load(model), limits=limits)


def gateway(
    file: Annotated[Path, typer.Argument(metavar="[CONFIG]", help="The configuration (TOML).")] = _GATEWAY_CONFIG,
    *,
    init: Annotated[bool, typer.Option("--init", help="Write a commented example to CONFIG and exit.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check CONFIG and exit.")] = False,
    enrol: Annotated[bool, typer.Option("--enrol", help="Give every new device an account.")] = False,
    policy: options.PolicyFile = None,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Log a line for each request, without its content.")
    ] = False,
) -> None:
    """Perturb positions between trackers and their server: OwnTracks (HTTP, MQTT), OsmAnd, Traccar, JSON lines.

    Each device has a durable budget in one ledger. Reports wait on disk until the server has them. Nothing else of a
    message passes, except what the configuration allows.

    Ctrl-C or SIGTERM stops the gateway cleanly.
    """
    from geoblanket.serve.gateway.config import read_config, readable_by_others, write_example

    if init:
        write_example(file)
        say(f"Example written to {file}. Edit it, then run: geoblanket gateway {file}")
        return
    config = read_config(file)
    if readable_by_others(file):
        say(f"WARNING: {file} contains passwords, and other users can read it. Run: chmod 600 {file}")
    if check:
        say(f"{file} is valid.")
        return
    import resource

    from geoblanket.serve.gateway.running import run
    from geoblanket.serve.metrics import configure_logs

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold where devices were
    configure_logs(access=access_log)

    def ready(url: str | None) -> None:
        say("The gateway is running" + (f" on {url}" if url else "") + " (Ctrl-C stops).")

    is_good = run(config, enrol=enrol, policy=options.read_policy(policy), on_ready=ready)
    say("Stopped.")
    if not is_good:
        raise typer.Exit(1)
