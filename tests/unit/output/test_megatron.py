"""Launch settings: flags that exist, degrees that multiply to the ranks, layers that add up, and text that bash reads."""

import re
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from hwopt import catalog
from hwopt.errors import UserError
from hwopt.output.export.limits import expressible, refusal
from hwopt.output.export.megatron import LIMITS, TRAINER, chunk_layers, layout
from hwopt.output.export.trainer import file_text, training_document, training_file
from hwopt.plan import Plan, stage_layers
from hwopt.planning.training_plans import training_plans
from tests.option_lists import options
from tests.unit.output.launches import launch

CASES = {
    "llama3.1-405b": ("h100-sxm", 1024, {"global_batch": 252}),
    "deepseek-v3": ("h800", 128, {"global_batch": 128}),
    "mixtral-8x7b": ("h100-sxm", 96, {"global_batch": 96}),
    "gpt3-175b": ("a100-80", 192, {}),
    "gemma3-27b": ("h100-sxm", 64, {}),
}


def parsed(text: str) -> list[str]:
    """Stages of a layout, unrolled as `PipelineParallelLayerLayout.parse_str_to_list` does."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        text = re.sub(pattern, lambda found: found.group(1) * int(found.group(2)), text)
    return text.split("|")


@pytest.mark.parametrize("layers", [1, 7, 61, 126])
def test_chunks_and_layouts_hold_every_layer_once(layers):
    for pp in range(1, layers + 3):
        for chunks in range(1, (layers + 2) // pp + 1 if pp > 1 else 2):
            held = chunk_layers(layers, pp, chunks)
            assert len(held) == pp * chunks and sum(held) == layers and min(held) >= 0
            stages = parsed(layout(held)) if pp > 1 else []
            if pp > 1:
                assert [stage.count("t") for stage in stages] == held
                whole = "".join(stages)
                assert whole[0] == "E" and whole[-1] == "L" and whole.strip("EL") == "t" * layers
                short = max(held) * pp * chunks - layers
                of_stage = [sum(held[stage::pp]) for stage in range(pp)]
                fullest, last = (ratio * layers / pp for ratio in stage_layers(layers, pp, chunks))
                assert max(of_stage) <= fullest + 1e-9
                if short <= pp - 1:  # beyond, the model counts the fullest stage as fuller than it need be
                    assert np.isclose(max(of_stage), fullest) and np.isclose(of_stage[-1], last)


def written(run, plan, **stated):
    """Launch settings of a plan."""
    return training_file("megatron", TRAINER, launch(run, plan, **stated))


@pytest.fixture(scope="module", params=CASES)
def settings(request):
    chip, chips, asked = CASES[request.param]
    run, cluster = catalog.training_run(request.param, **asked), catalog.cluster(chip, chips)
    rows = training_plans(run, cluster)
    index = np.random.default_rng(1).choice(rows.count, 300, replace=False)
    plans = rows.at(index)
    each = [
        Plan(**{name: leaf[i] for name, leaf in vars(plans).items() if leaf is not None}) for i in range(len(index))
    ]
    return run, chips, plans, each


def test_search_and_exporter_agree_on_what_can_be_expressed(settings):
    run, _, plans, each = settings
    can = expressible(LIMITS, run, plans)
    assert 0 < can.sum() < len(each)
    for plan, allowed in zip(each, can, strict=True):
        why = refusal(LIMITS, run, plan)
        assert bool(why) != allowed
        if why:
            with pytest.raises(UserError, match="Megatron-LM cannot express"):
                written(run, plan)


def test_settings_are_consistent(settings):
    run, chips, plans, each = settings
    layers, batch = int(run.model.layers), int(run.global_batch_sequences)
    for plan in (plan for plan, can in zip(each, expressible(LIMITS, run, plans), strict=True) if can):
        made = written(run, plan)
        flags, environment, ranks = made.file, made.environment, made.world_size
        assert set(flags) <= options("megatron")
        assert all(value is True or isinstance(value, (int, float, str)) for value in flags.values())
        degrees = [flags[f"--{name}-parallel-size"] for name in ("tensor-model", "pipeline-model", "context")]
        tp, pp, cp = degrees
        assert ranks == chips and ranks % (tp * pp * cp) == 0
        dp = ranks // (tp * pp * cp)
        assert dp == int(plan.dp)
        assert flags["--global-batch-size"] == batch and batch % (dp * flags["--micro-batch-size"]) == 0
        assert flags["--num-layers"] == layers and flags["--num-attention-heads"] % tp == 0
        assert flags["--max-position-embeddings"] >= flags["--seq-length"]
        _check_pipeline(flags, plan, layers, batch // (dp * flags["--micro-batch-size"]))
        if "--num-experts" in flags:
            ep, expert_tp = flags["--expert-model-parallel-size"], flags["--expert-tensor-parallel-size"]
            assert flags["--num-experts"] % ep == 0 and ranks % (ep * expert_tp * pp) == 0
        if "--overlap-param-gather" in flags:
            assert flags["--overlap-grad-reduce"] and flags["--use-distributed-optimizer"]
        if "--use-megatron-fsdp" in flags:
            assert flags["--ckpt-format"] == "fsdp_dtensor" and not environment and pp == 1
        elif tp > 1 or cp > 1:
            assert environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        groups = flags.get("--num-query-groups", flags["--num-attention-heads"])
        assert groups % tp == 0 or tp % groups == 0
        offloaded = float(plan.optimizer_offloaded)
        assert flags.get("--optimizer-offload-fraction", 0.0) == offloaded
        assert ("--use-precision-aware-optimizer" in flags) == ("--optimizer-cpu-offload" in flags) == bool(offloaded)


def _check_pipeline(flags, plan, layers, micro_batches):
    """What Megatron-LM asserts about stages, chunks and micro-batches."""
    pp, chunks = flags["--pipeline-model-parallel-size"], int(plan.virtual_stages)
    text, of_chunk = flags.get("--pipeline-model-parallel-layout"), flags.get("--num-layers-per-virtual-pipeline-stage")
    if text:
        assert of_chunk is None and len(parsed(text)) == pp * chunks
        assert sum(stage.count("t") for stage in parsed(text)) == layers
    elif of_chunk:
        assert layers % pp == 0 and (layers // pp) // of_chunk == chunks and (layers // pp) % of_chunk == 0
    else:
        assert chunks == 1 and layers % pp == 0
    assert chunks == 1 or micro_batches % pp == 0


def test_text_is_bash_and_json_says_the_same():
    run = catalog.training_run("llama3.1-405b")
    plan = catalog.plan(run, 16384, tp=8, pp=16)
    one, asked = written(run, plan), launch(run, plan, title="a title")
    text = file_text(TRAINER, one, asked)
    assert text.startswith("# Megatron-LM core_v0.19.0, 16,384 ranks on 2,048 hosts of 8: a title")
    printed = subprocess.run(
        ["bash", "-c", f"torchrun() {{ :; }}; MASTER_ADDR=a\n{text}\nprintf '%s\\n' \"${{MEGATRON_ARGS[@]}}\""],
        capture_output=True, text=True, check=True,
    ).stdout.split("\n")[:-1]  # fmt: skip
    words = []
    for flag, value in one.file.items():
        words += [flag] if value is True else [flag, str(value)]
    assert printed == words
    assert one.file["--pipeline-model-parallel-layout"] == "Et*7|(t*8|)*14t*7L"
    document = training_document(TRAINER, one)
    assert (
        document["arguments"] == one.file and document["world_size"] == 16384 and document["framework"] == "megatron-lm"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"tp": 16, "pp": 8}, ""),  # a multiple of the 8 key-value heads
        ({"tp": 8, "pp": 16, "zero": 2}, "ZeRO-2 with pipeline stages"),
        ({"tp": 8, "pp": 16, "bubble_fraction": 0.5}, "smaller bubble"),
        ({"tp": 8, "pp": 14, "dp": 16, "recompute": 0.5}, "not a whole number in each of 14 chunks"),
        ({"tp": 8, "pp": 14, "dp": 16, "recompute": "0.333333333"}, ""),
        ({"tp": 8, "pp": 16, "optimizer_offloaded": 0.5}, ""),
        ({"tp": 8, "pp": 16, "zero": 0, "optimizer_offloaded": 1}, "without ZeRO"),
        ({"tp": 8, "pp": 16, "activations_offloaded": 1}, "stored activations in the memory pool"),
        ({"tp": 8, "pp": 16, "weights_offloaded": 0.5}, "weights streamed"),
    ],
)
def test_what_the_framework_cannot_express_is_refused(settings, said):
    run = catalog.training_run("llama3.1-405b", global_batch=16 * 128)
    plan = catalog.plan(run, 8 * settings["pp"] * 16 if "dp" in settings else 16384, **settings)
    assert refusal(LIMITS, run, plan) == "" if not said else said in refusal(LIMITS, run, plan)


def test_formats_that_the_framework_lacks_are_refused():
    run = catalog.training_run("llama3.1-8b")
    plan = catalog.plan(run, 8)
    assert "--grad-reduce-in-bf16" in written(run, plan, gradient_bytes=2.0).file
    assert "--grad-reduce-in-bf16" not in written(run, plan).file
    with pytest.raises(UserError, match="gradients of 1 B"):
        written(run, plan, gradient_bytes=1.0)
    narrow = replace(run, moment_bytes=np.float64(4.0))
    assert written(narrow, plan).file["--exp-avg-dtype"] == "bf16"
    with pytest.raises(UserError, match="optimizer moments of 3 B"):
        written(replace(run, moment_bytes=np.float64(3.0)), plan)
    with pytest.raises(UserError, match="GEMMs in int8"):
        written(catalog.training_run("llama3.1-8b", precision="int8"), plan)


def test_dispatch_of_one_copy_a_domain_is_deepep():
    run = catalog.training_run("mixtral-8x7b")
    spread, whole = (catalog.plan(run, 8, ep=ep, expert_tp=1) for ep in (8, 1))
    flags = {
        "--moe-token-dispatcher-type": "flex",
        "--moe-flex-dispatcher-backend": "deepep",
        "--moe-router-dtype": "fp32",
    }
    assert flags.items() <= written(run, spread, deduplicated=True).file.items()
    for plan, one in ((spread, False), (whole, True)):
        assert written(run, plan, deduplicated=one).file["--moe-token-dispatcher-type"] == "alltoall"


def test_facts_that_the_config_lacks_are_listed():
    run = catalog.training_run("llama3.1-8b")
    plan = catalog.plan(run, 8)
    none = written(run, plan).unknown
    assert {"norms and their epsilon", "position embedding", "biases", "norms of queries and keys", "dropout"} < set(
        none
    )
    config = {"model_type": "llama", "rms_norm_eps": 1e-5, "rope_theta": 5e5, "hidden_act": "silu"}
    assert written(run, plan, config=config).unknown == none[-1:]
    assert "what the code of model_type mamba9 fixes" in written(run, plan, config={"model_type": "mamba9"}).unknown
    llama3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaled = config | {"rope_scaling": llama3 | {"original_max_position_embeddings": 8192}}
    assert written(run, plan, config=scaled).file["--rope-scaling-factor"] == 8.0
    for other in ({"rope_scaling": llama3 | {"original_max_position_embeddings": 4096}}, {"rope_theta": "x"}):
        assert written(run, plan, config=config | other).unknown[0] == "position embedding"


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [("bf16", {"--bf16"}), ("fp8", {"--bf16", "--fp8-format"}), ("fp4", {"--bf16", "--fp4-format"}), ("fp32", set())],
)
def test_precisions(precision, wanted):
    run = catalog.training_run("llama3.1-8b", precision=precision)
    flags = written(run, catalog.plan(run, 8)).file
    assert {flag for flag in flags if flag in ("--bf16", "--fp8-format", "--fp4-format", "--fp16")} == wanted


@pytest.mark.parametrize(
    ("recompute", "wanted"),
    [
        ("none", {}),
        ("selective", {"--recompute-granularity": "selective"}),
        ("full", {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1}),
        ("0.5", {"--recompute-granularity": "full", "--recompute-method": "block", "--recompute-num-layers": 16}),
    ],
)
def test_recomputation(recompute, wanted):
    run = catalog.training_run("llama3.1-8b")
    flags = written(run, catalog.plan(run, 8, recompute=recompute)).file
    assert {flag: value for flag, value in flags.items() if "recompute" in flag} == wanted
