"""A Dask cluster as joblib's workers."""

from __future__ import annotations

from contextlib import ExitStack

from geoblanket.errors import MissingExtraError, ParameterError

__all__ = ["connect"]

_CONNECT_S = 10


def connect(address: str, stack: ExitStack) -> None:
    """Connect to the cluster with this scheduler until the stack is closed; joblib's backend "dask" then uses it."""
    try:
        from distributed import Client
    except ImportError:
        raise MissingExtraError("A Dask cluster", "cluster") from None
    try:
        client = stack.enter_context(Client(address, timeout=_CONNECT_S))
        client.wait_for_workers(1, timeout=_CONNECT_S)
    except (OSError, ValueError, TimeoutError) as error:
        raise ParameterError(
            f"No Dask cluster with workers answers at {address} within {_CONNECT_S} s ({type(error).__name__}). "
            "Give the address that its scheduler prints, such as tcp://HOST:8786."
        ) from error
