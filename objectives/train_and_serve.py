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
from objectives.fields import CHOICES, NO_LIMIT, meanings
from objectives.machine import MachineQuestion
from objectives.serve_cost import ServeCost
from objectives.train_cost import TrainCost
from objectives.training import ANY_SOFTWARE

_SHARED = ("capex_budget_usd", "power_budget_w", "rack_power_budget_w", "chip_power_budget_w", "junction_budget_k",
           "die_area_budget_m2", "tpp_budget", "performance_density_budget_per_m2", "io_rate_budget_bytes_per_s")  # fmt: skip

_BUDGETS = {
    "time_budget_s": "run_time_s",
    "ttft_budget_s": "time_to_first_token_full_batch_s",
    "tpot_budget_s": "time_per_output_token_full_batch_s",
} | {name: MachineQuestion.limited[name] for name in _SHARED}

_CHOICES = (
    CHOICES
    | ANY_SOFTWARE
    | {
        "stack": "software stack for training; default the chip's usual one",
        "serving_stack": "software stack for serving; default the chip's usual one",
        "precision": "number format of training's matrix multiplications: bf16, fp16, fp8, fp4, int8, tf32 or fp32",
        "serving_precision": "number format of serving's matrix multiplications",
        "tokens": "training tokens of the whole run",
        "global_batch": "sequences per training step; default that of the workload",
        "sequence_length": "tokens per training sequence; default that of the workload",
        "batch_ramp": "batch-size schedule of training, each size up to that many tokens: 1024@0.25T,2048; default the workload's",
        "served_tokens": "tokens generated over the life of the service",
        "input_tokens": "mean number of tokens in a prompt",
        "output_tokens": "mean number of tokens in an answer",
        "requests_per_s": "arrival rate of requests, which share the serving machine's cost",
    }
)


@dataclass(frozen=True)
class TrainAndServe(MachineQuestion):
    """The chip that trains a model and then serves it at the lowest total cost.

    minimize    cost of the training run + served tokens x cost of a token
    over        continuous hardware and plan of the training machine; parallel degrees, sequences per replica and replicas of
                the serving machine, which has the same chips, links and racks
    subject to  training time              <= time_budget_s
                time to first token        <= ttft_budget_s
                time between output tokens <= tpot_budget_s
                peak power of both         <= power_budget_w
                any other budget of this question; both plans fit

    Hardware is continuous here, and a parametric chip is possible. For stock chips in whole units, with recomputation and memory
    pools chosen by the search, use a `portfolio` with a joint `capex_budget_usd` and `power_budget_w`. The two differ because
    members of a portfolio share no continuous variable but the clock, and because sweeps, frontiers, sensitivities and chance
    constraints need a single problem.

    Defaults: Llama-3.1-70B on 15 T tokens within 60 days, then a trillion output tokens (2,048 input and 512 output tokens per
    request), 100 requests/s, TTFT within 1 s, TPOT within 30 ms, a peak facility power of 30 MW for both machines.
    """

    workload: str = "llama3.1-70b"
    any_software: bool = False
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

    @property
    def _slices(self) -> Mapping[str, catalog.Slice]:
        """Return no slices: continuous hardware has domains of any size."""
        return {}

    def problem(self) -> Problem:
        """Return the problem over continuous hardware only, since two plans and whole units together would take too long
        to search.

        **Raises:** `UserError` for components to redesign (`free`) or a slice: continuous hardware leaves all of them free.
        """
        if self.free != "none" or self.slice:
            raise UserError(
                f"{f'slice = {self.slice}' if self.slice else f'free = {self.free!r}'}: {self.name} optimizes continuous "
                "hardware, where every component is free: remove it"
            )
        return self._stated(continuous=True)

    def _stated(self, continuous: bool) -> Problem:
        same = self._fields("workload", "chip", "design", "technology", "memory", "free", "site", "fabric", "sites", "cooling",
                            "reliability", "recovery", "storage", "operation", "prices", "constants", "chip_volume",
                            "date")  # fmt: skip
        trained = self._fields(
            "stack",
            "any_software",
            "precision",
            "tokens",
            "global_batch",
            "batch_ramp",
            "sequence_length",
            "chips",
            "plan",
        )
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
            f"then {answers} served, "
            + self._within(budgets, continuous)
            + "".join(training.question.partition("; fixed: ")[1:]),
            objective=metric(self.minimised),
            variables=(*map(of_training, training.variables), *map(of_serving, own)),
            budgets=budgets,
            template=Design(both, cluster, TrainServePlan(plan, serving_plan), project),
            provenance=Provenance(records, self.constants),
            relations=training.relations,
        )
