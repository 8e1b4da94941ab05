"""JSON Schemas of commands on given machines, of sweeps, measured runs and the catalog."""

from __future__ import annotations

from hwopt.analysis.backup_workers import BackupStudy
from hwopt.analysis.claim_check import Check
from hwopt.analysis.daily_load import DailyLoad
from hwopt.analysis.deploy import DeployAnswer
from hwopt.analysis.fleet.data_parallel import GroupValue
from hwopt.analysis.scaling import Scaling, ScalingStep
from hwopt.calibration.validation.score import CellErrors
from hwopt.model.facility.preemption import SpotReport
from hwopt.model.fleet.data_parallel import FleetReport
from hwopt.model.report import outputs
from hwopt.model.training.schedule import Breakdown
from hwopt.model.training.transfer_learning import Transferred
from hwopt.output.answers.disaggregation import _MEASURES as OF_SPLITS
from hwopt.output.answers.fabrics import METRICS as OF_FABRICS
from hwopt.output.answers.fleet import _OF_GROUP as OF_GROUP
from hwopt.output.answers.scaling import METRICS as OF_SIZES
from hwopt.output.schema.answers import OPTIMIZE, REPRODUCED
from hwopt.output.schema.elements import (
    ANY,
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
    pair,
    record,
    said,
    shared,
    word,
)
from hwopt.output.schema.machines import COUNTED, FEASIBLE, MEASURED, SERVING, TRAINING, every_output
from hwopt.output.text.service import _ASKED as OF_SERVICE

_NUMBERS = by_name(maybe(NUMBER))
_FILES = {"out": said(maybe(TEXT), "folder of the store"), "figures": listed(TEXT)}

_ASKED = {"workload": TEXT, "chip": TEXT, "chips": INTEGER, "precision": TEXT}
_SLICE = {"slice": said(TEXT, "shape of the slices of which a torus consists")}
_ALSO = {
    "decode_chip": TEXT,
    "mode": word("serve", "prefill", "decode"),
    **dict.fromkeys(OF_SERVICE, maybe(NUMBER)),
} | _SLICE
"""Optional keys of the answer for a service."""
_RUN: dict[str, Schema] = {
    **dict.fromkeys(("global_batch", "sequence_length", "training_tokens"), NUMBER),
    "run_words": said(by_name(either(TEXT, NUMBER)), "stated words of the run, such as its dispatcher"),
} | _SLICE
"""Optional keys of the answer for a training run."""


def _machine(own: dict[str, Schema], optional: dict[str, Schema]) -> Schema:
    """Return the JSON Schema of an answer on one machine, for training or serving: the request, a plan and its report.

    **Arguments:** `own`, `optional`: additional required and optional keys.
    """
    kinds = (TRAINING, "training_plan", _RUN), (SERVING, "serving_plan", _ALSO)
    return either(*(
        record(_ASKED | {"plan": shared(plan)} | keys | own, asked | sometimes | optional)
        for (keys, sometimes), plan, asked in kinds
    ))  # fmt: skip


ESTIMATE = _machine({"bill": shared("bill")}, {
    "undocumented": said(listed(TEXT), "what the plan needs and its software does not document"),
    "spot": said(answer(SpotReport), "on preemptible chips, where requested"),
    "backup": said(answer(BackupStudy), "steps without the slowest replicas, where requested"),
    "day": said(answer(DailyLoad), "24 hours, where a curve of them is given"),
    "transfer": said(answer(Transferred), "data that pre-training is worth, where requested"),
})  # fmt: skip

_ALTERNATIVE = record({
    "plan": shared("plan"), "objective": maybe(NUMBER), "excess": said(maybe(NUMBER), "share above the best"),
    **dict.fromkeys(("step_time_s", "mfu", "memory_per_chip_bytes"), maybe(NUMBER)), "bottleneck": TEXT, "binding": by_name(NUMBER),
}, {name: every_output()[name] for name in
    ("tokens_per_s_per_chip", "time_to_first_token_s", "time_per_output_token_s", "users", "cost_per_token_usd")})  # fmt: skip
_SPLIT = record({
    "way": word("colocated", "disaggregated"), "feasible": YES_OR_NO, "missed": by_name(NUMBER), "objective": maybe(NUMBER),
    "excess": maybe(NUMBER), **{name: every_output()[name] for name in OF_SPLITS}, "plan": shared("serving_plan"),
}, {name: every_output()[name] for name in every_output() if name.startswith("time_")} | {
"chip": TEXT, "decode_chip": TEXT, "usd_per_million_input_tokens": maybe(NUMBER),
"usd_per_million_output_tokens": maybe(NUMBER)})  # fmt: skip
_SEARCHED = _machine({
    "objective": shared("goal"), "certificate": shared("bound"),
    "alternatives": said(listed(_ALTERNATIVE), "the next best plans"),
    "examined": said(INTEGER, "plans looked at"), "fitting": said(INTEGER, "plans that fit"),
    "fitting_chips": said(maybe(INTEGER), "chips on which some plan fits, where none does on these"),
}, {
    "choices": shared("choices"), "answer": TEXT, "splits": listed(_SPLIT),
    "limits": listed(record({"name": TEXT, "limit": NUMBER, "value": maybe(NUMBER), "over": maybe(NUMBER)})),
})  # fmt: skip
_EXPORTED = _ASKED | {
    "framework": TEXT, "title": TEXT, "version": TEXT, "notes": listed(TEXT),
    "predicted": said(by_name(NUMBER), "metrics of the plan, by name"),
    "passed": said(TEXT, "why a better plan cannot be launched; empty where none is"),
}  # fmt: skip
_TRAINED = _EXPORTED | {
    "environment": by_name(TEXT), "world_size": INTEGER, "hosts": INTEGER, "start": TEXT,
    "unknown": said(listed(TEXT), "settings that neither plan nor workload states"),
}  # fmt: skip
LAUNCH = either(
    record(_TRAINED | {"arguments": by_name(ANY)}, _RUN),
    record(_TRAINED | {"file": by_name(ANY)}, _RUN),
    record(_EXPORTED | {"groups": listed(record({
        "role": TEXT, "instances": INTEGER, "chips_per_instance": INTEGER, "hosts_per_instance": INTEGER, "command": TEXT,
        "arguments": by_name(ANY), "config": by_name(ANY), "start": TEXT,
    }))}, _ALSO),
)  # fmt: skip
PLAN = either(*_SEARCHED["anyOf"], *LAUNCH["anyOf"])

_GROWTH = answer(ScalingStep, {
    "from_chips": INTEGER, "to_chips": INTEGER, "pays": YES_OR_NO, "causes": by_name(NUMBER), "why": TEXT,
})  # fmt: skip
SCALE = record(_ASKED | {"chips": listed(INTEGER)} | answer(Scaling)["properties"] | {
    "objective": TEXT, "scaling": word("weak", "strong"), "rule": TEXT, "feasible": FEASIBLE, "headline": TEXT,
    "sooner": maybe(TEXT), "knee": maybe(_GROWTH),
    "cheapest": maybe(INTEGER), "soonest": maybe(INTEGER),
    "sizes": listed(record({
        "chips": INTEGER, "feasible": YES_OR_NO, "reason": maybe(TEXT), "violations": by_name(NUMBER),
        "global_batch_sequences": maybe(NUMBER), "tokens_needed": maybe(NUMBER), "plan": maybe(shared("training_plan")),
        **{name: every_output()[name] for name in OF_SIZES}, "step_time_interval_s": maybe(pair(NUMBER)),
        **dict.fromkeys(("run_time_s", "run_cost_usd", "speedup", "efficiency"), maybe(NUMBER)),
        "breakdown": maybe(record(fields_of(Breakdown))), "chip_time_s_per_token": maybe(by_name(NUMBER)),
        "certificate": maybe(shared("bound")), "examined": maybe(INTEGER), "fitting": maybe(INTEGER),
    })),
    "growths": listed(_GROWTH), "constants": maybe(TEXT),
}, _RUN)  # fmt: skip

_FLEET = declared(FleetReport, outputs(FleetReport))
_STEP = record({"step_time_s": maybe(NUMBER)})
FLEET = record({
    "feasible": FEASIBLE, "violations": by_name(NUMBER), **_FLEET, **COUNTED, "low": _STEP, "high": _STEP, "constants": TEXT,
    "layout": said(TEXT, "what groups split: data (sequences) or pipeline (layers)"),
    "other_layout": maybe(record({"layout": TEXT, "feasible": FEASIBLE, "step_time_s": maybe(NUMBER)})),
    "groups": listed(record({
        "chip": TEXT, "chips": maybe(NUMBER), "sequences": maybe(NUMBER), "layers": maybe(NUMBER), "share": NUMBER, "waits": NUMBER,
        **{name: every_output()[name] for name in OF_GROUP}, "standing_usd_per_s": maybe(NUMBER), "plan": shared("training_plan"),
    })),
    "worth": listed(answer(GroupValue)),
    "scope": TEXT, "leaves": said(listed(NUMBER), "numbers of the plan, which `hwopt estimate --design` reads"), "reproduce": TEXT,
}, {"workload": TEXT, "precision": TEXT, "site": TEXT, **REPRODUCED})  # fmt: skip
ESTIMATE = either(*ESTIMATE["anyOf"], *OPTIMIZE["anyOf"], FLEET, *LAUNCH["anyOf"])

_LEVEL = {
    "spread": said(NUMBER, "relative standard deviation of bandwidth"),
    "tail_s": said(NUMBER, "mean tail of latency", "s"),
}
FABRICS = record(_ASKED | {
    "feasible": FEASIBLE, "headline": TEXT, "rule": TEXT, "levels": listed(record({"name": TEXT} | _LEVEL)),
    "cheapest": said(maybe(by_name(TEXT)), "the cheapest machine at each level"),
    "machines": listed(record({
        "name": TEXT, "feasible": YES_OR_NO, "reason": maybe(TEXT),
        "scale_out_bytes_per_s": said(maybe(NUMBER), "of a chip and direction", "B/s"),
        "plan": maybe(shared("training_plan")), "step_time_interval_s": maybe(pair(NUMBER)),
        "levels": maybe(listed(record({
            "level": TEXT, "dearer": said(maybe(NUMBER), "cost of the run over that with even links, less 1"),
            "worth_usd_per_chip": said(maybe(NUMBER), "what evenness may add to a chip's share of the capital", "USD"),
            **{name: every_output()[name] for name in OF_FABRICS},
        }))),
    })),
    "constants": maybe(TEXT),
}, _RUN)  # fmt: skip

DOCS = either(
    record({"topics": said(by_name(TEXT), "title of each page, by topic")}),
    record({"topic": TEXT, "title": TEXT, "text": said(TEXT, "the page, in Markdown")}),
)

CHECK = answer(Check)

DEPLOY = answer(DeployAnswer, dict.fromkeys(("chip", "site", "prices", "market"), TEXT))

_QUANTITIES = by_name(record({"value": maybe(NUMBER), "unit": TEXT}, {"lower": maybe(NUMBER), "upper": maybe(NUMBER)}))
_SHARES = by_name(NUMBER)
SWEEP = either(
    record({
        "question": TEXT, "objective": shared("goal"), **COUNTED, "samples": INTEGER, "cases": listed(TEXT), "method": TEXT,
        "seed": INTEGER,
        "dtype": TEXT, "evaluated": INTEGER, "possible": INTEGER, "feasible_count": INTEGER, "nonfinite": INTEGER, "sampling": TEXT,
        "sampling_note": TEXT,
        **dict.fromkeys(("possible_share", "possible_share_error", "feasible_share", "feasible_share_error"), maybe(NUMBER)),
        "feasible": FEASIBLE,
        "best": listed(record({
            "variant": INTEGER, "case": TEXT, "possible": YES_OR_NO, "feasible": YES_OR_NO, "violation": maybe(NUMBER),
            "objective": maybe(NUMBER), "design": _QUANTITIES, "metrics": _QUANTITIES, "bottleneck": TEXT, "binding": TEXT,
            "budgets": listed(record({"name": TEXT, "used": maybe(NUMBER), "limit": maybe(NUMBER), "unit": TEXT})),
        })),
        "optimum": maybe(record({
            "objective": maybe(NUMBER), "lower_bound": maybe(NUMBER), "certified": YES_OR_NO, "best_above": maybe(NUMBER),
        })),
        "by_case": maybe(listed(record({
            "case": TEXT, "evaluated": INTEGER, "possible": INTEGER, "feasible_count": INTEGER, "objective": maybe(NUMBER),
        }))),
        "front": listed(record({
            "variant": INTEGER, "case": TEXT, "feasible": YES_OR_NO, "bottleneck": TEXT, "metrics": _QUANTITIES,
            "design": _QUANTITIES,
        })),
        "bottlenecks": _SHARES, "stops": record(dict.fromkeys(("impossible", "over_budget", "feasible"), _SHARES)),
        "elasticities": maybe(by_name(record(dict.fromkeys(("median", "low", "high"), maybe(NUMBER))))), **_FILES,
    }),
    record({
        "question": TEXT, "objective": shared("goal"), "budgets": by_name(TEXT), "feasible": FEASIBLE,
        "points": listed({
            "type": "object", "required": ["budgets", "feasible", "certified", "objective"],
            "properties": {"budgets": by_name(NUMBER), "feasible": YES_OR_NO, "certified": YES_OR_NO, "objective": maybe(NUMBER),
                           "choice": TEXT},
            "additionalProperties": maybe(NUMBER),
        }),
        **_FILES,
    }),
)  # fmt: skip

_ERRORS = {name: maybe(NUMBER) for name in CellErrors._fields if name != "rows"} | dict.fromkeys(
    ("baseline_abs_error", "baseline_mean_abs_error"), maybe(NUMBER)
)
_ROW = {"id": ANY, "line": INTEGER, "metric": TEXT, "unit": maybe(TEXT), "measured": maybe(NUMBER),
        **dict.fromkeys(("predicted", "error", "low", "high"), maybe(NUMBER))}  # fmt: skip
VALIDATE = either(
    record({
        "rows": listed(either(
            record(_ROW | {"status": word("skipped"), "reason": TEXT, "detail": ANY}),
            record(_ROW | {
                "status": word("scored"), "reason": maybe(TEXT), "counts": YES_OR_NO, "left_out": maybe(TEXT), "cell": listed(TEXT),
                "accelerator": TEXT, "chips": maybe(NUMBER), "stack": TEXT, "held_out": YES_OR_NO, "assumed": listed(TEXT),
                **dict.fromkeys(("spread", "step_time_s", "memory_per_chip_bytes"), maybe(NUMBER)), "fits": YES_OR_NO,
            }),
        )),
        "summary": record({
            "constants": TEXT, "columns": TEXT, "inferred": listed(TEXT), "rows": INTEGER, "scored": INTEGER, "skipped": INTEGER,
            "superseded": INTEGER, **_ERRORS, "interval_coverage": maybe(NUMBER), "skipped_by_reason": by_name(INTEGER),
            "release_spread": record({"configurations": INTEGER, "median": maybe(NUMBER), "p90": maybe(NUMBER)}),
            "baseline_utilisation": by_name(NUMBER), "by_source": by_name(record({"rows": INTEGER, **_ERRORS})),
            "by_group": by_name(by_name(record(fields_of(CellErrors) | {"interval_coverage": maybe(NUMBER)}))),
        }),
    }),
    record({"columns": listed(TEXT), "essential": listed(TEXT)}),
)  # fmt: skip

_FITTED = record(dict.fromkeys(("cells", "median_abs_error", "mean_abs_error", "time_bias"), maybe(NUMBER)))
CALIBRATE = record({
    "runs": INTEGER, "before": _FITTED, "after": _FITTED, "held_out": maybe(_FITTED), "moved": ANY, "learned": by_name(ANY),
    "next": listed(by_name(ANY)), "notes": listed(TEXT), "operation": maybe(TEXT), "warnings": listed(TEXT), "constants": TEXT,
    "out": maybe(TEXT),
})  # fmt: skip

_STATED = record(
    {"value": NUMBER, "unit": TEXT, "kind": TEXT, "source": TEXT}, {"low": NUMBER, "high": NUMBER, "note": TEXT}
)
CATALOG = either(
    record({"kinds": by_name(INTEGER)}),
    record({"evidence": listed(MEASURED)}),
    record({"kind": TEXT, "entries": by_name(TEXT)}),
    record({"slug": TEXT, "title": TEXT, "text": by_name(ANY), "quantities": by_name(_STATED)},
    {"operators": listed(by_name(ANY)), "layer_kinds": listed(by_name(NUMBER)), "counts": by_name(NUMBER)}),
    record({"file": TEXT, "shape": by_name(NUMBER), "parameters": NUMBER, "active_parameters": NUMBER, "counts": by_name(NUMBER)},
    {"approximations": listed(TEXT), "layer_kinds": listed(by_name(NUMBER))}),
)  # fmt: skip
