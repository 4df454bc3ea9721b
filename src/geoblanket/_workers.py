"""The workers of joblib: processes on this machine, or a Dask cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import ExitStack, contextmanager

import joblib

from geoblanket.errors import MissingExtraError, ParameterError

__all__ = ["open_workers"]

_CONNECT_S = 10


@contextmanager
def open_workers(workers: int, *, cluster: str | None) -> Iterator[tuple[type[Exception], ...]]:
    """Let joblib use these workers, each with one BLAS thread; give the exceptions that tell that one has died.

    Parameters
    ----------
    workers
        Processes on this machine; 1 means this one.
    cluster
        Address of a Dask scheduler, whose workers are used instead.
    """
    if cluster is not None:
        with _cluster(cluster) as lost:
            yield lost
        return
    with joblib.parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1), warnings.catch_warnings():
        # A worker that has grown is replaced by a new one, and nothing is lost: not worth a word to users.
        warnings.filterwarnings("ignore", "A worker stopped while some jobs were given", UserWarning)
        yield (BrokenExecutor,)


@contextmanager
def _cluster(address: str) -> Iterator[tuple[type[Exception], ...]]:
    try:
        from distributed import Client, KilledWorker
    except ImportError:
        raise MissingExtraError("A Dask cluster", "cluster") from None
    with ExitStack() as stack:
        try:
            client = stack.enter_context(Client(address, timeout=_CONNECT_S))
            client.wait_for_workers(1, timeout=_CONNECT_S)
        except (OSError, ValueError, TimeoutError) as error:
            raise ParameterError(
                f"No Dask cluster with workers answers at {address} within {_CONNECT_S} s ({type(error).__name__}). "
                "Give the address that its scheduler prints, such as tcp://HOST:8786."
            ) from error
        stack.enter_context(joblib.parallel_config(backend="dask", n_jobs=-1))
        yield (KilledWorker,)
