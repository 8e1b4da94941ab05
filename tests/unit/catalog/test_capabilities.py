"""Capabilities of software stacks: values in their files, and plans that the lattice keeps."""

import equinox as eqx
import numpy as np
import pytest

import hwopt
from hwopt import catalog
from hwopt.catalog.names import names
from hwopt.design.lattices import lattice_of
from hwopt.design.plan_lattice import CAPABILITIES, FIXED, fixed_columns, undocumented
from hwopt.errors import UserError
from hwopt.planning.training_plans import training_plan_system, training_plans, training_scope
from hwopt.quantity import quantities
from hwopt.stack import Capabilities

ANY = catalog.stack("ideal").capabilities


def documented(**levels):
    """Return the capabilities of any software, except for the given ones."""
    leaves = {name: np.float64(levels.get(name, getattr(ANY, name))) for name in quantities(Capabilities)}
    return Capabilities(**leaves)


def test_each_capability_names_its_relation():
    assert set(CAPABILITIES) == set(quantities(Capabilities)) and ANY.unlimited


def test_every_training_stack_states_its_capabilities():
    for name in names("stacks"):
        record = catalog.record("stacks", name)
        stated = [key for key in record.quantities if key.startswith("capabilities.")]
        trains = "zero" in record.text or name == "ideal"
        assert bool(stated) == trains, name
        assert not trains or name == "ideal" or "formats" in record.text, name
        assert all(record.citation(key) for key in stated)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("context_paralelism = 1", "unknown key 'capabilities.context_paralelism': did you mean 'context_parallelism'"),
        ("zero_stage = 4", "'capabilities.zero_stage' = 4 must not exceed 3"),
        ("activation_offload = 0.5", "must be an integer"),
        ('interleaving = "often"', "interleaving"),
    ],
)
def test_errors_are_one_line(tmp_path, line, complaint):
    (tmp_path / "own.toml").write_text(f'base = "nemo-2024"\n[capabilities]\n{line}\n')
    with pytest.raises(UserError, match=complaint) as error:
        catalog.stack(tmp_path / "own.toml")
    assert "\n" not in str(error.value)


def test_a_users_stack_keeps_what_its_base_documents(tmp_path):
    (tmp_path / "own.toml").write_text('base = "nemo-2024"\n[capabilities]\nactivation_offload = 2\n')
    own, base = catalog.stack(tmp_path / "own.toml").capabilities, catalog.stack("nemo-2024").capabilities
    assert float(own.activation_offload) == 2.0 and float(own.interleaving) == float(base.interleaving) == 1.0


def _plans(**asked):
    run = catalog.training_run("llama3.1-8b", global_batch=16)
    cluster = catalog.cluster("h100-sxm", 8, **asked)
    return run, cluster, training_plans(run, cluster)


def _rows(plans):
    return set(zip(*(plans[name].tolist() for name in plans.columns), strict=True))


def test_megatron_offloads_no_activations_in_a_pipeline():
    _, _, plans = _plans(stack="nemo-2025")
    piped, offloaded = plans["pp"] > 1, plans["activations_offloaded"] > 1
    assert offloaded.any() and not (piped & offloaded).any() and not (offloaded & (plans["recompute"] > 1)).any()
    assert (plans["optimizer_offloaded"][piped] > 1).any() and (plans["weights_offloaded"] == 1).all()
    assert (plans["zero"][piped] == 1).all() and (plans["zero"] == 3).any()


def test_any_software_gives_every_plan_of_the_lattice():
    run, cluster, plans = _plans(any_software=True)
    few = _plans()[2]
    assert plans.count == 12888 and 0 < few.count < plans.count and _rows(few) < _rows(plans)
    assert "plans of any software" in training_scope(run, cluster, plans.count)
    assert "what the software documents" in training_scope(run, _plans()[1], few.count)


def test_only_the_documented_part_is_left():
    """Each capability at level 0 removes exactly the plans that its words describe."""
    run, cluster, plans = _plans(stack="ideal")
    removed = {
        "tensor_parallelism": plans["tp"] > 1, "pipeline_parallelism": plans["pp"] > 1, "context_parallelism": plans["cp"] > 1,
        "interleaving": plans["virtual_stages"] > 1, "zero_stage": plans["zero"] > 1,
        "zero_in_pipeline": (plans["zero"] > 1) & (plans["pp"] > 1), "recomputation": plans["recompute"] > 1,
        "activation_offload": plans["activations_offloaded"] > 1, "optimizer_offload": plans["optimizer_offloaded"] > 1,
        "weight_streaming": plans["weights_offloaded"] > 1,
        "offload_with_recomputation": (plans["activations_offloaded"] > 1) & (plans["recompute"] > 1),
    }  # fmt: skip
    assert {*removed, "expert_parallelism", "partial_offload", *FIXED} == set(CAPABILITIES)
    for name, gone in removed.items():
        software = documented(**{name: 0})
        system = training_plan_system(run, _with(cluster, software))
        rows = np.stack([plans[each] for each in system.names], axis=1)
        assert gone.any() and (system.valid(rows) == ~gone).all(), name
        at = int(np.flatnonzero(gone)[0])
        plan = plans.at(np.array([at]))
        one = type(plan)(**{each: getattr(plan, each)[0] for each in plan.__dataclass_fields__ if each != "layout"})
        assert undocumented(one, ANY) == [] and name.replace("_", " ").replace("zero", "ZeRO") in undocumented(
            one, software
        )


def test_shares_of_offload_are_documented():
    plan = catalog.plan(catalog.training_run("llama3.1-8b", global_batch=16), 8, optimizer_offloaded=0.5)
    missing = [undocumented(plan, documented(partial_offload=level)) for level in range(4)]
    assert missing == [["partial offload"], ["partial offload"], [], []]
    whole = eqx.tree_at(lambda p: p.optimizer_offloaded, plan, np.float64(1.0))
    assert undocumented(whole, documented(partial_offload=0)) == []


def _with(cluster, software):
    return eqx.tree_at(lambda c: c.stack.capabilities, cluster, software)


def test_plan_and_optimize_agree():
    """A plan of the enumeration is in the lattice of the question exactly if its software documents it."""
    asked = {"workload": "llama3.1-8b", "global_batch": 16, "tokens": 1e9}
    kinds = {"recompute": "recompute"} | {
        f"{part}_tier": f"{part}_offloaded" for part in ("weights", "optimizer", "activations")
    }
    for stack in ("nemo-2024", "torchtitan-2024", "megatron-2021", "torch-fsdp-2023"):
        lattice = lattice_of(hwopt.objective("train_time", **asked, stack=stack).problem())
        known = [
            each
            for each in lattice.relations
            if set(each.needs) <= {"tp", "cp", "pp", "virtual_stages", "zero", *kinds}
        ]
        _, _, plans = _plans(stack="ideal")
        columns = {kinds_of: plans[name] for kinds_of, name in kinds.items()}
        columns |= {name: plans[name] for name in ("tp", "cp", "pp", "virtual_stages", "zero")}
        inside = np.all([np.broadcast_to(each.holds(columns), plans["tp"].shape) for each in known], axis=0)
        searched = _rows(_plans(stack=stack)[2])
        rows = list(zip(*(plans[name].tolist() for name in plans.columns), strict=True))
        assert {row for row, kept in zip(rows, inside, strict=True) if kept} == searched, stack


def test_what_is_asked_must_be_documented():
    with pytest.raises(UserError, match="nemo-2024 does not document weight streaming: choose another stack"):
        hwopt.objective("train_cost", offload="weights").problem()
    assert hwopt.objective("train_cost", offload="weights", any_software=True).problem()


def test_gradients_are_fp32_where_no_default_says_otherwise():
    of = {
        name: float(catalog.stack(name).gradient_bytes)
        for name in ("nemo-2024", "nemo-2025", "torchtitan-2024", "deepseek-2024")
    }
    assert set(of.values()) == {4.0} and float(catalog.stack("torch-fsdp-2023").gradient_bytes) == 2.0


@pytest.mark.parametrize(
    ("precision", "stack", "chip", "documented_by"),
    [("fp8", "nanotron-2025", "h100-sxm", "nemo-2025"), ("fp4", "nemo-2024", "b200", "nemo-2025"),
     ("int8", "nemo-2024", "a100-80", None), ("fp8", "neuron", "trainium2", None)],
)  # fmt: skip
def test_formats_are_those_that_the_software_documents(precision, stack, chip, documented_by):
    """Searches of plans and machines refuse others, unless any software is asked for; 16 bit is always documented."""
    asked = {"workload": "llama3.1-8b", "chip": chip}
    words = f"does not document {precision} products"
    with pytest.raises(UserError, match=words):
        hwopt.objective("train_cost", **asked, stack=stack, precision=precision).problem()
    run = catalog.training_run("llama3.1-8b", global_batch=16, precision=precision)
    with pytest.raises(UserError, match=words):
        training_plan_system(run, catalog.cluster(chip, 8, stack=stack))
    assert training_plan_system(run, catalog.cluster(chip, 8, stack=stack, any_software=True))
    assert hwopt.objective("train_cost", **asked, stack=stack, precision=precision, any_software=True).problem()
    assert hwopt.objective("train_cost", **asked, stack=stack, precision="bf16").problem()
    if documented_by:
        assert hwopt.objective("train_cost", **asked, stack=documented_by, precision=precision).problem()


def test_dispatchers_follow_the_lists_of_the_stacks():
    run = catalog.training_run("mixtral-8x7b")
    for name in names("stacks"):
        record = catalog.record("stacks", name)
        listed = bool({"DeepEP", "HybridEP"} & {*record.words("dispatchers")})
        stack = catalog.stack(name)
        assert float(stack.capabilities.deduplicated_dispatch) == listed, name
        needs = fixed_columns(run, stack)["deduplicated_dispatch"] > 1.0
        assert not needs or listed or "zero" not in record.text, (
            name
        )  # no training stack sends what it does not document
    changed = eqx.tree_at(lambda s: s.dispatch_deduplicated, catalog.stack("nemo-2024"), np.float64(1.0))
    cluster = eqx.tree_at(lambda c: c.stack, catalog.cluster("h100-sxm", 64), changed)
    with pytest.raises(UserError, match="deduplicated dispatch"):
        training_plan_system(run, cluster)
