"""Relations between the degrees of a parallel plan, each declared once, and lattices built from them.

Design questions, exhaustive searches, fleets, calibration and validation select the relations that they need by name. Where
they differ, they select different relations; `notebooks/guide/decisions/plan-lattice.md` says why.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from hwopt.design.variables import count_of
from hwopt.errors import UserError
from hwopt.hardware.cluster import Cluster
from hwopt.integers.enumeration import divisors, enumerate_points
from hwopt.integers.relations import (
    ConditionalRelation,
    Divides,
    Limit,
    ProductLimit,
    Relation,
    at_least,
    at_most,
    equal,
)
from hwopt.integers.system import System, integer
from hwopt.plan import OFFLOADED, Plan
from hwopt.stack import Capabilities, Stack
from hwopt.types import PRECISIONS
from hwopt.workload.operators import most_chunks
from hwopt.workload.ramp import BatchRamp, batch_quotients, whole_micro_batches
from hwopt.workload.service import Service
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer

PARTS = tuple(name.removesuffix("_offloaded") for name in OFFLOADED)
"""Parts of a training state that a memory pool may hold."""

DIVIDED = ("activations", "optimizer", "weights")
"""Parts of which a share may be offloaded, in the order of the levels of `Capabilities.partial_offload`."""

LEAST_CONTEXT_TOKENS = 1024
"""Minimum number of tokens per chip under context parallelism: below, its ring passes take longer than their attention."""


def contexts(sequence: int) -> list[int]:
    """Return context-parallel degrees: powers of two with enough tokens per chip, in two equal halves (causal balance)."""
    powers = (2**i for i in range(1, 20))
    return [1, *(c for c in powers if sequence % (2 * c) == 0 and sequence >= c * LEAST_CONTEXT_TOKENS)]


def contexts_of(run: TrainingRun) -> list[int]:
    """Return the context-parallel degrees of a run: only 1 for models with other than attention and token-wise operators."""
    return contexts(count_of(run.sequence_length)) if isinstance(run.model, Transformer) else [1]


MOST_COPIES = 2
"""Maximum size of an expert-parallel group over the number of experts. It is a limit of the search; larger groups repeat whole
sets.
"""


def spread_degrees(experts: int, redundant: bool, chips: int | None = None) -> list[int]:
    """Return expert-parallel degrees: divisors of the number of experts.

    Where ranks have slots for expert copies, return divisors of `chips` instead. If `chips` is not known, return divisors of
    the experts and 1, 3, 5 and 9 times powers of two.
    """
    own, most = divisors(max(experts, 1)), MOST_COPIES * experts
    others = (odd * 2**k for odd in (1, 3, 5, 9) for k in range(most.bit_length()))
    among = divisors(chips) if chips else sorted({*own, *others})
    return [each for each in among if each <= most] if redundant else own


class Sizes(NamedTuple):
    """Numbers that parallel degrees must divide or stay below; ranges where a search chooses them too.

    **Arguments:**

    - `degrees`: name of each degree -> its coordinate; a missing degree is 1.
    - `chips`, `domain`: ranges of the numbers of chips and of chips per scale-up domain.
    - `batch`: range of the sequences of a step, or of those that all replicas of a service hold together.
    - `chunks`: maximum number of pipeline chunks.
    - `ramp`: batch ramp of the run.
    - `experts`, `sites`, `sequence`: numbers of experts, sites, and tokens of a sequence.
    - `shared`: number of key-value heads; 1 with latent attention.
    - `software`: what the software documents; None for no limit.
    """

    degrees: Mapping[str, str]
    chips: tuple[float, float] = (1.0, 1.0)
    batch: tuple[float, float] = (1.0, 1.0)
    domain: tuple[float, float] = (1.0, 1.0)
    chunks: Limit = 1.0
    ramp: BatchRamp | None = None
    experts: int = 0
    sites: int = 1
    sequence: int = 1
    shared: int = 1
    software: Capabilities | None = None

    def of(self, *degrees: str) -> tuple[str, ...]:
        """Return the coordinates of the given degrees."""
        return tuple(self.degrees[name] for name in degrees if name in self.degrees)

    def when(self, degree: str, then: Iterable[ProductLimit | Divides]) -> list[Relation]:
        """Return relations that apply only where a degree is 2 or more."""
        return [ConditionalRelation(self.degrees[degree], 2, each) for each in then]

    def limited(self, degree: str, most: float) -> list[Relation]:
        """Return the limit of a degree that a capability states: 0 allows only 1, and 1 any degree."""
        return [] if most == 1.0 else [at_most(self.of(degree), max(most, 1.0))]

    def in_memory(self, part: str, most: float) -> list[Relation]:
        """Return where a part must stay in the chips' memory: always at level 0, in a pipeline at 1, nowhere at 2."""
        kept = at_most(self.of(part), 1.0)
        return [[kept], self.when("pp", [kept]), []][round(most)]


FIXED = ("fp8_products", "int8_products", "fp4_products", "deduplicated_dispatch")
"""Capabilities that a question needs whatever its plan is."""

CAPABILITIES: Mapping[str, Callable[[Sizes, float], Sequence[Relation]]] = {
    "tensor_parallelism": lambda x, most: x.limited("tp", most),
    "pipeline_parallelism": lambda x, most: x.limited("pp", most),
    "context_parallelism": lambda x, most: x.limited("cp", most),
    "expert_parallelism": lambda x, most: x.limited("ep", most),
    "interleaving": lambda x, most: x.limited("virtual_stages", most),
    # The lattice starts at ZeRO-1.
    "zero_stage": lambda x, most: [at_most(x.of("zero"), max(most, 1.0))],
    # A pipeline reduces gradients after each micro-batch with ZeRO-2 and 3.
    "zero_in_pipeline": lambda x, most: x.when("pp", [at_most(x.of("zero"), max(most, 1.0))]),
    # 1: none, 2: selective, 3: full.
    "recomputation": lambda x, most: [
        [at_most(x.of("recompute"), 1.0)], [Divides(x.of("recompute"), (), multiple=3)], []
    ][round(most)],
    "activation_offload": lambda x, most: x.in_memory("activations", most),
    "offload_with_recomputation": lambda x, most: [] if most else x.when("activations", [at_most(x.of("recompute"), 1.0)]),
    "optimizer_offload": lambda x, most: x.in_memory("optimizer", most),
    "weight_streaming": lambda x, most: x.in_memory("weights", most),
    # Lattices offload all of a part or nothing; plans that are stated, and those of `least_offloaded`, may offload a share.
    "partial_offload": lambda x, most: [at_most(each, most + 1.0) for each in (x.of("divided"),) if each],
    # A question states its formats, and a stack how it dispatches tokens (`fixed_columns`).
    **{name: lambda x, most, name=name: [at_most(each, most + 1.0) for each in (x.of(name),) if each] for name in FIXED},
}  # fmt: skip
"""Capability of a software stack -> the relation that it restricts, given its level."""


def _software(sizes: Sizes) -> list[Relation]:
    """Return the relations that keep a plan within what its software documents."""
    if sizes.software is None:
        return []
    return [each for name, of in CAPABILITIES.items() for each in of(sizes, float(getattr(sizes.software, name)))]


def software_words(software: Capabilities) -> str:
    """Return which plans a search covers, as part of its scope."""
    return "plans of any software" if software.unlimited else "plans within what the software documents"


def fixed_columns(run: TrainingRun, stack: Stack) -> dict[str, float]:
    """Return the columns of `FIXED`: 2 for a format of the run's products, and for a stack that dispatches one copy a domain."""
    used = {
        "deduplicated_dispatch": float(stack.dispatch_deduplicated) * (count_of(run.model.experts) > 1),
        **{f"{name}_products": x for name, x in zip(PRECISIONS, run.gemm_precision, strict=True)},
    }
    return {name: 1.0 + (float(used[name]) > 0.0) for name in FIXED}


def missing(columns: Mapping[str, float], software: Capabilities, names: Iterable[str]) -> list[str]:
    """Return which of the named capabilities some columns need and the software does not document."""
    sizes, level = Sizes(named(*columns), software=software), lambda name: float(getattr(software, name))
    found = (name for name in names if not all(x.holds(columns) for x in CAPABILITIES[name](sizes, level(name))))
    return [name.replace("_", " ").replace("zero", "ZeRO") for name in found]


def undocumented(plan: Plan, software: Capabilities, stated: Mapping[str, float] | None = None) -> list[str]:
    """Return the capabilities that a training plan needs and its software does not document.

    **Arguments:** `stated`: values instead of the plan's, by degree, `zero`, `recompute`, part of `PARTS`, or those of `FIXED`.
    """
    split = (plan.optimizer_sharded, plan.gradients_sharded, plan.weights_sharded)
    columns = {name: float(getattr(plan, name)) for name in ("tp", "pp", "cp", "ep", "virtual_stages")}
    columns |= {part: 1.0 + (float(getattr(plan, f"{part}_offloaded")) > 0.0) for part in PARTS}
    shares = [float(getattr(plan, f"{part}_offloaded")) for part in DIVIDED]
    columns["divided"] = max(1.0 + level * (0.0 < share < 1.0) for level, share in enumerate(shares, 1))
    columns["zero"] = max(1.0, sum(map(float, split)))
    columns["recompute"] = 3.0 if float(plan.recompute_full) else 1.0 + (float(plan.recompute_attention) > 0.0)
    return missing({**columns, **(stated or {})}, software, CAPABILITIES)


RELATIONS: Mapping[str, Callable[[Sizes], Sequence[Relation]]] = {
    # The degrees multiply to the number of chips, so that every chip has work.
    "chips": lambda x: [ProductLimit(x.of("tp", "cp", "pp", "dp"), (), *x.chips, name="chips", follows="dp")],
    # Every replica has the same number of micro-batches.
    "batch": lambda x: [
        ProductLimit(x.of("dp", "micro_batch", "micro_batches"), (), *x.batch,
                name="global_batch_sequences", follows="micro_batches")
    ],
    # Every stage of every replica holds the same number of sequences.
    "held": lambda x: [ProductLimit(x.of("dp", "pp", "batch"), (), *x.batch)],
    # A domain contains whole tensor-parallel groups.
    "domain": lambda x: [ProductLimit(x.of("tp", "groups"), (), *x.domain, name="scale_up_domain", follows="groups")],
    # Every pipeline chunk has a layer.
    "chunks": lambda x: [at_most(x.of("pp", "virtual_stages"), x.chunks)],
    # Interleaving requires at least two stages.
    "interleaving": lambda x: x.when("virtual_stages", [at_least(x.of("pp"), 2.0)]),
    # An interleaved schedule has whole rounds: micro-batches are a multiple of stages, at every batch size of a ramp.
    "rounds": lambda x: x.when("virtual_stages", [
        Divides(x.of("pp"), x.of("micro_batches"), each.denominator, each.numerator)
        for each in (*batch_quotients(x.ramp), Fraction(1))
    ]),
    # Every batch size of a ramp has whole micro-batches.
    "ramp": lambda x: [
        Divides((), x.of("micro_batches"), each) for each in (whole_micro_batches(x.ramp),) if each > 1
    ],
    # An expert is on one rank or split like the rest of the layer.
    "expert_tp": lambda x: [
        Divides(x.of("expert_tp"), x.of("tp")) if x.experts else equal(x.of("expert_tp"), x.of("tp"))
    ],
    # Replicas of each site contain whole sets of experts.
    "experts": lambda x: [Divides(x.of("ep", "expert_tp"), x.of("tp", "cp", "dp"), x.sites)],
    # Each site has the same number of replicas.
    "sites": lambda x: [Divides((), x.of("dp"), x.sites)],
    # The tokens of a sequence are split evenly.
    "sequence": lambda x: [Divides(x.of("tp", "cp"), (), multiple=x.sequence)],
    # The software documents the plan.
    "software": _software,
    # Sharding requires two ranks; experts may have replicas even where other weights have none.
    "zero_ranks": lambda x: [] if x.experts else x.when("zero", [at_least(x.of("dp", "cp"), 2.0)]),
    # Ranks that would replicate keys and values share them: t ranks, or t over the number of key-value heads.
    "cache_split": lambda x: x.when("cache_split", [Divides(x.of("cache_split"), x.of("tp"), constant=x.shared)]),
}  # fmt: skip
"""Relations by name, in the order in which a search propagates them."""


def named(*degrees: str, prefix: str = "") -> dict[str, str]:
    """Return coordinates of degrees: their own names behind a prefix."""
    return {each: prefix + each for each in degrees}


def check_documented(run: TrainingRun, stack: Stack, name: str = "") -> None:
    """Raise `UserError` for formats of a run, or a dispatch of tokens, that a stack does not document.

    **Arguments:** `name`: of the chips that the stack runs on, for the message.
    """
    if lacks := missing(fixed_columns(run, stack), stack.capabilities, FIXED):
        raise UserError(
            f"{name and name + ': '}the software does not document {' and '.join(lacks)}: choose another stack, or set "
            "any_software"
        )


def training_sizes(run: TrainingRun, cluster: Cluster, degrees: Mapping[str, str], **known: Any) -> Sizes:
    """Return the numbers of a training run on a cluster. **Arguments:** `known`: further fields of `Sizes`.

    **Raises:** `UserError` for formats of the run, or a dispatch of tokens, that the software does not document.
    """
    check_documented(run, cluster.stack)
    known |= {"sites": count_of(cluster.sites.count), "software": cluster.stack.capabilities}
    numbers = {"experts": count_of(run.model.experts), "sequence": count_of(run.sequence_length), "ramp": run.ramp}
    return Sizes(degrees, **{"chunks": most_chunks(run.model), **numbers, **known})


def serving_sizes(service: Service, stack: Stack, degrees: Mapping[str, str], **known: Any) -> Sizes:
    """Return the numbers of a service on a software stack; without pipeline support it has one stage."""
    model = service.model
    numbers = {
        "chunks": count_of(model.layers) + 2.0 if float(stack.pipelined) else 1.0,
        "experts": count_of(model.experts),
        "shared": 1 if float(model.kv_rank) > 0.0 else count_of(model.kv_heads),
    }
    return Sizes(degrees, **numbers, **known)


TRAINING = ("chips", "batch", "chunks", "interleaving", "rounds", "ramp", "experts", "sites", "software")
"""Relations that every plan of a training search satisfies."""


def ramp_words(ramp: BatchRamp | None) -> str:
    """Return the condition of a batch ramp on micro-batches as a text to append to a name; empty without a ramp."""
    multiple = whole_micro_batches(ramp)
    return f" (micro-batches a multiple of {multiple})" if multiple > 1 else ""


def plan_relations(sizes: Sizes, *names: str) -> list[Relation]:
    """Return the named relations, in the order of `RELATIONS`."""
    return [each for name, relations in RELATIONS.items() if name in names for each in relations(sizes)]


def plan_lattice(values: Mapping[str, Sequence[int]], relations: Iterable[Relation]) -> System:
    """Return a lattice for enumeration. **Arguments:** `values` of each coordinate: a `range`, or a list in ascending order."""
    coordinates = (
        integer(name, (each[0], each[-1]), among=None if isinstance(each, range) else each)
        for name, each in values.items()
    )
    return System(tuple(coordinates), tuple(relations))


def plan_points(values: Mapping[str, Sequence[int]], relations: Iterable[Relation]) -> list[dict[str, int]]:
    """Return all points of a small lattice (`plan_lattice`), by coordinate; the last coordinate varies fastest."""
    rows = enumerate_points(plan_lattice(values, relations))
    return [dict(zip(rows, map(int, each), strict=True)) for each in zip(*rows.values(), strict=True)]
