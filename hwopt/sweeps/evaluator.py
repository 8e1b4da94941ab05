"""Tiles of variants on all devices of a process: points, model, judgement and elasticities, in one compiled program."""

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from copy import copy
from functools import cached_property
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from hwopt.errors import UserError
from hwopt.sweeps.program import JUDGED, SweepProgram, VariantElasticities
from hwopt.sweeps.samplers import Sampler
from hwopt.sweeps.stratified import StratifiedSobol
from hwopt.trace import jax_selftest
from hwopt.trace.compiler_options import available_options
from hwopt.trace.scalar_program import ScalarProgram
from hwopt.trace.simplify import simplified

T = TypeVar("T")

CPU_OPTIONS = {"xla_cpu_prefer_vector_width": 512, "xla_disable_hlo_passes": "cse_barrier_expander"}
"""Wide vectors: 1.4 times the speed on a processor that has 512 bits (jax 0.10.1); not measured on others. Barriers that stay
until loops are made, so that they end where `trace/fusion_barriers.py` says: twice the speed."""

TILE = {"cpu": 1 << 15, "gpu": 1 << 20, "tpu": 1 << 17}
"""Variants of a tile by backend; twice as many are a sixth quicker on an H200, and take half again as long to compile."""

LEAST_TILE = 1 << 12
"""Variants of the smallest tile: points are drawn in groups, and fewer keep no accelerator busy."""

CHUNK = {"cpu": 1 << 12}
"""Variants of a tile that are evaluated together, by backend, all of them by default: columns between the model's loops, a
hundred at a time, stay in a core's own cache."""


AHEAD = 2
"""Tiles that are done and wait, beyond one that each thread is at."""


def in_order(calls: Iterable[Callable[[], T]], devices: Sequence[Any]) -> Generator[T, None, None]:
    """What calls that start programs return, in their order, while later ones are under way.

    A processor's cores are kept busy by a thread each: JAX runs the programs that one thread starts one after the other, and
    each on one core where it is a loop (jax 0.10.1). Several devices of a processor share its cores already. Accelerators get
    two threads: what one copies, they do not wait for.
    """
    if devices[0].platform != "cpu":
        count = 2
    else:
        count = (os.cpu_count() or 1) if len(devices) == 1 else 1
    wide = jnp.result_type(float) == jnp.float64  # each thread has its own

    def done(call: Callable[[], T]) -> T:
        with jax.enable_x64(wide):
            return jax.block_until_ready(call())

    with ThreadPoolExecutor(count) as threads:
        flying: deque[Future[T]] = deque()
        for call in calls:
            flying.append(threads.submit(done, call))
            if len(flying) == count + AHEAD:
                yield flying.popleft().result()
        while flying:
            yield flying.popleft().result()


def options_of(platform: str) -> dict[str, Any] | None:
    """How programs over columns are compiled."""
    return available_options(CPU_OPTIONS) if platform == "cpu" else None


COLUMNS = 512
"""Columns of 4 bytes that a variant takes on an accelerator at the most, inputs, outputs and those between loops: a question has
about a hundred; the rest is room for slopes, for tiles that wait (`AHEAD`) and for what is counted of them."""

SHARE = 0.5
"""Of a device's memory that tiles may take: others use it too."""


def memory_of(device: Any) -> float:
    """Bytes that a device lets programs have, infinite where it does not say: processors do not."""
    said = device.memory_stats() if hasattr(device, "memory_stats") else None
    limit = (said or {}).get("bytes_limit")
    return float(limit) if limit else math.inf


def tile_of(platform: str, memory_bytes: float = math.inf, width_bytes: int = 4) -> int:
    """Variants that a device evaluates at a time: as many as are quick, halved until all that a tile takes fits its memory.

    `tile * COLUMNS * width (2 + AHEAD) <= SHARE * memory`, for the two threads' tiles and those that wait.

    **Arguments:** `memory_bytes` of the device; `width_bytes` of a number: 4, or 8 of float64.

    **Raises:** `UserError` where not even the least tile fits.
    """
    tile, each = TILE.get(platform, TILE["gpu"]), COLUMNS * width_bytes * (2 + AHEAD)
    while tile * each > SHARE * memory_bytes:
        tile //= 2
        if tile < LEAST_TILE:
            raise UserError(
                f"sweep: {LEAST_TILE:,} variants take {LEAST_TILE * each / 1e6:,.0f} MB, more than {100 * SHARE:.0f} % of the "
                f"{memory_bytes / 1e6:,.0f} MB that the {platform} lets programs have; JAX_PLATFORMS=cpu sweeps on the processor"
            )
    return tile


def chunk_of(platform: str, tile: int) -> int:
    """Variants of a tile that are evaluated together."""
    return min(tile, CHUNK.get(platform, tile))


class Evaluator:
    """What becomes of a sampler's points under a question.

    Every device gets whole tiles of one size, so that the numbers do not depend on how many devices there are.

    **Arguments:** `elasticities` where they are asked for; `devices`: all of this process by default.
    """

    def __init__(
        self,
        program: SweepProgram,
        sampler: Sampler,
        tile: int,
        dtype: str = "float32",
        elasticities: VariantElasticities | None = None,
        devices: tuple[Any, ...] = (),
    ):
        jax_selftest.check()
        self.program, self.sampler, self.tile, self.dtype = program, sampler, tile, dtype
        self.elasticities = elasticities
        self.devices = devices = devices or tuple(jax.local_devices())
        self.tiles = len(devices)  # evaluated at a time
        self.chunk = chunk_of(devices[0].platform, tile)
        mesh = Mesh(np.asarray(devices), ("variant",))
        all_, each = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec(None, "variant"))
        self._everywhere = all_
        self._tables = jax.device_put(sampler.tables(self.chunk), all_)
        self._compiled = jax.jit(
            self._columns,
            in_shardings=(all_, each),
            compiler_options=options_of(devices[0].platform),
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of every variant, in order; elasticities follow."""
        return (*self.program.variables, *(each.name for each in self.program.metrics), *JUDGED)

    @cached_property
    def line(self) -> ScalarProgram:
        """All of it, from the numbers of a point."""
        return simplified(self.program.line(self.sampler.kind, self.sampler.names, self.elasticities))

    def _columns(self, tables: Any, starts: Array) -> list[Array]:
        """Columns of tiles from the starts of their chunks, (chunk, device, ...)."""

        def chunk(start: Array) -> list[Array]:
            points = self.sampler.columns(tables, start, np.dtype(self.dtype))
            count = len(start) * self.chunk
            columns = [*self._level(tables, points), *self.line(*points)]
            return [jnp.broadcast_to(jnp.asarray(x), count).reshape(len(start), -1) for x in columns]

        columns = jax.lax.map(chunk, starts)  # (chunk, device, variant)
        return [x.swapaxes(0, 1).reshape(-1) for x in columns]

    def _level(self, tables: Any, points: list[Array]) -> list[Array]:
        return [self.sampler.level(tables, points)] if isinstance(self.sampler, StratifiedSobol) else []

    def at(self, sampler: Sampler) -> "Evaluator":
        """The same program at the points of another sampler of this kind: nothing is compiled again."""
        other = copy(self)
        other.sampler, other._tables = sampler, jax.device_put(sampler.tables(self.chunk), self._everywhere)
        return other

    def __call__(self, starts: np.ndarray) -> dict[str, Any]:
        """Tiles that begin as `starts` says, one for each device: columns one tile after the other.

        **Returns:** columns of the variables, the metrics, and of `SweepProgram.judged`; `level`, where points are drawn from
        several; `elasticity`, a list of columns by input, where asked.
        """
        columns = self._compiled(self._tables, starts)
        named: dict[str, Any] = {}
        if isinstance(self.sampler, StratifiedSobol):
            named["level"], *columns = columns
        named |= dict(zip(self.names, columns, strict=False))
        if self.elasticities is not None:
            named["elasticity"] = columns[len(self.names) :]
        return named

    def starts(self, firsts: Sequence[int]) -> list[np.ndarray]:
        """What each call needs for tiles from points `firsts`; the last tile again where devices are left over."""
        padded = [*firsts, *[firsts[-1]] * (-len(firsts) % self.tiles)]
        calls = np.asarray(padded, np.int64).reshape(-1, 1, self.tiles)
        chunks = calls + np.arange(0, self.tile, self.chunk)[:, None]
        starts = self.sampler.starts(chunks.ravel(), self.chunk)
        return list(starts.reshape(*chunks.shape, *starts.shape[1:]))
