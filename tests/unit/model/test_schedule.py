"""Micro-batches beside which gradients are reduced, and the others."""

from __future__ import annotations

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from hwopt.model.training.schedule import hidden_micro_batches, plain_micro_batches


def last(stages: float, chunks: float, micro_batches: float) -> float:
    plan = SimpleNamespace(pp=np.float64(stages), virtual_stages=np.float64(chunks))
    with jax.enable_x64(True):
        return float(hidden_micro_batches(plan, np.float64(micro_batches)))


@pytest.mark.parametrize("stages", [1, 2, 7.5, 64])
@pytest.mark.parametrize("micro_batches", [1, 3, 64, 1000])
def test_one_without_chunks_and_one_a_stage_with(stages, micro_batches):
    assert last(stages, 1, micro_batches) == 1
    for chunks in (2, 3, 12):
        assert last(stages, chunks, micro_batches) == min(stages, micro_batches)


def test_grows_from_one_chunk_to_two_without_a_step():
    values = [last(8, chunks, 100) for chunks in np.linspace(1, 2, 11)]
    np.testing.assert_allclose(values, np.linspace(1, 8, 11), rtol=1e-12)
    assert last(8, 2, 8 - 1e-9) == pytest.approx(last(8, 2, 8 + 1e-9))


@pytest.mark.parametrize("chunks", [1, 1.4, 2, 5])
def test_never_more_than_the_step_has(chunks):
    for stages in (1, 1.5, 8, 64):
        for micro_batches in (0.3, 1, 1.5, 6, 100):
            assert min(1, micro_batches) <= last(stages, chunks, micro_batches) <= micro_batches * (1 + 1e-15)


@pytest.mark.parametrize("overlap", [0.0, 0.6, 1.0])
def test_micro_batches_without_gradients_are_those_that_do_not_hide_them(overlap):
    stack = SimpleNamespace(dp_overlap=overlap)
    for stages, chunks, micro_batches in [(1, 1, 1), (8, 1, 3), (8, 2, 6), (8, 4, 100), (64, 1.5, 65)]:
        plan = SimpleNamespace(pp=np.float64(stages), virtual_stages=np.float64(chunks))
        with jax.enable_x64(True):
            left = float(plain_micro_batches(stack, plan, np.float64(micro_batches)))
        expected = max(micro_batches - overlap * last(stages, chunks, micro_batches), 0.0)
        assert left == pytest.approx(expected, rel=1e-14, abs=1e-14 * micro_batches)
