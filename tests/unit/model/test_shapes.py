"""Every annotated shape of the model holds, checked by beartype while all kinds of workloads are traced."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
from jaxtyping import install_import_hook

with install_import_hook("hwopt.model", "beartype.beartype"):
    import hwopt.model.chip.chip_project, hwopt.model.estimate, hwopt.model.kernels
import sys

import jax
import jax.numpy as jnp
import pytest
from jaxtyping import TypeCheckError

import hwopt
from hwopt import catalog
from hwopt.design.exact import ExactModel
from hwopt.model.chip.chip_project import chip, margins
from hwopt.model.estimate import Lifted, estimate, lifted_estimate
from hwopt.model.chip.roofline import bf16_rate
from hwopt.model.chip.thermal import leakage_w


def training(workload, chip, **plan):
    run = catalog.training_run(workload)
    return run, catalog.cluster(chip, 1024), catalog.plan(run, 1024, **plan)


def serving(mode):
    asked = catalog.service("deepseek-v3", mode=mode, requests_per_s=2.0, drafted_tokens=2.0)
    return asked, catalog.cluster("h200", 64), catalog.serving_plan(asked, 64, tp=8, ep=8, batch=8)


with jax.enable_x64(True):
    dense = jax.tree.map(jnp.asarray, training("llama3.1-70b", "tpu-v5p", tp=4, cp=2, zero=3))
    experts = training("deepseek-v3", "h100-sxm", ep=8, pp=4)
    clicks = catalog.training_run("dlrm-dcnv2", global_batch=65536)
    if sys.argv[1] == "workloads":
        for case in (experts, serving("serve")):
            jax.eval_shape(estimate, *case)
        jax.eval_shape(estimate, clicks, catalog.cluster("h100-sxm", 64), catalog.plan(clicks, 64, ep=8))
        jax.eval_shape(lifted_estimate, *dense, Lifted(*map(jnp.asarray, (340.0, 1e12, 3600.0))))
        jax.eval_shape(lambda case: estimate(*case, temperature=0.1), dense)
        jax.eval_shape(chip, catalog.chip_project("h100-sxm"))
        jax.eval_shape(margins, catalog.chip_project("h100-sxm"))
        assert bf16_rate(dense[1].chip).shape == ()
    else:
        for case in (dense, *map(serving, ("prefill", "decode"))):
            jax.eval_shape(estimate, *case)
        jax.eval_shape(jax.grad(lambda cluster: estimate(dense[0], cluster, dense[2]).step_time_s), dense[1])
        for fields in ({"split": "disaggregated"}, {"design": "h100-sxm"}):
            ExactModel(hwopt.objective("serve_cost", **fields).problem().continuous).prepare()
        ExactModel(hwopt.objective("train_and_serve").problem().continuous).prepare()
    with pytest.raises(TypeCheckError, match="junction_k"):
        leakage_w(dense[1].chip, 1.0, jnp.ones(2))
print("checked")
"""


@pytest.mark.parametrize("of", ["workloads", pytest.param("designs", marks=pytest.mark.search)])
def test_annotated_shapes_hold(of):
    """In a process of its own: what is imported already is not checked.

    The search tier adds what traces the same functions in other ways: gradients, other phases, what designs are searched by.
    """
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", SCRIPT, of], cwd=root, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.strip() == "checked"
