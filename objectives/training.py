"""Common parts of all questions about training: the run, its budgets, the default search space."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import equinox as eqx
import numpy as np

from hwopt import catalog
from hwopt.design.design import Design
from hwopt.design.metrics import metric
from hwopt.design.model_shape import width
from hwopt.design.problem import Budget, Problem
from hwopt.design.stated_plan import with_plan
from hwopt.design.variables import KNOWN, Variable, variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.peripherals import NO_POOL_BYTES
from hwopt.model.training.learning import critical_batch_tokens, dense_equivalent_parameters
from hwopt.units import separated
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer, active_parameters, total_parameters
from objectives.fields import BUDGETS, CHOICES, NO_LIMIT, meanings
from objectives.machine import BEST, MachineQuestion

BATCH_ROOM = 0.05
"""Relative range of the global batch around the specified one, so that it divides among the replicas (assumption: the
critical batch is not known more precisely)."""

BATCH = "batch"
"""Word in `free` that lets the search choose the batch, up to the critical one."""

NONE = "none"
"""Setting that disables recomputation or offloading.

The default over whole units of hardware is `best`. Over continuous hardware it is `none`, because memory can be chosen
large enough."""

OFFLOADS = ("optimizer", "activations", "weights")

_BUDGETS = {
    "time_budget_s": "run_time_s",
    "cost_budget_usd": "run_cost_usd",
    **BUDGETS,
    "energy_budget_j": "run_energy_j",
    "carbon_budget_kg": "run_carbon_kg",
    "loss_budget": "loss",
}
"""Field of a question -> the metric it limits."""

ANY_SOFTWARE = {"any_software": "plans may also do what the software does not document"}

_CHOICES = (
    CHOICES
    | ANY_SOFTWARE
    | {
        "free": f"{CHOICES['free']}; batch lets the search choose the batch, up to the critical one",
        "pool": "memory pool beyond HBM, such as host memory or CXL; default that of the chip's servers",
        "offload": "state kept in the memory pool, joined by +: optimizer, activations, weights; or none; default best, chosen "
        "by the search, over whole units of hardware, else none",
        "lines": "WAN links between sites; default continental",
        "local_steps": "steps between synchronizations of the sites; 1 is synchronous training",
        "law": "scaling law that predicts the loss from parameters, tokens and batch",
        "recompute": "activations recomputed in the backward pass: none, selective or full; default best, chosen by the search, "
        "over whole units of hardware, else none",
        "sequence_length": "tokens per sequence; default that of the workload",
        "checkpoint_interval_s": "working time between checkpoints, s; default the interval with the least loss of time",
        "tokens": "training tokens of the whole run; chosen by the search if the loss is the objective or has a budget",
        "unique_tokens": "unique tokens available; a longer run repeats them and learns less from each repetition; default the "
        "stock of public text",
        "trainable_fraction": "fraction of the weights that is trained, such as 0.003 for LoRA adapters",
        "global_batch": "sequences per step; chosen by the search if the loss is the objective or has a budget; default that of "
        "the workload",
        "batch_ramp": "batch-size schedule, each size up to that many tokens (or percent of the run): "
        "1024@0.25T,2048@2.8T,4096; the last size is the global batch; default the workload's",
        "memory_formats": "formats in memory of weights, master, moments, gradients, accumulation, frozen, adapters, "
        "activations, loss, fsdp2, reserve: moments=8bit,loss=chunked; default the workload's and the software's",
    }
)

_PLAN = ("tp", "cp", "pp", "virtual_stages", "micro_batch", "zero", "fullest_stage", "last_stage")
_POOL = ("pool_capacity_bytes", "pool_bandwidth_bytes_per_s")


def _chosen(kinds: tuple[str, ...], asked: str, usual: str) -> list[Variable]:
    """Return the categorical variables of a plan that the search chooses.

    These are all `kinds` if `asked` is empty or `best`, else none. If nothing is specified and `usual` is `none`, each
    variable is fixed at its lower bound, which disables it.
    """
    free = [KNOWN[name] for name in kinds if asked in ("", BEST)]
    return [each.bounded(each.lower, each.lower) for each in free] if (asked or usual) == NONE else free


@dataclass(frozen=True)
class TrainingQuestion(MachineQuestion):
    """Fields and default search space of a question about one training run. An infinite budget means no limit."""

    any_software: bool = False
    pool: str = ""
    offload: str = ""
    lines: str = ""
    local_steps: float = 1.0
    law: str = "chinchilla-epoch"
    recompute: str = ""
    tokens: float = 15.6e12
    unique_tokens: float = 0.0
    trainable_fraction: float = 1.0
    global_batch: float = 0.0
    batch_ramp: str = ""
    memory_formats: str = ""
    sequence_length: float = 0.0
    checkpoint_interval_s: float = 0.0
    time_budget_s: float = NO_LIMIT
    cost_budget_usd: float = NO_LIMIT
    energy_budget_j: float = NO_LIMIT
    carbon_budget_kg: float = NO_LIMIT
    loss_budget: float = NO_LIMIT

    trains: ClassVar[bool] = True
    openable: ClassVar[tuple[str, ...]] = (*MachineQuestion.openable, BATCH)
    shape_is_free: ClassVar[bool] = False  # whether width and depth of the model are variables too
    limited: ClassVar[Mapping[str, str]] = _BUDGETS
    meanings: ClassVar[Mapping[str, str]] = meanings(_CHOICES, _BUDGETS)

    def _offloaded(self) -> dict[str, float]:
        """Return the fields of the plan for the parts in the memory pool, each with a share of 1."""
        parts = [] if self.offload in ("", BEST, NONE) else separated("offload", self.offload, "+")
        for part in parts:
            if part not in OFFLOADS:
                raise UserError(
                    f"offload = {self.offload!r}: {suggest(part, (NONE, BEST, *OFFLOADS))}; join several with +"
                )
        return {f"{part}_offloaded": 1.0 for part in parts}

    def _local_steps(self) -> np.ndarray:
        """Return the number of steps between exchanges of sites, an integer; above 1 only with several sites."""
        steps = self.local_steps
        if steps < 1.0 or steps != round(steps) or (steps > 1.0 and self.sites == 1.0):
            raise UserError(f"local_steps = {steps:g} must be an integer; above 1 it needs at least 2 sites")
        return np.asarray(steps, np.float64)

    def _check_ramp(self) -> None:
        """Refuse a ramp in tokens where the number of tokens is free."""
        text = self.batch_ramp or catalog.entry_ramp(self.workload)
        ramp = catalog.stated_ramp(text)
        if ramp is not None and self._learns and not all(ramp.of_run):
            raise UserError(
                f"batch_ramp = {text!r}: {self.name} chooses the number of tokens, so state the ramp in percent of the run, "
                f"such as {ramp.batches[0]}@10%"
            )

    @property
    def _learns(self) -> bool:
        """Return whether the loss is the objective or has a budget."""
        return self.minimised == "loss" or self.loss_budget != NO_LIMIT

    def _workload_variables(self, model: Transformer, batch: float) -> tuple[Variable, ...]:
        """Return the variables of batch, tokens and model shape.

        If the loss does not matter, only the batch is variable, within `BATCH_ROOM` of the specified one, or up to the
        critical batch where it is free. Otherwise tokens and a wide range of batch sizes are free, and possibly the model's
        shape.
        """
        if not self._learns:
            low, high = (1 - BATCH_ROOM) * batch, (1 + BATCH_ROOM) * batch
            if BATCH in self._freed:
                high = max(high, self._critical_batch())
            return (variable("global_batch_sequences", low, high),)
        shape = (width(model), KNOWN["layers"]) if self.shape_is_free else ()
        return (variable("global_batch_sequences", 64.0, 65536.0), KNOWN["tokens"], *shape)

    def _critical_batch(self) -> float:
        """Return the critical batch of the run by its loss law, in sequences: above it, tokens are wasted.

        **Raises:** `UserError` for a model that no loss law describes.
        """
        run = self._run()
        if isinstance(run.model, Operators):
            raise UserError(f"free = {BATCH}: no law states a critical batch of {self.workload}: state --global-batch")
        equivalent = dense_equivalent_parameters(run.law, active_parameters(run.model), total_parameters(run.model))
        return float(critical_batch_tokens(run.law, equivalent, run.tokens) / run.sequence_length)

    def _run(self) -> TrainingRun:
        """Return the training run, with the workload's defaults for unset fields.

        **Raises:** `UserError` where the loss matters and the model does not predict text, or where the shape of a
        model that is not a transformer is free.
        """
        self._check_ramp()
        stated: dict[str, Any] = self._fields(
            "precision", "tokens", "law", "checkpoint_interval_s", "trainable_fraction"
        )
        model = catalog.model_of(self.workload)
        if isinstance(model, Operators):
            if self.shape_is_free:
                raise UserError(
                    f"{self.name}: only a transformer's width and depth can be chosen, not those of {self.workload}"
                )
            if self._learns and not model.language:
                raise UserError(
                    f"{self.name}: no loss law applies to {self.workload}, which does not predict text: specify tokens"
                )
            (usual,) = (field.default for field in fields(self) if field.name == "tokens")
            stated["tokens"] = None if self.tokens == usual else self.tokens
        return catalog.training_run(
            self.workload,
            **stated,
            sequence_length=self.sequence_length or None,
            global_batch=self.global_batch or None,
            unique_tokens=self.unique_tokens or None,
            batch_ramp=self.batch_ramp or None,
            memory_formats=self.memory_formats or None,
        )

    def _micro_batches(self, run: TrainingRun) -> Variable:
        """Return the variable of the micro-batch: a few sequences of text, or any part of a batch of images or clicks."""
        known = KNOWN["micro_batch"]
        if not isinstance(run.model, Operators):
            return known
        most = max(known.upper, (1.0 + BATCH_ROOM) * float(run.global_batch_sequences))
        return replace(known.bounded(1.0, most), box_meaning="one sample to the whole batch")

    def _recoveries(self, continuous: bool) -> list[Variable]:
        """Return the variable of failure recovery where the question names none; over continuous hardware, the last is kept."""
        known = KNOWN["recovery"]
        if self.recovery not in ("", BEST):
            return []
        return [known.bounded(known.upper) if continuous else known]

    def _stated(self, continuous: bool) -> Problem:
        if self._learns and self.trainable_fraction != 1.0:
            raise UserError(f"{self.name}: loss laws hold only if all weights are trained: remove trainable_fraction")
        run = self._run()
        batch = float(run.global_batch_sequences)
        cluster = self._machine(
            continuous, pool=self.pool or None, lines=self.lines or None, any_software=self.any_software
        )
        plan = catalog.plan(
            run,
            1,
            recompute=NONE if self.recompute in ("", BEST) else self.recompute,
            sequence_parallel="yes",
            **self._offloaded(),
        )
        plan = eqx.tree_at(lambda p: p.local_steps, plan, self._local_steps())
        template = Design(run, cluster, plan, self._project())
        # A pool included in the hosts' price is fixed; a pool with a price is sized by the search.
        has_pool = float(cluster.pool.capacity_bytes) > NO_POOL_BYTES
        pooled = _POOL if has_pool and self.offload != NONE and float(cluster.pool.usd_per_byte) > 0.0 else ()
        hardware = self._hardware(template, continuous)
        experts = float(run.model.experts)
        usual = NONE if continuous else BEST
        tiers = tuple(f"{part}_tier" for part in OFFLOADS) if has_pool else ()
        degrees = (variable("ep", 1.0, experts),) if experts > 1 else ()
        budgets = self._budgets()
        problem = Problem(
            name=self.name,
            question=self._question(run, budgets, continuous),
            objective=metric(self.minimised),
            variables=(
                KNOWN["chips"],
                *hardware,
                *(self._micro_batches(run) if name == "micro_batch" else KNOWN[name] for name in (*pooled, *_PLAN)),
                *_chosen(("recompute",), self.recompute, usual),
                *_chosen(tiers, self.offload, usual),
                *(KNOWN[f"{part}_offloaded"] for part in OFFLOADS if has_pool and self.offload in ("", BEST)),
                *self._recoveries(continuous),
                *degrees,
                *self._workload_variables(run.model, batch),
            ),
            budgets=budgets,
            template=template,
            provenance=self._provenance(),
        )
        return with_plan(problem, self.chips, catalog.parse_plan(self.plan) if self.plan else {})

    def _question(self, run: TrainingRun, budgets: tuple[Budget, ...], continuous: bool) -> str:
        """Return the question as a sentence."""
        aim, model = self.aim, run.model
        if self._learns:
            asked = f"as many tokens as it takes, in sequences of {float(run.sequence_length):,.12g}"
        elif isinstance(model, Operators):
            unit = f"{model.unit_of_work}s"
            asked, aim = f"{float(run.tokens / run.tokens_per_unit):.3g} {unit}", aim.replace("tokens", unit)
        else:
            asked = f"{self.tokens:.3g} tokens"
        asked += "" if self._learns else f" in steps of {run.step_words}"
        name = f"{'a model in the proportions of ' if self.shape_is_free else ''}{catalog.named(self.workload)}"
        ramp = self.batch_ramp or catalog.entry_ramp(self.workload)
        asked += "" if ramp in ("", catalog.NO_RAMP) else f", batches {ramp}"
        return f"{aim}: {name}, {asked}, {self._within(budgets, continuous)}"

    def _records(self) -> dict[str, catalog.Record]:
        """Return the catalog entries of any machine, and those that only training uses."""
        records = super()._records() | {"law": catalog.record("laws", self.law)}
        if self.pool:
            records["pool"] = catalog.record("pools", self.pool)
        if self.sites > 1:
            records["lines"] = catalog.record("lines", self.lines or catalog.USUAL_LINES)
        return records
