"""Launch settings: flags that exist, degrees that multiply to the ranks, layers that add up, and text that bash reads."""

import re
import subprocess

import numpy as np
import pytest

from hwopt import catalog
from hwopt.output.export.megatron import (
    VERSION,
    chunk_layers,
    layout,
    megatron_document,
    megatron_settings,
    megatron_text,
)
from hwopt.plan import Plan, stage_layers
from hwopt.planning.training_plans import training_plans

# Read off `add_argument` calls of megatron/training/arguments.py, NVIDIA/Megatron-LM, core_v0.15.0.
VERIFIED = """
    --num-layers --hidden-size --ffn-hidden-size --num-attention-heads --kv-channels --group-query-attention
    --num-query-groups --seq-length --max-position-embeddings --vocab-size --swiglu
    --untie-embeddings-and-output-weights --num-experts --moe-router-topk --moe-ffn-hidden-size
    --moe-shared-expert-intermediate-size --moe-layer-freq --moe-grouped-gemm --moe-token-dispatcher-type
    --multi-latent-attention --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim
    --tensor-model-parallel-size --pipeline-model-parallel-size --pipeline-model-parallel-layout
    --num-layers-per-virtual-pipeline-stage --microbatch-group-size-per-virtual-pipeline-stage
    --context-parallel-size --cp-comm-type --expert-model-parallel-size --expert-tensor-parallel-size
    --sequence-parallel --micro-batch-size --global-batch-size --use-distributed-optimizer --overlap-grad-reduce
    --overlap-param-gather --use-megatron-fsdp --data-parallel-sharding-strategy --no-gradient-accumulation-fusion
    --ckpt-format --num-distributed-optimizer-instances --recompute-granularity --recompute-method
    --recompute-num-layers --bf16 --fp8-format --fp4-format
"""
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
    return run, chips, [(plan, megatron_settings(run, plan)) for plan in each]


def test_settings_are_consistent(settings):
    run, chips, found = settings
    layers, batch = int(run.model.layers), int(run.global_batch_sequences)
    for plan, (flags, environment, ranks, notes) in found:
        assert set(flags) <= set(VERIFIED.split())
        assert all(value is True or isinstance(value, (int, str)) for value in flags.values())
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
            assert flags["--ckpt-format"] == "fsdp_dtensor" and not environment
        elif tp > 1 or cp > 1:
            assert environment == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
        groups = flags.get("--num-query-groups", flags["--num-attention-heads"])
        assert any("key-value heads" in note for note in notes) == bool(groups % tp)


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
    if chunks > 1:
        group = flags.get("--microbatch-group-size-per-virtual-pipeline-stage", pp)
        rest = micro_batches % group
        assert pp <= group <= micro_batches and (rest == 0 or rest >= pp)


def test_text_is_bash_and_json_says_the_same(settings):
    _, chips, found = settings
    _, one = next(pair for pair in found if "--pipeline-model-parallel-layout" in pair[1].arguments)
    text = megatron_text(one, "a title")
    assert all(line.startswith("#") for line in text.splitlines()[: 1 + len(one.notes)])
    printed = subprocess.run(
        ["bash", "-c", f'{text}\nprintf "%s\\n" "${{MEGATRON_ARGS[@]}}"'], capture_output=True, text=True, check=True
    ).stdout.split("\n")[:-1]
    words = []
    for flag, value in one.arguments.items():
        words += [flag] if value is True else [flag, str(value)]
    assert printed == words
    document = megatron_document(one)
    assert document["arguments"] == one.arguments and document["world_size"] == chips
    assert document["version"] == VERSION


def test_what_the_framework_cannot_say_is_said():
    run = catalog.training_run("llama3.1-405b")

    def notes(**words):
        return " ".join(megatron_settings(run, catalog.plan(run, 16384, **words)).notes)

    plain = notes(tp=8, pp=16)
    assert "cannot be expressed" not in plain
    assert "--tensor-model-parallel-size 8" in notes(tp=16, pp=8)
    assert "ZeRO-1" in notes(tp=8, pp=16, zero=2)
    assert "smaller bubble" in notes(tp=8, pp=16, bubble_fraction=0.5)
    assert "--recompute-num-layers" in notes(tp=8, pp=16, recompute=0.5)
    assert "optimizer_offloaded=0.5" in notes(tp=8, pp=16, optimizer_offloaded=0.5) and "memory pool" not in plain
    published = megatron_settings(run, catalog.plan(run, 16384, tp=8, pp=16)).arguments
    assert published["--pipeline-model-parallel-layout"] == "Et*7|(t*8|)*14t*7L"


@pytest.mark.parametrize(
    ("precision", "wanted"),
    [("bf16", {"--bf16"}), ("fp8", {"--bf16", "--fp8-format"}), ("fp4", {"--bf16", "--fp4-format"}), ("fp32", set())],
)
def test_precisions(precision, wanted):
    run = catalog.training_run("llama3.1-8b", precision=precision)
    flags = megatron_settings(run, catalog.plan(run, 8)).arguments
    assert {flag for flag in flags if flag in ("--bf16", "--fp8-format", "--fp4-format", "--fp16")} == wanted
    other = catalog.training_run("llama3.1-8b", precision="int8")
    assert any("int8" in note for note in megatron_settings(other, catalog.plan(other, 8)).notes)


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
    flags = megatron_settings(run, catalog.plan(run, 8, recompute=recompute)).arguments
    assert {flag: value for flag, value in flags.items() if "recompute" in flag} == wanted
