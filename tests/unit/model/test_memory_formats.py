"""Bytes of memory formats by their closed forms, on a Llama 3.1 8B of eight chips."""

from __future__ import annotations

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.output.export.header import Launch
from hwopt.output.export.trainer import file_text, training_file
from hwopt.output.export.trainers import TRAINERS
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.workload.transformer import total_parameters

BATCH, LENGTH, CHIPS = 64, 4096, 8
STACK = catalog.cluster("h100-sxm", CHIPS).stack
NUMBER, TABLES = 8.030e9, 2 * 128256 * 4096


def report(memory=None, plan="zero=3", trained=1.0, model="llama3.1-8b", **settings):
    run = catalog.training_run(
        model, sequence_length=LENGTH, global_batch=BATCH, memory_formats=memory, trainable_fraction=trained
    )
    cluster = catalog.cluster("h100-sxm", CHIPS, any_software=True, **settings)
    return evaluate_in_numpy(estimate, run, cluster, catalog.plan(run, CHIPS, **catalog.parse_plan(plan)))


def parts(*arguments, **settings):
    return {name: float(value) for name, value in report(*arguments, **settings).memory._asdict().items()}


@pytest.mark.parametrize(
    ("words", "master", "moments"),
    [
        ("moments=fp32", 4.0, 8.0),
        ("moments=bf16", 4.0, 4.0),
        ("moments=none", 4.0, 0.0),
        ("master=none", 0.0, 8.0),
        ("moments=bf16,master=none", 0.0, 4.0),
        ("moments=bf16,master=bf16", 2.0, 4.0),
    ],
)
def test_optimizer_states(words, master, moments):
    each = float(STACK.master_kept) * master + moments
    assert parts(words)["optimizer_bytes"] == pytest.approx(each * NUMBER / CHIPS, rel=1e-3)
    assert parts(words)["weights_bytes"] == parts()["weights_bytes"]


def test_moments_of_8_bits_keep_those_of_tables_in_fp32():
    eight = 2.0 * (1.0 + 4.0 / 2048.0)
    expected = 4.0 * float(STACK.master_kept) * NUMBER + eight * (NUMBER - TABLES) + 8.0 * TABLES
    assert parts("moments=8bit")["optimizer_bytes"] == pytest.approx(expected / CHIPS, rel=1e-3)


def test_frozen_weights_in_nf4_keep_tables_in_16_bits():
    """QLoRA: half a byte, and 8-bit scales of 64 weights with scales of their own; adapters in 16 bits."""
    trained, nf4 = 0.003, 0.5 + (1.0 + 4.0 / 256.0) / 64.0
    assert nf4 == pytest.approx(0.516, abs=5e-4)  # arXiv 2305.14314: 0.127 bits a weight for the scales
    expected = nf4 * (NUMBER - TABLES) + 2.0 * TABLES + trained * 2.0 * NUMBER
    own = parts("frozen=nf4", trained=trained)
    assert own["weights_bytes"] == pytest.approx(expected / CHIPS, rel=1e-3)
    assert own["gradients_bytes"] == pytest.approx(trained * 4.0 * NUMBER / CHIPS, rel=1e-3)
    wide = parts("frozen=fp32", trained=trained)["weights_bytes"]
    assert wide == pytest.approx((4.0 + trained * 2.0) * NUMBER / CHIPS, rel=1e-3)


def test_adapters_in_attention_alone_keep_no_inputs_of_the_mlp():
    """Of the inputs of linear layers, the outputs of the second norm and of the gate are not kept: (2 h + 2 f) a token."""
    both = [
        parts(f"frozen=bf16,adapters={where}", trained=0.003)["activations_bytes"] for where in ("all", "attention")
    ]
    full = parts(trained=0.003)["activations_bytes"]
    norm, product = 0.5 * (float(STACK.residual_tensors) - 2.0), float(STACK.product_kept)
    saved = 32 * LENGTH * 2.0 * (norm * 4096 + product * 14336)
    assert both[0] == full
    assert both[0] - both[1] == pytest.approx(saved, rel=1e-6)
    assert saved > 0.0


def test_activations_in_8_bits():
    """1 B and a 32-bit scale for 128 elements instead of 2 B; statistics of attention stay."""
    wide, narrow = (parts(words)["activations_bytes"] for words in (None, "activations=fp8"))
    assert narrow / wide == pytest.approx((1.0 + 4.0 / 128.0) / 2.0, rel=0.01)


def test_a_chunked_loss_never_holds_all_logits():
    whole = parts(plan="zero=3,recompute=full")
    chunks = [parts(f"loss={tokens}", plan="zero=3,recompute=full") for tokens in (256, 1024, LENGTH)]
    totals = [sum(each.values()) for each in chunks]
    assert totals == sorted(totals)
    assert totals[1] < sum(whole.values())
    assert totals[2] - totals[0] <= 6.0 * LENGTH * 128256  # logits alone
    assert parts("loss=chunked") == parts("loss=1024")
    assert parts("loss=whole") == parts()


def test_a_step_of_one_micro_batch_has_its_gradients_after_its_activations():
    # Eight replicas of eight sequences are one micro-batch of eight, or two of four.
    own, accumulated = (parts("loss=256", plan=f"zero=1,mbs={size}") for size in (8, 4))
    assert own["gradients_bytes"] == pytest.approx(max(4.0 * NUMBER - own["activations_bytes"], 0.0), rel=1e-3, abs=1.0)
    assert accumulated["gradients_bytes"] == pytest.approx(4.0 * NUMBER, rel=1e-3)


def test_fsdp2_holds_three_layers_and_the_tables_whole():
    layer = (NUMBER - TABLES) / 32
    plain = parts("weights=fp32,master=none,gradients=bf16", trained=1e-9)
    own = parts("weights=fp32,master=none,gradients=bf16,fsdp2=yes", trained=1e-9)
    before = 4.0 * float(STACK.layers_whole) * layer
    assert own["working_bytes"] - plain["working_bytes"] == pytest.approx(
        3.0 * 2.0 * layer + 2.0 * TABLES - before, rel=2e-3
    )
    trained = parts("weights=fp32,master=none,fsdp2=yes")["working_bytes"] - own["working_bytes"]
    assert trained == pytest.approx(2.0 * TABLES + (2.0 + float(STACK.gradient_bytes)) * layer, rel=2e-3)


def test_fsdp2_gathers_weights_in_16_bits():
    words = "weights=fp32,master=none,fsdp2"
    stored, gathered = (float(report(f"{words}={word}").step_time_s) for word in ("no", "yes"))
    assert gathered < stored


@pytest.mark.parametrize(
    ("words", "each"), [("gradients=bf16", 2.0), ("gradients=fp32", 4.0), ("gradients=freed", 0.0)]
)
def test_gradients(words, each):
    assert parts(words)["gradients_bytes"] == pytest.approx(each * NUMBER / CHIPS, rel=1e-3)


def test_gradients_that_are_not_reduced_before_the_last_micro_batch_are_whole():
    whole = float(STACK.gradient_bytes) * NUMBER
    assert parts("accumulation=whole")["gradients_bytes"] == pytest.approx(whole, rel=1e-3)
    assert parts("accumulation=whole", plan="zero=3,mbs=8")["gradients_bytes"] == parts()["gradients_bytes"]


def test_hosted_gradients_move_to_the_pool():
    here, there = (report(words, plan="zero=2,optimizer_offloaded=1") for words in (None, "gradients=host"))
    moved = float(here.memory.gradients_bytes)
    assert float(there.memory.gradients_bytes) == 0.0
    assert float(here.memory_per_chip_bytes - there.memory_per_chip_bytes) == pytest.approx(moved, rel=1e-6)
    assert float(there.pool_per_chip_bytes - here.pool_per_chip_bytes) == pytest.approx(moved, rel=1e-6)


def test_a_stated_reserve_replaces_that_of_the_software():
    assert parts("reserve=6GB")["reserve_bytes"] == 6e9


def test_formats_that_are_not_stated_are_not_in_the_trace():
    run = catalog.training_run("llama3.1-8b")
    assert run.formats is None
    stated = catalog.training_run("llama3.1-8b", memory_formats="reserve=6GB,moments=bf16")
    assert len(jax.tree.leaves(stated)) == len(jax.tree.leaves(run)) + 1
    assert float(total_parameters(run.model)) == pytest.approx(NUMBER, rel=1e-3)
    assert np.asarray(stated.moment_bytes) == 4.0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("moment=8bit", "unknown name 'moment' in 'moment=8bit': did you mean 'moments'?"),
        ("moments=4bit", "memory formats: moments=4bit: did you mean '8bit'?"),
        ("moments", "memory formats: 'moments' is not name=value"),
        ("moments=8bit,moments=bf16", "memory formats: 'moments' is given twice"),
        ("reserve=-1", "memory formats: reserve=-1: must be a positive number of bytes, such as 6GB"),
        ("reserve=6s", "memory formats: reserve=6s: must be a positive number of bytes"),
        ("loss=0", "memory formats: loss=0: known: chunked, whole; or it must be a positive number of tokens"),
        ("", "memory formats: '' is empty"),
        ("frozen=nf4", "all weights train"),
    ],
)
def test_errors(words, told):
    with pytest.raises(UserError) as refused:
        report(words)
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_table_of_operators_has_no_logits_to_chunk():
    with pytest.raises(UserError, match="need a transformer"):
        catalog.training_run("resnet-50", memory_formats="loss=chunked")
    assert catalog.training_run("resnet-50", memory_formats="moments=bf16,reserve=6GB").formats is not None


def test_qlora_of_65_billion_weights_fits_in_48_gb():
    """arXiv 2305.14314, abstract; with all weights in 16 bits it needs more than 130 GB."""
    needed = {}
    for frozen in ("nf4", "bf16"):
        run = catalog.training_run(
            "llama-65b",
            sequence_length=512,
            global_batch=16,
            trainable_fraction=0.012,
            memory_formats=f"frozen={frozen}",
        )
        cluster = catalog.cluster("h100-sxm", 1)
        plan = catalog.plan(run, 1, recompute="full")
        needed[frozen] = float(evaluate_in_numpy(estimate, run, cluster, plan).memory_per_chip_bytes)
    assert needed["nf4"] < 48 * 2**30
    assert needed["bf16"] > 130e9


@pytest.mark.parametrize(
    ("software", "words", "told"),
    [
        ("megatron", "moments=bf16", "--exp-avg-dtype bf16"),
        ("megatron", "gradients=bf16", "--grad-reduce-in-bf16"),
        ("megatron", "reserve=6GB", "--bf16"),
        ("torchtitan", "fsdp2=yes,weights=fp32,master=none", 'dtype = "float32"'),
    ],
)
def test_exports_state_formats(software, words, told):
    assert told in exported(software, words)


@pytest.mark.parametrize(
    ("software", "words", "setting"),
    [
        ("megatron", "loss=chunked", "--memory-formats loss"),
        ("megatron", "master=none", "no master weights"),
        ("megatron", "moments=8bit", "--memory-formats moments"),
        ("torchtitan", "gradients=host", "--memory-formats gradients"),
        ("nemo", "fsdp2=yes", "--memory-formats fsdp2"),
        ("nemo", "activations=fp8", "--memory-formats activations"),
    ],
)
def test_exports_refuse_formats_that_they_cannot_state(software, words, setting):
    with pytest.raises(UserError, match=setting):
        exported(software, words)


def exported(software, words):
    run = catalog.training_run("llama3.1-8b", sequence_length=LENGTH, global_batch=BATCH, memory_formats=words)
    cluster = catalog.cluster("h100-sxm", CHIPS)
    plan = catalog.plan(run, CHIPS, zero=3 if software == "torchtitan" else 1)
    report = evaluate_in_numpy(estimate, run, cluster, plan)
    launch = Launch(run, plan, report, families=["hopper"], config=catalog.model_config("llama3.1-8b"))
    known = TRAINERS[software]
    return file_text(known, training_file(software, known, launch), launch)


def test_hosted_gradients_cross_the_link_once_for_each_micro_batch():
    """One micro-batch sends as many bytes as without: gradients for the update in the pool. Eight send seven times more."""
    offload = {}
    for size in (1, 8):
        plan = f"zero=2,optimizer_offloaded=1,mbs={size}"
        offload[size] = [float(report(words, plan=plan).breakdown.offload_s) for words in (None, "gradients=host")]
    assert offload[8][1] == pytest.approx(offload[8][0], rel=1e-6)
    assert offload[1][1] >= offload[1][0]
