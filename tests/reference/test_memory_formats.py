"""Memory of runs that state their formats equals the plain-Python one, in every part."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from hwopt.model.layers.parameters import chip_weights
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.training.footprint import footprint
from hwopt.workload.memory_formats import MemoryFormats
from tests.cases import KINDS, count, random_cases, take
from tests.in_numpy import in_numpy
from tests.reference.plain.inputs import fields
from tests.reference.plain.memory_formats import memory

CASES = 40
RANGES = {
    "frozen_bytes": (0.5, 4.0), "adapted_mlp": (0.0, 1.0), "kept_bytes": (1.0, 4.0), "chunk_tokens": (64.0, 1e5),
    "layers_gathered": (1.0, 4.0), "table_moment_bytes": (2.0, 8.0), "gradient_bytes": (2.0, 4.0), "gradients_kept": (0.0, 1.0),
    "gradients_offloaded": (0.0, 1.0), "gradients_unreduced": (1.0, 1.0), "reserve_bytes": (1e9, 1e10),
}  # fmt: skip


def used(run, plan, stack):
    return footprint(run, plan, stack, chip_weights(run.model, plan), hard_maximum)[0]._asdict()


@pytest.mark.parametrize(
    "stated", [(name,) for name in RANGES] + [tuple(RANGES)], ids=lambda names: "+".join(names)[:40]
)
def test_memory_equals_the_reference(stated):
    rng = np.random.default_rng(len(stated) + len(stated[0]))
    run, cluster, plan = random_cases(rng, CASES, KINDS[2])
    assert set(RANGES) == set(MemoryFormats.__dataclass_fields__)
    numbers = {name: rng.uniform(*RANGES[name], CASES) if name in stated else None for name in RANGES}
    run = dataclasses.replace(run, formats=MemoryFormats(**numbers))
    actual = in_numpy(used)(run, plan, cluster.stack)
    cases = (run, plan, cluster.stack)
    for i in range(count(cases)):
        expected = memory(*map(fields, take(cases, i)))
        total = sum(expected.values())
        for name, value in expected.items():
            assert float(np.asarray(actual[name])[i]) == pytest.approx(value, rel=1e-6, abs=1e-9 * total), (name, i)
