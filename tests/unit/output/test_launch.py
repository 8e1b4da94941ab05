"""Launch settings of services: arguments that the software knows, degrees that multiply to the chips, refusals, text for bash."""

import json
import math
import subprocess
from dataclasses import replace
from typing import Any

import pytest

from hwopt import catalog
from hwopt.catalog.load import leaf, sources
from hwopt.cli import exports, main
from hwopt.errors import UserError
from hwopt.output.export.engine import STORED
from hwopt.output.export.groups import LENGTH_DEVIATIONS, groups_of
from hwopt.output.export.limits import expressible
from hwopt.output.export.settings import ENGINES, launch_document, launch_settings, launch_text
from hwopt.plan import Disaggregated
from hwopt.planning.plan_search import best_plan
from hwopt.workload.service import Service
from tests.option_lists import options
from tests.unit.output.launches import launch

KNOWN = {
    "vllm": options("vllm"), "sglang": options("sglang"), "tensorrt-llm": options("tensorrt-llm"),
    "dynamo-vllm": options("vllm") | {"--disaggregation-mode"}, "dynamo-sglang": options("sglang"),
    "dynamo-tensorrt-llm": options("dynamo-tensorrt-llm"),
}  # fmt: skip
# Fields of TorchLlmArgs and of its parts, tensorrt_llm/llmapi/llm_args.py, and of the documentation of 1.4.0rc4.
FIELDS = {
    "moe_tensor_parallel_size": None, "enable_chunked_prefill": None, "cache_transceiver_config": {"backend"},
    "speculative_config": {"decoding_type", "max_draft_len", "speculative_model"}, "kv_cache_config": {"dtype"},
}  # fmt: skip
# Formats of keys and values and of weights: CacheDType and QuantizationMethods of vLLM, choices of SGLang's fields.
VALUES = {
    "--kv-cache-dtype": {"auto", "fp8", "fp8_e4m3", "nvfp4"}, "--kv_cache_dtype": {"auto", "fp8", "nvfp4"},
    "--quantization": {"fp8", "modelopt_fp4", "w8a8_int8"}, "--dtype": {"auto"}, "--server_role": {"CONTEXT", "GENERATION"},
    "--disaggregation-mode": {"prefill", "decode"},
}  # fmt: skip

DENSE = catalog.service("llama3.1-70b", precision="fp8", input_scv=0.0, output_scv=0.0)
EXPERTS = catalog.service("deepseek-v3", precision="fp8", input_scv=0.0, output_scv=0.0)
PROMPTS = catalog.service("llama3.1-70b", mode="prefill")
DRAFTED = catalog.service("llama3.1-70b", precision="fp8", drafted_tokens=3)


def made(framework, service, plan, **stated):
    """Launch settings of a plan on one server, unless their number is given."""
    return launch_settings(framework, launch(service, plan, **({"servers": 1.0} | stated)))


def two(service, prefill, decode):
    """A plan of two groups, each of (chips, settings)."""
    return Disaggregated(*(catalog.serving_plan(service, chips, **plan) for chips, plan in (prefill, decode)))


CASES: dict[str, tuple[Service, Any]] = {
    "dense": (DENSE, catalog.serving_plan(DENSE, 16, tp=4, batch=64)),
    "pipeline": (DENSE, catalog.serving_plan(DENSE, 16, tp=4, pp=2, batch=8)),
    "experts": (EXPERTS, catalog.serving_plan(EXPERTS, 32, tp=1, ep=16, batch=32)),
    "drafted": (DRAFTED, catalog.serving_plan(DRAFTED, 8, tp=8, batch=16)),
    "two groups": (DENSE, two(DENSE, (8, {"tp": 2, "batch": 2}), (8, {"tp": 8, "batch": 128}))),
    "two groups of experts": (EXPERTS, two(EXPERTS, (16, {"tp": 1, "ep": 8}), (32, {"tp": 1, "ep": 32, "batch": 64}))),
    "prompts alone": (PROMPTS, catalog.serving_plan(PROMPTS, 8, tp=8, batch=4)),
    "prompts of many": (PROMPTS, catalog.serving_plan(PROMPTS, 8, tp=8, batch=8)),
}


@pytest.mark.parametrize("framework", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_every_argument_is_one_that_the_software_knows(framework, case):
    settings = made(framework, *CASES[case])
    for group in settings.groups:
        assert set(group.arguments) <= set(KNOWN[framework])
        for name, allowed in VALUES.items():
            assert group.arguments.get(name) in {None, *allowed}
        config = group.config or json.loads(group.arguments.get("--override-engine-args", "{}"))
        for name, value in config.items():
            assert set(value) <= FIELDS[name] if isinstance(value, dict) else FIELDS[name] is None


def chips_of(framework, group):
    """Chips of an instance as the engine counts them."""
    flags = {name.lstrip("-").replace("_", "-"): value for name, value in group.arguments.items()}
    tensor = flags.get("tensor-parallel-size") or flags["tp-size"]
    pipeline = flags.get("pipeline-parallel-size") or flags["pp-size"]
    return tensor * pipeline * (flags.get("data-parallel-size", 1) if "vllm" in framework else 1)


@pytest.mark.parametrize("framework", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_numbers_are_those_of_the_plan(framework, case):
    service, plan = CASES[case]
    settings = made(framework, service, plan)
    assert sum(each.instances * each.chips_per_instance for each in settings.groups) == int(plan.chips)
    of_role = (
        {"prefill": plan.prefill, "decode": plan.decode} if plan.disaggregated else {settings.groups[0].role: plan}
    )
    for group in settings.groups:
        own, flags = of_role[group.role], group.arguments
        assert chips_of(framework, group) == group.chips_per_instance
        ranks = int(own.ep * own.expert_tp / own.tp) if float(service.model.moe_layers) else 1
        assert group.instances * ranks == int(own.dp)
        held, batch = int(own.micro_batch * own.pp), int(own.micro_batch)
        sequences = {
            "--max-num-seqs": held, "--max-running-requests": held * ranks, "--max_batch_size": batch, "--max-batch-size": batch
        }  # fmt: skip
        assert {name: flags[name] for name in sequences if name in flags}.items() <= sequences.items()
        assert len(sequences.keys() & flags.keys()) == 1
        if group.role == "prefill":
            tokens = batch * int(service.new_tokens)
            budget = next(v for k, v in flags.items() if k.replace("_", "-") in ("--max-num-tokens", "--max-num-batched-tokens",
                                                                                 "--chunked-prefill-size"))  # fmt: skip
            assert budget in (tokens, tokens * ranks, -(-tokens // 64) * 64 * ranks)


def test_tokens_of_a_pass_and_of_a_request():
    [group] = groups_of(*CASES["dense"])
    replaced = 64 / 511  # sequences that a pass replaces, of answers of 512 tokens
    assert group.tokens == pytest.approx(64 + (1 + replaced) * 2048, abs=1) and group.length == 2560
    [drafted] = groups_of(*CASES["drafted"])
    assert drafted.length == (1 + LENGTH_DEVIATIONS) * 2560  # lengths of SCV 1
    prompts, answers = groups_of(*CASES["two groups"])
    assert (prompts.tokens, answers.tokens, answers.sequences) == (2 * 2048, 128, 128)


def test_experts_by_engine():
    service, plan = CASES["experts"]
    vllm, sglang, tensorrt = (made(name, service, plan).groups[0] for name in ("vllm", "sglang", "tensorrt-llm"))
    assert vllm.instances == sglang.instances == tensorrt.instances == 2
    assert vllm.arguments["--data-parallel-size"] == 16 and vllm.arguments["--enable-expert-parallel"] is True
    assert sglang.arguments["--tp-size"] == sglang.arguments["--attn-dp-size"] == sglang.arguments["--ep-size"] == 16
    assert tensorrt.arguments["--enable_attention_dp"] is True and tensorrt.config == {"moe_tensor_parallel_size": 1}


def test_two_groups_hand_over_keys_and_values():
    said = {name: made(name, *CASES["two groups"]).groups for name in ENGINES}
    roles = [json.loads(each.arguments["--kv-transfer-config"])["kv_role"] for each in said["vllm"]]
    assert roles == ["kv_producer", "kv_consumer"]
    for name in ("sglang", "dynamo-vllm", "dynamo-sglang", "dynamo-tensorrt-llm"):
        assert [each.arguments["--disaggregation-mode"] for each in said[name]] == ["prefill", "decode"]
    assert [each.arguments["--server_role"] for each in said["tensorrt-llm"]] == ["CONTEXT", "GENERATION"]
    assert all("cache_transceiver_config" in each.config for each in said["tensorrt-llm"])


def test_drafts():
    vllm, sglang, tensorrt = (made(name, *CASES["drafted"]).groups[0] for name in list(ENGINES)[:3])
    assert json.loads(vllm.arguments["--speculative-config"])["num_speculative_tokens"] == 3
    assert sglang.arguments["--speculative-num-steps"] == 3 and sglang.arguments["--speculative-num-draft-tokens"] == 4
    assert "--enable-mixed-chunk" not in sglang.arguments
    assert tensorrt.config["speculative_config"]["max_draft_len"] == 3


def test_layouts():
    plan = {"tp": 2, "ep": 8, "batch": 16, "redundant_experts": 32, "two_batches": "yes"}
    vllm = made("vllm", EXPERTS, catalog.serving_plan(EXPERTS, 8, **plan, cache_split=2)).groups[0]
    assert json.loads(vllm.arguments["--eplb-config"]) == {"num_redundant_experts": 32}
    assert vllm.arguments["--enable-dbo"] is vllm.arguments["--enable-eplb"] is True
    assert vllm.arguments["--decode-context-parallel-size"] == 2
    sglang = made("sglang", EXPERTS, catalog.serving_plan(EXPERTS, 8, **plan)).groups[0]
    assert sglang.arguments["--ep-num-redundant-experts"] == 32
    assert sglang.arguments["--enable-two-batch-overlap"] is True
    assert set(vllm.arguments) <= options("vllm") and set(sglang.arguments) <= options("sglang")
    plain = made("vllm", EXPERTS, catalog.serving_plan(EXPERTS, 8, tp=2, ep=8, batch=16)).groups[0]
    assert set(vllm.arguments) - set(plain.arguments) == {
        "--eplb-config", "--enable-eplb", "--enable-dbo", "--decode-context-parallel-size",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("framework", "plan", "more", "said"),
    [
        ("vllm", {"tp": 4, "ep": 4, "expert_tp": 2}, {}, "expert_tp=1"),
        ("vllm", {"tp": 8, "ep": 4}, {}, "one or more tensor parallel groups"),
        ("tensorrt-llm", {"tp": 2, "ep": 8}, {}, "over none .tp=1"),
        ("dynamo-tensorrt-llm", {"tp": 2, "ep": 8}, {}, "over none .tp=1"),
        ("vllm", {"tp": 8, "sequence_parallel": "yes"}, {}, "norms sharded"),
        ("sglang", {"tp": 2, "ep": 8}, {"drafted_tokens": 2}, "--drafted-tokens"),
        ("sglang", {"tp": 8, "weights_gathered": "yes"}, {}, "gathered"),
        ("tensorrt-llm", {"tp": 1, "ep": 8, "batch": 16, "two_batches": "yes"}, {}, "--layouts none"),
        ("sglang", {"tp": 8, "cache_split": 8}, {}, "cache_split = 8"),
        ("vllm", {"tp": 8}, {"kv": "fp32"}, "4 B"),
    ],
)
def test_what_cannot_be_expressed_is_refused(framework, plan, more, said):
    service = catalog.service("deepseek-v3", precision="fp8", **more)
    with pytest.raises(UserError, match=said):
        made(framework, service, catalog.serving_plan(service, 8, **plan))


def test_a_search_among_plans_that_can_be_expressed_finds_one():
    cluster = catalog.cluster("h100-sxm", 16)
    for engine, found in (("tensorrt-llm", 1.0), ("vllm", None)):
        limits = ENGINES[engine].limits
        search = best_plan(
            EXPERTS, cluster, alternatives=0, allowed=lambda plans, of=limits: expressible(of, EXPERTS, plans)
        )
        assert made(engine, EXPERTS, search.best.plan).groups
        assert found is None or min(float(search.best.plan.tp), float(search.best.plan.ep)) == found
    pair = best_plan(DENSE, cluster, alternatives=0, disaggregate=True, allowed=lambda plans: plans.tp >= 4.0)
    assert min(float(pair.best.plan.prefill.tp), float(pair.best.plan.decode.tp)) >= 4.0


def test_what_is_not_said_stands_in_notes():
    def notes(framework, case, filled=0.5, servers=1.0):
        return " ".join(made(framework, *CASES[case], filled=filled, servers=servers).notes)

    shares = {"vllm": 0.97, "sglang": 0.44, "tensorrt-llm": 0.2, "dynamo-tensorrt-llm": 0.2}
    for name, share in shares.items():
        option = ENGINES[name].memory[0]
        assert made(name, *CASES["dense"], filled=0.97).groups[0].arguments[option] == share
        assert option not in made(name, *CASES["dense"]).groups[0].arguments
    said = launch(*CASES["dense"]).lines("")[1]
    assert "TTFT 100 ms, 3 request/s" in said and "TPOT" not in said
    assert "8 on each of 2 stages" in notes("vllm", "pipeline") and "micro-batches" not in notes("sglang", "pipeline")
    assert "spans 2 servers" in notes("tensorrt-llm", "experts", servers=4.0) and "spans" not in notes(
        "sglang", "experts"
    )
    assert "alternates" in notes("sglang", "drafted") and "DRAFT_MODEL" in notes("vllm", "drafted")
    assert "proxy" in notes("vllm", "two groups") and "proxy" not in notes("dynamo-vllm", "two groups")
    assert "decode needs its own" in notes("sglang", "prompts alone")
    assert "16,384 tokens per pass" in notes("vllm", "prompts of many") and "per pass:" not in notes("vllm", "dense")
    assert "4 copies" in notes("vllm", "dense") and "checkpoint" in notes("tensorrt-llm", "dense")
    assert "dynamo.frontend" in notes("dynamo-vllm", "dense")
    [plugin, *_] = made("vllm", *CASES["dense"], families=["hopper", "tpu"]).notes
    assert "tpu-inference" in plugin and "plugin" not in notes("vllm", "dense")
    narrow = catalog.service("llama3.1-70b", precision="bf16", weights="fp4")
    plan = catalog.serving_plan(narrow, 8, tp=8)
    assert "AWQ" in " ".join(made("vllm", narrow, plan).notes)


OWN_FORMATS = {
    "gpt-oss-120b": "mxfp4",
    "gpt-oss-20b": "mxfp4",
    "deepseek-v3": "fp8",
    "deepseek-v3.2": "fp8",
    "kimi-k2": "fp8",
}
"""Models that are published only in a format below 16 bit."""


@pytest.mark.parametrize("framework", ENGINES)
def test_no_argument_contradicts_a_checkpoint(framework):
    """Engines reject a `--quantization` other than the checkpoint's; an unquantized checkpoint takes the plan's."""
    engine, [group] = ENGINES[framework], groups_of(*CASES["dense"])
    plainly = {each: engine.write(replace(group, precision=each, weight_bytes=STORED[each])) for each in engine.formats}
    for name in catalog.names("workloads"):
        if "unsupported" in catalog.record("workloads", name).text:
            continue
        stored = catalog.checkpoint(name)
        assert stored == OWN_FORMATS.get(name, "")
        for precision in engine.formats:
            formats = catalog.stored_formats(name)
            own = formats.weight_bytes if formats else math.nan
            asked = replace(
                group, precision=precision, weight_bytes=STORED[precision], checkpoint=stored, checkpoint_bytes=own
            )
            written = engine.write(asked)
            if not stored:
                assert written == plainly[precision]
                continue
            assert "--quantization" not in written.arguments and "quant" not in json.dumps(written.config)
            [note] = [each for each in written.notes if each.startswith(f"the checkpoint is stored in {stored},")]
            assert ("the plan assumes weights of" in note) == (STORED[precision] != own)
            published = engine.write(replace(asked, weight_bytes=own))
            assert not any("the plan assumes weights of" in each for each in published.notes)


def test_formats_of_checkpoints_have_a_source():
    for name in OWN_FORMATS:
        assert catalog.record("workloads", name).words("checkpoint")[1] in sources()


PLAIN_CONFIG = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
    "num_key_value_heads": 8, "vocab_size": 128256,
}  # fmt: skip
PACKED = {"quant_method": "compressed-tensors", "format": "pack-quantized"}


@pytest.mark.parametrize(
    ("config", "stored"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}}, "fp8"),
        ({"model_type": "llava", "text_config": PLAIN_CONFIG | {"quantization_config": PACKED}},
         "compressed-tensors pack-quantized"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "modelopt NVFP4"),
        ({}, ""), ({"quantization_config": None}, ""),
    ],
)  # fmt: skip
def test_a_config_says_how_its_checkpoint_is_stored(config, stored, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(PLAIN_CONFIG | config), encoding="utf-8")
    assert catalog.checkpoint(path) == catalog.checkpoint(tmp_path) == stored


def test_gpt_oss_is_exported_as_it_is_published(capsys):
    flags = ["--workload", "gpt-oss-20b", "--chip", "h100-sxm", "--chips", "8", "--precision", "fp8"]
    assert main(["plan", "--mode", "serve", *flags, "--export", "vllm"]) == 0
    text = capsys.readouterr().out
    assert "--quantization" not in text and "stored in mxfp4" in text and "the plan assumes weights of 1 B" in text
    assert main(["plan", "--mode", "serve", *flags[:-2], "--export", "vllm"]) == 0
    text = capsys.readouterr().out
    assert "--quantization" not in text and "stored in mxfp4" in text and "the plan assumes weights" not in text
    assert "mxfp4 in experts, bf16 elsewhere, as in the catalog's checkpoint" in text


def test_scans_divide_and_sparse_latent_attention_says_how_it_stores_fp8():
    """tp must divide a scan's heads and groups; vLLM keeps fp8 latents of sparse attention in a layout of its own."""
    scan = {name: leaf(value) for name, value in {"scan_heads": 48.0, "scan_key_heads": 16.0, "attends": 0.0}.items()}
    mixed = replace(DENSE, model=replace(DENSE.model, **scan))
    for framework in ENGINES:
        with pytest.raises(UserError, match="tp = 32 with 48 heads of scans in 16 groups"):
            made(framework, mixed, catalog.serving_plan(DENSE, 32, tp=32))
    sparse = {
        name: leaf(value) for name, value in {"index_heads": 64.0, "index_dim": 128.0, "index_tokens": 2048.0}.items()
    }
    model = replace(EXPERTS.model, **sparse)
    service, plan = replace(EXPERTS, model=model), CASES["experts"][1]
    said = " ".join(made("vllm", service, plan).notes)
    assert "fp8_ds_mla" in said and "fp8_ds_mla" not in " ".join(made("vllm", *CASES["experts"]).notes)


@pytest.mark.parametrize("framework", ENGINES)
def test_text_is_bash_and_json_says_the_same(framework, tmp_path):
    settings = made(framework, *CASES["two groups of experts"])
    text = launch_text(settings, launch(*CASES["two groups of experts"], title="a title"))
    shown = "\n".join(f'printf "%s\\n" "${{{role}_ARGS[@]}}" END' for role in ("PREFILL", "DECODE"))
    stubs = "; ".join(f"{name}() {{ :; }}" for name in ("vllm", "python", "trtllm-serve"))
    ran = subprocess.run(
        ["bash", "-c", f"{stubs}; MODEL=m\n{text}\n{shown}", "x", "decode"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    printed = [block.split("\n") for block in ran.stdout.strip().removesuffix("END").split("\nEND\n")]
    for group, words in zip(settings.groups, printed, strict=True):
        wanted = [
            word
            for flag, value in group.arguments.items()
            for word in ([flag] if value is True else [flag, str(value)])
        ]
        assert [word for word in words if word] == wanted
        if group.config:
            assert json.loads((tmp_path / f"{group.role}.yaml").read_text()) == group.config
    document = json.loads(json.dumps(launch_document(settings)))
    assert [each["arguments"] for each in document["groups"]] == [each.arguments for each in settings.groups]
    assert document["version"] == ENGINES[framework].version and document["framework"] == framework


def test_words_of_the_flag_are_the_engines():
    assert set(exports.ENGINES) == set(ENGINES)
