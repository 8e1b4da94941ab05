"""Gradients of hybrids by every number of their layers and kinds: equal to differences off the kinks, finite in float32."""

from __future__ import annotations

import dataclasses
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hwopt.model.estimate import estimate
from hwopt.trace.cache import cached_trace
from hwopt.trace.derivatives import value_and_gradient
from tests.compiling import THOROUGH
from tests.hybrids import KNOWN, changed, numbers, serving, training

OUTPUTS = {
    training: ("step_time_s", "memory_per_chip_bytes", "mfu"),
    serving: ("step_time_s", "time_per_output_token_s", "memory_per_chip_bytes"),
}
PLANS = {training: {"tp": 2, "zero": 3}, serving: {"tp": 2, "batch": 8}}
STEP = 1e-4
MECHANISM = re.compile("scan_|index_|gate_dim|expert_hidden|shared_projection")


def outputs_of(names):
    """Logarithms of the outputs with each number of the model times the exponential of one of `moves`."""

    def log_outputs(moves, run, cluster, plan):
        leaves, tree = jax.tree.flatten(run.model)
        ends = np.cumsum([0] + [leaf.size for leaf in leaves])
        parts = [jnp.exp(moves[a:b]).reshape(leaf.shape) for a, b, leaf in zip(ends, ends[1:], leaves, strict=False)]
        moved = jax.tree.unflatten(tree, [leaf * part for leaf, part in zip(leaves, parts, strict=True)])
        report = estimate(dataclasses.replace(run, model=moved), cluster, plan)
        return jnp.log(jnp.stack([getattr(report, name) for name in names]))

    return log_outputs


def names_of(model) -> list[str]:
    """A name for each number of a model: `hidden`, `kinds.values['ffn'][2]`."""
    return [
        path.lstrip(".") + (f"[{i}]" if np.ndim(leaf) else "")
        for path, leaf in numbers(model).items()
        for i in range(np.size(leaf))
    ]


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("qwen3.5-122b", training),
        ("deepseek-v3.2", serving),
        *(
            pytest.param(name, asked, marks=pytest.mark.slow)
            for name in KNOWN
            if name != "llama-3.1-8b"
            for asked in (training, serving)
            if (name, asked) not in (("qwen3.5-122b", training), ("deepseek-v3.2", serving))
        ),
    ],
)
def test_slopes_are_those_of_differences(name, asked):
    """To 1e-6 |e| + 1e-8 for every field of every mechanism and kind that is not 0."""
    case = asked(KNOWN[name].shape, **PLANS[asked])
    inputs, outputs = names_of(case[0].model), OUTPUTS[asked]
    width = len(inputs)
    forms = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(np.shape(leaf), np.float64), case)
    report = cached_trace(outputs_of(outputs), jax.ShapeDtypeStruct((width,), np.float64), *forms)
    point = np.concatenate([np.zeros(width), *(np.ravel(leaf) for leaf in jax.tree.leaves(case))]).astype(float)
    _, slopes = value_and_gradient(report.line, point, range(len(outputs)))
    exact = slopes[:, :width]

    columns = np.tile(point, (1 + 4 * width, 1))
    for i, step in enumerate((STEP, -STEP, STEP / 2, -STEP / 2)):
        columns[np.arange(width) + i * width, np.arange(width)] = step
    y = np.asarray(report(list(columns.T), len(columns))).reshape(len(columns), -1)
    plus, minus, half_plus, half_minus = (y[i * width : (i + 1) * width].T - y[-1][:, None] for i in range(4))
    central, half = (plus - minus) / (2 * STEP), (half_plus - half_minus) / STEP
    kink = np.abs(plus + minus - 4 * (half_plus + half_minus)) > 1e-9
    difference = (4 * half - central) / 3
    wrong = ~kink & (np.abs(exact - difference) > 1e-6 * np.abs(exact) + 1e-8)
    words = [
        f"{outputs[o]} by {inputs[k]}: {exact[o, k]:.9g}, not {difference[o, k]:.9g}" for o, k in np.argwhere(wrong)[:8]
    ]
    assert not words, words
    assert kink.mean() < 0.15, [inputs[k] for k in np.flatnonzero(kink.any(0))]
    if asked is training:  # a pass of a service may wait for its host, however short its kernels are
        idle = {each for each, slopes in zip(inputs, exact.T, strict=True) if not slopes.any()}
        numbers_there = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(case[0].model)])
        assert (
            not {  # short sequences of a latent with an indexer are computed whole and masked: the choice does not matter
                each
                for each, x in zip(inputs, numbers_there, strict=True)
                if x and each in idle and MECHANISM.search(each) and each != "index_tokens"
            }
        )


@pytest.mark.search
@pytest.mark.parametrize("name", ["kimi-linear-48b", "nemotron-3-super", "minimax-m3"])
@pytest.mark.parametrize("asked", [training, serving])
def test_gradients_are_finite_in_float32(name, asked):
    """Of every output by every number of the model, its plan and its machine; absurd models too."""
    case = jax.tree.map(np.float32, asked(KNOWN[name].shape, **PLANS[asked]))
    model, length = case[0].model, "sequence_length" if asked is training else "input_tokens"
    many = {"layers": np.float32(1e6), "moe_layers": model.moe_layers / model.layers * np.float32(1e6)}
    absurd = {
        "as published": case,
        "a million layers": (changed(case[0], model=changed(model, **many)), *case[1:]),
        "a context of 1e9": (changed(case[0], **{length: np.float32(1e9)}), *case[1:]),
        "more ranks than heads": (*case[:2], changed(case[2], tp=np.float32(1024.0))),
    }

    def outputs(*case):
        report = estimate(*case)
        return jnp.stack([getattr(report, each) for each in OUTPUTS[asked]])

    jax.clear_caches()  # constants traced under the other precision do not fit this one
    slopes = jax.jit(jax.jacrev(outputs, argnums=(0, 1, 2))).lower(*case)
    slopes = slopes.compile(THOROUGH | {"xla_disable_hlo_passes": "fusion"})
    wrong = [
        f"{words}: {path}"
        for words, each in absurd.items()
        for path, leaf in numbers(slopes(*each)).items()
        if not np.isfinite(leaf).all()
    ]
    assert not wrong, wrong[:20]
