"""Ten launch files, three dense, four MoE and three services, read back: every number is the plan's or the config's."""

import json
import shlex
import subprocess
import tomllib
from functools import cache
from pathlib import Path

import pytest

from hwopt import catalog
from hwopt.cli import main
from hwopt.errors import UserError
from tests.option_lists import options

DATA = Path(__file__).parents[1] / "catalog" / "data"


@cache
def published():
    """Published configs by name of the model."""
    rows = [row for name in ("dense", "experts") for row in json.loads((DATA / f"{name}_configs.json").read_text())]
    return {row["model"]: row["config"] for row in rows}


SIZE = ["--global-batch", "256", "--seq-len", "4096", "--tokens", "1e12"]
TRAINED = {
    "Llama-3.1-8B": (64, "tp=2,pp=2,dp=16,virtual_stages=2,micro_batch=1,zero=1,recompute=selective"),
    "Qwen2.5-7B": (32, "tp=4,pp=1,dp=8,zero=2,micro_batch=2,recompute=full"),
    "Qwen3-8B": (32, "tp=2,cp=2,pp=2,dp=4,zero=1,optimizer_offloaded=0.5"),
    "Mixtral-8x7B-v0.1": (64, "tp=2,pp=4,ep=8,expert_tp=1,dp=8,zero=1"),
    "Qwen3-30B-A3B": (32, "tp=1,pp=2,ep=16,dp=16,zero=1"),
    "Qwen3-235B-A22B": (256, "tp=4,pp=8,ep=32,dp=8,zero=1,recompute=full"),
    "DeepSeek-V3": (1024, "tp=2,pp=8,ep=64,dp=64,zero=1,recompute=full"),
}  # fmt: skip
"""Model -> chips and plan."""


def bash(script, *arguments, environment=None, cwd=None):
    """Words of the commands that a script starts, as bash reads them: torchrun, vllm and python print theirs."""
    shims = "".join(
        f'{name}() {{ printf "%s\\0" {name} "$@"; }}\n' for name in ("torchrun", "vllm", "python", "trtllm-serve")
    )
    ran = subprocess.run(
        ["bash", "-c", f"{shims}\n{script}", "launch.sh", *arguments], capture_output=True, text=True, check=True,
        env={"PATH": "/usr/bin:/bin", "MASTER_ADDR": "node0", "MODEL": "m", **(environment or {})}, cwd=cwd,
    )  # fmt: skip
    return ran.stdout.split("\0")[:-1]


def read(words):
    """Options of a command line by name, numbers as numbers; True for one without a value."""
    found = {}
    for word in words:
        if word.startswith("--"):
            found[name := word] = True
        else:
            assert found[name] is True
            try:
                found[name] = json.loads(word)
            except ValueError:
                found[name] = word
    return found


@pytest.fixture
def export(tmp_path, capsys):
    """Exports a published model under a plan; returns text, JSON, and the estimate."""

    def exported(model, chips, plan, framework, *flags, chip="h100-sxm"):
        (tmp_path / model).mkdir(exist_ok=True)
        stored = {"quantization_config": {"quant_method": "mxfp4"}} if model.startswith("gpt-oss") else {}
        (tmp_path / model / "config.json").write_text(json.dumps(published()[model] | stored), encoding="utf-8")
        asked = ["estimate", "--workload", str(tmp_path / model), "--chip", chip, "--chips", str(chips), "--plan", plan]
        asked += flags
        assert main([*asked, "--export", framework]) == 0
        text = capsys.readouterr().out
        answers = []
        for more in (["--export", framework], []):
            assert main([*asked, *more, "--json"]) == 0
            answers.append(json.loads(capsys.readouterr().out))
        return text, *answers

    return exported


def degrees(plan):
    """Degrees that a plan's text states, 1 for others."""
    said = dict(each.split("=") for each in plan.split(","))
    return lambda name: int(said.get(name, 1)), said


def of_model(c):
    """Flags that a config.json fixes, by hand."""
    heads, kv = c["num_attention_heads"], c["num_key_value_heads"]
    flags = {
        "--num-layers": c["num_hidden_layers"], "--hidden-size": c["hidden_size"], "--num-attention-heads": heads,
        "--ffn-hidden-size": c["intermediate_size"],
        "--vocab-size": c["vocab_size"], "--swiglu": True, "--normalization": "RMSNorm", "--norm-epsilon": c["rms_norm_eps"],
        "--position-embedding-type": "rope", "--rotary-base": int(c["rope_theta"]), "--disable-bias-linear": True,
        "--attention-dropout": 0.0, "--hidden-dropout": 0.0, "--untie-embeddings-and-output-weights": True,
    }  # fmt: skip
    if c["model_type"] == "deepseek_v3":
        flags |= {
            "--multi-latent-attention": True, "--q-lora-rank": c["q_lora_rank"], "--kv-lora-rank": c["kv_lora_rank"],
            "--qk-head-dim": c["qk_nope_head_dim"], "--qk-pos-emb-head-dim": c["qk_rope_head_dim"],
            "--v-head-dim": c["v_head_dim"], "--rope-type": "rope", "--moe-router-topk-scaling-factor": 2.5,
            "--moe-router-num-groups": 8, "--moe-router-group-topk": 4, "--moe-router-enable-expert-bias": True,
            "--moe-shared-expert-intermediate-size": 2048, "--moe-layer-freq": "([0]*3+[1]*58)",
        }  # fmt: skip
    else:
        flags |= {"--kv-channels": c.get("head_dim", c["hidden_size"] // heads), "--group-query-attention": True}
        flags |= {"--num-query-groups": kv}
    if c["model_type"] in ("qwen3", "qwen3_moe", "deepseek_v3"):
        flags["--qk-layernorm"] = True
    if c["model_type"] == "qwen2":
        flags["--add-qkv-bias"] = True
    experts = c.get("num_local_experts") or c.get("num_experts") or c.get("n_routed_experts")
    if experts:
        flags |= {
            "--num-experts": experts, "--moe-router-topk": c["num_experts_per_tok"], "--moe-grouped-gemm": True,
            "--moe-ffn-hidden-size": c.get("moe_intermediate_size", c["intermediate_size"]),
            "--moe-token-dispatcher-type": "alltoall", "--moe-router-score-function": c.get("scoring_func", "softmax"),
        }  # fmt: skip
    if "router_aux_loss_coef" in c:
        flags |= {"--moe-router-load-balancing-type": "aux_loss", "--moe-aux-loss-coeff": c["router_aux_loss_coef"]}
    return flags


def of_plan(chips, plan, model):
    """Flags that a plan fixes, by hand."""
    of, said = degrees(plan)
    flags = {
        "--tensor-model-parallel-size": of("tp"), "--pipeline-model-parallel-size": of("pp"),
        "--context-parallel-size": of("cp"), "--micro-batch-size": of("micro_batch"), "--global-batch-size": 256,
        "--seq-length": 4096, "--max-position-embeddings": 4096, "--train-iters": -(-(10**12) // (256 * 4096)),
        "--overlap-grad-reduce": True, "--use-distributed-optimizer": True, "--overlap-param-gather": True, "--bf16": True,
    }  # fmt: skip
    flags |= {"--sequence-parallel": True} if of("tp") > 1 else {}
    flags |= {"--cp-comm-type": "p2p"} if of("cp") > 1 else {}
    if said["zero"] == "2":
        flags |= {
            "--use-megatron-fsdp": True, "--data-parallel-sharding-strategy": "optim_grads",
            "--no-gradient-accumulation-fusion": True, "--ckpt-format": "fsdp_dtensor",
        }  # fmt: skip
    recompute = {
        "selective": {"--recompute-granularity": "selective"},
        "full": {"--recompute-granularity": "full", "--recompute-method": "uniform", "--recompute-num-layers": 1},
    }
    flags |= recompute.get(said.get("recompute", ""), {})
    if "ep" in said:
        flags |= {"--expert-model-parallel-size": of("ep"), "--expert-tensor-parallel-size": of("expert_tp")}
    if "optimizer_offloaded" in said:
        flags |= {
            "--use-precision-aware-optimizer": True, "--optimizer-cpu-offload": True, "--optimizer-offload-fraction": 0.5,
        }  # fmt: skip
    chunks = of("pp") * of("virtual_stages")
    if of("virtual_stages") > 1:
        flags["--num-layers-per-virtual-pipeline-stage"] = model["num_hidden_layers"] // chunks
    return flags


def of_header(text, framework, chips, answer, exported):
    """The header states what the estimate answers, the hosts, and nothing unknown that the config fixes."""
    head = [line for line in text.splitlines() if line.startswith("# ")]
    assert f"{chips:,} ranks on {chips // 8} hosts of 8" in head[0]
    for name, value in exported["predicted"].items():
        assert value == pytest.approx(answer[name], rel=1e-12)
    assert f"{answer['step_time_s']:.4g} s a step" in text and f"MFU {100 * answer['mfu']:.1f} %" in text
    memory = [answer[name] / 1e9 for name in ("memory_per_chip_bytes", "memory_capacity_bytes")]
    assert f"{memory[0]:.1f} of {memory[1]:.1f} GB on the fullest chip" in text
    assert f"srun --nodes {chips // 8} --ntasks-per-node 1 --gpus-per-node 8 " in text
    assert exported["hosts"] == chips // 8 and exported["passed"] == ""
    [again] = [line.removeprefix("# reproduce: ") for line in head if line.startswith("# reproduce: ")]
    return shlex.split(again)


@pytest.mark.parametrize("model", TRAINED)
def test_megatron_starts_the_plan(model, export, capsys):
    chips, plan = TRAINED[model]
    text, exported, answer = export(model, chips, plan, "megatron", *SIZE)
    program, *words = bash(text)
    started, flags = words[: words.index("pretrain_gpt.py")], read(words[words.index("pretrain_gpt.py") + 1 :])
    assert program == "torchrun" and read(started) == {
        "--nnodes": chips // 8, "--nproc-per-node": 8, "--rdzv-id": "hwopt", "--rdzv-backend": "c10d",
        "--rdzv-endpoint": "node0:29500",
    }  # fmt: skip
    assert set(flags) <= options("megatron")
    config = published()[model]
    wanted = of_model(config) | of_plan(chips, plan, config)
    layout, padded = flags.pop("--pipeline-model-parallel-layout", ""), flags.pop("--make-vocab-size-divisible-by")
    assert flags == wanted
    assert bool(layout) == bool(config["num_hidden_layers"] % degrees(plan)[0]("pp"))
    assert config["vocab_size"] % (padded * flags["--tensor-model-parallel-size"]) == 0  # no padding is needed
    assert (
        exported["world_size"] == chips
        and exported["arguments"].keys() == read(words[words.index("pretrain_gpt.py") + 1 :]).keys()
    )
    unknown = {"load balancing loss"} if "scoring_func" in config else set()
    assert set(exported["unknown"]) - {"data, tokenizer, learning rate schedule, saving"} == unknown
    again = of_header(text, "megatron", chips, answer, exported)
    assert main([*again[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step_time_s"] == answer["step_time_s"]


def test_nemo_states_the_same_by_key(export):
    chips, plan = TRAINED["Qwen3-30B-A3B"]
    text, exported, answer = export("Qwen3-30B-A3B", chips, plan, "nemo", *SIZE)
    file, section = {}, {}
    for line in (line for line in text.splitlines() if not line.startswith("#")):
        key, _, value = line.partition(":")
        if line.startswith("  "):
            section[key.strip()] = json.loads(value)
        else:
            file[key] = section = json.loads(value) if value else {}
    assert file == exported["file"] and file["mixed_precision"] == "bf16_mixed"
    assert {f"{name}.{key}" for name, keys in file.items() if name != "mixed_precision" for key in keys} <= options(
        "nemo"
    )
    model, config = file["model"], published()["Qwen3-30B-A3B"]
    wanted = {
        "num_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_query_groups": 4, "kv_channels": 128,
        "num_moe_experts": 128, "moe_router_topk": 8, "moe_ffn_hidden_size": 768, "expert_model_parallel_size": 16,
        "expert_tensor_parallel_size": 1, "tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 2,
        "context_parallel_size": 1, "seq_length": 4096, "vocab_size": config["vocab_size"], "layernorm_epsilon": 1e-6,
        "rotary_base": 1000000, "qk_layernorm": True, "add_bias_linear": False, "normalization": "RMSNorm",
        "share_embeddings_and_output_weights": False, "moe_aux_loss_coeff": 0.001, "gated_linear_unit": True,
    }  # fmt: skip
    assert wanted.items() <= model.items()
    assert file["train"] == {"micro_batch_size": 1, "global_batch_size": 256, "train_iters": 953675}
    assert "grad_reduce_in_fp32 = True" in text
    of_header(text, "nemo", chips, answer, exported)


def test_torchtitan_states_the_same_by_key(export):
    text, exported, answer = export("Llama-3.1-8B", 64, "tp=2,dp=32,zero=3,micro_batch=1", "torchtitan", *SIZE)
    file = tomllib.loads(text)
    assert file == exported["file"]
    assert {f"{name}.{key}" for name, keys in file.items() for key in keys} <= options("torchtitan")
    assert file["model"] == {"name": "llama3", "flavor": "8B"}
    training = {"local_batch_size": 1, "global_batch_size": 256, "seq_len": 4096, "steps": 953675}
    assert training.items() <= file["training"].items()
    assert file["parallelism"] == {
        "data_parallel_replicate_degree": 1, "data_parallel_shard_degree": 32, "fsdp_reshard_after_forward": "always",
        "tensor_parallel_degree": 2, "context_parallel_degree": 1,
    }  # fmt: skip
    of_header(text, "torchtitan", 64, answer, exported)


SERVED = {
    "Llama-3.1-8B": ("vllm", 8, "tp=2,dp=4,batch=64", ["--precision", "fp8"], 1),
    "DeepSeek-V3": ("sglang", 32, "tp=1,pp=1,ep=32,expert_tp=1,batch=32", ["--precision", "fp8"], 4),
    "gpt-oss-120b": ("vllm", 16, "tp=1,ep=16,expert_tp=1,batch=32", ["--precision", "fp8", "--weights", "fp4"], 2),
}
"""Model -> engine, chips, plan, flags, hosts of an instance."""


@pytest.mark.parametrize("model", SERVED)
def test_services_start_the_plan(model, export, capsys):
    engine, chips, plan, flags, hosts = SERVED[model]
    text, exported, answer = export(model, chips, plan, engine, "--mode", "serve", *flags)
    of, _ = degrees(plan)
    [group] = exported["groups"]
    assert group["instances"] * group["chips_per_instance"] == chips and group["hosts_per_instance"] == hosts
    for rank in range(hosts):
        program, first, *words = bash(text, environment={"NODE_RANK": str(rank)})
        found = read(words[1 if engine == "vllm" else 3 :])
        assert set(found) <= options(engine)
        assert (program, first) == (("vllm", "serve") if engine == "vllm" else ("python", "-m"))
        assert found.get("--nnodes", 1) == hosts and found.get("--node-rank", 0) == rank
        assert ("--headless" in found) == (engine == "vllm" and rank > 0)
        batch = int(plan.rpartition("batch=")[2])
        if engine == "vllm":
            ranks = of("ep") if "ep" in plan else of("tp")
            sizes = [found[f"--{name}-parallel-size"] for name in ("tensor", "pipeline")]
            assert sizes == [of("tp"), of("pp")] and found.get("--data-parallel-size", 1) == ranks // of("tp")
            assert found["--max-num-seqs"] == batch
            assert hosts == 1 or found["--master-addr"] == "node0"
        else:
            assert [found[name] for name in ("--tp-size", "--pp-size", "--attn-dp-size", "--ep-size")] == [
                32,
                1,
                32,
                32,
            ]
            assert found["--max-running-requests"] == 32 * batch and found["--dist-init-addr"] == "node0:29500"
            assert words[:2] == ["sglang.launch_server", "--model-path"]
    stored = {"Llama-3.1-8B": "", "DeepSeek-V3": "", "gpt-oss-120b": "mxfp4"}[model]
    assert found.get("--quantization") == (None if stored else "fp8")
    assert (f"stored in {stored}" in text) == bool(stored)
    for name, value in exported["predicted"].items():
        assert value == pytest.approx(answer[name], rel=1e-12)
    assert f"TPOT {1e3 * answer['time_per_output_token_s']:.4g} ms" in text
    per_host = group["chips_per_instance"] // hosts
    assert f"srun --nodes {hosts} --ntasks-per-node 1 --gpus-per-node {per_host} bash serve.sh" in text
    [again] = [line.removeprefix("# reproduce: ") for line in text.splitlines() if line.startswith("# reproduce: ")]
    assert main([*shlex.split(again)[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["time_per_output_token_s"] == answer["time_per_output_token_s"]


def test_facts_of_the_catalog_have_a_source():
    for name in catalog.names("workloads"):
        entry = catalog.record("workloads", name)
        if said := entry.words("config"):
            assert said[-1] in catalog.load.sources()
            assert {"model_type", "hidden_act"} <= catalog.model_config(name).keys()


def test_a_config_field_that_is_not_json_is_refused(tmp_path):
    own = tmp_path / "own.toml"
    own.write_text('base = "llama3.1-8b"\nconfig = ["rope_theta=x", "own-file"]\n', encoding="utf-8")
    with pytest.raises(UserError, match="'config' must list key=value"):
        catalog.model_config(own)
