"""Evidence behind a plan: how many measured runs and studies have each of its features.

`FEATURES` is the one list of features. Each reads phrases such as "interleaving at 1 layer per chunk" from the inputs of
`estimate`: those of a measured row, or those of an answer. `hwopt/data/evidence.csv` has the counts of measured rows by phrase
and software. `python -m results.benchmarks.evidence` writes it.
"""

import csv
import math
import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any, NamedTuple

import numpy as np

from hwopt import catalog
from hwopt.catalog.calibrations import serves
from hwopt.catalog.chips import architecture
from hwopt.catalog.names import data_root
from hwopt.errors import UserError
from hwopt.hardware.calibration import family_of
from hwopt.hardware.cluster import Cluster
from hwopt.plan import OFFLOADED, Plan
from hwopt.solver.solution import Solution
from hwopt.types import PRECISIONS
from hwopt.workload.operators import Operators
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, shapes_of_kinds

ENOUGH = 2
"""Minimum number of studies with a feature. One study alone cannot separate the feature from its own software and cluster."""

TRAINING, SERVING = "training", "serving"

_WIDE = 4
"""Base of the intervals of chips, lengths and concurrency: wider, because their effect changes slowly."""


class Subject(NamedTuple):
    """Inputs of the model whose features are read: one measured row, or one group of chips of an answer."""

    workload: Any  # TrainingRun or Service
    cluster: Cluster
    plan: Plan
    family: str  # architecture of the chip; empty for a custom chip
    software: str  # as `software`; empty where it is not known
    apart: bool = False  # prefill and decode on separate chips

    @property
    def work(self) -> str:
        """Return `training` or `serving`."""
        return SERVING if isinstance(self.workload, Service) else TRAINING

    @property
    def expert_group(self) -> float:
        """Return the chips among which the experts of a layer are spread; 1 without experts."""
        return float(self.plan.ep * self.plan.expert_tp) if self.workload.model.experts > 0.0 else 1.0

    @property
    def size(self) -> tuple[float, float]:
        """Return the chips that work together (a training run, or a replica of a service), and the longest sequence."""
        run = self.workload
        if self.work == TRAINING:
            return float(self.cluster.chips), float(run.sequence_length)
        replica = float(self.plan.pp) * max(float(self.plan.tp), self.expert_group)
        return replica, float(run.input_tokens + run.output_tokens)


def software(stack: str) -> str:
    """Return the family of a training stack, or the engine of a serving stack without its release."""
    return re.sub(r"-\d{4}$", "", stack) if serves(stack) else catalog.software_family(stack)


def bucket(value: Any, base: int = 2) -> str:
    """Return the interval between powers of `base` that contains a value: `1`, `2-3`, ..., `1,024-2,047`."""
    low = base ** math.floor(math.log(max(float(value), 1.0), base) + 1e-9)
    return f"{low:,}" if base * low - 1 == low else f"{low:,}-{base * low - 1:,}"


def _when(condition: Any, *phrases: str) -> list[str]:
    return [*phrases] if bool(condition) else []


def _pipeline(of: Subject) -> str:
    return "in a pipeline" if of.plan.pp > 1.0 else "without a pipeline"


def _span(of: Subject, chips: Any) -> str:
    """Return whether a group of chips fits into a scale-up domain, in words."""
    domains = math.ceil(float(chips / of.cluster.network.size[0]) - 1e-6)
    return "inside a scale-up domain" if domains <= 1 else f"across {bucket(domains)} scale-up domains"


def _bits(stored_bytes: Any) -> int:
    """Return the nearest width of a number format in bits: 4, 8, 16 or 32. Scales and mixed formats add a share of a bit."""
    return min((4, 8, 16, 32), key=lambda width: abs(math.log(8.0 * float(stored_bytes) / width)))


def _chunks(of: Subject) -> list[str]:
    layers = math.ceil(float(of.workload.model.layers / (of.plan.pp * of.plan.virtual_stages)) - 1e-6)
    return _when(
        of.plan.virtual_stages > 1.0,
        f"interleaving at {bucket(layers)} layer{'s' * (layers > 1)} per chunk",
        f"interleaving with {bucket(of.plan.virtual_stages)} chunks per stage",
    )


_KINDS: Mapping[str, Callable[[Transformer], Any]] = {
    "latent attention (MLA)": lambda shape: shape.kv_rank,
    "sparse attention with an indexer (DSA)": lambda shape: shape.index_tokens,
    "recurrent or linear attention": lambda shape: shape.scan_heads,
    "sliding-window attention": lambda shape: shape.local_layers_fraction,
    "gated attention outputs": lambda shape: shape.gate_dim,
    "mixture of experts": lambda shape: shape.moe_layers,
    "latent experts": lambda shape: shape.expert_hidden,
}
"""Layer mechanism -> field of a shape that is above 0 where a layer has the mechanism."""


def _layers(of: Subject) -> list[str]:
    shapes = [] if isinstance(of.workload.model, Operators) else shapes_of_kinds(of.workload.model)
    found = [name for name, field in _KINDS.items() if any(float(field(each) or 0.0) > 0.0 for each in shapes)]
    return found or ["dense transformer layers" if shapes else "layers beyond transformers"]


def _combination(of: Subject) -> list[str]:
    names = {"tp": "tp", "pp": "pp", "interleaving": "virtual_stages", "cp": "cp", "ep": "ep"}
    used = [name for name, field in names.items() if getattr(of.plan, field) > 1.0]
    return _when(len(used) > 1, f"{', '.join(used[:-1])} and {''.join(used[-1:])} in one plan")


def _layouts(of: Subject) -> list[str]:
    layout, ranks = of.plan.layout, of.plan.ep
    if layout is None:
        return []
    return [
        *_when(ranks > 1.0 and layout.expert_slots * ranks > of.workload.model.experts, "redundant experts"),
        *_when(layout.two_batches > 0.0, "two-batch overlap"),
        *_when(layout.cache_split > 1.0, "KV cache split over ranks by token"),
    ]


@dataclass(frozen=True)
class Feature:
    """A feature of plans.

    **Arguments:**

    - `name`: short name, as `hwopt catalog evidence` takes it.
    - `meaning`: description of the feature.
    - `read`: function that returns the phrases of a subject; none where it does not have the feature.
    - `stated`: settings that a measured row must state to count. An assumed setting is no evidence.
    - `works`: training, serving, or both.
    """

    name: str
    meaning: str
    read: Callable[[Subject], Iterable[str]]
    stated: tuple[str, ...] = ()
    works: tuple[str, ...] = (TRAINING, SERVING)


FEATURES = (
    Feature("chip", "architecture of the chips",
            lambda of: [f"{family_of(of.family)} chips" if of.family else "custom chips"]),
    Feature("software", "family of training software, or engine",
            lambda of: _when(of.software, f"software family {of.software}")),
    Feature("chips", "chips of a training run, or of a replica of a service",
            lambda of: [f"{bucket(of.size[0], _WIDE)} chips"]),
    Feature("length", "tokens of a sequence",
            lambda of: [f"sequences of {bucket(of.workload.sequence_length, _WIDE)} tokens"], (), (TRAINING,)),
    Feature("prompts", "tokens of prompts",
            lambda of: [f"prompts of {bucket(of.workload.input_tokens, _WIDE)} tokens"], (), (SERVING,)),
    Feature("answers", "tokens of answers",
            lambda of: [f"answers of {bucket(of.workload.output_tokens, _WIDE)} tokens"], (), (SERVING,)),
    Feature("layers", "mechanisms of the layers", _layers),
    Feature("tensor", "tensor parallelism, and whether it leaves a scale-up domain",
            lambda of: _when(of.plan.tp > 1.0, f"tensor parallelism over {bucket(of.plan.tp)} chips {_span(of, of.plan.tp)}"),
            ("tp",)),
    Feature("pipeline", "stages of a pipeline",
            lambda of: _when(of.plan.pp > 1.0, f"pipelines of {bucket(of.plan.pp)} stages"), ("pp",)),
    Feature("interleaving", "layers per chunk, and chunks per stage", _chunks, ("pp", "vpp"), (TRAINING,)),
    Feature("context", "context parallelism by tokens per rank",
            lambda of: _when(of.plan.cp > 1.0, "context parallelism at "
                             f"{bucket(of.workload.sequence_length / of.plan.cp)} tokens per rank"), ("cp",), (TRAINING,)),
    Feature("experts", "expert parallelism, and whether it leaves a scale-up domain",
            lambda of: _when(of.plan.ep > 1.0 and of.expert_group > 1.0, f"expert parallelism {_span(of, of.expert_group)}"),
            ("ep",)),
    Feature("sharding", "ZeRO stage, in a pipeline or not",
            lambda of: [f"ZeRO stage {float(of.plan.optimizer_sharded + of.plan.gradients_sharded + of.plan.weights_sharded):.0f} "
                        f"{_pipeline(of)}"], ("pp", "zero_stage"), (TRAINING,)),
    Feature("offload", "parts of the state in host memory",
            lambda of: [f"{field.removesuffix('_offloaded')} offloaded to host memory {_pipeline(of)}"
                        for field in OFFLOADED if getattr(of.plan, field) > 0.0], (), (TRAINING,)),
    Feature("recomputation", "recomputation of activations",
            lambda of: ["full recomputation" if of.plan.recompute_full >= 1.0 else "partial recomputation"
                        if of.plan.recompute_full > 0.0 else "selective recomputation"
                        if of.plan.recompute_attention > 0.0 else "no recomputation"], ("recompute",), (TRAINING,)),
    Feature("products", "number format of matrix products",
            lambda of: [f"products in {PRECISIONS[int(np.argmax(of.workload.gemm_precision))]}"], ("precision",)),
    Feature("moments", "optimizer moments narrower than 32 bit",
            lambda of: _when((width := _bits(of.workload.moment_bytes / 2.0)) < 32, f"optimizer moments of {width} bit"),
            ("memory_formats",), (TRAINING,)),
    Feature("gradients", "number format of the gradient reduction",
            lambda of: [f"gradients reduced in {_bits(of.cluster.stack.gradient_bytes)} bit"], ("stack",), (TRAINING,)),
    Feature("adapters", "training of a small share of the weights",
            lambda of: _when(of.workload.trainable_fraction < 1.0, "training of adapters (LoRA)"), (), (TRAINING,)),
    Feature("combination", "degrees of parallelism above 1 in one plan", _combination, ("tp", "pp", "cp", "ep", "vpp")),
    Feature("attention", "attention data parallelism",
            lambda of: _when(of.expert_group > of.plan.tp, "attention data parallelism over "
                             f"{bucket(of.expert_group / of.plan.tp)} groups"), ("attention_data_parallel",), (SERVING,)),
    Feature("disaggregation", "prefill and decode on separate chips",
            lambda of: _when(of.apart, "prefill and decode on separate chips"), (), (SERVING,)),
    Feature("speculation", "speculative decoding",
            lambda of: _when(of.workload.drafted_tokens > 0.0, "speculative decoding"), (), (SERVING,)),
    Feature("weights", "stored weights",
            lambda of: [f"weights of {_bits(of.workload.weight_bytes)} bit"], ("weight_precision",), (SERVING,)),
    Feature("cache", "stored keys and values",
            lambda of: [f"keys and values of {_bits(of.workload.kv_bytes)} bit"], ("kv_precision",), (SERVING,)),
    Feature("layout", "rare layouts of a service", _layouts, (), (SERVING,)),
    Feature("concurrency", "concurrent sequences of a replica",
            lambda of: [f"{bucket(of.plan.micro_batch * of.plan.pp, _WIDE)} concurrent sequences per replica"],
            ("largest_batch",), (SERVING,)),
)  # fmt: skip
"""Every feature whose evidence is counted."""

STUDY = "study"
"""Name of the feature of rows alone: which study measured them, and its software."""

CountKey = namedtuple("CountKey", "work feature phrase software", defaults=("",))
"""Key of a count: training or serving, feature, phrase, and one software; an empty software stands for all."""

Count = namedtuple("Count", "rows studies chips tokens year", defaults=(0,) * 5)
"""Measured rows: their number, that of their studies, chips of the largest, tokens of the longest, and year of the newest
software (0 where no row states it)."""

EVERYTHING = CountKey("", "all", "all rows")
"""Key of all rows of training, or of serving."""


def phrases(of: Subject) -> Iterator[tuple[Feature, str]]:
    """Yield each phrase of a subject with its feature."""
    for feature in FEATURES:
        if of.work in feature.works:
            yield from ((feature, phrase) for phrase in feature.read(of))


@cache
def counts() -> Mapping[CountKey, Count]:
    """Return the counts of measured rows that ship with hwopt.

    **Raises:** `UserError` as `read_counts`.
    """
    return read_counts((data_root() / "evidence.csv").read_text(encoding="utf-8").splitlines())


def read_counts(lines: Iterable[str]) -> Mapping[CountKey, Count]:
    """Return the counts of a table.

    **Raises:** `UserError` for other columns, a cell that is not a count, a repeated row or an unknown feature.
    """
    rows, known = list(csv.DictReader(lines)), {*(each.name for each in FEATURES), STUDY, EVERYTHING.feature}
    try:
        found = {
            CountKey(*(row[name] for name in CountKey._fields)): Count(*(int(row[name]) for name in Count._fields))
            for row in rows
        }
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"hwopt/data/evidence.csv: not a table of counts ({error})") from None
    if len(found) < len(rows) or not {key.feature for key in found} <= known:
        raise UserError("hwopt/data/evidence.csv: a row stands twice, or counts an unknown feature")
    return found


Evidence = namedtuple("Evidence", "features unmeasured beyond", defaults=((),) * 3)
"""Evidence behind an answer: each feature with its `CountKey` and `Count` as a dictionary; features that fewer than two studies
measured, and sizes above those of every measured run, in words."""


def evidence_of(subjects: Sequence[Subject]) -> Evidence:
    """Return the evidence behind an answer. **Arguments:** `subjects`: its groups of chips."""
    found, beyond = dict[CountKey, Count](), dict[tuple[str, str], str]()
    for of in subjects:
        most = counts().get(EVERYTHING._replace(work=of.work), Count())
        for feature, unit, value, measured in zip(
            ("chips", "length"), ("chips", "tokens"), of.size, most[2:4], strict=True
        ):
            if value > measured:
                beyond[of.work, feature] = f"{value:,.0f} {unit} (measured to {measured:,})"
        keys = [CountKey(of.work, feature.name, phrase) for feature, phrase in phrases(of)]
        found |= {key: counts().get(key, Count()) for key in keys}
    few = [
        f"{key.phrase}{' (one study)' * each.studies}"
        for key, each in found.items()
        if each.studies < ENOUGH and key[:2] not in beyond
    ]
    return Evidence(
        tuple(key._asdict() | each._asdict() for key, each in found.items()), tuple(few), tuple(beyond.values())
    )


def machine_evidence(
    workload: Any, cluster: Any, plan: Any, machines: Sequence[tuple[catalog.Record | None, str]]
) -> Evidence | None:
    """Return the evidence behind a plan; None for fleets, and for one chip that trains and serves.

    **Arguments:** `workload`, `cluster`, `plan` of the answer; `machines`: for each group of chips, decode first, the record of
    its chip (None for a custom chip) and the name of its stack.
    """
    if not isinstance(workload, TrainingRun | Service) or isinstance(plan.groups, tuple):
        return None
    return evidence_of([
        Subject(workload, own, each, "" if chip is None else architecture(chip), software(stack), plan.disaggregated)
        for each, own, (chip, stack) in zip(plan.groups.values(), cycle(cluster.groups), cycle(machines), strict=False)
    ])  # fmt: skip


def question_evidence(solution: Solution) -> Evidence | None:
    """Return the evidence behind the answer to a design question; None where its chip or software is not of the catalog."""
    every = solution.problem.provenance.of_answers, solution.problem.provenance.records
    if not all({"chip", "stack"} <= each.keys() for each in every):
        return None
    custom = solution.built.project is not None
    return machine_evidence(
        *solution.inputs, [(None if custom else each["chip"], each["stack"].slug) for each in every]
    )
