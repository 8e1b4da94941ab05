"""Rules that infer cells from the text of collected rows: regular expressions, matched against lower-case text.

The first matching rule of a column applies. Words that the text negates (`hwopt.calibration.measured.negation`) do not match; a
rule may specify the cell implied by their negation.
"""

from itertools import starmap
from typing import NamedTuple


class Rule(NamedTuple):
    """Specify how to fill one column of a table of measured runs from the free text in other columns.

    The text is searched for a regular expression. A match gives one value, and a negated match another.
    """

    column: str  # column of the derived cell
    cells: str  # columns to search, concatenated in this order
    words: str
    cell: str  # value where the words are affirmed; blank: none
    denied: str = ""  # value where the words are denied; blank: none


STACKS = (
    # words of a framework, a source or notes -> the stack that trains, or a family: jax, deepspeed, nvidia, torch, transformers
    (r"zero.?bubble", "zero-bubble"),
    (r"prime-?rl", "prime-rl-2026"),
    (r"\btrl\b|\baccelerate\b", "transformers"),  # trainers of Hugging Face on PyTorch's FSDP2
    (
        r"xtuner|llama-?factory|axolotl|automodel",
        "torch",
    ),  # they train Hugging Face models, regardless of the publisher
    (r"megatron-deepspeed|deepspeed 0\.[3-7]|bigscience|mt-nlg", "megatron-deepspeed-2022"),
    (r"gaudi|habana|synapse", "optimum-habana"),
    (r"nanotron", "nanotron-2025"),
    (r"deepseek-v\d (technical|hardware)|hai-llm|deepseek-ai/", "deepseek-2024"),
    (
        r"(?:use_dist_optimizer|tp_comm_overlap|megatron_core)(?:=\w+)?",
        "nvidia",
    ),  # NeMo settings, on or off, regardless of the container's name
    (r"intern(evo|lm)", "internevo-2024"),
    (r"neuron|trainium|\btrn\d", "neuron"),
    (r"primus|rocm|\bmi\d{3}", "rocm-primus-2025"),
    (r"vtrain|korthikanti|reducing activation recomputation|narayanan|sc'?21", "megatron-2021"),
    (r"megatron-lm readme (january|april) 2021", "megatron-2021"),
    (r"llm-foundry|mosaic|composer", "composer-2023"),
    (r"torchtitan|torchao|pytorch/ao", "torchtitan-2024"),
    (r"maxtext|levanter|\bjax\b|pax|t5x|flax|haiku|\bxla\b", "jax"),
    (r"simumax", "megatron-2025"),
    (r"megatron-bridge|modelzoo", "nemo-2025"),
    (r"deepspeed|zero-3", "deepspeed"),
    (r"nemo|dgxc|dgx cloud|transformer engine|megatron", "nvidia"),
    (r"\bfsdp|torch|litgpt|tinyllama|hugging ?face|olmo", "torch"),
)

PROJECTS = ("nemo-2025", "rocm-primus-2025", "jax-maxtext-tpu", "torchtitan-2024", "torchtitan-eager")
"""Stacks whose words name a project, so that the row's year tells the release; words of the others name a release or a paper."""

EIGHT_BIT = ((r"mlperf training v[3-9]", "yes"),)
"""Sources whose runs use 8-bit products on chips with support, even if a row does not say so. Since version 3.0, all
language-model runs of MLPerf that state a format do."""

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_VENUES = "iclr|icml|micro|neurips|mlsys|osdi|nsdi|asplos|et al\\."
YEARS = (
    # pattern -> offset added to the matched number
    (r"\b(20[12]\d)-\d\d\b", 0),
    (r"arxiv:? ?(\d\d)\d\d\.\d{4,5}", 2000),
    (r"(?:container|release|section|version|nemo|tag) v?(\d\d)\.\d\d\b", 2000),
    (r"\b(\d\d)\.(?:0[1-9]|1[0-2])(?:\.\d+)? container", 2000),
    (rf"(?:{_MONTHS}|{_VENUES}),? (20[12]\d)", 0),
    (r"\bsc'?(\d\d)\b", 2000),
)

RECOMPUTED = (
    # words -> share of layers fully recomputed, and share with recomputed attention core
    (r"\(op|^op$", "0.4 0"),
    (r"qkv_proj_offloaded", "0.85 0"),
    (r"minimal_flash", "0 0"),
    (r"minimal|dot", "0 1"),
    (r"^(?!.*moe_act).*moe", "0.6 0"),
    (r"attention|attn", "0 1"),
    (r"^(full|yes|true|uniform|block)", "1 0"),
)

_TAIL = r"(?:;|,|\)|$|per|ib|roce|tcpx|rdma|efa|infiniband)"
LINKS = (
    # Gb/s per chip, or per link with the number of links per node; whether the figure is per node
    (r"(?<!\d)(\d{1,9}(?:\.\d{1,9})?)\s*gb/?(?:it/)?s(?:ec)?\s+per\s+(?:gpu|chip|accelerator)", False),
    (rf"(?<!\d)(\d{{1,9}})\s*x\s*(\d{{1,9}})\s*g(?:b/s|bps|bit/s)?(?:\s+\w+)*?\s*{_TAIL}", True),
    (r"(?<!\d)(\d{1,9}(?:\.\d{1,9})?)\s*gb/?s[\w\s-]*?\bper[- ]node", True),
    (r"(?<!\d)(\d{1,9})\s*(hdr|ndr|edr)\b(?:\s+\w+)*?\s+per\s+node", True),
)

_LORA = r"(?<![^\W_])(lora|peft)(?![^\W_])"
_TUNING = rf"{_LORA}|(?<![^\W_])sft(?![^\W_])|fine-?tun"
_HYBRID = r"mamba|nemotron-?h\b|jamba|rwkv|hyena|griffin|recurrentgemma|zamba|\bssm\b|\bhybrid\b|\bt5\b|\bbert\b|\bvit\b|diffusion"
_HARDWARE = r"hardware (tera)?flop|incl\.? recompute|includes the recompute|\bhfu\b|recompute(d)? counted"
_FULL = r"korthikanti|megatron-core r0\.|nemo 24|nemo long-sequence|llm-foundry|tinyllama|megatron-lm|dash et al|palm table 3"

_PRODUCTION = r"production|technical report|training log|herd of models|whole run|palm \(|opt \(|\bheadline"

_SETTINGS = "notes precision"

ANY = tuple(starmap(Rule, (
    ("regression", "notes", r"regression of that release", "yes"),
    ("model_kind", "model_name", _HYBRID, "hybrid"),
    ("model_kind", "notes", r"mamba|state[- ]space|not a plain transformer|recurrent layers", "hybrid"),
    ("model_family", "model_name", r"^gpt-?(j|neox)|^(pythia|falcon)", "gpt-neox"),
    ("model_family", "model_name", r"^(gpt|mpt|nemotron|opt|bloom|turing|mt-nlg|megatron|starcoder)", "gpt"),
    ("model_family", "model_name", r"^(palm|codegen)", "palm"),
    ("model_family", "model_name", r"qwen-?3", "qwen3"),
    ("reduced_depth", "model_name", r"proxy|slice", "yes"),
    ("dense_layers", "notes", r"first layer dense", "1"),
)))  # fmt: skip
"""Rules for rows of every type."""

RUN = tuple(starmap(Rule, (
    # runs that check that a recipe works, by settings that are safe for any model
    ("tuning", "source source_locator", r"verification card.*[ (](pretrain(?!_performance)|sft|peft)", "functional"),
    ("tuning", "source", r"functional-test|regression baselines", "functional"),
    ("tuning", "notes", r"deterministic mode|untuned|no grouped gemm", "functional"),
    ("expert_routing", "notes", r"natural routing", "natural"),
    # adapters of rank 8-16 on a 7-70 B model hold 0.1-0.5 % of its weights (arXiv 2106.09685)
    ("trainable_fraction", "model_name notes", _LORA, "0.003"),
    # assumption, 300 to 1,500 tokens per document: questions with passage and answer, instructions with reply
    ("document_tokens", "model_name notes", rf"^(?=.*(?:{_TUNING})).*?(?P<at>packed sequences)", "700"),
    ("number_format", "precision", r"int8", "int8"),
    ("number_format", "notes", r"\bint8\b|\baqt\b", "int8"),
    ("number_format", "precision", r"mxfp4", "mxfp4"),
    ("number_format", "precision", r"nvfp4", "nvfp4"),
    ("number_format", "precision", r"fp4", "fp4"),
    ("number_format", "precision", r"mxfp8", "mxfp8"),
    ("number_format", "precision", r"f(p|loat)?8|e4m3", "fp8"),
    ("number_format", "precision", r"tf32", "tf32"),
    ("number_format", "precision", r"^fp16$", "fp16"),  # exact match only: gradients are also reduced in 16 bit
    ("number_format", "precision", r"bf16|f(p|loat)16|half|16-mixed", "bf16"),
    ("number_format", "precision", r"f(p|loat)32", "fp32"),
    ("scaling", _SETTINGS, r"blockwise|block-wise", "block"),
    ("scaling", _SETTINGS, r"rowwise|row-wise", "row"),
    ("scaling", _SETTINGS, r"tensorwise|per-tensor", "tensor"),
    ("attention_kernel", _SETTINGS, r"backend xla", "unfused"),  # JAX on GPU, unlike backend TE
    ("attention_kernel", _SETTINGS, r"flash[ -]?attention", "fused", "unfused"),
    ("attention_kernel", _SETTINGS, r"\bfa[23]\b|cudnn attention", "fused"),
    ("attention_kernel", _SETTINGS, r"\bflash\b", "", "unfused"),
    ("tp_overlap", _SETTINGS, r"vanilla tp", "0"),
    ("tp_overlap", _SETTINGS, r"\btp[ -](comm[ -])?overlap|\btp_comm_overlap\b", "", "0"),
    ("pp_overlap", _SETTINGS, r"overlaps? of p2p|p2p overlap", "", "0"),
    # estimate of the overlap with other work, 0.5 to 0.95
    ("ep_overlap", _SETTINGS, r"(a2a|all-to-all)[ _]overlap", "0.8", "0"),
    ("ep_overlap", _SETTINGS, r"\bep[ _]overlap(?! of\b)", "0.8", "0"),
    ("deduplicated_dispatch", _SETTINGS, r"hybrid-?ep", "yes"),
    ("deduplicated_dispatch", _SETTINGS, r"deepep", "yes", "no"),
    ("deduplicated_dispatch", _SETTINGS, r"\b(alltoall|all-to-all)(_seq)? dispatch|dispatcher (nccl )?all-?to-?all", "no"),
    ("host_graphs", _SETTINGS, r"cuda_graph=(?!none)(\w+/)?full_iteration", "step"),
    ("host_graphs", _SETTINGS, r"(?:full|whole)[- ](?:iteration|step) (?:cuda[- ]?)?graphs?", "step", "none"),
    ("host_graphs", _SETTINGS, r"cuda_graph=transformer_engine/|cuda[ -]?graph", "parts", "none"),
    ("host_graphs", _SETTINGS, r"\bcuda_graphs?\b|\bgraphs\b", "", "none"),
    # NVIDIA's scripts for these figures set grad_reduce_in_fp32 = False (Megatron-Bridge at 0013c9a); NeMo's stacks alone
    ("gradient_bytes", "source", r"dgxc-benchmarking|megatron-bridge|nemo (24\.\d+|long-sequence) performance", "2"),
    ("offloaded_optimizer", "notes", r"optimizer.* on cpu|cpu optimizer", "1"),
    ("offloaded_weights", "notes", r"weights on cpu|fsdp cpu offload", "1"),
    # production: weeks of a real run, next to other jobs, or figures for a whole run
    ("operation", "notes source", _PRODUCTION, "production"),
    ("zero", "zero_stage", r"zero[- ]?0", "0"),
    ("zero", "zero_stage", r"zero[- ]?1", "1"),
    ("zero", "zero_stage", r"zero[- ]?2", "2"),
    ("zero", "zero_stage", r"zero[- ]?3", "3"),
    ("zero", "zero_stage", r"grad-op|shard_grad_op|^2$", "2"),
    ("zero", "zero_stage", r"fsdp|hsdp|^3$", "3"),
    ("zero", "zero_stage", r"distributed.*optimizer|optimizer.*distributed|^1$", "1"),
    ("zero", "zero_stage", r"ddp|none|^(no|0)$", "0"),
    ("recompute_norms", "recompute", r"norm", "yes"),
    ("recompute_activation", "recompute", r"_act\b|activation func", "yes"),
    # Of the bubble of 1F1B, ZB-H1 and ZB-1p leave a third, ZB-2p and V schedules almost none; V-half two thirds at equal
    # activation memory (Qi et al. 2024, arXiv 2401.10241, section 2.3; arXiv 2405.15362, table 1).
    ("bubble_share", "schedule notes", r"zb-?2p|zb-?h2|zb-?v\b|zero[ -]bubble v|dualpipe", "0"),
    ("bubble_share", "schedule notes", r"zb-?1p|zb-?h1|\bzbb?\b|zero[ -]bubble", "0.3333333333333333"),
    ("bubble_share", "schedule notes", r"v-half|v-min", "0.6666666666666666"),
    ("interleaved", "schedule notes", r"1f1b-i\b|interleav", "yes", "no"),
    ("flops_attention", "notes", _HARDWARE, "full yes"),  # attention, and whether recomputation is counted
    ("flops_attention", "notes", r"non-causal|full (\(non-causal\) )?attention", "full"),
    ("flops_attention", "notes", r"causal", "causal", "full"),
    ("flops_attention", "notes", r"\b6 ?n ?d\b|\b6 ?n\b|\b6p\b|without attention|excluding attention", "none"),
    # conventions of sources: stated by them, or found by recomputing the printed values
    ("flops_attention", "source", r"narayanan|megatron-lm readme|vtrain|sc21|internevo|internlm", "full yes"),
    ("flops_attention", "source", _FULL, "full"),
    ("flops_attention", "source", r"megatron-bridge|modelzoo|grok|llama4|megatron-core moe", "causal"),
    ("seq_parallel", "seq_parallel", r"^(y|true|on|1)", "yes"),
    ("seq_parallel", "seq_parallel", r"^(n|false|off|0)", "no"),
    ("config_complete", "config_complete", r"^y$", "y"),
    ("config_complete", "config_complete", r"^n$", "n"),
)))  # fmt: skip
"""Rules for training runs."""

_RECIPES = r"megatron-bridge (perf skill|verif)"
_MOE_RECIPES = rf"{_RECIPES}.*(deepseek|moonlight|kimi|glm)"

MEMORY = tuple(starmap(Rule, (
    ("moments", "notes source_locator", r"\+8-?bit adam|8-?bit (moments|optimi[sz]er states)", "8bit"),
    ("moments", "notes", r"pure bf16|adamw? states in bf16|moments in bf16", "bf16"),
    ("moments", "framework", r"kempnerforge", "bf16"),  # weights, and so moments, in param_dtype (distributed/parallel.py)
    ("moments", "source model_name", _MOE_RECIPES, "bf16"),  # "bf16 gradients/moments" (recipes of Moonlight and DeepSeek)
    ("gradients", "source model_name", _MOE_RECIPES, "bf16"),
    ("gradients", "source notes", rf"{_RECIPES}.*\bsft\b", "bf16"),  # grad_reduce_in_fp32 = False in fine-tuning
    ("gradients", "source_locator notes", r"\+(optimizer in backward|activation offload|8-?bit adam).*cumulative", "freed"),
    ("gradients", "framework", r"kempnerforge", "bf16"),
    ("accumulation", "framework", r"kempnerforge", "whole"),  # no reduction before the last micro-batch (scripts/train.py)
    ("master", "notes", r"pure bf16", "none"),
    # shards are stored in the format of the weights and gathered in 16 bits: they are the master copy
    ("master", "framework", r"kempnerforge|prime-rl|torchtitan.*fsdp2", "none"),
    ("weights", "framework", r"prime-rl|torchtitan.*fsdp2", "fp32"),
    ("frozen", "notes source_locator", r"nf4|qlora", "nf4"),
    ("frozen", "framework notes", r"prime-rl.*\blora\b", "fp32"),
    ("frozen", "source precision model_name", r"mlperf training v5\.[1-9].*fp8.*llama2-70b", "fp8"),  # fp8_params (recalled)
    ("adapters", "source model_name", r"mlperf training v5\.[1-9].*llama2-70b", "attention"),  # rules of MLPerf (recalled)
    ("activations", "notes precision", r"(fp8|8-?bit) activations", "fp8"),
    ("loss", "logit_bytes", r"^0?\.\d", "chunked"),  # less than a byte per logit: logits exist in chunks
    # recipes chunk the loss by default; the README's steps before that flag do not
    ("loss", "framework source_locator", r"^torchtune(?!.*\((packed|\+compile)\))", "chunked"),
    ("fsdp2", "framework zero_stage", r"^[^|]*\w.*fsdp2", "yes"),  # of a trainer that is named
)))  # fmt: skip
"""Rules for the words of column `memory_formats`, as sources state them, or the code of the trainer that `framework` names."""

SERVICE = tuple(starmap(Rule, (
    ("stack", "framework", r"(vllm|sglang).*(tpu|jax)|(tpu|jax).*(vllm|sglang)", "jax-serving-2026"),
    ("stack", "framework", r"(tensorrt-llm|trtllm) v?0\.", "tensorrt-llm-2023"),
    ("stack", "framework", r"(tensorrt-llm|trtllm) v?1\.0\b", "tensorrt-llm-2025"),
    ("stack", "framework", r"tensorrt-llm|trtllm", "tensorrt-llm-2026"),
    ("stack", "framework", r"sglang", "sglang-2026"),
    ("stack", "framework", r"vllm", "vllm-2026"),
    ("stack", "source notes", r"sglang-jax|vllm tpu", "jax-serving-2026"),
    ("stack", "source", r"fastertransformer", "fastertransformer"),
    ("stack", "source", r"tensorrt-llm.*\bv0\.", "tensorrt-llm-2023"),
    ("stack", "source", r"tensorrt-llm|trtllm", "tensorrt-llm-2025"),
    ("stack", "source", r"neuron", "neuron-serving"),
    ("stack", "source", r"\bpope\b|pax|\bjax\b|tpu", "jax-serving-tpu"),
    ("stack", "source notes", r"sglang", "sglang-2026"),
    ("stack", "source notes", r"vllm", "vllm-2026"),
    ("attention_data_parallel", "notes", r"attention dp 1\b", "no"),
    ("attention_data_parallel", "notes", r"attention data parallel|attention[- _]dp\b|\badp\b", "yes", "no"),
    ("closed_loop", "notes", r"static batch|benchmark_latency|max_num_seqs|inter-token latency", "no"),
    ("closed_loop", "metric", r"total_latency", "no"),
    ("closed_loop", "framework", r"vllm|sglang|tensorrt-llm (?!0\.)", "yes"),
    ("closed_loop", "notes", r"concurren|vllm|sglang", "yes"),
    # Checkpoints store experts in 4 bit and everything else in 16 (model card of openai/gpt-oss-120b, recalled).
    ("kept_16_bit", "model_name", r"gpt-?oss", "attention"),
)))  # fmt: skip
"""Rules for services."""

REQUESTS = {
    (128, 128): 30000, (128, 2048): 3000, (128, 4096): 1500, (500, 2000): 3000, (1000, 1000): 3000, (1000, 2000): 1500,
    (2048, 128): 3000, (2048, 2048): 1500, (5000, 500): 1500, (20000, 2000): 1000, (1024, 1024): 3000, (8192, 1024): 1500,
    (1024, 8192): 1500, (32768, 1024): 1000, (1024, 32768): 1000,
}  # fmt: skip
"""Number of requests in a run of TensorRT-LLM's perf-overview, by input and output tokens, from its section on reproducing
results."""
