"""Several processes or hosts on one sweep, under JAX's own distributed runtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import jax

from hwopt.errors import UserError

T = TypeVar("T")


def join(coordinator: str | None = None, count: int | None = None, index: int | None = None) -> None:
    """Become one of several processes.

    **Arguments:** none on Slurm, Kubernetes, Open MPI and TPU pods, which JAX detects; else the coordinator's `host:port`, how
    many processes there are, and the number of this one.

    **Raises:** `UserError` where nothing is detected or the coordinator does not answer.
    """
    try:
        jax.distributed.initialize(coordinator, count, index)
    except (ValueError, RuntimeError) as error:
        raise UserError(
            f"distributed: {' '.join(str(error).split())[:300]}; on a machine that JAX does not detect name --coordinator "
            "host:port, --processes and --process"
        ) from None


def wait(where: str) -> None:
    """Wait until every process is here."""
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(f"hwopt {where}")


def in_turn(prepare: Callable[[], T]) -> T:
    """What the first process prepares before the others do."""
    if jax.process_index() > 0:
        wait("prepared")
    try:
        return prepare()
    finally:  # also where it fails, so that the others meet the same failure and do not wait for ever
        if jax.process_index() == 0:
            wait("prepared")
