"""Integer designs of a question, declared as lattices for training, for serving, or for both, and their descriptions.

A training lattice has parallel degrees, schedule, replicas, domains, racks, memory stacks and dies, with

    chips = t p c d,   global batch = d b m,   domain = t g.

Here t, p, c and d are the degrees of tensor, pipeline, context and data parallelism. A micro-batch has b sequences, a step m
micro-batches per replica, and a scale-up domain g tensor-parallel groups. A plan thus uses every chip, every replica gets the
same work, and domains contain whole groups. A serving lattice has the replicas of one or two groups of chips, their plans and
batches.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, reduce, singledispatch
from typing import TYPE_CHECKING, Any, NamedTuple

from hwopt import renamed
from hwopt.design.design import Design, serving_part, training_part
from hwopt.design.machine_parts import (
    MACHINE_WORDS,
    clock_pieces,
    machine_integers,
    machine_relations,
    piece_integer,
    size_pieces,
    uses_part,
    whole_racks,
)
from hwopt.design.model_shape import SHAPE_WORDS, shape_integers, shape_relations
from hwopt.design.plan_lattice import (
    PARTS,
    TRAINING,
    Sizes,
    contexts_of,
    named,
    plan_relations,
    ramp_words,
    serving_sizes,
    software_words,
    spread_degrees,
    training_sizes,
)
from hwopt.design.problem import Problem
from hwopt.design.variables import RECOVERIES, SERVE, Ranges, Variable, count_of
from hwopt.integers.enumeration import divisors
from hwopt.integers.relations import AllowedRange, DerivedColumns, Limit, Relation, at_least, at_most
from hwopt.integers.system import Integer, ModelKink, RangePiece, Role, System, integer
from hwopt.model.serving.tails import PERCENTILES
from hwopt.plan import stage_layers
from hwopt.stack import Stack
from hwopt.workload.operators import most_chunks
from hwopt.workload.service import Service
from hwopt.workload.train_serve import TrainServe
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import cache_copies, tensor_degrees

AS_ASKED = "chip, cooling, fabric, site, software and formats as asked"

SAMPLED = "; taken for granted, sampled and not proved: which way percentiles move as loads, passes and slots grow"
"""Assumption behind a bound where percentiles are limited (`hwopt.model.serving.tails`)."""


class _LatticeMachine(NamedTuple):
    """One machine of a question: the lattice of its integers and the bounds of its variables."""

    system: Callable[[Ranges], System]
    words: Mapping[str, str]  # variable -> description of its unit
    fixed: Callable[[Ranges], list[str]]  # returns descriptions of fixed settings
    ranges: Ranges
    label: str = ""  # used where a question has two machines

    @property
    def scope(self) -> str:
        ranges, of = self.ranges, self.ranges.of
        free = [words for name, words in self.words.items() if ranges.frees(name) and of(name)[0] < of(name)[1]]
        fixed = ", ".join((*self.fixed(ranges), AS_ASKED))
        return f"{self.label}{', '.join(free) or 'one'}; fixed: {fixed}; the rest continuous"


def lattice_of(problem: Problem) -> System:
    """Return the system of integer designs of a question."""
    system = reduce(_both, (each.system(each.ranges) for each in _machines(problem)))
    return replace(system, relations=(*system.relations, *problem.relations))


def _both(first: System, second: System) -> System:
    """Return the Cartesian product of two systems."""
    return System(
        first.coordinates + second.coordinates, first.relations + second.relations,
        first.lookups + second.lookups, first.pieces + second.pieces, first.kinks + second.kinks,
    )  # fmt: skip


def scope_of(problem: Problem) -> str:
    """Return a description of the search space: free integers and fixed settings."""
    words = "; ".join(each.scope for each in _machines(problem))
    return words + SAMPLED if limits_percentiles(problem) else words


def reason_without_lattice(problem: Problem) -> str:
    """Return why a question's integer variables are not all covered by its lattice; empty where they are."""
    system = lattice_of(problem)
    known = {*system.names, *system.quantities}
    strange = [each.name for each in problem.variables if each.integer and each.name not in known]
    return f"integers {', '.join(dict.fromkeys(strange))} are not branched on" if strange else ""


KINDS = ("recompute", "zero", "weights_tier", "optimizer_tier", "activations_tier", "recovery")
"""Categorical coordinates of a training run: recomputation, ZeRO stage, memory tiers, and failure recovery."""

_LATE = 1e-3
_TOLD_APART = {
    "recompute": math.inf,
    "zero": math.inf,
    "weights_tier": math.inf,
    "optimizer_tier": _LATE,
    "activations_tier": math.inf,
    "recovery": 0.03,
}
"""Initial pseudo-costs of the categorical coordinates, as logarithms. Recomputation costs a third more time, which prunes a
node at once. The memory tiers of weights and activations decide what else fits. Optimizer placement is branched last: it
changes the objective little, and each of its values would repeat the same search. For DeepSeek-V3 on H800, from a good
incumbent, these values need 12,942 node relaxations. With all memory tiers late, a gap of 4 % remained after 40,900.
"""


def _training_system(ranges: Ranges) -> System:
    """Return the system of integers of a training run on a machine."""
    run, cluster, _, _ = ranges.template
    of = ranges.of
    experts = max(count_of(run.model.experts), 1)
    layers = None if ranges.frees("layers") else count_of(run.model.layers)
    chunks = most_chunks(run.model) if layers else AllowedRange(("layers",), lambda x: x["layers"] + 2.0)
    degrees = named(
        "tp", "cp", "pp", "dp", "ep", "micro_batch", "micro_batches", "virtual_stages", "zero", "recompute", "groups"
    )
    degrees |= {part: f"{part}_tier" for part in PARTS}
    batch, domain = of("global_batch_sequences"), of("scale_up_domain")
    sizes = training_sizes(run, cluster, degrees, chips=of("chips"), batch=batch, domain=domain, chunks=chunks)
    relations = [
        *plan_relations(sizes, *TRAINING, *(() if uses_part(ranges) else ("domain",)), "sequence"),
        *shape_relations(ranges),
        *machine_relations(ranges),
        *whole_racks(ranges, ("tp", "cp", "pp", "dp")),
    ]
    coordinates = (
        integer("tp", of("tp"), among=_tensor_degrees(ranges), role=Role.root, near=3),
        integer("cp", of("cp"), among=contexts_of(run), role=Role.root, near=1),
        integer("ep", of("ep"), among=divisors(experts), role=Role.root, pseudo_cost=0.05),
        *(integer(name, of(name), role=Role.kind, pseudo_cost=_TOLD_APART[name]) for name in KINDS),
        *shape_integers(ranges),
        integer("pp", of("pp"), pseudo_cost=0.02, stepped=True, near=8),
        integer("micro_batch", of("micro_batch"), pseudo_cost=0.01, stepped=True, near=2),
        integer("dp", (1, of("chips")[1]), pseudo_cost=0.08, fills=True),
        integer("micro_batches", (1, batch[1]), pseudo_cost=0.06, near=2),
        integer("virtual_stages", of("virtual_stages"), pseudo_cost=0.005, stepped=True, near=3),
        *(() if uses_part(ranges) else (integer("groups", (1, max(1.0, domain[1])), pseudo_cost=0.15, near=2),)),
        *machine_integers(ranges),
    )
    stages = ("pp", "virtual_stages") if layers else ("layers", "pp", "virtual_stages")
    lookup = DerivedColumns(
        ("fullest_stage", "last_stage"), stages, partial(stage_layers, layers) if layers else stage_layers
    )
    pieces, cut = _pieces(ranges), size_pieces(ranges)
    coordinates += tuple(Integer(each.name, 1, len(each.edges) - 1, role=Role.root) for each in pieces)
    coordinates += tuple(piece_integer(each) for each in cut)
    pieces += cut
    return System(
        coordinates, tuple(relations), (lookup,), pieces, _domain_kinks(ranges, "cp", *(["ep"] if experts > 1 else []))
    )


def _domain_kinks(ranges: Ranges, *ranks: str) -> tuple[ModelKink, ...]:
    """Return the coordinate values at which the model of a scale-up domain, of `tp` times `groups` chips, changes its form.

    These are where the domain just fits one level of switches, where it just contains a parallel group, and where a rack just
    contains a domain.

    **Arguments:** `ranks`: types of parallel groups. An `ep` group includes the tensor-parallel ranks, a `cp` group is counted
    in units of `tp`.
    """
    least, most = ranges.of("scale_up_domain")
    if least == most:
        return ()
    level = float(ranges.template.cluster.network.level_chips)
    held = {"cp": ModelKink("groups", ("cp",)), "ep": ModelKink("groups", ("ep",), ("tp",))}
    racks = (ModelKink("chips_per_rack", ("tp", "groups")),) if ranges.in_parts else ()
    return (ModelKink("groups", (), ("tp",), level, below=True), *(held[name] for name in ranks), *racks)


def _tensor_degrees(ranges: Ranges, prefix: str = "") -> list[int]:
    """Return tensor-parallel degrees that evenly divide heads, key-value heads and tiles, and a split sequence.

    Where the model width is free, they are powers of two, and `shape_relations` requires that they divide its heads.
    """
    workload, _, plan, _ = ranges.template
    if ranges.frees("hidden"):
        low, high = ranges.of("hidden")
        scaled = float(workload.model.heads) * low / float(workload.model.hidden)
        degrees = divisors(round(scaled)) if low == high else [2**k for k in range(12)]
    else:
        degrees = tensor_degrees(workload.model)
    group = plan.groups[prefix]
    if not float(group.sequence_parallel):
        return degrees
    sequence = count_of(workload.sequence_length)
    return [t for t in degrees if t == 1 or sequence % (t * count_of(group.cp)) == 0]


def _pieces(ranges: Ranges) -> tuple[RangePiece, ...]:
    """Return two segments for the number of tokens: up to the unique tokens, and beyond, where some are repeated."""
    if not ranges.frees("tokens"):
        return ()
    (low, high), unique = ranges.of("tokens"), float(ranges.template.workload.unique_tokens)
    return (RangePiece("tokens", (low, unique, high)),) if low < unique < high else ()


_TRAINING_WORDS = {
    "tp": "tensor parallel degrees that divide the heads and the sequence",
    "ep": "expert parallel degrees that divide the experts", "pp": "any number of stages, uneven ones too",
    "cp": "context parallel degrees", "zero": "ZeRO stages", "recompute": "recomputation none, selective or full",
    "weights_tier": "weights in HBM or the pool", "optimizer_tier": "the optimizer likewise",
    "activations_tier": "activations likewise", "recovery": "recovery from storage, with hot spares or in memory",
    "virtual_stages": "chunks a stage", "micro_batch": "micro-batches", "chips": "replicas",
    "global_batch_sequences": "full batches", **SHAPE_WORDS, **MACHINE_WORDS,
}  # fmt: skip
"""Variable of a training machine -> description of its unit, for texts about free variables."""


_NEAR_BATCH = 1.2
"""Ratio of the largest to the smallest batch below which a question counts as keeping its batch."""


def _training_fixed(ranges: Ranges) -> list[str]:
    """Return descriptions of the settings that a training question keeps fixed."""
    run, cluster, plan, _ = ranges.template
    sites = count_of(cluster.sites.count)
    fixed = lambda name: ranges.of(name)[0] == ranges.of(name)[1] and round(ranges.of(name)[0])
    recompute = {1: "no", 2: "selective", 3: "full"}.get(fixed("recompute"))
    tiers = {name: fixed(f"{name}_tier") for name in ("weights", "optimizer", "activations")}
    offloaded = [name for name, tier in tiers.items() if tier == 2]
    words = [] if ranges.frees("cp") else [f"context parallel degree {count_of(plan.cp)}"]
    words += ["undivided experts where they are spread"] if count_of(run.model.experts) else []
    words += ["sequence parallelism"] if float(plan.sequence_parallel) else []
    words += [software_words(cluster.stack.capabilities)]
    words += [f"ZeRO-{fixed('zero')}"] if fixed("zero") else []
    words += [f"{recompute} recomputation"] if recompute else []
    words += [f"{' and '.join(offloaded) or 'nothing'} offloaded"] if offloaded or all(tiers.values()) else []
    words += [f"the same replicas at each of {sites} sites"] if sites > 1 else []
    words += [f"recovery {RECOVERIES[kept - 1]}"] if (kept := fixed("recovery")) else []
    words += [f"gradients reduced in {8 * float(cluster.stack.gradient_bytes):.0f} bit"]
    least, most = ranges.of("global_batch_sequences")
    words += [f"batch near {count_of(run.global_batch_sequences):,} sequences"] if most < _NEAR_BATCH * least else []
    words += [f"the stages of the batch ramp{ramp_words(run.ramp)}"] if run.ramp is not None else []
    return words


_SEQUENCES = {"pseudo_cost": 0.3, "near": 2}
"""Search settings of the decode batch, which has many possible values. The prefill batch has few."""


def _serving_system(ranges: Ranges, tails: bool = False) -> System:
    """Return the system of integers of a service on a machine.

    Where training and serving share a chip type (a prefix), it contains only the integers of the serving plan.

    **Arguments:**

    - `ranges`: bounds of the machine's variables.
    - `tails`: whether percentiles are limited.
    """
    of, p, groups, kinds = ranges.of, ranges.prefix, ranges.template.plan.groups, ranges.kinds
    stacks = {group: kinds.get(group, ranges).template.cluster.groups[0].stack for group in groups}
    service, model = ranges.template.workload, ranges.template.workload.model
    layers, experts = count_of(model.layers), max(count_of(model.experts), 1)
    coordinates: list[Integer] = []
    relations: list[Relation] = []
    lookups: list[DerivedColumns] = []
    pieces: tuple[RangePiece, ...] = ()
    stages_of = partial(stage_layers, layers, virtual_stages=1.0)
    for group in groups:
        g, (batches, cost) = p + group, ({}, 0.1) if group else (_SEQUENCES, 0.02)
        coordinates += [
            integer(g + "tp", of(group + "tp"), among=_tensor_degrees(ranges, group), role=Role.root, near=3),
            integer(
                g + "ep",
                of(group + "ep"),
                among=spread_degrees(
                    experts, ranges.frees(group + "expert_slots") and float(stacks[group].redundant_experts) > 0.0
                ),
                role=Role.root,
                near=2,
            ),
            integer(g + "pp", of(group + "pp")),
            integer(g + "batch", of(group + "batch"), **batches),
            integer(g + "replicas", of(group + "replicas"), pseudo_cost=cost, near=2),
        ]
        names = named("tp", "ep", "pp", "batch", "cache_split", prefix=g) | {"dp": g + "replicas"}
        sizes = serving_sizes(service, stacks[group], names)
        relations += plan_relations(sizes, "chunks", "experts")
        lookups.append(DerivedColumns((g + "fullest_stage", g + "last_stage"), (g + "pp",), stages_of))
        if ranges.frees(group + "expert_slots"):
            coordinates.append(integer(g + "expert_slots", of(group + "expert_slots")))
            held = g + "ep", g + "expert_slots"
            relations += [at_least(held, float(experts)), at_most(held, _held(stacks[group], experts, g + "ep"))]
            if float(groups[group].layout.two_batches):  # two half batches need exchanges of experts and two sequences
                relations += [at_least((g + name,), 2.0) for name in ("ep", "batch")]
        if ranges.frees(group + "cache_split"):
            ranks = sorted({d for t in _tensor_degrees(ranges, group) for d in divisors(cache_copies(model, t))})
            coordinates.append(integer(g + "cache_split", of(group + "cache_split"), among=ranks))
            relations += plan_relations(sizes, "cache_split")
    if not p:  # two machines share the domain and racks of the training machine
        own = kinds[""]
        domain = own.of("scale_up_domain")
        if not uses_part(own):
            coordinates += [integer("groups", (1, max(1.0, domain[1])), near=2)]
            relations += plan_relations(Sizes(named("tp", "groups"), domain=domain), "domain")
        relations += machine_relations(own)
        for each in kinds.values():
            coordinates += machine_integers(each)
            pieces += size_pieces(each) + (clock_pieces(each) if tails else ())
        coordinates += [piece_integer(each) for each in pieces]
    for group in groups:  # chips of two machines fill servers; racks are full only where the machine is separate
        chips = tuple(p + group + name for name in ("tp", "pp", "replicas"))
        own = kinds.get(group, ranges)
        relations += whole_racks(own, chips, racks=not p, shared=len(groups) > 1)
    kinks = () if p else _domain_kinks(kinds[""], *(["ep"] if experts > 1 else []))
    return System(tuple(coordinates), tuple(relations), tuple(lookups), pieces, kinks)


def _held(stack: Stack, experts: int, ep: str) -> Limit:
    """Return the maximum number of experts in a group of ranks: each expert once, or with as many copies as fill the slots."""
    if not float(stack.redundant_experts):
        return float(experts)
    return AllowedRange((ep,), lambda x: x[ep] + (experts - 1.0))


_SERVING_WORDS = {
    "tp": "tensor parallel degrees that divide the heads", "ep": "expert parallel degrees that divide the experts",
    "pp": "any number of stages, uneven ones too", "batch": "sequences a replica", "replicas": "replicas",
    "expert_slots": "experts of a rank, copies counted", "cache_split": "ranks that hold keys and values of a head by token",
    "prefill_tp": "the same of the chips for prefill", **MACHINE_WORDS,
    "prefill_chips_per_rack": "the same of their racks and servers",
}  # fmt: skip
"""Variable of a serving machine -> description of its unit, for texts about free variables."""


def _serving_fixed(ranges: Ranges) -> list[str]:
    """Return descriptions of the settings that a serving question keeps fixed."""
    service, plan = ranges.template.workload, ranges.template.plan
    own = "prefill on chips of another kind" if len(ranges.kinds) > 1 else "prefill on chips of its own"
    words = [own if plan.disaggregated else "prompts beside answers", "whole heads a chip"]
    words += ["undivided experts where they are spread"] if count_of(service.model.experts) else []
    layout = plan.groups[""].layout
    words += ["batches in two halves"] if layout is not None and float(layout.two_batches) else []
    return [*words, "weights in place", "layers spread evenly"]


_TRAINING = (_training_system, _TRAINING_WORDS, _training_fixed)
_SERVING = (_serving_system, _SERVING_WORDS, _serving_fixed)


def _machines(problem: Problem) -> list[_LatticeMachine]:
    machines = _machines_of(
        problem.template.workload, problem.template, {each.name: each for each in problem.variables}
    )
    if not limits_percentiles(problem):
        return machines
    return [
        each._replace(system=partial(_serving_system, tails=True)) if each.system is _serving_system else each
        for each in machines
    ]


def limits_percentiles(problem: Problem) -> bool:
    """Return whether a question refers to percentiles, which node relaxations bound only by their range in the node."""
    return bool({problem.objective.name, *(budget.metric.name for budget in problem.budgets)} & set(PERCENTILES))


@singledispatch
def _machines_of(workload: Any, template: Design, variables: Mapping[str, Variable]) -> list[_LatticeMachine]:
    raise TypeError(f"no lattice of {type(workload).__name__}")


@_machines_of.register
def _(workload: TrainingRun, template: Design, variables: Mapping[str, Variable]) -> list[_LatticeMachine]:
    return [_LatticeMachine(*_TRAINING, Ranges(variables, template))]


@_machines_of.register
def _(workload: Service, template: Design, variables: Mapping[str, Variable]) -> list[_LatticeMachine]:
    return [_LatticeMachine(*_SERVING, Ranges(variables, template))]


@_machines_of.register
def _(workload: TrainServe, template: Design, variables: Mapping[str, Variable]) -> list[_LatticeMachine]:
    return [
        _LatticeMachine(*_TRAINING, Ranges(variables, training_part(template)), "training: "),
        _LatticeMachine(*_SERVING, Ranges(variables, serving_part(template), SERVE), "serving: "),
    ]


if not TYPE_CHECKING:  # old public names
    __getattr__ = renamed.getter(__name__)
