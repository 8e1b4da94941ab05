"""Files of trainers: degrees multiply to the ranks, layers add up, text reads back, and what cannot be said is refused."""

import json
import tomllib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from hwopt import catalog
from hwopt.cli import exports
from hwopt.errors import UserError
from hwopt.output.export import nemo, torchtitan
from hwopt.output.export.limits import expressible
from hwopt.output.export.trainer import TrainingLaunch, file_text, training_file
from hwopt.output.export.trainers import TRAINERS
from hwopt.plan import OFFLOADED, Plan
from hwopt.planning.plan_search import best_plan
from hwopt.planning.training_plans import training_plans
from tests.option_lists import options
from tests.unit.output.launches import launch

CASES = {
    "llama3.1-405b": ("h100-sxm", 1024, {"global_batch": 256}),
    "deepseek-v3": ("h800", 128, {"global_batch": 128, "precision": "fp8"}),
    "qwen3-30b-a3b": ("h100-sxm", 96, {"global_batch": 96}),
}


def rows(run, cluster, count):
    """Some plans of a run that keep nothing in the pool."""
    plans = training_plans(run, cluster, dict.fromkeys(OFFLOADED, 0.0))
    index = np.random.default_rng(1).choice(plans.count, min(count, plans.count), replace=False)
    columns = {name: leaf for name, leaf in vars(plans.at(index)).items() if leaf is not None}
    return [Plan(**{name: leaf[i] for name, leaf in columns.items()}) for i in range(len(index))]


@pytest.fixture(scope="module", params=CASES)
def case(request):
    chip, chips, asked = CASES[request.param]
    run = catalog.training_run(request.param, **asked)
    return run, chips, rows(run, catalog.cluster(chip, chips), 400)


def told(name, run, plans):
    """Plans that a framework can be told, with their files; how many it was refused."""
    files = []
    for plan in plans:
        try:
            files.append((plan, training_file(name, TRAINERS[name], launch(run, plan))))
        except UserError:
            continue
    return files


def test_torchtitan_has_every_layer_once_and_degrees_that_multiply(case):
    run, chips, plans = case
    files = told("torchtitan", run, plans)
    assert 0 < len(files) < len(plans)
    layers, batch = int(run.model.layers), int(run.global_batch_sequences)
    for plan, settings in files:
        file, split = settings.file, settings.file["parallelism"]
        for section, keys in file.items():
            assert {f"{section}.{key}" for key in keys} <= options("torchtitan") | {
                "quantize.linear",
                "quantize.grouped_mm",
            }
        shards = split["data_parallel_shard_degree"] * split.get("data_parallel_replicate_degree", 1)
        stages = split.get("pipeline_parallel_degree", 1)
        assert shards == int(plan.dp) and settings.world_size == chips
        assert shards * split["tensor_parallel_degree"] * split["context_parallel_degree"] * stages == chips
        rounds = file["training"]["local_batch_size"]
        assert batch % (rounds * shards) == 0
        assert batch // (rounds * shards) == (1 if stages > 1 else batch // int(plan.dp * plan.micro_batch))
        assert file["training"]["steps"] * batch * file["training"]["seq_len"] >= float(run.tokens)
        if stages > 1:
            parts = split["module_fqns_per_model_part"]
            assert len(parts) == stages * int(plan.virtual_stages)
            assert [name for part in parts for name in part] == [
                "tok_embeddings", *(f"layers.{i}" for i in range(layers)), "norm", "output"
            ]  # fmt: skip
        if "expert_parallel_degree" in split:
            borrowed = shards * split["context_parallel_degree"]
            borrowed *= split["tensor_parallel_degree"] if split["expert_tensor_parallel_degree"] == 1 else 1
            assert borrowed % split["expert_parallel_degree"] == 0
    assert Counter(settings.file["model"]["name"] for _, settings in files).keys() == {
        "llama3" if not float(run.model.experts) else "deepseek_v3" if float(run.model.kv_rank) else "qwen3"
    }


def test_nemo_says_what_megatron_is_told(case):
    run, chips, plans = case
    files = told("nemo", run, plans)
    assert 0 < len(files) <= len(plans)
    for plan, settings in files:
        for section, keys in settings.file.items():
            assert section == "mixed_precision" or {f"{section}.{key}" for key in keys} <= options("nemo")
        model, train = settings.file["model"], settings.file["train"]
        degrees = [model[f"{name}_parallel_size"] for name in ("tensor_model", "pipeline_model", "context")]
        assert chips == settings.world_size == int(np.prod(degrees)) * int(plan.dp)
        assert train["global_batch_size"] % (int(plan.dp) * train["micro_batch_size"]) == 0
        if "moe_layer_freq" in model:
            assert len(model["moe_layer_freq"]) == model["num_layers"] and sum(model["moe_layer_freq"]) == int(
                run.model.moe_layers
            )
    formats = {"bf16": "bf16_mixed", "fp8": "bf16_with_fp8_delayed_scaling_mixed"}
    precision = TrainingLaunch(launch(run, plans[0])).precision
    assert {settings.file["mixed_precision"] for _, settings in files} == {formats[precision]}


def test_text_reads_back(case):
    run, _, plans = case
    for name, trainer in TRAINERS.items():
        for plan, settings in told(name, run, plans)[:20] if name != "megatron" else ():
            text = file_text(trainer, settings, launch(run, plan, title="a\ntitle"))
            assert f"{settings.world_size:,} ranks on {settings.world_size // 8:,} hosts of 8: a title" in text
            if name == "torchtitan":
                assert tomllib.loads(text) == settings.file
            else:  # YAML of JSON values, two levels deep
                read, section = {}, None
                for line in text.splitlines():
                    key, colon, value = line.partition(":")
                    if line.startswith("#"):
                        continue
                    if line.startswith("  "):
                        read[section][key.strip()] = json.loads(value)
                    elif value:
                        read[key] = json.loads(value)
                    else:
                        section, read[key] = key, {}
                    assert colon
                assert read == settings.file


def plan_of(run, chips, **degrees):
    return catalog.plan(run, chips, **degrees)


@pytest.mark.parametrize(
    ("framework", "asked", "degrees", "said"),
    [
        ("torchtitan", {}, {"tp": 8, "pp": 2, "zero": 1, "activations_offloaded": 1}, "stored activations in the memory pool"),
        ("torchtitan", {}, {"tp": 8, "zero": 3, "optimizer_offloaded": 1}, "FSDP keeps both there, all of them, or none"),
        ("nemo", {}, {"tp": 8, "zero": 3, "optimizer_offloaded": 1}, "optimizer states in the memory pool with ZeRO-3"),
        ("torchtitan", {}, {"tp": 8, "zero": 1}, "ZeRO-1 with 8 micro-batches"),
        ("torchtitan", {}, {"tp": 8, "pp": 8}, "dp = cp = 1"),
        ("torchtitan", {}, {"tp": 4, "pp": 8, "zero": 2}, "ZeRO-2 with pipeline stages"),
        ("torchtitan", {}, {"tp": 8, "zero": 3, "recompute": "selective"}, "keeps the result of attention"),
        ("torchtitan", {}, {"tp": 16, "zero": 3}, "does not divide 8 key-value heads"),
        ("torchtitan", {"precision": "fp4"}, {"tp": 8, "zero": 3}, "GEMMs in fp4"),
        ("torchtitan", {"batch_ramp": "32@1B,64"}, {"tp": 8, "zero": 3}, "growing batch is not supported"),
        ("nemo", {"precision": "int8"}, {"tp": 8, "zero": 3}, "GEMMs in int8"),
        ("nemo", {}, {"tp": 8, "zero": 1}, "synchronization only every 500 steps"),
    ],
)  # fmt: skip
def test_what_cannot_be_said_is_refused(framework, asked, degrees, said):
    run = catalog.training_run("llama3.1-70b", global_batch=64, **asked)
    plan = plan_of(run, 64, **degrees)
    plan = plan if "synchronization" not in said else replace(plan, local_steps=np.float64(500))
    with pytest.raises(UserError, match=said):
        training_file(framework, TRAINERS[framework], launch(run, plan))


def test_models_that_torchtitan_does_not_have_are_refused_with_those_it_has():
    run = catalog.training_run("gpt3-175b", global_batch=64)
    with pytest.raises(UserError, match=r"no model of 96 layers.*llama3 405B.*deepseek_v3 671B"):
        training_file("torchtitan", torchtitan.TRAINER, launch(run, plan_of(run, 64, tp=8, zero=3)))


@pytest.mark.parametrize("workload", ["qwen3-8b", "llama3.1-8b", "deepseek-v2", "deepseek-v2-lite", "qwen3-235b-a22b"])
def test_catalogue_models_are_found_by_their_shape(workload):
    run = catalog.training_run(workload, global_batch=64)
    file = training_file("torchtitan", torchtitan.TRAINER, launch(run, plan_of(run, 16, zero=3))).file
    assert (file["model"]["name"], file["model"]["flavor"]) in torchtitan.FLAVORS


def test_offloading_that_fsdp_does_is_a_key():
    run = catalog.training_run("llama3.1-70b", global_batch=64)
    plan = plan_of(run, 64, tp=8, zero=3, weights_offloaded=1, optimizer_offloaded=1)
    file = training_file("torchtitan", torchtitan.TRAINER, launch(run, plan)).file
    assert file["training"]["enable_cpu_offload"] is True


@pytest.mark.parametrize("name", TRAINERS)
def test_a_search_among_plans_that_can_be_expressed_finds_the_best_of_them(name):
    run, cluster = catalog.training_run("llama3.1-8b", global_batch=32), catalog.cluster("h100-sxm", 8)
    limits = TRAINERS[name].limits
    search = best_plan(run, cluster, alternatives=0, allowed=lambda plans: expressible(limits, run, plans))
    free = best_plan(run, cluster, alternatives=1000)
    can = [each for each in (free.best, *free.alternatives) if len(told(name, run, [each.plan]))]
    assert search.examined < free.examined and search.best.objective <= min(each.objective for each in can) * (1 + 1e-9)
    assert training_file(name, TRAINERS[name], launch(run, search.best.plan))
    with pytest.raises(UserError, match=r"none of .* plans qualifies"):
        best_plan(run, cluster, allowed=lambda plans: np.zeros(len(plans.tp), bool))


def test_words_of_the_flag_are_the_trainers():
    assert set(exports.TRAINERS) == set(TRAINERS)
    for flag in nemo.UNSAID:
        assert flag in options("megatron") and nemo.keys_of(flag) == []


def test_chips_that_a_trainer_does_not_run_on_are_refused_before_any_search():
    run = catalog.training_run("llama3.1-8b")
    with pytest.raises(UserError, match=r"--export torchtitan: torchtitan does not run on tpu-v5p \(tpu\)"):
        exports.check_export("torchtitan", run, "tpu-v5p", "bf16", {})
    with pytest.raises(UserError, match=r"--export nemo: NeMo.* does not run on mi300x \(cdna3\)"):
        exports.check_export("nemo", run, "mi300x", "bf16", {})
    exports.check_export("torchtitan", run, "mi300x", "bf16", {})
