"""Evaluation of tiles of variants on all devices of a process: points, model, feasibility and elasticities, in one kernel."""

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
"""XLA options on CPUs. Wide vectors: 1.4 times the speed on a processor with 512-bit vectors (jax 0.10.1); not measured on
others. Late barrier expansion: fusion barriers survive until loops are formed, so that loops end where
`trace/fusion_barriers.py` places them: twice the speed."""

TILE = {"cpu": 1 << 15, "gpu": 1 << 20, "tpu": 1 << 17}
"""Variants per tile, by backend. Twice as many are a sixth faster on an H200, but take 1.5 times as long to compile."""

LEAST_TILE = 1 << 12
"""Minimum number of variants per tile: points are drawn in groups, and smaller tiles do not keep an accelerator busy."""

CHUNK = {"cpu": 1 << 12}
"""Variants of a tile evaluated together, by backend; default: the whole tile. At this size the roughly hundred intermediate
columns between the loops of the model stay in the cache of one core."""


AHEAD = 2
"""Finished tiles that may wait for the caller, in addition to the one that each thread computes."""


def in_order(calls: Iterable[Callable[[], T]], devices: Sequence[Any]) -> Generator[T, None, None]:
    """Yield the results of calls that start programs, in order, while later calls run in threads.

    On a CPU one thread per core keeps all cores busy: JAX runs the programs of one thread sequentially, and a program that is a
    loop on a single core (jax 0.10.1). Several CPU devices already share the cores, so they get one thread. Accelerators get
    two threads, so that one computes while the other copies.
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
    """Return the XLA compiler options for programs over columns of variants."""
    return available_options(CPU_OPTIONS) if platform == "cpu" else None


COLUMNS = 512
"""Upper estimate of the 4-byte columns per variant on an accelerator: inputs, outputs and intermediates between loops. A design
problem has about a hundred; the rest is room for gradients, waiting tiles (`AHEAD`) and their counters."""

SHARE = 0.5
"""Share of a device's memory that tiles may take; other users need the rest."""


def memory_of(device: Any) -> float:
    """Return the bytes that a device grants to programs; infinite if it does not report a limit, as CPUs do not."""
    said = device.memory_stats() if hasattr(device, "memory_stats") else None
    limit = (said or {}).get("bytes_limit")
    return float(limit) if limit else math.inf


def tile_of(platform: str, memory_bytes: float = math.inf, width_bytes: int = 4) -> int:
    """Return the number of variants that a device evaluates at a time: the fastest tile size, halved until it fits the memory.

    `tile * COLUMNS * width (2 + AHEAD) <= SHARE * memory`, for the tiles of two threads and the finished tiles that wait.

    **Arguments:** `memory_bytes` of the device; `width_bytes` of a number: 4, or 8 for float64.

    **Raises:** `UserError` if even the smallest tile does not fit.
    """
    tile, each = TILE.get(platform, TILE["gpu"]), COLUMNS * width_bytes * (2 + AHEAD)
    while tile * each > SHARE * memory_bytes:
        tile //= 2
        if tile < LEAST_TILE:
            raise UserError(
                f"sweep: {LEAST_TILE:,} variants need {LEAST_TILE * each / 1e6:,.0f} MB, more than {100 * SHARE:.0f} % of the "
                f"{memory_bytes / 1e6:,.0f} MB available to programs on the {platform}; JAX_PLATFORMS=cpu sweeps on the CPU"
            )
    return tile


def chunk_of(platform: str, tile: int) -> int:
    """Return the number of variants of a tile that are evaluated together."""
    return min(tile, CHUNK.get(platform, tile))


class Evaluator:
    """Compiled evaluation of a sampler's points for a design problem.

    Every device gets whole tiles of one size, so that the results do not depend on the number of devices.

    **Arguments:**

    - `elasticities`: elasticities of the objective, if requested.
    - `devices`: devices to use; default: all of this process.
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
        """Names of the columns of every variant, in order; elasticities follow."""
        return (*self.program.variables, *(each.name for each in self.program.metrics), *JUDGED)

    @cached_property
    def line(self) -> ScalarProgram:
        """Scalar program from the coordinates of a point to all columns of a variant."""
        return simplified(self.program.line(self.sampler.kind, self.sampler.names, self.elasticities))

    def _columns(self, tables: Any, starts: Array) -> list[Array]:
        """Compute the columns of tiles from the starts of their chunks, (chunk, device, ...)."""

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
        """Return this compiled program for another sampler of the same type, without recompilation."""
        other = copy(self)
        other.sampler, other._tables = sampler, jax.device_put(sampler.tables(self.chunk), self._everywhere)
        return other

    def __call__(self, starts: np.ndarray) -> dict[str, Any]:
        """Evaluate one tile per device, from the starting points `starts`.

        **Returns:** columns of the tiles, concatenated: variables, metrics and the columns of `SweepProgram.judged`. In
        addition `level`, if points are drawn from nested boxes, and `elasticity`, a list of columns by input, if requested.
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
        """Return the sampler data of each call for tiles from points `firsts`; the last tile is repeated on spare devices."""
        padded = [*firsts, *[firsts[-1]] * (-len(firsts) % self.tiles)]
        calls = np.asarray(padded, np.int64).reshape(-1, 1, self.tiles)
        chunks = calls + np.arange(0, self.tile, self.chunk)[:, None]
        starts = self.sampler.starts(chunks.ravel(), self.chunk)
        return list(starts.reshape(*chunks.shape, *starts.shape[1:]))
