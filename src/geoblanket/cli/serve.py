"""`geoblanket serve` and `geoblanket gateway`: bundles over HTTP; true positions of trackers in, perturbed ones out."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from geoblanket.cli import _options as options
from geoblanket.cli._output import progress_bars, say
from geoblanket.cli.ledger import CounterOption, KeyOption, device_key

if TYPE_CHECKING:
    from geoblanket.mechanism.bundle.policy import Policy
    from geoblanket.service.limits import Limits
    from geoblanket.service.receiver import Receiver
    from geoblanket.service.report import ReportDesk
    from geoblanket.service.store import BundleStore

__all__ = ["gateway", "serve"]

_GATEWAY_CONFIG = Path("gateway.toml")


def serve(
    files: Annotated[list[Path], typer.Argument(metavar="BUNDLE...", help="Bundles to serve.", show_default=False)],
    *,
    host: Annotated[str, typer.Option(help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes a free one.")] = 8642,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also answer to this name in the Host header, for example of a reverse proxy.",
            show_default="localhost, 127.0.0.1 and [::1]",
        ),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Serve only bundles signed by this Ed25519 key (PEM).")
    ] = None,
    allow_unsigned: Annotated[
        bool, typer.Option("--allow-unsigned", help="With a key: serve others too, and say that they are not signed.")
    ] = False,
    minimum_version: Annotated[int, typer.Option(min=0, help="Refuse older bundles.")] = 0,
    policy: options.PolicyFile = None,
    roads: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Roads for the map of the web page.", show_default="only places and zones are drawn"
        ),
    ] = None,
    walks: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Walks that the bundles were built from: the page replays some that were held out. They are true "
            "paths of vehicles, so only on an address that no other machine can reach.",
            show_default="only parked cars and made-up drives are replayed",
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Motion model for the page's tracker, from `geoblanket model`. With it the service also receives "
            "released reports, made with the first bundle, and tells where their vehicles are.",
            show_default="for the page, from the roads and training walks; no reports are received",
        ),
    ] = None,
    plan: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A plan from `geoblanket plan --json`: the page shows what other intervals would give.",
            show_default="not shown",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also make reports of this machine's vehicle, by the first bundle and within this ledger, from "
            "`geoblanket ledger create`. Only on an address that no other machine can reach.",
            show_default="no reports",
        ),
    ] = None,
    key: KeyOption = None,
    counter: CounterOption = None,
    access_log: Annotated[bool, typer.Option(help="Log a line for each request, without what was sent.")] = False,
) -> None:
    """Serve verified bundles over HTTP, and a page that shows what they do; with a ledger, also this vehicle's reports.

    Every bundle is verified in exact arithmetic before anything is served; if one does not verify, nothing is. A file
    that is replaced is verified again, and served if it is right and no older.

    Ctrl-C or SIGTERM stops the service in order.
    """
    from geoblanket.errors import ParameterError
    from geoblanket.mechanism.bundle.trust import Trust
    from geoblanket.service.app import create_app
    from geoblanket.service.explorer import Explorer
    from geoblanket.service.limits import LOOPBACK_NAMES, Limits
    from geoblanket.service.metrics import configure_logs
    from geoblanket.service.server import is_loopback, listen
    from geoblanket.service.server import serve as serve_app
    from geoblanket.service.store import BundleStore

    local = is_loopback(host)
    for option, path, what in (
        ("--ledger", ledger, "Reports contain true locations, and are accepted"),
        ("--walks", walks, "Walks are true paths of vehicles, and are shown"),
    ):
        if path is not None and not local:
            raise ParameterError(
                f"{what} only on a loopback address, such as 127.0.0.1. Leave out {option}, or --host."
            )
    names = frozenset(name.lower() for name in allow_host or ())
    least = options.read_policy(policy)
    trust = Trust(public_key=public_key, allow_unsigned=allow_unsigned, minimum_version=minimum_version)
    with progress_bars() as progress:
        store = BundleStore(files, trust=trust, policy=least, progress=progress)
    explorer = Explorer(store, roads=roads, walks=walks, model=model, plan=plan)
    limits = Limits()
    tracking = None if model is None else _open_receiver(store, limits, model)
    if not local:
        say(f"WARNING: {host} can be reached from other machines. There is no encryption and no login here.")
    hosts = names | LOOPBACK_NAMES if local or names else None
    with listen(host, port) as listener:
        desk = None if ledger is None else _open_desk(store, limits, ledger, key, counter, policy=least)
        app = create_app(store, desk=desk, tracking=tracking, explorer=explorer, limits=limits, hosts=hosts)
        configure_logs(access=access_log)
        address, number, *_ = listener.getsockname()
        shown = f"http://[{address}]:{number}" if ":" in address else f"http://{address}:{number}"
        parts = (
            f"{len(store.bundles)} bundle(s)",
            "" if desk is None else "this vehicle's reports",
            "" if tracking is None else "where vehicles are that report to it",
        )
        what = " and ".join(filter(None, parts))
        ready = partial(say, f"Serving {what} on {shown} (Ctrl-C stops).")
        serve_app(app, listener, limits=limits, on_ready=ready)
    say("Stopped.")


def _open_desk(
    store: BundleStore, limits: Limits, ledger: Path, key: Path | None, counter: Path | None, *, policy: Policy
) -> ReportDesk:
    import resource

    from geoblanket.release.device import Device
    from geoblanket.service.report import ReportDesk

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold where the vehicle was
    bundle = store.bundles[0].bundle
    sealed_by = device_key(key)
    return ReportDesk(
        lambda: Device.open(bundle, ledger=ledger, device_key=sealed_by, counter=counter, policy=policy), limits=limits
    )


def _open_receiver(store: BundleStore, limits: Limits, model: Path) -> Receiver:
    from geoblanket.service.receiver import Receiver
    from geoblanket.tracking.motion_model import MotionModel

    return Receiver(store.bundles[0].bundle, MotionModel.load(model), limits=limits)


def gateway(
    file: Annotated[Path, typer.Argument(metavar="[CONFIG]", help="Its configuration (TOML).")] = _GATEWAY_CONFIG,
    *,
    init: Annotated[bool, typer.Option("--init", help="Write a commented example to CONFIG, and end.")] = False,
    check: Annotated[bool, typer.Option("--check", help="Check CONFIG, and end.")] = False,
    enrol: Annotated[
        bool, typer.Option("--enrol", help="Give devices that are not known an account at first sight.")
    ] = False,
    policy: options.PolicyFile = None,
    access_log: Annotated[bool, typer.Option(help="Log a line for each request, without what was sent.")] = False,
) -> None:
    """Stand between trackers and their server: OwnTracks (HTTP, MQTT), OsmAnd and Traccar, and JSON lines.

    Each device has a durable budget in one ledger. What is released waits on disk until the server has it. Nothing else
    of a message passes, except what the configuration allows.

    Ctrl-C or SIGTERM stops the gateway in order.
    """
    from geoblanket.gateway.config import read_config, readable_by_others, write_example

    if init:
        write_example(file)
        say(f"An example is in {file}. Change it, then start: geoblanket gateway {file}")
        return
    config = read_config(file)
    if readable_by_others(file):
        say(f"WARNING: {file} holds passwords, and others can read it. Run: chmod 600 {file}")
    if check:
        say(f"{file} is in order.")
        return
    import resource

    from geoblanket.gateway.running import run
    from geoblanket.service.metrics import configure_logs

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold where devices were
    configure_logs(access=access_log)

    def ready(url: str | None) -> None:
        say("The gateway runs" + (f" on {url}" if url else "") + " (Ctrl-C stops).")

    is_good = run(config, enrol=enrol, policy=options.read_policy(policy), on_ready=ready)
    say("Stopped.")
    if not is_good:
        raise typer.Exit(1)
