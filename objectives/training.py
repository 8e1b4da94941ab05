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
from hwopt.design.variables import KNOWN, Variable, variable
from hwopt.errors import UserError, suggest
from hwopt.hardware.peripherals import NO_POOL_BYTES
from hwopt.units import separated
from hwopt.workload.operators import Operators
from hwopt.workload.training import TrainingRun
from hwopt.workload.transformer import Transformer
from objectives.machine import BUDGETS, CHOICES, NO_LIMIT, MachineQuestion, meanings

BATCH_ROOM = 0.05
"""Relative range of the global batch around the specified one, so that it divides among the replicas (assumption: the
critical batch is not known more precisely)."""

BEST, NONE = "best", "none"
"""Settings of recomputation and offloading: chosen by the search, or disabled.

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

_CHOICES = CHOICES | {
    "pool": "memory beyond HBM, else what the chip's servers have",
    "offload": "what is offloaded to the pool: none, or optimizer, activations, weights, with + between; best: the search "
    "chooses, the default in whole units; else none",
    "lines": "WAN links between sites, else continental",
    "local_steps": "steps between exchanges of sites; 1 is synchronous",
    "law": "how loss follows from parameters, tokens and batch",
    "recompute": "activations computed again in the backward pass: none, selective, full; best: the "
    "search chooses, the default in whole units; else none",
    "sequence_length": "tokens a sequence; 0: the workload's own",
    "checkpoint_interval_s": "seconds of work between checkpoints; 0: the interval that loses least",
    "tokens": "tokens of the whole run, unless a loss is targeted",
    "unique_tokens": "unique tokens available: a longer run repeats them, and learns less from each repetition; 0: the "
    "stock of public text",
    "trainable_fraction": "share of the weights that train; adapters such as LoRA: 0.003",
    "global_batch": "sequences per step, unless a loss is targeted; 0: the workload's own",
    "batch_ramp": "batch sizes at the start, each up to that many tokens of the run (if a loss is targeted, per cent of "
    "them): 1024@0.25T,2048@2.8T,4096; the last is the global batch; default the workload's ramp, else none",
}

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
    sequence_length: float = 0.0
    checkpoint_interval_s: float = 0.0
    time_budget_s: float = NO_LIMIT
    cost_budget_usd: float = NO_LIMIT
    energy_budget_j: float = NO_LIMIT
    carbon_budget_kg: float = NO_LIMIT
    loss_budget: float = NO_LIMIT

    trains: ClassVar[bool] = True
    shape_is_free: ClassVar[bool] = False  # whether width and depth of the model are variables too
    limited: ClassVar[Mapping[str, str]] = _BUDGETS
    meanings: ClassVar[Mapping[str, str]] = meanings(_CHOICES, _BUDGETS)

    def _offloaded(self) -> dict[str, float]:
        """Return the fields of the plan for the parts in the memory pool, each with a share of 1."""
        parts = [] if self.offload in ("", BEST, NONE) else separated("offload", self.offload, "+")
        for part in parts:
            if part not in OFFLOADS:
                raise UserError(
                    f"offload = {self.offload!r}: {suggest(part, (NONE, BEST, *OFFLOADS))}; several with + between"
                )
        return {f"{part}_offloaded": 1.0 for part in parts}

    def _local_steps(self) -> np.ndarray:
        """Return the number of steps between exchanges of sites, an integer; above 1 only with several sites."""
        steps = self.local_steps
        if steps < 1.0 or steps != round(steps) or (steps > 1.0 and self.sites == 1.0):
            raise UserError(f"local_steps = {steps:g} must be an integer, and more than 1 only between 2 sites or more")
        return np.asarray(steps, np.float64)

    def _check_ramp(self) -> None:
        """Refuse a ramp in tokens where the number of tokens is free."""
        text = self.batch_ramp or catalog.entry_ramp(self.workload)
        ramp = catalog.stated_ramp(text)
        if ramp is not None and self._learns and not all(ramp.of_run):
            raise UserError(
                f"batch_ramp = {text!r}: {self.name} chooses how many tokens there are: say in shares of them "
                f"how long batches are kept, such as {ramp.batches[0]}@10%"
            )

    @property
    def _learns(self) -> bool:
        """Return whether the loss is the objective or has a budget."""
        return self.minimised == "loss" or self.loss_budget != NO_LIMIT

    def _workload_variables(self, model: Transformer, batch: float) -> tuple[Variable, ...]:
        """Return the variables of batch, tokens and model shape.

        If the loss does not matter, only the batch is variable, within `BATCH_ROOM` of the specified one. Otherwise
        tokens and a wide range of batch sizes are free, and possibly the model's shape.
        """
        if not self._learns:
            low, high = (1 - BATCH_ROOM) * batch, (1 + BATCH_ROOM) * batch
            return (variable("global_batch_sequences", low, high),)
        shape = (width(model), KNOWN["layers"]) if self.shape_is_free else ()
        return (variable("global_batch_sequences", 64.0, 65536.0), KNOWN["tokens"], *shape)

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
                    f"{self.name}: no loss law applies to {self.workload}, which predicts no text: state tokens"
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
        )

    def _micro_batches(self, run: TrainingRun) -> Variable:
        """Return the variable of the micro-batch: a few sequences of text, or any part of a batch of images or clicks."""
        known = KNOWN["micro_batch"]
        if not isinstance(run.model, Operators):
            return known
        most = max(known.upper, (1.0 + BATCH_ROOM) * float(run.global_batch_sequences))
        return replace(known.bounded(1.0, most), box_meaning="one sample to the whole batch")

    def _stated(self, continuous: bool) -> Problem:
        if self._learns and self.trainable_fraction != 1.0:
            raise UserError(
                f"{self.name}: laws of loss are of models all of whose weights train: leave trainable_fraction out"
            )
        run = self._run()
        batch = float(run.global_batch_sequences)
        cluster = self._machine(continuous, pool=self.pool or None, lines=self.lines or None)
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
        return Problem(
            name=self.name,
            question=self._question(run, budgets, continuous),
            objective=metric(self.minimised),
            variables=(
                KNOWN["chips"],
                *hardware,
                *(self._micro_batches(run) if name == "micro_batch" else KNOWN[name] for name in (*pooled, *_PLAN)),
                *_chosen(("recompute",), self.recompute, usual),
                *_chosen(tiers, self.offload, usual),
                *degrees,
                *self._workload_variables(run.model, batch),
            ),
            budgets=budgets,
            template=template,
            provenance=self._provenance(),
        )

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
