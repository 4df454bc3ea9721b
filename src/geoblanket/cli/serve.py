"""`geoblanket serve`: bundles over HTTP, and reports for the vehicle that it runs on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from geoblanket.cli._output import say

__all__ = ["serve"]


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
    access_log: Annotated[bool, typer.Option(help="Log a line for each request, without what was sent.")] = True,
) -> None:
    """Serve verified bundles over HTTP, and what they promise.

    Every bundle is verified in exact arithmetic before anything is served; if one does not verify, nothing is. A file
    that is replaced is verified again, and served if it is right and no older.

    Ctrl-C or SIGTERM stops the service in order.
    """
    from geoblanket.service.app import create_app
    from geoblanket.service.limits import LOOPBACK_NAMES, Limits
    from geoblanket.service.logs import configure_logs
    from geoblanket.service.server import is_loopback, listen
    from geoblanket.service.server import serve as serve_app
    from geoblanket.service.store import BundleStore

    local = is_loopback(host)
    names = frozenset(name.lower() for name in allow_host or ())
    store = BundleStore(files, public_key=public_key, allow_unsigned=allow_unsigned, minimum_version=minimum_version)
    if not local:
        say(f"WARNING: {host} can be reached from other machines. There is no encryption and no login here.")
    configure_logs(access=access_log)
    limits = Limits()
    app = create_app(store, limits=limits, hosts=names | LOOPBACK_NAMES if local or names else None)
    listener = listen(host, port)
    address = listener.getsockname()
    shown = f"[{address[0]}]" if ":" in address[0] else address[0]

    def ready() -> None:
        say(f"Serving {len(store.bundles)} bundle(s) on http://{shown}:{address[1]} (Ctrl-C stops).")

    serve_app(app, listener, limits=limits, on_ready=ready)
    say("Stopped.")
