"""JSON Schemas of machines: plans, reports, costs and certificates. Numbers are as declared in their modules."""

from __future__ import annotations

from hwopt.calibration.evidence import Count, CountKey
from hwopt.model.chip.manufacture import ChipBill
from hwopt.model.chip.silicon import Areas
from hwopt.model.report import GroupReport, Report, ServingReport, TrainingReport, TrainServeReport, outputs
from hwopt.model.serving.footprint import ServingFootprint
from hwopt.model.training.batch_ramp import RampStages
from hwopt.model.training.footprint import Footprint
from hwopt.model.training.schedule import Breakdown
from hwopt.output.schema.elements import (
    INTEGER,
    NUMBER,
    TEXT,
    YES_OR_NO,
    Schema,
    answer,
    by_name,
    declared,
    either,
    fields_of,
    listed,
    maybe,
    record,
    said,
    shared,
    word,
)
from hwopt.plan import Plan
from hwopt.quantity import quantities
from hwopt.solver.solution import Certificate, DesignValue, Outcome
from hwopt.types import PRECISIONS

OUTCOME = said(word(*(each.name for each in Outcome)), "how the search ended")
STATUS = said(word(*dict.fromkeys(each.status for each in Outcome)), "the same in a word")
FEASIBLE = said(YES_OR_NO, "whether every budget and limit holds; exit code 1 where it is false")


def every_output() -> dict[str, Schema]:
    """Return the schemas of all metrics that any report has, by name."""
    kinds = (TrainServeReport, ServingReport, TrainingReport)
    return {name: each for kind in kinds for name, each in declared(kind, outputs(kind)).items()}


MEASURED = record(dict.fromkeys(CountKey._fields, TEXT) | dict.fromkeys(Count._fields, INTEGER))
EVIDENCE = said(record({
    "features": said(listed(MEASURED), "measured rows with each feature of the plan: chips of the largest run, newest year"),
    "unmeasured": said(listed(TEXT), "features that fewer than two studies measured"),
    "beyond": said(listed(TEXT), "sizes above those of every measured run"),
}), "measured runs with the features of the plan; in answers with one plan")  # fmt: skip

COUNTED = {
    "unit_of_work": said(TEXT, "what screens count the work in: token, image, sample"),
    "tokens_per_unit": said(NUMBER, "tokens of one", "token"),
}

Keys = tuple[dict[str, Schema], dict[str, Schema]]


def _report(kind: type[Report], parts: type, further: dict[str, Schema], sometimes: dict[str, Schema]) -> Keys:
    names = [name.removesuffix("_s") for name in Breakdown._fields]
    return {
        "feasible": FEASIBLE,
        "violations": said(by_name(NUMBER), "limits that do not hold, and how far over each, as a share of it"),
        **declared(kind, outputs(kind)),
        **further,
        "breakdown": said(record(fields_of(Breakdown)), "parts of the step, which add up to it", "s"),
        "hidden_s": said(maybe(NUMBER), "time hidden under other work", "s"),
        "memory": said(record(fields_of(parts)), "of the fullest chip", "B"),
        "bottleneck": said(maybe(word(*names)), "the largest part of the step"),
        "margins": said(
            record(dict.fromkeys(quantities(kind.margins_kind), maybe(NUMBER))),
            "log(limit / used) of each limit; null where nothing is used",
        ),
        "low": said(maybe(by_name(NUMBER)), "lower ends of 80 % intervals; null where there is none"),
        "high": said(maybe(by_name(NUMBER)), "upper ends of 80 % intervals"),
        "constants": said(maybe(TEXT), "where the model's constants are from"),
        "mfu_convention": said(TEXT, "what counts as the model's FLOPs"),
        **COUNTED,
    }, sometimes


def _serving_plan(*, chips: bool = False) -> Schema:
    counts = dict.fromkeys(("tp", "pp", "dp", "ep", "expert_tp", "batch"), INTEGER)
    layout: dict[str, Schema] = dict.fromkeys(("sequence_parallel", "weights_gathered", "two_batches"), word("yes"))
    layout |= dict.fromkeys(("expert_slots", "cache_split"), INTEGER)
    return record(counts | ({"chips": INTEGER} if chips else {}), layout)


_PRICES = {
    f"usd_per_million_{name}_tokens": said(
        maybe(NUMBER), f"price of a million {name} tokens in a list of two prices that pays the cost", "USD"
    )
    for name in ("input", "output")
}

TRAINING = _report(TrainingReport, Footprint, {}, {"stages": listed(record(declared(RampStages)))})
SERVING = _report(ServingReport, ServingFootprint, _PRICES, {"groups": by_name(record(declared(GroupReport)))})
"""Keys of a report in two dictionaries: those always present, and the optional ones."""

ROW_OF_BILL = record({"part": TEXT, "count": NUMBER, "unit_price": said(NUMBER, "", "USD"),
                      "power_w": said(NUMBER, "of one", "W"), "source": TEXT})  # fmt: skip

DEFINITIONS: dict[str, Schema] = {
    "training_plan": record(
        {name: said(NUMBER, each.meaning, each.unit) for name, each in quantities(Plan).items()},
    ),
    "serving_plan": either(
        _serving_plan(), record({"prefill": _serving_plan(chips=True), "decode": _serving_plan(chips=True)})
    ),
    "plan": either(
        shared("training_plan"),
        shared("serving_plan"),
        record({"training": shared("training_plan"), "serving": shared("serving_plan")}),
    ),
    "training_report": record(*TRAINING),
    "serving_report": record(*SERVING),
    "report": either(
        shared("training_report"),
        shared("serving_report"),
        record({
            "feasible": FEASIBLE, "violations": by_name(NUMBER), **declared(TrainServeReport, outputs(TrainServeReport)),
            "training": shared("training_report"), "serving": shared("serving_report"),
        }),
    ),
    "certificate": answer(Certificate),
    "bound": record({"lower_bound": maybe(NUMBER), "gap": maybe(NUMBER), "scope": TEXT}),
    "bill": said(listed(ROW_OF_BILL), "parts of the machine, the dearest first"),
    "goal": record({"name": TEXT, "unit": TEXT}, {"value": maybe(NUMBER)}),
    "design": said(by_name(answer(DesignValue)), "variables of the machine and its plan, SI"),
    "chip": maybe(record({
        "peak_flops_per_s": record(dict.fromkeys(PRECISIONS, NUMBER)),
        **dict.fromkeys(("sram_bytes", "hbm_bandwidth_bytes_per_s", "hbm_capacity_bytes", "power_w"), maybe(NUMBER)),
        "areas": record(fields_of(Areas)),
        "wafers": maybe(NUMBER), "embodied_carbon_kg": maybe(NUMBER),
        "bill_usd": record(fields_of(ChipBill) | {"total": maybe(NUMBER)}),
        "price_usd": maybe(NUMBER),
    })),
}  # fmt: skip
