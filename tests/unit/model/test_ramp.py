"""A run whose batch grows in stages: sums over them, the batch that learning sees, slopes, what is refused."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from hwopt import catalog
from hwopt.catalog.names import data_root
from hwopt.errors import UserError
from hwopt.model.estimate import estimate
from hwopt.model.training import learning
from hwopt.workload.ramp import BatchRamp, whole_micro_batches
from tests.in_numpy import in_numpy, one_row
from tests.reference.plain.thermal import bisect

TWO = "512@20%,2048"


@pytest.fixture(scope="module")
def machine():
    run = catalog.training_run("llama3.1-405b")
    return catalog.cluster("h100-sxm", 16384), catalog.plan(run, 16384, tp=8, pp=16, dp=128)


def reports(runs, machine):
    """Of runs of one form, in NumPy."""
    rows = jax.tree.map(lambda *leaves: np.stack([np.asarray(x, np.float64) for x in leaves]), *runs)
    found = in_numpy(estimate)(rows, *one_row(machine))
    return [jax.tree.map(lambda leaf, i=i: leaf[i], found) for i in range(len(runs))]


def ramped(*, fractions, shares):
    run = catalog.training_run("llama3.1-405b")
    return dataclasses.replace(run, ramp=BatchRamp(np.array(fractions), np.array(shares)))


def test_a_run_takes_the_steps_of_each_stage(machine):
    early, late = reports([catalog.training_run("llama3.1-405b", global_batch=b) for b in (512, 2048)], machine)
    (found,) = reports([catalog.training_run("llama3.1-405b", batch_ramp=TWO)], machine)
    counts = np.array([0.2 / 512, 0.8 / 2048]) * 15.6e12 / 8192
    each = np.array([float(early.step_time_s), float(late.step_time_s)])
    time = counts @ each
    assert float(found.run_time_s) == pytest.approx(time / float(found.goodput), rel=1e-12)
    assert float(found.step_time_s) == pytest.approx(float(late.step_time_s), rel=1e-12)
    assert found.stages.step_time_s == pytest.approx(each, rel=1e-12)
    assert found.stages.time_share == pytest.approx(counts * each / time, rel=1e-12)
    assert found.stages.tokens == pytest.approx([0.2 * 15.6e12, 0.8 * 15.6e12])
    assert found.stages.mfu == pytest.approx([float(early.mfu), float(late.mfu)], rel=1e-12)
    energy = counts @ [float(x.power_w * x.step_time_s) for x in (early, late)]
    assert float(found.run_energy_j * found.goodput) == pytest.approx(energy, rel=1e-12)
    assert float(early.loss) < float(found.loss) < float(late.loss)
    assert float(found.memory_per_chip_bytes) == float(late.memory_per_chip_bytes)
    assert float(found.margins.batch) == pytest.approx(float(early.margins.batch))


def test_a_stage_of_the_same_batch_is_none(machine):
    (plain,) = reports([catalog.training_run("llama3.1-405b")], machine)
    (one,) = reports([ramped(fractions=[1.0], shares=[0.3])], machine)
    without = dataclasses.replace(one, stages=None)
    for name, a, b in zip(*_named(plain), jax.tree.leaves(without), strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-13, err_msg=name)
    assert plain.stages is None


def _named(tree):
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return [str(path) for path, _ in pairs], [leaf for _, leaf in pairs]


def test_slopes_are_those_of_differences(machine):
    """Of a run's cost and loss in batch, stages and bandwidth."""

    def outputs(x):
        run = ramped(fractions=[0.25, 0.5], shares=[0.1, 0.3])
        run = dataclasses.replace(
            run,
            global_batch_sequences=2048.0 * x[0],
            ramp=BatchRamp(run.ramp.batch_fractions * x[1:3], run.ramp.token_shares * x[3:5]),
        )
        report = estimate(run, *machine)
        values = jax.numpy.log(jax.numpy.stack([report.run_cost_usd, report.loss, report.run_energy_j, report.mfu]))
        return values, values

    step = 1e-4
    moves = np.concatenate([np.zeros((1, 5)), step * np.eye(5), -step * np.eye(5)])
    slopes, values = in_numpy(jax.jacfwd(outputs, has_aux=True))(1.0 + moves)
    differences = (values[1:6] - values[6:]).T / (2 * step)
    np.testing.assert_allclose(slopes[0], differences, rtol=1e-5, atol=1e-8)
    assert (slopes[0][0, :3] < 0).all()  # larger batches cost less
    assert (slopes[0][0, 3:] > 0).all()  # longer early stages more


@pytest.mark.parametrize("law", ["chinchilla-epoch", "chinchilla-epoch-kaplan"])
def test_one_batch_wastes_what_a_ramp_does(law):
    """Exactly where the critical batch follows from tokens alone; else a little more, so that the gain is understated."""
    law = catalog.loss_law(law)
    shares, batches = np.array([0.05, 0.25, 0.7]), np.array([4e6, 8e6, 16e6])
    with jax.enable_x64(True):
        alike = learning.equivalent_batch(law, shares, batches)
        wanted = float(learning.ramped(law, 4e11, 1.5e13, shares, batches).tokens)
        found = float(learning.tokens_with_batch(law, 4e11, 1.5e13, alike))
    assert 4e6 < float(alike) < 16e6
    if float(law.critical_loss_exponent) == 0.0:
        assert found == pytest.approx(wanted, rel=1e-12)
    else:
        assert wanted < found < wanted * 1.02


@pytest.mark.parametrize(("last", "off"), [(16e6, 2e-5), (64e6, 2e-4)])
def test_shares_of_all_tokens_stand_for_those_of_useful_ones(last, off):
    """Useful tokens are counted stage by stage: `G_B(D) = D + B S_min(D)` grows by the tokens of a stage."""
    law, size, tokens = catalog.loss_law(), 4e11, 1.5e13
    shares, batches = np.array([0.05, 0.25, 0.7]), last * np.array([0.25, 0.5, 1.0])
    fewest = lambda useful: float(learning.minimum_steps(law, size, useful))
    with jax.enable_x64(True):
        useful = 0.0
        for share, batch in zip(shares, batches, strict=True):
            before = useful + (batch * fewest(useful) if useful else 0.0)
            rest = lambda x, batch=batch, before=before, share=share: before + share * tokens - x - batch * fewest(x)
            useful = bisect(lambda x, rest=rest: -rest(x), 1e6, tokens)
        exact = float(learning.loss(law, size, useful))
        found = float(learning.loss_of_run(law, size, tokens, learning.equivalent_batch(law, shares, batches)))
    assert found == pytest.approx(exact, rel=off)


def test_stages_from_text():
    for text in ("512@780B,1024@3.12T,2048", " 512 @ 5% , 1024@20%", "512@0.78e12,1024@20%"):
        run = catalog.training_run("llama3.1-405b", batch_ramp=text)
        assert run.ramp is not None and float(run.global_batch_sequences) == 2048
        np.testing.assert_allclose(run.ramp.batch_fractions, [0.25, 0.5])
        np.testing.assert_allclose(run.ramp.token_shares, [0.05, 0.15])
    assert catalog.training_run("llama3.1-405b", batch_ramp="none").ramp is None
    assert whole_micro_batches(catalog.training_run("llama3.1-405b", batch_ramp="3072@3%,15360").ramp) == 5
    assert float(catalog.training_run("llama3.1-405b", batch_ramp="3072@3%,15360").global_batch_sequences) == 15360


def test_a_workload_may_state_its_ramp(tmp_path):
    entry = (data_root() / "workloads" / "llama3.1-405b.toml").read_text()
    path = tmp_path / "mine.toml"
    path.write_text(
        entry.replace('family = "Llama-3.1"', 'family = "Llama-3.1"\nbatch_ramp = "512@252M,1024@2.87T,2048"')
    )
    run = catalog.training_run(path)
    np.testing.assert_allclose(run.ramp.batch_fractions, [0.25, 0.5])
    np.testing.assert_allclose(np.cumsum(run.ramp.token_shares), np.array([252e6, 2.87e12]) / 15.6e12)
    larger = catalog.training_run(path, global_batch=4096)
    assert float(larger.global_batch_sequences) == 4096 and float(larger.ramp.batch_fractions[0]) == 0.25
    assert catalog.training_run(path, batch_ramp="none").ramp is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("4096", "is a single batch size"),
        ("1024,2048@1T", "has no end"),
        ("1024@0.25X,2048", "is not a number of tokens"),
        ("1024@0T,2048", "is not a number of tokens"),
        ("1k@1T,2048", "is not a batch size"),
        ("0@1T,2048", "is not a batch size"),
        ("16777216@1T", "write sequences, not tokens"),
        ("2048@1T,1024@2T,4096", "batches must grow"),
        ("2048@1T,2048", "batches must grow"),
        ("4096@1T", "batches must grow, up to the last one, 2,048"),
        ("1024@2T,2048@1T,4096", "counted from the start"),
        ("1024@20T,4096", "the run has 1.56e+13"),
        ("1024@100%,4096", "shorten the ramp"),
        (",".join(f"{b}@{b}%" for b in range(1, 18)), "exceed 16"),
    ],
)
def test_refusals(text, said):
    with pytest.raises(UserError, match="batch_ramp") as refused:
        catalog.training_run("llama3.1-405b", batch_ramp=text)
    assert said in str(refused.value) and "\n" not in str(refused.value)


def test_two_last_batches_are_refused():
    with pytest.raises(UserError, match="remove one of them"):
        catalog.training_run("llama3.1-405b", batch_ramp="1024@10%,4096", global_batch=2048)


def test_plans_hold_all_stages():
    run = catalog.training_run("llama3.1-405b", batch_ramp="64@1T,2048")
    with pytest.raises(UserError, match="does not divide the batch ramp's stage of 64 sequences"):
        catalog.plan(run, 16384, tp=8, pp=16, dp=128)
    run = catalog.training_run("llama3.1-405b", batch_ramp="1024@1T,2048")
    with pytest.raises(UserError, match="the batch ramp's stage of 1024 gives 8"):
        catalog.plan(run, 16384, tp=8, pp=16, dp=128, virtual_stages=2)
