"""Tiles of variants on all devices of a process: points, model, judgement, each a compiled program of its own."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from hwopt.study.sweep.program import Elasticities, Program
from hwopt.study.sweep.samplers import Sampler

CPU_OPTIONS = {"xla_cpu_prefer_vector_width": 512, "xla_disable_hlo_passes": "cse_barrier_expander"}
"""Wide vectors: 1.4 times the speed on a processor that has 512 bits (jax 0.10.1); not measured on others. Barriers that stay
until loops are made, so that they end where `jaxprs/loops.py` says: twice the speed."""

TILE = {"cpu": 1 << 15, "gpu": 1 << 19, "tpu": 1 << 17}
"""Variants of a tile by backend: intermediate columns stay in a core's cache, or fill an accelerator."""


def tile_of(platform: str) -> int:
    """Variants that a device evaluates at a time."""
    return TILE.get(platform, TILE["gpu"])


class Evaluator:
    """What becomes of a sampler's points under a question.

    Every device gets whole tiles of one size, so that the numbers do not depend on how many devices there are.

    **Arguments:** `elasticities` where they are asked for; `devices`: all of this process by default.
    """

    def __init__(
        self,
        program: Program,
        sampler: Sampler,
        tile: int,
        dtype: str = "float32",
        elasticities: Elasticities | None = None,
        devices: tuple[Any, ...] = (),
    ):
        self.program, self.sampler, self.tile, self.dtype = program, sampler, tile, dtype
        devices = devices or tuple(jax.local_devices())
        self.tiles = len(devices)  # evaluated at a time
        mesh = Mesh(np.asarray(devices), ("variant",))
        each, all_ = NamedSharding(mesh, PartitionSpec("variant")), NamedSharding(mesh, PartitionSpec())
        compiled = partial(jax.jit, compiler_options=CPU_OPTIONS if devices[0].platform == "cpu" else None)
        self._tables = jax.device_put(sampler.tables(tile), all_)
        self._points = compiled(self._designs, in_shardings=(all_, each))
        self._model, self._judge = compiled(program.evaluated), compiled(program.judged)
        self._elasticities = compiled(elasticities.evaluated) if elasticities is not None else None

    def _designs(self, tables: Array, starts: Array) -> list[Array]:
        """Columns of the program's variables."""
        space, names, shape = self.program.space, self.sampler.names, (starts.shape[0] * self.tile,)
        placed = {"cube": space.drawn, "wanted": space.nearest, "values": space.as_listed}[self.sampler.kind]
        columns = placed(dict(zip(names, self.sampler.columns(tables, starts, np.dtype(self.dtype)), strict=True)))
        return [jnp.broadcast_to(jnp.asarray(columns[name], self.dtype), shape) for name in self.program.variables]

    def __call__(self, starts: np.ndarray) -> dict[str, Array]:
        """Tiles that begin as `Sampler.starts` says, one for each device: columns one tile after the other.

        **Returns:** columns of the variables, the metrics, and of `Program.judged`; `elasticity` (input, variant) where asked.
        """
        designs = self._points(self._tables, starts)
        evaluated = self._model(*designs)
        columns = dict(zip(self.program.variables, designs, strict=True))
        columns |= dict(zip((each.name for each in self.program.metrics), evaluated, strict=False))
        columns |= self._judge(evaluated)
        if self._elasticities is not None:
            columns["elasticity"] = self._elasticities(*designs)
        return columns

    def starts(self, firsts: Sequence[int]) -> list[np.ndarray]:
        """What each call needs for tiles from points `firsts`; the last tile again where devices are left over."""
        padded = [*firsts, *[firsts[-1]] * (-len(firsts) % self.tiles)]
        starts = self.sampler.starts(np.asarray(padded, np.int64), self.tile)
        return [starts[i : i + self.tiles] for i in range(0, len(padded), self.tiles)]
