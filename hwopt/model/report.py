"""Reports that `estimate` returns: named metrics, breakdowns and signed margins, all floating-point arrays."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import equinox as eqx

from hwopt.declared import Result
from hwopt.model.facility.cost import Spending
from hwopt.model.facility.reliability import Interruptions
from hwopt.model.serving.footprint import ServingFootprint
from hwopt.model.training.batch_ramp import RampStages
from hwopt.model.training.footprint import Footprint
from hwopt.model.training.schedule import Breakdown
from hwopt.quantity import Quantity, computed, field_of, quantities
from hwopt.types import Scalar
from hwopt.workload.transformer import TOKEN

FEASIBILITY_TOLERANCE = 1e-6
"""Relative violation that still counts as feasible: rounding of float32 and of products of integers."""


@dataclass(frozen=True)
class Output(Quantity):
    """Metric of a report, with unit and meaning.

    **Arguments:**

    - `meaning`: completes the sentence "the budget limits ...".
    - `paced`: whether the metric is (nearly) proportional to the step time or its reciprocal, as costs are. It then gets the
      prediction interval of the step time.
    - `standing`: whether the metric is also defined for a plan that does not fit.
    - `phases`: phases of serving (prefill, decode) that the metric needs; it is NaN for a machine without them.
    - `bounded`: whether a proof can bound the metric, so that it may be an objective or have a budget.
    - `joint`: rule to combine groups of chips: `SUM`, `MOST` (maximum) or `LEAST` (minimum); empty for none.
    """

    paced: bool = False
    standing: bool = False
    phases: tuple[str, ...] = ()
    bounded: bool = True
    joint: str = ""


SUM, MOST, LEAST = "sum", "most", "least"


def output(unit: str, meaning: str, **settings: Any) -> Any:
    """Declare a metric field of a report. **Arguments:** see `Output`."""
    return field_of(Output(unit, meaning, **settings))


@dataclass(frozen=True)
class Margin(Quantity):
    """Margin of a report: signed distance to a limit, with words for its violation.

    **Arguments:**

    - `meaning`: verb phrase for a violation, with a placeholder `{over}` for its size.
    - `stop`: noun phrase for the violated constraint.
    - `equality`: whether the constraint is an equality. Feasible designs are then always at the limit, so being near it is not
      informative.
    """

    stop: str = ""
    equality: bool = False


def margin(stop: str, over: str, **settings: Any) -> Any:
    """Declare a margin field, `log(limit / used)`.

    **Arguments:**

    - `over`: the `meaning` of a `Margin`.
    - Others: see `Margin`.
    """
    return field_of(Margin("", over, stop=stop, **settings))


class Margins(eqx.Module):
    """Signed logarithmic margins that all machines have, `log(limit / used)`.

    Zero or more is feasible. A margin is infinite where nothing is used.
    """

    memory: Scalar = margin("memory of a chip", "needs {over} more memory than a chip has")
    chips: Scalar = margin(
        "chips that the plan does not use", "uses a number of chips {over} off the cluster's", equality=True
    )
    stages: Scalar = margin("pipeline chunks beyond layers", "has {over} more pipeline chunks than layers")
    tensor_parallel: Scalar = margin(
        "tensor parallelism beyond heads", "splits attention {over} finer than there are heads"
    )
    experts: Scalar = margin("expert parallelism beyond experts", "splits experts {over} finer than there are")
    replicas: Scalar = margin(
        "chips too few for a copy of the experts", "needs {over} more chips a stage to hold one copy of its experts"
    )
    cooling: Scalar = margin(
        "chip hotter than its cooling allows at the lowest clock",
        "draws {over} more than its cooling or power cap allows even at the lowest clock",
    )
    nic: Scalar = margin(
        "NICs faster than the chip's link to them", "has NICs {over} faster than the chip's link to them"
    )
    rack_power: Scalar = margin("rack power", "fills a rack to {over} more power than it can feed or cool")
    rack_cables: Scalar = margin("cables of a rack", "fills a rack with {over} more cables than it has room to bend")
    rack_weight: Scalar = margin("rack weight", "fills a rack to {over} more weight than the floor carries")


class TrainingMargins(Margins):
    """Margins of a training run: those of all machines and further ones."""

    pool: Scalar = margin("memory pool", "offloads {over} more than the memory pool holds")
    sites: Scalar = margin("replicas fewer than sites", "has {over} fewer replicas than there are sites")
    batch: Scalar = margin(
        "global batch too small to fill every replica", "needs a global batch {over} larger to fill every replica"
    )
    context: Scalar = margin("sequence split beyond its tokens", "splits the sequence {over} finer than its tokens")
    failures: Scalar = margin(
        "failures: the run does not get ahead",
        "takes {over} more than twenty times its useful time: failures leave it no way ahead",
    )
    saves: Scalar = margin("saves faster than storage", "saves {over} more often than storage takes its checkpoints")


class ServingMargins(Margins):
    """Margins of a service: those of all machines and the demand. With two groups of chips, each is the smaller one."""

    demand: Scalar = margin(
        "requests beyond what the machine answers", "answers fewer requests than arrive: {over} more arrive"
    )


def _of_a_run(name: str) -> Any:
    """Return a margin field with the meaning that it has in `TrainingMargins`."""
    return field_of(quantities(TrainingMargins)[name])


class FleetMargins(eqx.Module):
    """Margins of a heterogeneous fleet as a whole, in addition to the margins of each group."""

    whole_batch: Scalar = margin(
        "shares that are not the batch", "splits a batch {over} off the run's over its groups", equality=True
    )
    whole_model: Scalar = margin(
        "layers that are not the model's", "splits layers {over} off the model's over its groups", equality=True
    )
    replicas_alike: Scalar = margin(
        "replicas that differ between stages", "has {over} more replicas on some stages than on others", equality=True
    )
    failures: Scalar = _of_a_run("failures")
    saves: Scalar = _of_a_run("saves")


class Report(eqx.Module, Result):
    """Metrics of a machine under a plan, common to all workloads. Every leaf is a floating-point array, scalar unless vmapped.

    - A step is a training step, or a forward pass of a micro-batch in serving. The latter is the time between two tokens of a
      sequence (without speculative decoding), or a prefill pass where nothing is generated.
    - Tokens are those of the training run, generated tokens, or new prompt tokens of a machine for prefill alone.
    """

    mfu_convention: ClassVar[str]  # definition of model FLOPs
    margins_kind: ClassVar[type[Margins]]

    breakdown: Breakdown
    hidden_s: Scalar
    memory: Footprint | ServingFootprint
    spending: Spending
    interruptions: Interruptions  # 1/s, of the job or of one replica
    margins: TrainingMargins | ServingMargins
    bottleneck: Scalar  # index of the largest entry of `breakdown`
    feasible: Scalar  # 1 where every margin is zero or more
    step_time_s: Scalar = output("s", "the time of one step", paced=True)
    tokens_per_s: Scalar = output("token/s", "tokens a second", paced=True)
    tokens_per_s_per_chip: Scalar = output("token/s", "tokens a second and chip", paced=True)
    mfu: Scalar = output("", "model FLOPs over what the peaks of their formats allow", paced=True)
    hfu: Scalar = output("", "the same with all that is computed besides", paced=True)
    model_flops_per_chip_per_s: Scalar = output("FLOP/s", "model FLOPs a second and chip", paced=True)
    memory_per_chip_bytes: Scalar = output("B", "memory of the fullest chip", standing=True)
    memory_capacity_bytes: Scalar = output("B", "memory that a chip has", standing=True)
    clock_ratio: Scalar = output("of nominal", "the clock that the run keeps, mean over its arithmetic", standing=True)
    # Below 0: full load exceeds the power limit, but an actual run may fit.
    clock_margin: Scalar = output(
        "", "log of allowed over drawn power at the clock asked for", standing=True, joint=LEAST
    )
    junction_temperature_k: Scalar = output("K", "the junction's temperature at full load", standing=True, joint=MOST)
    heat_flux_w_per_m2: Scalar = output(
        "W/m2", "heat through the dies under the lid at full load", standing=True, joint=MOST
    )
    chip_power_w: Scalar = output("W", "power of one chip at full load", standing=True, joint=MOST)
    rack_power_w: Scalar = output("W", "power of one rack at full load", standing=True, joint=MOST)
    racks: Scalar = output("", "racks", standing=True, joint=SUM)
    servers: Scalar = output("", "servers or trays", standing=True, joint=SUM)
    lanes: Scalar = output("", "lanes of the domains' links, at the chips", standing=True, joint=SUM)
    nics: Scalar = output("", "ports of NICs", standing=True, joint=SUM)
    switches: Scalar = output("", "switches of the fabric, one used in part counted in part", standing=True, joint=SUM)
    floor_area_m2: Scalar = output("m2", "floor under the racks", standing=True, joint=SUM)
    pue: Scalar = output("", "power at the meter over IT power, mean over the year", standing=True)
    design_pue: Scalar = output("", "the same on the design day", standing=True)
    power_w: Scalar = output("W", "average power at the meter")
    hot_spares: Scalar = output("chip", "chips that stand started beside those that work", standing=True, joint=SUM)
    peak_power_w: Scalar = output(
        "W", "power at the meter on the design day, every chip at full load", standing=True, joint=SUM
    )
    site_power_w: Scalar = output(
        "W", "power at the meter of one of several sites, at full load", standing=True, joint=SUM
    )
    goodput: Scalar = output("", "share of time that failures leave")
    mean_time_between_failures_s: Scalar = output("s", "time between failures")
    # The following metrics include time lost to failures.
    energy_per_token_j: Scalar = output("J/token", "energy of one token")
    carbon_per_token_kg: Scalar = output("kg/token", "carbon of one token")  # operational and embodied
    capex_usd: Scalar = output("USD", "capital cost of equipment and building", standing=True, joint=SUM)
    cost_per_token_usd: Scalar = output("USD/token", "cost of one token", paced=True)
    chip_usd_per_s: Scalar = output("USD/s", "cost of a chip in use with its share of all else, by the second")
    silicon_area_m2: Scalar = output("m2", "die area of one chip", standing=True, joint=MOST)
    total_processing_performance: Scalar = output(
        "", "TPP of a chip: most of dense TOPS times bits", standing=True, joint=MOST
    )
    performance_density_per_m2: Scalar = output(
        "1/m2", "TPP over the area of a chip's logic dies", standing=True, joint=MOST
    )
    io_rate_bytes_per_s: Scalar = output(
        "B/s", "what a chip exchanges with others, both directions together", standing=True, joint=MOST
    )
    hbm_stacks: Scalar = output("stack", "HBM stacks of the cluster", standing=True, joint=SUM)
    package_area_m2: Scalar = output("m2", "interposer area of the cluster", standing=True, joint=SUM)
    wafers: Scalar = output("wafer", "wafers of the cluster", standing=True, joint=SUM)
    parameters: Scalar = output("", "parameters of the model", standing=True)
    active_parameters: Scalar = output("", "parameters that one token meets", standing=True)

    def bottleneck_name(self) -> str:
        """Return the name of the largest part of the step. Only for concrete reports that are not vmapped."""
        return Breakdown._fields[int(self.bottleneck)].removesuffix("_s")

    @classmethod
    def margin_names(cls) -> tuple[str, ...]:
        """Return the names of all margins of this report class."""
        return tuple(quantities(cls.margins_kind))

    def margins_by_name(self) -> dict[str, Scalar]:
        """Return all margins of the report by name. The report is feasible where none is negative."""
        return {name: getattr(self.margins, name) for name in self.margin_names()}

    def violations(self) -> dict[str, float]:
        """Return the violated constraints of a concrete report: name -> relative excess over the limit."""
        return violations(self.margins_by_name())


class TrainingReport(Report):
    """Report of a training run.

    With a batch ramp, the step, its breakdown and memory are those of the last stage, which needs the most memory. Throughput,
    utilization, power, energy, carbon and cost are means over the run.
    """

    mfu_convention: ClassVar[str] = "causal: half the score matrix counts; recomputation counts in hfu only"
    margins_kind: ClassVar[type[Margins]] = TrainingMargins

    pool_per_chip_bytes: Scalar = output("B", "what is offloaded to the memory pool, a chip", standing=True)
    checkpoint_interval_s: Scalar = output("s", "time between checkpoints")
    run_time_s: Scalar = output("s", "the time of the whole run", paced=True)
    run_cost_usd: Scalar = output("USD", "the cost of owning the cluster while the run lasts", paced=True)
    run_energy_j: Scalar = output("J", "energy at the meter over the run")
    run_carbon_kg: Scalar = output("kg", "carbon of the run, embodied share included")
    loss: Scalar = output("nat", "loss after the run")  # per token, by the run's loss law
    tokens_per_unit: Scalar = computed("token", "of one unit of work")
    unit_of_work: str = eqx.field(static=True, default=TOKEN)  # a token of text, else a sample (image, click)
    stages: RampStages | None = None  # only with a batch ramp


def _percentile(level: int, what: str, phase: str) -> Any:
    """Declare a latency percentile in the busiest hour, infinite where the queue grows without bound.

    **Arguments:**

    - `level`: percentage of requests below the latency.
    - `what`: name of the latency in the field's meaning.
    - `phase`: phase of serving that the latency needs.
    """
    return output("s", f"the time {what} that {level} of 100 requests stay below in the busiest hour", phases=(phase,))


class GroupReport(eqx.Module):
    """Report of one of two groups of different chips in disaggregated serving: the prefill or the decode group."""

    group_chips: Scalar = output("chip", "chips of a group", standing=True)
    group_servers: Scalar = output("", "servers or trays of a group", standing=True)
    in_use: Scalar = output("", "share of what a group could answer that it is asked for")
    fullest_bytes: Scalar = output("B", "memory of its fullest chip", standing=True)
    capacity_bytes: Scalar = output("B", "memory that a chip of it has", standing=True)
    full_load_w: Scalar = output("W", "power of one chip at full load", standing=True)
    mean_power_w: Scalar = output("W", "average power at the meter")
    peak_power_w: Scalar = output("W", "power at the meter on the design day, every chip at full load", standing=True)
    capex_usd: Scalar = output("USD", "capital cost of equipment and building", standing=True)
    usd_per_s: Scalar = output("USD/s", "cost of a group by the second")


class ServingReport(Report):
    """Report of a service.

    Metrics of a phase (prefill, decode) that a machine does not do are NaN. So is the KV-cache transfer with one group of
    chips.
    """

    mfu_convention: ClassVar[str] = (
        "2 FLOP a weight and token, attention over the tokens before it; what is drafted in vain counts in hfu only"
    )
    margins_kind: ClassVar[type[Margins]] = ServingMargins

    requests_per_s: Scalar = output("request/s", "requests a second", paced=True)
    capacity_requests_per_s: Scalar = output("request/s", "requests a second that the machine could answer")
    # Latencies are those of the busiest hour. Those of a full batch hold in any hour and leave out waiting for a slot.
    time_to_first_token_s: Scalar = output(
        "s", "the mean time to the first token in the busiest hour", phases=("prefills",), bounded=False
    )
    time_per_output_token_s: Scalar = output(
        "s", "the mean time between tokens in the busiest hour", paced=True, phases=("decodes",), bounded=False
    )
    request_time_s: Scalar = output(
        "s",
        "the mean time of a request to the end of its answer in the busiest hour",
        phases=("prefills", "decodes"),
        bounded=False,
    )
    time_to_first_token_full_batch_s: Scalar = output(
        "s", "the time to the first token of a full batch, without a wait for a slot", paced=True, phases=("prefills",)
    )
    time_per_output_token_full_batch_s: Scalar = output(
        "s", "the time between tokens while every slot is taken", paced=True, phases=("decodes",)
    )
    request_time_full_batch_s: Scalar = output(
        "s",
        "the time from a request to the end of its answer in full batches",
        paced=True,
        phases=("prefills", "decodes"),
    )
    time_to_first_token_p50_s: Scalar = _percentile(50, "to the first token", "prefills")
    time_to_first_token_p95_s: Scalar = _percentile(95, "to the first token", "prefills")
    time_to_first_token_p99_s: Scalar = _percentile(99, "to the first token", "prefills")
    time_per_output_token_p50_s: Scalar = _percentile(50, "between tokens", "decodes")
    time_per_output_token_p95_s: Scalar = _percentile(95, "between tokens", "decodes")
    time_per_output_token_p99_s: Scalar = _percentile(99, "between tokens", "decodes")
    busiest_load: Scalar = output("", "requests of the busiest hour over what the machine can answer")
    users: Scalar = output(
        "", "sequences that are being generated in the busiest hour", phases=("decodes",), bounded=False
    )
    users_per_w: Scalar = output(
        "1/W",
        "sequences that are being generated in the busiest hour, a watt of average power",
        phases=("decodes",),
        bounded=False,
    )
    floor_time_s: Scalar = output(
        "s", "reading weights and cache once, over the bandwidth of the chips that share them"
    )
    kv_transfer_s: Scalar = output("s", "moving a prompt's keys and values between two groups of chips")
    # The cost of a request is split between phases by machine time.
    cost_per_input_token_usd: Scalar = output(
        "USD/token", "prefill's share of the cost, a new input token", phases=("prefills",)
    )
    cost_per_output_token_usd: Scalar = output(
        "USD/token", "decode's share of the cost, an output token", phases=("decodes",)
    )
    prefill_chips: Scalar = output("chip", "chips for prefill alone", standing=True)
    decode_chips: Scalar = output("chip", "chips that generate answers", standing=True)
    groups: dict[str, GroupReport] | None = None  # only with two chip types


class TrainServeReport(eqx.Module, Result):
    """Report of a training machine and a serving machine with the same chip. Totals are sums over both machines."""

    training: TrainingReport
    serving: ServingReport
    feasible: Scalar
    bottleneck: Scalar  # of the training step
    lifetime_cost_usd: Scalar = output("USD", "the cost of training and of all tokens served")
    lifetime_energy_j: Scalar = output("J", "energy of training and of all tokens served")
    run_time_s: Scalar = output("s", "the time of the whole run")
    run_cost_usd: Scalar = output("USD", "the cost of owning the cluster while the run lasts")
    time_to_first_token_s: Scalar = output("s", "the mean time to the first token in the busiest hour", bounded=False)
    time_per_output_token_s: Scalar = output("s", "the mean time between tokens in the busiest hour", bounded=False)
    time_to_first_token_full_batch_s: Scalar = output("s", "the time to the first token of a full batch")
    time_per_output_token_full_batch_s: Scalar = output("s", "the time between tokens while every slot is taken")
    cost_per_token_usd: Scalar = output("USD/token", "cost of one token")
    requests_per_s: Scalar = output("request/s", "requests a second")
    capex_usd: Scalar = output("USD", "capital cost of equipment and building", standing=True)
    peak_power_w: Scalar = output("W", "power at the meter with every chip at full load", standing=True)
    clock_ratio: Scalar = output("of nominal", "the clock that the run keeps, mean over its arithmetic", standing=True)
    clock_margin: Scalar = output("", "log of allowed over drawn power at the clock asked for", standing=True)
    junction_temperature_k: Scalar = output("K", "the junction's temperature at full load", standing=True)
    chip_power_w: Scalar = output("W", "power of one chip at full load", standing=True)
    rack_power_w: Scalar = output("W", "power of one rack at full load", standing=True)
    silicon_area_m2: Scalar = output("m2", "die area of one chip", standing=True)
    total_processing_performance: Scalar = output("", "TPP of a chip: most of dense TOPS times bits", standing=True)
    performance_density_per_m2: Scalar = output("1/m2", "TPP over the area of a chip's logic dies", standing=True)
    io_rate_bytes_per_s: Scalar = output(
        "B/s", "what a chip exchanges with others, both directions together", standing=True
    )

    @classmethod
    def margin_names(cls) -> tuple[str, ...]:
        """Return the names of all margins, with the prefix `training.` or `serving.`."""
        parts = {"training": TrainingReport, "serving": ServingReport}
        return tuple(f"{part}.{name}" for part, kind in parts.items() for name in kind.margin_names())

    def margins_by_name(self) -> dict[str, Scalar]:
        """Return the margins of both machines by name, with the prefix `training.` or `serving.`."""
        parts = {"training": self.training, "serving": self.serving}
        return {f"{part}.{name}": x for part, report in parts.items() for name, x in report.margins_by_name().items()}

    def violations(self) -> dict[str, float]:
        """Return the violated constraints of a concrete report: name -> relative excess over the limit."""
        return violations(self.margins_by_name())


AnyReport = TrainingReport | ServingReport | TrainServeReport


class StageReport(eqx.Module):
    """Report of a group of chips that runs some stages of a pipeline over several groups."""

    margins: TrainingMargins
    feasible: Scalar
    memory: Footprint
    layers: Scalar
    stages: Scalar
    step_time_s: Scalar  # time of its fullest stage for all micro-batches, including sends
    mfu: Scalar  # utilization by its own layers over the whole step
    memory_per_chip_bytes: Scalar
    memory_capacity_bytes: Scalar
    power_w: Scalar
    peak_power_w: Scalar
    capex_usd: Scalar
    clock_ratio: Scalar

    def margins_by_name(self) -> dict[str, Scalar]:
        """Return all margins of these stages by name. The stages are feasible where none is negative."""
        return {name: getattr(self.margins, name) for name in quantities(TrainingMargins)}


def outputs(kind: type) -> dict[str, Output]:
    """Return the declared metrics (`Output`) of a report class by name."""
    return {name: each for name, each in quantities(kind).items() if isinstance(each, Output)}


_LARGEST_EXPONENT = 700.0
"""Logarithm at which violations are clipped, because the exponential overflows float64 at 709."""


def violations(margins: dict[str, Scalar]) -> dict[str, float]:
    """Return the violated ones of concrete margins: name -> relative excess over the limit."""
    over = {name: -float(value) for name, value in margins.items()}
    return {
        name: math.expm1(min(value, _LARGEST_EXPONENT)) for name, value in over.items() if value > FEASIBILITY_TOLERANCE
    }


def declared_margins() -> dict[str, Margin]:
    """Return the declarations of all margins of all report classes by name."""
    return {
        name: each
        for kind in (FleetMargins, TrainingMargins, ServingMargins)
        for name, each in quantities(kind).items()
    }  # pyright: ignore


def over_words(name: str, over: float) -> str:
    """Return a violated constraint in words with its amount.

    **Arguments:**

    - `name`: name of the margin, as in `margins_by_name`.
    - `over`: relative excess over the limit.
    """
    part, _, plain = name.rpartition(".")
    share = f"{100 * over:,.0f} %" if over >= 1.0 else f"{100 * over:.3g} %"
    words = declared_margins()[plain].meaning.format(over=share)
    return f"{part}: {words}" if part else words
