"""Tiles of variants on all devices of a process: points, model, judgement, each a compiled program of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from hwopt.study.sweep.program import Elasticities, Program
from hwopt.study.sweep.samplers import Sampler

CPU_OPTIONS = {"xla_cpu_prefer_vector_width": 512}
"""Wide vectors: 1.4 times the speed on a processor that has 512 bits (jax 0.10.1); not measured on others."""

TILE = {"cpu": 1 << 15, "gpu": 1 << 19, "tpu": 1 << 17}
"""Variants of a tile by backend: intermediate columns stay in a core's cache, or fill an accelerator."""


def tile_of(platform: str) -> int:
    """Variants that a device evaluates at a time."""
    return TILE.get(platform, TILE["gpu"])


@dataclass(frozen=True)
class Evaluator:
    """What becomes of a sampler's points under a question.

    Every device gets whole tiles of one size, so that the numbers do not depend on how many devices there are.
    """

    program: Program
    sampler: Sampler
    tile: int
    kind: str = "float32"
    slopes: Elasticities | None = None
    devices: tuple[Any, ...] = ()

    @cached_property
    def _devices(self) -> tuple[Any, ...]:
        return self.devices or tuple(jax.local_devices())

    @property
    def tiles(self) -> int:
        """Tiles evaluated at a time."""
        return len(self._devices)

    @cached_property
    def _sharding(self) -> tuple[NamedSharding, NamedSharding]:
        mesh = Mesh(np.asarray(self._devices), ("variant",))
        return NamedSharding(mesh, PartitionSpec("variant")), NamedSharding(mesh, PartitionSpec())

    def _jit(self, function: Any, **keywords: Any) -> Any:
        options = CPU_OPTIONS if self._devices[0].platform == "cpu" else None
        return jax.jit(function, compiler_options=options, **keywords)

    @cached_property
    def _tables(self) -> Array:
        return jax.device_put(self.sampler.tables(self.tile), self._sharding[1])

    @cached_property
    def _points(self) -> Any:
        space, names = self.program.space, self.sampler.names

        def points(tables, starts):
            columns = dict(zip(names, self.sampler.columns(tables, starts, np.dtype(self.kind)), strict=True))
            shape = (starts.shape[0] * self.tile,)
            if self.sampler.kind == "cube":
                columns = space.drawn(columns)
            elif self.sampler.kind == "wanted":
                columns = space.nearest(columns)
            else:
                columns = space.as_given(columns)
            return [jnp.broadcast_to(jnp.asarray(columns[name], self.kind), shape) for name in self.program.variables]

        each, all_ = self._sharding
        return self._jit(points, in_shardings=(all_, each))

    @cached_property
    def _model(self) -> Any:
        return self._jit(lambda *designs: self.program.evaluated(*designs))

    @cached_property
    def _judge(self) -> Any:
        return self._jit(self.program.judged)

    @cached_property
    def _slopes(self) -> Any:
        return self._jit(self.slopes.evaluated) if self.slopes is not None else None

    def __call__(self, starts: np.ndarray) -> dict[str, Array]:
        """Tiles that begin as `Sampler.starts` says, one for each device: columns one tile after the other.

        **Returns:** columns of the variables, the metrics, and of `Program.judged`; `elasticity` (input, variant) where asked.
        """
        designs = self._points(self._tables, starts)
        made = self._model(*designs)
        columns = dict(zip(self.program.variables, designs, strict=True))
        columns |= dict(zip((each.name for each in self.program.metrics), made, strict=False))
        columns |= self._judge(made)
        if self._slopes is not None:
            columns["elasticity"] = self._slopes(*designs)
        return columns

    def starts(self, firsts: Sequence[int]) -> list[np.ndarray]:
        """What each call needs for tiles from points `firsts`; the last tile again where devices are left over."""
        held = [*firsts, *[firsts[-1]] * (-len(firsts) % self.tiles)]
        made = self.sampler.starts(np.asarray(held, np.int64), self.tile)
        return [made[i : i + self.tiles] for i in range(0, len(held), self.tiles)]
