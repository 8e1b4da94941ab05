"""Layers of every mechanism: equal to their published modules, to models of one kind, and to limits where mechanisms end."""

from __future__ import annotations

import functools

import jax
import numpy as np
import pytest
from jax.interpreters import partial_eval

from hwopt import catalog
from hwopt.catalog.layer_kinds import read_layer_kinds
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.model.layers import work
from hwopt.model.layers.parameters import chip_weights
from hwopt.model.numerics.maximum import hard_maximum
from hwopt.model.serving import cache, forward
from hwopt.model.serving.batch import Batch
from hwopt.model.serving.estimate import serving_report
from hwopt.model.training.run import training_report
from hwopt.workload import layer_work as declarations
from hwopt.workload.layer_work import DENSE, EXPERTS, MIXER, MOE, layer_work
from hwopt.workload.transformer import (
    LayerKinds,
    Transformer,
    active_parameters,
    shapes_of_kinds,
    total_parameters,
)
from tests.hybrids import HYBRIDS, KNOWN, changed, numbers, serving, shape_of, training
from tests.reference.plain import modules

LENGTH, CONTEXT = 8192.0, 6000.0
KINDS = [(name, i) for name, known in KNOWN.items() for i in range(len(known.layers))]


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


def homogeneous(name: str, i: int) -> Transformer:
    """A model with only layers of one kind; of a model that states no kinds, its dense or its MoE layers."""
    shape = KNOWN[name].shape
    if shape.kinds is not None:
        return shapes_of_kinds(shape)[i]
    return changed(shape, moe_layers=shape.layers * float(i == 1))


@functools.cache
def machines(model_name: str = "llama-3.1-8b", **plan):
    return training(KNOWN[model_name].shape, **plan), serving(KNOWN[model_name].shape, batch=8, **plan)


def close(value, expected, rel: float = 1e-9):
    np.testing.assert_allclose(np.asarray(value, np.float64), expected, rtol=rel)


def one_sequence(context: float, generated: float = 1.0) -> Batch:
    """One sequence that generates tokens after so many others."""
    given = {"sequences": 1.0, "queries": generated, "context": context}
    return Batch(**{name: np.float64(given.get(name, 0.0)) for name in Batch._fields})


# Published modules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "i"), KINDS)
def test_a_layer_equals_its_modules(name, i):
    """Weights of products, FLOPs of a token in training and in decoding, bytes of a sequence."""
    shape, (_, layer) = homogeneous(name, i), KNOWN[name].layers[i]
    described = layer_work(shape)
    is_moe = float(shape.moe_layers) > 0
    own = described.placed(MIXER) + described.placed(MOE if is_moe else DENSE)
    close(own, layer.product_weights)
    if is_moe:
        close(described.placed(EXPERTS), layer.expert_weights)

    (run, *_), (asked, cluster, plan) = machines()
    run = changed(run, model=shape, sequence_length=np.float64(LENGTH), causal_fraction=np.float64(0.5))
    head = 2.0 * float(shape.vocab * shape.hidden)
    token = float(shape.layers) * (layer.product_flops + layer.mean_core_flops(LENGTH))
    close(work.model_flops(shape, run), 3.0 * (head + token) * LENGTH * float(run.global_batch_sequences))

    decoded = sum(forward.core_flops(each, one_sequence(CONTEXT))[0] for each in described.cores)
    close(decoded, layer.decode_flops(CONTEXT))
    service = changed(asked, model=shape)
    held = cache.sequence_bytes(service, plan, cluster.stack, np.float64(CONTEXT))
    close(held, layer.sequence_bytes(CONTEXT, float(service.kv_bytes)))


PUBLISHED = {"qwen3.5-122b": (122.1, 9.8), "nemotron-3-nano": (31.6, 3.6), "deepseek-v3.2": (671.9, 38.4),
             "nemotron-3-super": (120.7, 12.8), "glm-5.1": (743.9, 41.8), "kimi-linear-48b": (49.1, 3.5)}  # fmt: skip
"""Parameters in 1e9, all and those of a token, to the last digit; embeddings count in both."""


@pytest.mark.parametrize("name", KNOWN)
def test_parameters_of_a_model_are_those_of_its_modules(name):
    """But for norms within attention, and a hundredth of a per cent of scans' small vectors."""
    shape = KNOWN[name].shape
    tied = bool(shape.tied_embeddings)
    every, used = modules.model(float(shape.vocab), float(shape.hidden), KNOWN[name].modules, tied)
    counted = float(total_parameters(shape)), float(active_parameters(shape))
    close(counted, (every, used), 1e-4)
    if name in PUBLISHED:
        assert tuple(round(each / 1e9, 1) for each in counted) == PUBLISHED[name]


def test_flops_of_a_model_are_the_sum_over_its_layers():
    run = machines()[0][0]
    for known in KNOWN.values():
        run = changed(run, model=known.shape, sequence_length=np.float64(LENGTH))
        tokens = LENGTH * float(run.global_batch_sequences)
        layers = sum(layer.product_flops + layer.mean_core_flops(LENGTH) for layer in known.modules)
        close(
            work.model_flops(known.shape, run),
            3.0 * tokens * (layers + 2.0 * float(known.shape.vocab * known.shape.hidden)),
        )


# Kinds ---------------------------------------------------------------------------------------------------------------

ADDED = (".breakdown.compute_s", ".breakdown.memory_bound_s", ".breakdown.host_s", ".breakdown.tp_comm_s",
         ".breakdown.ep_comm_s", ".breakdown.optimizer_s", ".memory.weights_bytes", ".memory.gradients_bytes",
         ".memory.optimizer_bytes", ".memory.activations_bytes", ".memory.cache_bytes", ".parameters",
         ".active_parameters")  # fmt: skip
"""Outputs that add up over the layers of a single stage."""


SLOWLY = pytest.mark.slow
WHOLE = ["kimi-linear-48b", *(pytest.param(name, marks=SLOWLY) for name in HYBRIDS if name != "kimi-linear-48b")]
"""Models whose whole reports are compared."""


@pytest.mark.parametrize("name", WHOLE)
@pytest.mark.parametrize("asked", [training, serving])
def test_a_report_is_the_share_weighted_sum_of_those_of_its_kinds(name, asked):
    """Times of kernels and exchanges, states, activations and cache; a working set is the largest of the kinds'."""
    shape, plan = KNOWN[name].shape, {"tp": 2, **({"batch": 8} if asked is serving else {})}
    plan |= {"ep": 4} if float(shape.experts) else {}
    whole = numbers(estimate(*asked(shape, **plan)))
    parts = [numbers(estimate(*asked(each, **plan))) for each in shapes_of_kinds(shape)]
    added = [path for path in ADDED if path in whole]
    assert len(added) >= 8
    for path in added:
        weighted = sum(share * part[path] for share, part in zip(shape.kinds.share, parts, strict=True))
        np.testing.assert_allclose(whole[path], weighted, rtol=1e-9, atol=1e-15, err_msg=path)
    if asked is training:
        close(whole[".memory.working_bytes"], max(part[".memory.working_bytes"] for part in parts))


@pytest.mark.parametrize("name", HYBRIDS)
def test_weights_and_sequences_are_share_weighted_sums(name):
    """On a chip of a machine with tensor parallelism and experts spread, for every model with kinds."""
    shape, (_, (asked, cluster, plan)) = KNOWN[name].shape, machines(tp=2)
    plan = changed(plan, ep=np.float64(4.0))
    tokens = np.float64(CONTEXT)

    def of(model):
        weights = chip_weights(model, plan)
        held = cache.sequence_bytes(changed(asked, model=model), plan, cluster.stack, tokens)
        sent = cache.request_bytes(changed(asked, model=model))
        batch = one_sequence(CONTEXT, 3.0)
        return np.array([weights.stage, weights.stage_experts, held, sent, forward.pass_flops(model, batch)], float)

    weighted = sum(share * of(each) for share, each in zip(shape.kinds.share, shapes_of_kinds(shape), strict=True))
    close(of(shape), weighted)


def with_kinds(shape: Transformer, share, moe, **values) -> Transformer:
    column = lambda numbers: np.asarray(numbers, np.float64)
    kinds = LayerKinds({name: column(each) for name, each in values.items()}, column(share), column(moe))
    return changed(shape, kinds=kinds)


def assert_same_reports(one, other, rel: float = 1e-9):
    a, b = numbers(one), numbers(other)
    assert a.keys() == b.keys()
    for path, value in a.items():
        np.testing.assert_allclose(value, b[path], rtol=rel, atol=1e-300, err_msg=path)


DENSE_AND_MOE = changed(KNOWN["deepseek-v3.2"].shape, layers=np.float64(60.0), moe_layers=np.float64(45.0))
EQUAL = {
    "dense": (KNOWN["llama-3.1-8b"].shape, ([0.25, 0.75], [0, 0])),
    "dense and MoE": (DENSE_AND_MOE, ([0.25, 0.75], [0, 1])),
}


@pytest.mark.parametrize("case", [pytest.param("dense", marks=SLOWLY), "dense and MoE"])
def test_kinds_that_are_equal_change_no_report(case):
    shape, (share, moe) = EQUAL[case]
    kinds = with_kinds(shape, share, moe, ffn=[float(shape.ffn)] * 2)
    for plan in ({"tp": 2}, {"tp": 2, "zero": 3}, {"tp": 4, "cp": 2, "recompute": "full", "zero": 3}):
        assert_same_reports(estimate(*training(shape, **plan)), estimate(*training(kinds, **plan)))
    for plan in ({"tp": 2, "batch": 8}, {"tp": 1, "ep": 8 if case != "dense" else 1, "batch": 4}):
        assert_same_reports(estimate(*serving(shape, **plan)), estimate(*serving(kinds, **plan)))


@pytest.mark.slow
def test_equal_kinds_change_no_report_of_a_pipeline():
    shape, (share, moe) = EQUAL["dense"]
    kinds = with_kinds(shape, share, moe, ffn=[float(shape.ffn)] * 2)
    assert_same_reports(estimate(*training(shape, pp=4)), estimate(*training(kinds, pp=4)))
    assert_same_reports(estimate(*serving(shape, pp=2, batch=4)), estimate(*serving(kinds, pp=2, batch=4)))


# Absent and unused mechanisms ----------------------------------------------------------------------------------------


def equations(jaxpr) -> int:
    """Equations of a trace that its results need, those of inner traces included."""
    needed, _ = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    values = (value for each in needed.eqns for value in jax.tree.leaves(each.params, is_leaf=is_jaxpr))
    inner = (getattr(value, "jaxpr", value) for value in values if is_jaxpr(value))
    return len(needed.eqns) + sum(map(equations, inner))


def is_jaxpr(value) -> bool:
    return hasattr(value, "eqns")


def traced(asked) -> int:
    report = training_report if hasattr(asked[0], "law") else serving_report
    return equations(jax.make_jaxpr(lambda *case: report(*case, hard_maximum, None))(*asked).jaxpr)


@pytest.mark.parametrize("asked", [training, serving])
def test_mechanisms_that_no_layer_has_are_absent_from_the_trace(asked, monkeypatch):
    """The trace of Llama is the same where no mechanism is known at all."""
    shape = catalog.model_of("llama3.1-8b")
    assert shape.mechanisms == []
    plan = {} if asked is training else {"batch": 8}
    before = traced(asked(shape, **plan))
    monkeypatch.setattr(declarations, "mechanisms", lambda: ())
    assert traced(asked(shape, **plan)) == before
    monkeypatch.undo()
    assert traced(asked(changed(shape, gate_dim=np.float64(0.0)), **plan)) > before


SCAN = ("scan_heads", "scan_key_heads", "scan_key_dim", "scan_value_dim", "scan_conv", "scan_gates", "scan_delta",
        "scan_decay_rank", "scan_gate_rank")  # fmt: skip
UNUSED = {
    "gate": {"gate_dim": 0.0},
    "indexer": {"index_heads": 0.0, "index_dim": 0.0, "index_tokens": 0.0},
    "indexer without heads": {"index_heads": 0.0, "index_dim": 128.0, "index_tokens": 0.0},
    "scan": dict.fromkeys(SCAN, 0.0) | {"attends": 1.0},
    "scan without heads": {"attends": 1.0, "scan_heads": 0.0, "scan_key_heads": 16.0, "scan_key_dim": 128.0,
                           "scan_value_dim": 128.0, "scan_conv": 4.0, "scan_gates": 2.0, "scan_delta": 1.0,
                           "scan_decay_rank": 128.0, "scan_gate_rank": 128.0},
    "latent experts": {"expert_hidden": 0.0},
    "own values": {"shared_projection": 0.0},
}  # fmt: skip


@pytest.mark.parametrize("unused", UNUSED)
@pytest.mark.parametrize("name", ["llama-3.1-8b", "deepseek-v3.2"])
def test_a_mechanism_of_zeros_changes_no_number(name, unused):
    shape = changed(KNOWN[name].shape, **dict.fromkeys(("index_heads", "index_dim", "index_tokens")))
    zeros = changed(shape, **{field: np.float64(value) for field, value in UNUSED[unused].items()})
    close(total_parameters(zeros), float(total_parameters(shape)), 1e-12)
    (run, *_), (asked, cluster, plan) = machines(tp=2)
    run, asked = changed(run, model=shape), changed(asked, model=shape)

    def counted(model):
        own = changed(asked, model=model)
        held = cache.sequence_bytes(own, plan, cluster.stack, np.float64(CONTEXT))
        read = cache.read_bytes(own, plan, cluster.stack, np.float64(CONTEXT))
        flow = work.flow(changed(run, model=model), plan)
        elementwise = work.elementwise_bytes(flow, plan, np.float64(0.0))
        of_pass = forward.pass_flops(model, one_sequence(CONTEXT))
        kept = [flow.work.halves, flow.work.kept, flow.work.latent, flow.work.ring, flow.work.vectors]
        kept += [
            sum(part) for part in zip(*((each.streamed, each.score_bytes) for each in flow.work.cores), strict=True)
        ]
        return np.array([work.model_flops(model, run), held, read, elementwise, of_pass, *kept], float)

    close(counted(zeros), counted(shape), 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("unused", UNUSED)
@pytest.mark.parametrize("asked", [training, serving])
def test_a_mechanism_of_zeros_changes_no_report(asked, unused):
    shape, plan = KNOWN["llama-3.1-8b"].shape, {"tp": 2, **({"batch": 8} if asked is serving else {})}
    zeros = changed(shape, **{field: np.float64(value) for field, value in UNUSED[unused].items()})
    assert_same_reports(estimate(*asked(shape, **plan)), estimate(*asked(zeros, **plan)), 1e-12)


# Half layers ---------------------------------------------------------------------------------------------------------


def in_halves(shape: Transformer) -> Transformer:
    """The same model with every layer as two: attention alone, and an MLP alone."""
    assert float(shape.moe_layers) == 0.0
    fields = {name: float(getattr(shape, name)) for name in ("hidden", "mlp_matrices", "heads", "kv_heads", "qk_dim", "v_dim",
                                                             "vocab", "ffn")}  # fmt: skip
    layers = float(shape.layers)
    rows = [{"layers": layers, "moe": 0, "ffn": 0, "attends": 1}, {"layers": layers, "moe": 0, "attends": 0}]
    return shape_of(rows, layers=2.0 * layers, **fields)


HALVED = (".breakdown.compute_s", ".breakdown.memory_bound_s", ".breakdown.tp_comm_s", ".memory.weights_bytes",
          ".memory.activations_bytes", ".memory.cache_bytes", ".parameters", ".mfu", ".hidden_s")  # fmt: skip


ALONE = ("tp_overlap", "cp_overlap", "dp_overlap")
"""Overlaps of communication with a layer's work."""


@pytest.mark.parametrize("asked", [training, serving])
def test_layers_in_halves_cost_what_whole_layers_do(asked):
    """Products, passes, all-reduces, kernel launches, host time, states, activations and cache."""
    shape, plan = KNOWN["llama-3.1-8b"].shape, {"tp": 4, **({"batch": 8} if asked is serving else {})}
    run, cluster, layout = asked(shape, **plan)
    overlaps = dict.fromkeys(ALONE, np.float64(0.0))
    for host_s in (0.0, 10.0):  # the host waits for the chips, or they for it; in between, for one half alone
        stack = changed(cluster.stack, host_layer_s=np.float64(host_s), **overlaps)
        machine = changed(cluster, stack=stack)
        whole = numbers(estimate(run, machine, layout))
        halves = numbers(estimate(changed(run, model=in_halves(shape)), machine, layout))
        paths = [path for path in (*HALVED, ".breakdown.host_s", ".step_time_s") if path in whole]
        assert len(paths) >= 9
        for path in paths:
            np.testing.assert_allclose(halves[path], whole[path], rtol=1e-9, atol=1e-15, err_msg=path)


# Limits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deepseek-v3.2", "glm-5.1"])
@pytest.mark.parametrize("chosen", [LENGTH, 10.0 * LENGTH])
def test_an_indexer_that_chooses_all_keys_adds_only_its_scores(name, chosen):
    shape = changed(KNOWN[name].shape, index_tokens=np.float64(chosen))
    without = changed(shape, index_heads=None, index_dim=None, index_tokens=None)
    (run, *_), (asked, cluster, plan) = machines()
    run = changed(run, sequence_length=np.float64(LENGTH))

    def core(model):
        return float(work.layer_core_flops(changed(run, model=model), np.float64(0.5)))

    def read(model):
        return float(cache.read_bytes(changed(asked, model=model), plan, cluster.stack, np.float64(LENGTH)))

    heads, width = float(shape.index_heads), float(shape.index_dim)
    close(core(shape), core(without) + heads * width * LENGTH)
    close(read(shape), read(without) + width * LENGTH * float(asked.kv_bytes))


@pytest.mark.parametrize("window", [LENGTH, 1e9])
def test_a_window_as_long_as_the_sequence_is_full_attention(window):
    known = KNOWN["alternating"].shape
    values = known.kinds.values
    whole = changed(known, kinds__values=values | {"local_layers_fraction": np.zeros(2)})
    long = changed(known, kinds__values=values | {"window_tokens": np.full(2, window)})
    (run, *_), (asked, cluster, plan) = machines()

    def counted(model):
        own, length = changed(asked, model=model), np.float64(LENGTH)
        held = cache.sequence_bytes(own, plan, cluster.stack, length)
        flops = work.model_flops(model, changed(run, model=model, sequence_length=length))
        return np.array([held, flops, forward.pass_flops(model, one_sequence(LENGTH))], float)

    close(counted(long), counted(whole))
    assert (counted(known) < counted(whole)).all()


@pytest.mark.parametrize("name", HYBRIDS)
def test_states_stay_while_caches_grow(name):
    """The cache of a layer with attention grows by the same bytes a token, a scan's state does not grow."""
    _, (asked, cluster, plan) = machines()
    for each in shapes_of_kinds(KNOWN[name].shape):
        of = lambda tokens, model=each: float(
            cache.sequence_bytes(changed(asked, model=model), plan, cluster.stack, np.float64(tokens))
        )
        described = layer_work(each)
        if float(described.heads) == 0.0:
            assert of(1.0) == of(1e6) == float(described.state_bytes)
            continue
        assert of(900.0) > of(300.0)
        close(of(1000.0) - of(500.0), of(500.0) - of(0.0))


@pytest.mark.parametrize("name", [*HYBRIDS, "llama-3.1-8b"])
def test_tensor_parallelism_divides_caches_and_states_where_heads_divide(name):
    """Latents and an indexer's one key stay whole on every chip."""
    for each in shapes_of_kinds(KNOWN[name].shape):
        one, two = (
            float(cache.sequence_bytes(changed(asked, model=each), plan, cluster.stack, np.float64(CONTEXT)))
            for asked, cluster, plan in (machines(tp=tp)[1] for tp in (1, 2))
        )
        described, (asked, *_) = layer_work(each), machines()[1]
        shared = sum(
            float(part.elements) * float(asked.kv_bytes) * CONTEXT
            for part in described.caches
            if float(np.asarray(part.parts)) == 1.0
        )
        close(2.0 * two, one + shared)


# Attacks -------------------------------------------------------------------------------------------------------------

ABSURD = {
    "a million layers": ({"layers": 1e6}, {}),
    "a long context": ({}, {"sequence_length": 1e9}),
    "more ranks than heads": ({}, {"tp": 1024.0}),
    "a wide state": ({"scan_key_dim": 1e6, "scan_value_dim": 1e6}, {}),
}


def absurd(name: str, case: str, asked):
    """A case in float64 that no catalog would allow."""
    shape = KNOWN[name].shape
    fields, others = ABSURD[case]
    rows = {key: value for key, value in fields.items() if key in shape.kinds.values}
    values = {key: np.where(column > 0, rows[key], column) if key in rows else column
              for key, column in shape.kinds.values.items()}  # fmt: skip
    own = {key: np.float64(value) for key, value in fields.items() if key not in rows}
    if "layers" in own:
        own["moe_layers"] = own["layers"] * float(shape.moe_layers / shape.layers)
    model = changed(shape, kinds__values=values, **own)
    run, cluster, plan = asked(model, **({"batch": 8} if asked is serving else {}))
    if "tp" in others:
        plan = changed(plan, tp=np.float64(others["tp"]))
        cluster = changed(cluster, chips=np.float64(float(cluster.chips) * others["tp"]))
    if "sequence_length" in others:
        length = np.float64(others["sequence_length"])
        run = changed(run, **{"sequence_length" if asked is training else "input_tokens": length})
    return run, cluster, plan


TIMES = ("step_time_s", "memory_per_chip_bytes", "power_w", "cost_per_token_usd", "mfu")


@pytest.mark.parametrize("case", ABSURD)
@pytest.mark.parametrize("asked", [training, serving])
def test_absurd_hybrids_have_finite_reports(asked, case):
    report = estimate(*absurd("kimi-linear-48b", case, asked))
    for name in TIMES:
        value = float(getattr(report, name))
        assert np.isfinite(value) and value > 0.0, name


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"layers": 4, "kv_heads": 0}, "attends = 0"),
        ({"layers": 4, "qk_dim": 0}, "attends = 0"),
        ({"layers": 4, "attends": 2}, "between 0 and 1"),
        ({"layers": 4, "moe": 3}, "between 0 and 1"),
        ({"layers": 4, "scan_delta": -1}, "at least 0"),
    ],
)
def test_rows_that_no_layer_has_are_refused(row, words):
    """Heads of 0 would divide by 0."""
    with pytest.raises(UserError, match=words):
        read_layer_kinds([row], {}, (), "mine", True)
