"""Words of collected rows to columns, and no others."""

from __future__ import annotations

import csv
import runpy
import subprocess
import sys

import pytest

from hwopt.calibration.measured.collected_text import accelerator, complete, links_gbit_per_s, stack, write
from hwopt.calibration.measured.columns import MeasuredRun, MeasuredService, inferred
from hwopt.calibration.measured.stacks import of_year
from hwopt.errors import UserError
from tests.evidence_cases import inferred_columns

METRIC = {"measured_metric": "mfu"}


def test_a_row_without_words_says_nothing():
    assert inferred_columns() == {}
    assert inferred_columns(notes="NeMo container 26.02.01; pretrain", recompute="full") == {
        "recompute_layers": "1", "release": "26.02.01", "stack": "megatron-bridge-2026", "assumed": "stack", "year": "2026",
    }  # fmt: skip


def test_what_a_table_states_is_not_searched():
    cells = {"notes": "flash attention, 400 Gb/s per GPU", "attention_kernel": "", "stack": "megatron-2021"}
    assert complete(cells, MeasuredRun, ("attention_kernel", "stack")) == {"scale_out_gbit_per_s"}
    assert complete(dict(cells), MeasuredRun, inferred(MeasuredRun)) == set()
    assert complete(dict(cells), MeasuredService, inferred(MeasuredService)) == set()


@pytest.mark.parametrize(
    ("notes", "kernel"),
    [
        ("Flash Attention", "fused"),
        ("flash-attention", "fused"),
        ("FlashAttention 2", "fused"),
        ("FA3", "fused"),
        ("cuDNN attention", "fused"),
        ("without flash attention", "unfused"),
        ("no flash attention", "unfused"),
        ("no Flash", "unfused"),
        ("JAX/Paxml, backend XLA", "unfused"),
        ("JAX/Paxml, backend TE", None),
    ],
)
def test_attention_kernel(notes, kernel):
    assert inferred_columns(notes=notes).get("attention_kernel") == kernel


@pytest.mark.parametrize("notes", ["vanilla TP", "TP overlap off", "without TP overlap", "no tp overlap"])
def test_tensor_parallelism_in_line(notes):
    assert inferred_columns(notes=notes) == {"tp_overlap": "0"}


@pytest.mark.parametrize("notes", ["overlaps of P2P off", "overlap of p2p off", "no P2P overlap"])
def test_pipeline_in_line(notes):
    assert inferred_columns(notes=notes) == {"pp_overlap": "0"}


@pytest.mark.parametrize("notes", ["DeepEP", "dispatcher=hybridep", "Hybrid-EP dispatcher"])
def test_dispatchers_that_send_one_copy_a_domain(notes):
    assert inferred_columns(notes=notes) == {"deduplicated_dispatch": "yes"}


@pytest.mark.parametrize(
    ("notes", "overlap"),
    [
        ("a2a_overlap=True", {"ep_overlap": "0.8"}),
        ("A2A overlap", {"ep_overlap": "0.8"}),
        ("1F1B all-to-all overlap", {"ep_overlap": "0.8"}),
        ("a2a_overlap=none", {"ep_overlap": "0"}),
        ("a2a_overlap=False", {"ep_overlap": "0"}),
    ],
)
def test_all_to_all_beside_other_work(notes, overlap):
    assert inferred_columns(notes=notes) == overlap


@pytest.mark.parametrize(
    ("notes", "graphs"),
    [
        ("cuda_graph=local/full_iteration", "step"),
        ("cuda_graph=full_iteration/[]", "step"),
        ("cuda_graph=transformer_engine/[attn, moe_router]", "parts"),
        ("CUDA graph", "parts"),
        ("cuda_graph=none/none", "none"),
        ("without CUDA graph", "none"),
        ("no cuda graph", "none"),
        ("CUDA graphs off", "none"),
        ("without graphs", "none"),
    ],
)
def test_host_graphs(notes, graphs):
    assert inferred_columns(notes=notes).get("host_graphs") == graphs


@pytest.mark.parametrize(
    ("words", "scaling"),
    [
        ({"precision": "fp8 rowwise"}, "row"),
        ({"precision": "FP8(blockwise)"}, "block"),
        ({"notes": "row-wise scales"}, "row"),
        ({"precision": "fp8(per-tensor current scaling)"}, "tensor"),
        ({"precision": "fp8"}, None),
    ],
)
def test_what_a_scale_is_for(words, scaling):
    assert inferred_columns(**words).get("scaling") == scaling


@pytest.mark.parametrize(
    ("words", "share"),
    [
        ({"notes": "offload_layers=10", "layers": "40"}, "0.25"),
        ({"notes": "offload_layers=50", "layers": "40"}, "1"),
        ({"notes": "offload_layers=none", "layers": "40"}, None),
        ({"recompute": "minimal, qkv_proj_offloaded"}, repr(2 / 3)),
        ({}, None),
    ],
)
def test_what_waits_in_host_memory(words, share):
    assert inferred_columns(**words).get("offloaded_activations") == share


@pytest.mark.parametrize(
    ("recompute", "norms", "activation"),
    [
        ("selective:layernorm+moe", "yes", None),
        ("selective:moe_act", None, "yes"),
        ("activation function", None, "yes"),
        ("activation", None, None),
        ("selective:moe_act+layernorm", "yes", "yes"),
    ],
)
def test_what_is_rebuilt(recompute, norms, activation):
    cells = inferred_columns(recompute=recompute)
    assert (cells.get("recompute_norms"), cells.get("recompute_activation")) == (norms, activation)


@pytest.mark.parametrize(
    ("source", "locator", "notes", "kept"),
    [
        ("pytorch/torchtitan", "docs/llama3_h100_202512_torchtitan.md", "compile", "4"),
        ("pytorch/torchtitan", "docs/llama3_h100_202412_torchtitan.md", "compile", None),
        ("pytorch/torchtitan", "docs/llama3_h100_202512_torchtitan.md", "eager", None),
        ("another", "docs/llama3_h100_202512_torchtitan.md", "compile", None),
    ],
)
def test_a_compiled_loss_keeps_fewer_bytes_a_logit(source, locator, notes, kept):
    assert inferred_columns(source=source, source_locator=locator, notes=notes).get("logit_bytes") == kept


def test_several_words_of_one_row_all_count():
    notes = "DeepEP, a2a overlap, CUDA graph, no flash attention, TP overlap off"
    names = {"deduplicated_dispatch", "ep_overlap", "host_graphs", "attention_kernel", "tp_overlap"}
    assert inferred_columns(notes=notes).keys() == names


@pytest.mark.parametrize(
    ("text", "stage", "ranks"),
    [
        ("distributed-optimizer(zero1)", "1", None),
        ("OverlappedDistributedOptimizer", "1", None),
        ("zero1 over all DP ranks", "1", None),
        ("zero1 inside groups of 8 GPUs (hybrid)", "1", "8"),
        ("zero2/fsdp-grad-op", "2", None),
        ("zero3/fsdp-full", "3", None),
        ("fsdp2", "3", None),
        ("fsdp 16 inside slice x dp 4 over DCN", "3", "16"),
        ("hsdp (shard in node, replicate across)", "3", "8"),
        ("ddp/zero1", "1", None),
        ("ddp", "0", None),
        ("none(dp=1)", "0", None),
        ("2D weights", None, None),
        ("", None, None),
    ],
)
def test_sharding(text, stage, ranks):
    cells = inferred_columns(zero_stage=text, gpu="H100-SXM-80GB", tp="1", gpus_per_node="8")
    assert (cells.get("zero"), cells.get("zero_ranks")) == (stage, ranks)


def test_shards_of_a_node_by_what_the_tensor_group_leaves():
    assert inferred_columns(zero_stage="hsdp", gpu="H100-SXM-80GB", tp="4")["zero_ranks"] == "2"


@pytest.mark.parametrize(
    ("text", "flash", "shares"),
    [
        ("", True, (None, None)),
        ("none", True, ("0", None)),
        ("full", True, ("1", None)),
        ("full-on-5-layers", True, (repr(5 * 2 / 32), None)),
        ("selective(attention core)", False, ("0", "1")),
        ("selective", True, ("0", None)),
        ("selective", False, ("0", "1")),
        ("selective(every other layer)", True, ("0.5", None)),
        ("selective(op)", True, ("0.4", None)),
        ("selective(minimal: save matmul outputs)", True, ("0", "1")),
        ("selective:moe_act+layernorm", True, ("0", None)),
        ("selective:layernorm+moe", True, ("0.6", None)),
    ],
)
def test_recomputation(text, flash, shares):
    software = "nemo-2025" if flash else "megatron-2021"
    cells = inferred_columns(recompute=text, layers="32", pp="2", stack=software)
    assert (cells.get("recompute_layers"), cells.get("recompute_attention")) == shares


def test_both_utilisations_give_the_share_of_a_bare_selective_away():
    cells = inferred_columns(recompute="selective", other_metrics="mfu=0.4; hfu=0.5")
    assert float(cells["recompute_layers"]) == pytest.approx(0.75)
    assert inferred_columns(recompute="selective", other_metrics="mfu=0.4")["recompute_layers"] == "0"


@pytest.mark.parametrize(
    ("words", "left"),
    [
        ({"notes": "schedule 1F1B; derived"}, None),
        ({"notes": "schedule ZB-1p"}, repr(1 / 3)),
        ({"notes": "zbv"}, "0"),
        ({"schedule": "zbb"}, repr(1 / 3)),
        ({"notes": "V-half"}, repr(2 / 3)),
        ({"notes": "H100"}, None),
    ],
)
def test_schedule(words, left):
    assert inferred_columns(**words).get("bubble_share") == left


def test_interleaving_is_of_use_where_the_chunks_are_not_stated():
    assert inferred_columns(schedule="1F1B-I") == {"interleaved": "yes"}
    assert inferred_columns(schedule="interleaved", vpp="4") == {}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("bf16", "bf16"),
        ("fp16", "fp16"),
        ("amp fp16", "bf16"),
        ("fp8(per-tensor current scaling)", "fp8"),
        ("mxfp8", "mxfp8"),
        ("nvfp4", "nvfp4"),
        ("int8", "int8"),
        ("bf16+fp32 optimizer", "bf16"),
        ("", None),
    ],
)
def test_number_format(text, name):
    assert inferred_columns(precision=text).get("number_format") == name


def test_integers_may_stand_in_the_notes():
    assert inferred_columns(precision="bf16", notes="AQT int8 products")["number_format"] == "int8"


@pytest.mark.parametrize(
    ("notes", "gbit"),
    [
        ("4x100 Gb/s RoCE per 8-GPU node; LLaMA", 50.0),
        ("4x200 Gb/s RDMA per node", 100.0),
        ("8x400G IB", 400.0),
        ("GCP A3 (H100, 8x200G TCPX); batch", 200.0),
        ("config, 800 Gb/s inter-node per node, 8 GPU/node", 100.0),
        ("inter-node 1600 Gb/s RoCE per node", 200.0),
        ("500 W, 2.4 TB/s, 400 Gb/s per GPU RoCE; FSDP", 400.0),
        ("CX-7 400 Gb/s per GPU", 400.0),
        ("Selene, 8 HDR IB per node; interleaved", 200.0),
        ("16 A100-40G, 2M-token batch", None),
        ("", None),
    ],
)
def test_scale_out_bandwidth_is_a_property_of_the_node(notes, gbit):
    assert links_gbit_per_s(notes, 8) == gbit
    assert inferred_columns(notes=notes).get("scale_out_gbit_per_s") == (gbit and f"{gbit:g}")


@pytest.mark.parametrize(
    ("source", "notes", "architecture", "name"),
    [
        ("VIA-Research/vTrain ground-truth (MICRO 2024)", "Megatron-LM GPT", "ampere", "megatron-2021"),
        ("Korthikanti et al. 2022", "", "ampere", "megatron-2021"),
        ("Zero Bubble Pipeline Parallelism (Qi et al. ICLR 2024)", "", "ampere", "zero-bubble"),
        ("NVIDIA/dgxc-benchmarking", "NeMo/Megatron", "blackwell", "nemo-2025"),
        ("NVIDIA NeMo 24.07 performance summary", "", "hopper", "nemo-2024"),
        ("NVIDIA-NeMo/Megatron-Bridge performance summary", "NeMo container 25.09", "hopper", "nemo-2025"),
        ("SimuMax", "", "hopper", "megatron-2025"),
        ("mosaicml/llm-foundry", "", "hopper", "composer-2023"),
        ("pytorch/torchtitan", "FSDP (eager)", "hopper", "torchtitan-eager"),
        ("pytorch/torchtitan", "FSDP", "hopper", "torchtitan-eager"),
        ("pytorch/torchtitan", "FSDP without compile", "hopper", "torchtitan-eager"),
        ("pytorch/torchtitan", "FSDP+compile", "hopper", "torchtitan-2024"),
        ("pytorch/torchtitan", "FSDP, float8", "hopper", "torchtitan-2024"),
        ("AI-Hypercomputer/maxtext performance tables", "", "tpu", "jax-maxtext-tpu"),
        ("NVIDIA/JAX-Toolbox MaxText README", "", "hopper", "jax-gpu"),
        ("NVIDIA/dgxc-benchmarking", "MaxText (JAX); not NeMo", "hopper", "jax-gpu"),
        ("my own", "Megatron-LM 2023-05", "ampere", "megatron-2023"),
        ("my own", "PyTorch FSDP", "hopper", "torchtitan-2024"),
        ("aws-neuron-sdk trn1", "", "trainium", "neuron"),
        ("my own", "", "hopper", ""),
    ],
)
def test_stack_from_words(source, notes, architecture, name):
    assert stack({"source": source, "notes": notes}, architecture)[0] == name


@pytest.mark.parametrize(
    ("framework", "notes", "architecture", "before", "name"),
    [
        ("Megatron-Bridge", "", "hopper", "nemo-2025", "megatron-bridge-2026"),
        ("torchtitan", "FSDP+compile", "hopper", "torchtitan-2024", "torchtitan-2026"),
        ("prime-rl (PyTorch FSDP2, torch.compile)", "", "hopper", "prime-rl-2026", "prime-rl-2026"),
        ("NeMo Automodel", "", "hopper", "torchtitan-2024", "torchtitan-2026"),
        ("TRL (FSDP2, ring attention)", "torch.compile", "hopper", "torchtitan-2024", "pytorch-fsdp2-2026"),
        ("TRL (FSDP2, ring attention)", "eager", "hopper", "torchtitan-eager", "pytorch-fsdp2-eager-2026"),
        ("Primus (Megatron-LM)", "", "cdna3", "rocm-primus-2025", "primus-2026"),
        ("MaxText (JAX)", "", "tpu", "jax-maxtext-tpu", "maxtext-2026"),
    ],
)
def test_runs_of_2026_have_the_software_of_2026(framework, notes, architecture, before, name):
    for year, expected in (("2025", before), ("2026", name), ("2027", name)):
        assert stack({"framework": framework, "notes": notes, "year": year}, architecture)[0] == expected


@pytest.mark.parametrize(
    ("source", "locator", "notes", "tuning"),
    [
        (
            "NVIDIA-NeMo/Megatron-Bridge verification cards",
            ".../qwen3-8b/card.yaml@067f987df pretrain.H100",
            "",
            "functional",
        ),
        (
            "NVIDIA-NeMo/Megatron-Bridge verification cards",
            "qwen3-8b/card.yaml@067f987d line 199 (sft H100)",
            "",
            "functional",
        ),
        ("NVIDIA-NeMo/Megatron-Bridge verification cards", "card.yaml@067 pretrain_performance.H100", "", ""),
        ("NVIDIA/Megatron-LM functional-test golden values", "gpt3_7b_tp1_pp4", "", "functional"),
        ("my own", "", "deterministic mode, no fusion", "functional"),
        ("my own", "", "experts by loop or bmm; no grouped GEMM", "functional"),
        ("my own", "sft.yaml", "full SFT, packed", ""),
    ],
)
def test_functional_runs_are_a_condition_of_their_own(source, locator, notes, tuning):
    assert inferred_columns(source=source, source_locator=locator, notes=notes).get("tuning", "") == tuning


def test_a_framework_column_wins_over_the_source_and_notes_are_a_guess():
    run = {"source": "NVIDIA NeMo 24.07", "framework": "torchtitan"}
    assert stack(run, "hopper") == ("torchtitan-eager", False)
    assert stack({"source": "my own", "notes": "PyTorch FSDP"}, "hopper") == ("torchtitan-2024", True)
    assert inferred_columns(notes="PyTorch FSDP", gpu="H100-SXM-80GB")["assumed"] == "stack"


def test_an_eight_bit_format_says_that_torchtitan_compiles():
    run = {"source": "pytorch/torchtitan", "notes": "FSDP", "precision": "fp8"}
    assert stack(run, "hopper")[0] == "torchtitan-2024"


@pytest.mark.parametrize(
    ("locator", "notes", "version"),
    [
        ("grok1/README.md@35 line 66 (release 24.11.1)", "title 24.09", "24.11.1"),
        ("docs/performance-summary.md line 5 (section 25.09)", "", "25.09"),
        ("", "NeMo container 26.02.01; pretrain", "26.02.01"),
        ("pax/README.md (2024-08, 24.04 container)", "", "24.04"),
        ("performance_summary.md@4c line 14 (2024-08-14)", "", "2024.08.14"),
        ("README.md", "", None),
    ],
)
def test_release(locator, notes, version):
    assert inferred_columns(source_locator=locator, notes=notes).get("release") == version


@pytest.mark.parametrize(
    ("source", "notes", "attention", "recomputation"),
    [
        ("Narayanan et al. SC21 Table 2", "HARDWARE TFLOP/s (recompute counted)", "full", "yes"),
        ("AI-Hypercomputer/maxtext", "TFLOP count = framework formula with full (non-causal) attention", "full", None),
        ("NVIDIA-NeMo/Megatron-Bridge", "the framework's own (causal-aware) count", "causal", None),
        ("Megatron-MoE-ModelZoo (NVIDIA)", "", "causal", None),
        ("NVIDIA NeMo long-sequence performance", "", "full", None),
        ("my own", "6ND, attention left out", "none", None),
        ("my own", "", None, None),
    ],
)
def test_what_a_printed_rate_counts(source, notes, attention, recomputation):
    cells = inferred_columns(source=source, notes=notes, measured_metric="mfu")
    assert (cells.get("flops_attention"), cells.get("flops_recompute")) == (attention, recomputation)
    assert "flops_attention" not in inferred_columns(source=source, notes=notes, measured_metric="iter_time_s")


@pytest.mark.parametrize(
    ("name", "fraction"), [("LLAMA3_70B (lora)", "0.003"), ("llama3-8b LoRA", "0.003"), ("llama3-8b SFT", None)]
)
def test_adapters_alone_train(name, fraction):
    assert inferred_columns(model_name=name).get("trainable_fraction") == fraction


@pytest.mark.parametrize(("name", "tokens"), [("llama3_8b_sft", "700"), ("llama3-8b lora", "700"), ("llama3-8b", None)])
def test_documents_packed_for_fine_tuning(name, tokens):
    assert inferred_columns(model_name=name, notes="packed sequences").get("document_tokens") == tokens
    assert "document_tokens" not in inferred_columns(model_name=name)


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("nemotron-h-56b", "model_kind", "hybrid"),
        ("jamba-1.5", "model_kind", "hybrid"),
        ("GPT-39.1B", "model_family", "gpt"),
        ("GPT-NeoX-20B", "model_family", "gpt-neox"),
        ("PaLM-540B", "model_family", "palm"),
        ("Qwen3-235B", "model_family", "qwen3"),
        ("llama3-70b (12-layer slice)", "reduced_depth", "yes"),
        ("LLAMA3_70B SFT", "workload", "llama3-70b"),
    ],
)
def test_what_a_model_is(name, column, value):
    assert inferred_columns(model_name=name)[column] == value


def test_notes_on_the_model_and_on_the_run():
    assert inferred_columns(notes="first layer dense")["dense_layers"] == "1"
    assert inferred_columns(notes="Mamba layers between")["model_kind"] == "hybrid"
    assert inferred_columns(notes="a regression of that release")["regression"] == "yes"
    assert inferred_columns(notes="micro-batch size not stated", micro_batch="8") == {"micro_batch": ""}
    assert inferred_columns(seq_parallel="True") == {"seq_parallel": "yes"}
    assert inferred_columns(config_complete="Y") == {"config_complete": "y"}


def test_services():
    tables = inferred_columns(
        MeasuredService, source="NVIDIA/TensorRT-LLM perf-overview", input_tokens="128", output_tokens="2048"
    )
    assert tables == {"stack": "tensorrt-llm-2025", "requests": "3000"}
    moe = inferred_columns(MeasuredService, source="NVIDIA/TensorRT-LLM perf-overview", moe_experts="128", ep="4")
    assert (moe["attention_data_parallel"], moe["assumed"]) == ("yes", "attention_data_parallel")
    assert inferred_columns(MeasuredService, notes="attention DP on") == {"attention_data_parallel": "yes"}
    assert inferred_columns(MeasuredService, gpu="trn1.32xlarge (16 Trainium1)")["chip"] == "trainium1-core"
    assert inferred_columns(MeasuredService, weight_precision="fp16/bf16", kv_precision="banana") == {
        "weight_format": "fp16"
    }
    assert inferred_columns(MeasuredService, quality="A", notes="8 GPUs: inconsistent in source") == {"quality": "C"}


@pytest.mark.parametrize(("gpu", "products", "keys"), [("H100-SXM-80GB", "bf16", "bf16"), ("B200-SXM", "fp8", "fp8")])
def test_mixed_formats_of_a_service(gpu, products, keys):
    cells = inferred_columns(
        MeasuredService, model_name="gpt-oss-120b", gpu=gpu, weight_precision="fp4", kv_precision="fp8"
    )
    assert (cells["number_format"], cells["kv_format"], cells["kept_16_bit"]) == (products, keys, "attention")
    assert cells["assumed"] == "mixed_formats"


@pytest.mark.parametrize("digits", ["9" * 5000, "0"])
@pytest.mark.parametrize(
    ("column", "words"),
    [
        ("recompute", "every {} layers"), ("recompute", "full on {}"), ("zero_stage", "groups of {}"), ("zero_stage", "fsdp {}"),
        ("notes", "{} Gb/s per GPU"), ("notes", "container v{}.1"), ("notes", "offload_layers={}"),
        ("source_locator", "({}-99-99)"),
    ],
)  # fmt: skip
def test_absurd_numbers_in_words_never_refuse_a_row(column, words, digits):
    assert isinstance(inferred_columns(**{column: words.format(digits), "gpu": "H100-SXM-80GB"}), dict)


@pytest.mark.parametrize(
    ("printed", "slug"),
    [
        ("H100-SXM-80GB", "h100-sxm"),
        ("A100-SXM (memory size not stated)", "a100-80"),
        ("GB200-NVL72", "gb200"),
        ("TPU-v5p", "tpu-v5p"),
        ("MI250X GCD", "mi250x-gcd"),
        ("Trainium1 (NeuronCore-v2; 2 per chip)", "trainium1-core"),
        ("H100-96GB-HBM2e-500W", "h100-96gb-hbm2e-500w"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("A100 80GB SXM", "a100-80"),
        ("A100-SXM4-40GB", "a100-40"),
        ("AMD Instinct MI300X", "mi300x"),
        ("H800-SXM-80GB", "h800"),
        ("Google TPU v6e", "tpu-v6e"),
        ("Abacus-9000", None),
        ("", None),
    ],
)
def test_an_accelerator_as_tables_print_it(printed, slug):
    assert accelerator(printed) == slug


TABLE = "model_name,gpu,num_gpus,seq_len,Global_Batch_Sequences,measured_metric,measured_value,notes\n"
ROW = 'llama2-7b,H100-SXM-80GB,8,4096,128,iter_time_s,5.5,"FlashAttention, 8x400G IB"\n'


def test_columns_are_written_once_and_stay(tmp_path):
    first, second = tmp_path / "raw.csv", tmp_path / "with_columns.csv"
    first.write_text(TABLE + ROW)
    write(first, second)
    with second.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert list(row) == [*TABLE.strip().split(","), *(name for name in inferred(MeasuredRun))]
    assert (row["attention_kernel"], row["scale_out_gbit_per_s"], row["zero"]) == ("fused", "400", "")
    text = second.read_bytes()
    write(second, second)
    assert second.read_bytes() == text
    with pytest.raises(UserError, match="cannot write"):
        write(first, tmp_path / "nowhere" / "x.csv")


def test_the_script_says_in_one_line_what_is_wrong(tmp_path, monkeypatch):
    """In a process of its own once; what it exits with is what that prints."""
    module = "hwopt.calibration.measured.collected_text"
    command = [sys.executable, "-m", module, str(tmp_path / "none.csv"), str(tmp_path / "x.csv")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "no such file" in done.stderr and done.stderr.count("\n") == 1

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", [module, *map(str, arguments)])
        monkeypatch.delitem(sys.modules, module, raising=False)
        runpy.run_module(module, run_name="__main__")

    (tmp_path / "raw.csv").write_text(TABLE + ROW)
    run(tmp_path / "raw.csv", tmp_path / "out.csv")
    assert (tmp_path / "out.csv").is_file()
    with pytest.raises(SystemExit, match="usage") as left:
        run()
    assert "\n" not in str(left.value)


@pytest.mark.parametrize(
    ("cells", "formats"),
    [
        ({"notes": "pure bf16: weights, gradients and AdamW states in bf16"}, "moments=bf16,master=none"),
        (
            {"source_locator": "README.md line 154 (+8-bit AdamW)", "notes": "cumulative flags"},
            "moments=8bit,gradients=freed",
        ),
        ({"notes": "QLoRA NF4"}, "frozen=nf4"),
        ({"logit_bytes": "0.05"}, "loss=chunked"),
        ({"logit_bytes": "14", "zero_stage": "fsdp2"}, ""),  # nobody says which trainer shards
        (
            {"framework": "prime-rl (PyTorch FSDP2)", "notes": "RL LoRA(r=16)", "logit_bytes": "0.05"},
            "master=none,weights=fp32,frozen=fp32,loss=chunked,fsdp2=yes",
        ),
        (
            {"framework": "KempnerForge", "zero_stage": "fsdp2(zero3)"},
            "moments=bf16,gradients=bf16,accumulation=whole,master=none,fsdp2=yes",
        ),
        (
            {"source": "MLPerf Training v5.1 (AMD)", "precision": "fp8", "model_name": "llama2-70b"},
            "frozen=fp8,adapters=attention",
        ),
    ],
)
def test_memory_formats(cells, formats):
    assert inferred_columns(**cells).get("memory_formats", "") == formats


def test_the_newest_successor_of_a_year_is_taken():
    """Of several stacks that follow one, and of their successors in turn."""
    assert of_year("nemo-2025", 2025) == "nemo-2025" and of_year("nemo-2025", 2026) == "megatron-bridge-2026"
    assert of_year("torch-fsdp-2023", 2024) in {"torchtitan-2024", "torchtitan-eager"}
    assert of_year("torch-fsdp-2023", 2026) == "pytorch-fsdp2-2026"
    assert of_year("my own", 2026) == "my own"
