from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from hwopt import catalog
from hwopt.design.design import Design
from hwopt.design.metrics import metric
from hwopt.design.problem import Problem
from hwopt.design.provenance import Provenance
from hwopt.design.variables import of_serving, of_training
from hwopt.errors import UserError
from hwopt.plan import TrainServePlan
from hwopt.units import pretty
from hwopt.workload.train_serve import TrainServe
from objectives.machine import CHOICES, NO_LIMIT, MachineQuestion, meanings
from objectives.serve_cost import ServeCost
from objectives.train_cost import TrainCost

_SHARED = ("capex_budget_usd", "power_budget_w", "rack_power_budget_w", "chip_power_budget_w", "junction_budget_k",
           "die_area_budget_m2", "tpp_budget", "performance_density_budget_per_m2", "io_rate_budget_bytes_per_s")  # fmt: skip

_BUDGETS = {
    "time_budget_s": "run_time_s",
    "ttft_budget_s": "time_to_first_token_s",
    "tpot_budget_s": "time_per_output_token_s",
} | {name: MachineQuestion.limited[name] for name in _SHARED}

_CHOICES = CHOICES | {
    "stack": "software that trains",
    "serving_stack": "software that serves, else what usually does on the chip",
    "precision": "of training's GEMMs",
    "serving_precision": "of serving's GEMMs",
    "tokens": "of the training run",
    "global_batch": "sequences a training step; 0: the workload's own",
    "sequence_length": "tokens a sequence of training; 0: the workload's own",
    "batch_ramp": "batches that training starts with, each until that many of its tokens: 1024@0.25T,2048",
    "served_tokens": "generated over the life of the service",
    "input_tokens": "of the mean prompt",
    "output_tokens": "of the mean answer",
    "requests_per_s": "that arrive, and pay for the machine that serves",
}


@dataclass(frozen=True)
class TrainAndServe(MachineQuestion):
    """One chip that trains a model and then serves it: the least cost of both.

    minimise    cost of the training run + tokens served x cost of a token
    over        as `train_cost`, for the machine that trains; tensor, expert and pipeline parallel degrees, sequences and
                replicas of the machine that serves, of the same chips, links and racks
    subject to  training time              <= time_budget_s
                time to first token        <= ttft_budget_s
                time between output tokens <= tpot_budget_s
                peak power of both         <= power_budget_w
                and whatever else of `MachineQuestion` is limited; both plans fit

    It is no `portfolio` of two: continuous hardware and drawn chips are continuous parts, of which members of a portfolio share
    the clock alone, and sweeps, frontiers, sensitivities and promises take one problem. The same of a chip as sold, in whole
    parts, with recomputation and memory pools to choose, is a `portfolio` with `capex_budget_usd` and `power_budget_w` for both.

    Defaults: Llama-3.1-70B on 15 T tokens in 60 days, then a trillion tokens of answers (2,048 tokens in, 512 out), the first
    token within 1 s and the others every 30 ms, 100 requests a second, 30 MW at the meter for both machines.
    """

    workload: str = "llama3.1-70b"
    serving_stack: str = ""
    serving_precision: str = "fp8"
    tokens: float = 15e12
    global_batch: float = 0.0
    batch_ramp: str = ""
    sequence_length: float = 0.0
    served_tokens: float = 1e12
    input_tokens: float = 2048.0
    output_tokens: float = 512.0
    requests_per_s: float = 100.0
    time_budget_s: float = 60 * 86400.0
    ttft_budget_s: float = 1.0
    tpot_budget_s: float = 0.03
    power_budget_w: float = 30e6
    capex_budget_usd: float = NO_LIMIT

    name: ClassVar[str] = "train_and_serve"
    minimised: ClassVar[str] = "lifetime_cost_usd"
    aim: ClassVar[str] = "One chip to train and to serve"
    limited: ClassVar[Mapping[str, str]] = _BUDGETS
    meanings: ClassVar[Mapping[str, str]] = meanings(_CHOICES, _BUDGETS)

    def problem(self) -> Problem:
        """Return the problem over continuous hardware only, since two plans and whole units together would take too long
        to search.

        **Raises:** `UserError` for any components to redesign (`free`): continuous hardware leaves all of them free.
        """
        if self.free != "none":
            raise UserError(
                f"free = {self.free!r}: {self.name} is asked over continuous hardware, where all of it is free"
            )
        return self._stated(continuous=True)

    def _stated(self, continuous: bool) -> Problem:
        same = self._fields("workload", "chip", "design", "technology", "memory", "free", "site", "fabric", "sites", "cooling",
                            "reliability", "recovery", "storage", "operation", "prices", "constants", "chip_volume")  # fmt: skip
        trained = self._fields("stack", "precision", "tokens", "global_batch", "batch_ramp", "sequence_length")
        served = self._fields("input_tokens", "output_tokens", "requests_per_s")
        training = TrainCost(**same, **trained)._stated(continuous)
        serving = ServeCost(**same, **served, stack=self.serving_stack, precision=self.serving_precision)._stated(
            continuous
        )
        budgets = self._budgets()
        run, cluster, plan, project = training.template
        service, serves, serving_plan, _ = serving.template
        both = TrainServe(run, service, serves.stack, catalog.leaf(self.served_tokens))
        own = [each for each in serving.variables if each.category in ("plan", "size", "lookup")]
        answers = pretty(self.served_tokens, "token")
        records = {**training.provenance.records, "serving_stack": serving.provenance.records["stack"]}
        if self.export_rule:
            records["export_rule"] = catalog.record("export_rules", self.export_rule)
        return Problem(
            name=self.name,
            question=f"{self.aim}: {catalog.named(self.workload)}, {self.tokens:.3g} tokens in steps of {run.step_words}, "
            f"then {answers} served, " + self._within(budgets, continuous),
            objective=metric(self.minimised),
            variables=(*map(of_training, training.variables), *map(of_serving, own)),
            budgets=budgets,
            template=Design(both, cluster, TrainServePlan(plan, serving_plan), project),
            provenance=Provenance(records, self.constants),
        )
