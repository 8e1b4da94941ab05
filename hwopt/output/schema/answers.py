"""JSON Schemas of the answers to design questions: optimize, compare, walls, sensitivity, invest, sources."""

from __future__ import annotations

from hwopt.analysis.sensitivity.optimum import BudgetSensitivity
from hwopt.output.answers.binding_budgets import METRICS as OF_WALLS
from hwopt.output.answers.comparison import METRICS as COMPARED
from hwopt.output.schema.elements import (
    ANY,
    INTEGER,
    NUMBER,
    TEXT,
    YES_OR_NO,
    Schema,
    answer,
    by_name,
    either,
    listed,
    maybe,
    pair,
    record,
    said,
    shared,
    word,
)
from hwopt.output.schema.machines import FEASIBLE, OUTCOME, STATUS, every_output
from hwopt.solver.solution import BudgetUse, Outcome

_NUMBERS = by_name(maybe(NUMBER))
_SOURCES = said(listed(TEXT), "references behind the numbers that were used")

_REPRODUCE = said(TEXT, "command that evaluates this answer again")
REPRODUCED = {"reproduced": said(record({
    "file": TEXT, "numbers": said(INTEGER, "numbers that both have"), "largest_difference": said(NUMBER, "relative"),
    "where": said(TEXT, "place of the largest difference"),
}), "of `estimate --design`: how far the numbers are from those of the file")}  # fmt: skip

_BUDGET = answer(BudgetUse)

_PROMISE = record({
    "confidence": NUMBER, "probability": maybe(NUMBER),
    "probability_with_others": said(maybe(NUMBER), "that the design's own limits (others) hold too, which no search tightens"),
    "draws": INTEGER, "seed": INTEGER, "multiple": maybe(NUMBER),
    "solves": INTEGER,
    "budgets": listed(record({
        "name": TEXT, "probability": maybe(NUMBER), "tightened": maybe(NUMBER), "deviation": maybe(NUMBER), "causes": _NUMBERS,
    })),
    "others": _NUMBERS,
    "causes": listed(record({
        "name": TEXT, "meaning": TEXT, "deviation_down": maybe(NUMBER), "deviation_up": maybe(NUMBER),
    })),
    "without": record({"objective": maybe(NUMBER), "probability": maybe(NUMBER)}),
})  # fmt: skip

_CANDIDATE = record({
    **dict.fromkeys(("objective", "expected_regret", "worst_regret", "worst_share"), maybe(NUMBER)), "worst_at": ANY,
    "design": _NUMBERS,
})  # fmt: skip
_REGRET = record({
    "today": _CANDIDATE, "least_worst": _CANDIDATE,
    "knowing": listed(record({
        "name": TEXT, "meaning": TEXT, "varied": ANY, "saving": maybe(NUMBER), "share": maybe(NUMBER), "proved": YES_OR_NO,
    })),
    "nodes": ANY, "corners": ANY, "designs": ANY, "solves": ANY,
})  # fmt: skip

SOLUTION = record({
    "question": TEXT, "outcome": OUTCOME, "status": STATUS, "message": said(TEXT, "the outcome in a sentence"),
    "feasible": FEASIBLE,
    "objective": shared("goal"), "design": shared("design"),
    "lookups": said(_NUMBERS, "variables that follow from integers of the design, SI; `hwopt estimate --design` reads them"),
    "reproduce": _REPRODUCE, "plan": shared("plan"),
    "chip": said(shared("chip"), "of a chip that was drawn; null of chips as they are sold"),
    "budgets": listed(_BUDGET), "infeasibility": said(TEXT, "which budgets clash, and the least change that mends it; empty"),
    "certificate": shared("certificate"), "bill": shared("bill"),
    "price_of_parts": said(maybe(record({"share": maybe(NUMBER), "relaxed_objective": maybe(NUMBER),
    "relaxed_gap": maybe(NUMBER)})),
                           "what buying in whole units costs over continuous hardware"),
    "alternatives": listed(record({
        "name": TEXT, "meaning": TEXT, "objective": maybe(NUMBER), "gap": maybe(NUMBER), "design": maybe(_NUMBERS),
    })),
    "choices": shared("choices"), "promise": maybe(_PROMISE), "regret": maybe(_REGRET), "report": shared("report"),
    "sources": _SOURCES,
}, {"approximations": said(listed(TEXT), "parts of the workload that an estimate omits"), **REPRODUCED})  # fmt: skip

_PART = record({"value": maybe(NUMBER), "unit": TEXT, "lower": NUMBER, "upper": NUMBER, "at_bound": maybe(TEXT)})
PORTFOLIO = record({
    "question": TEXT, "outcome": OUTCOME, "status": STATUS, "message": TEXT, "feasible": FEASIBLE, "objective": shared("goal"),
    "parts": by_name(_PART),
    "members": listed(record({
        "name": TEXT, "weight": NUMBER, "counted": ANY,
        **dict.fromkeys(("cost_usd", "share", "alone_usd", "alone_lower_bound_usd", "all_on_its_parts_usd",
                         "all_on_its_parts_lower_bound_usd"), maybe(NUMBER)),
        "answer": shared("solution"),
    })),
    "bill": shared("bill"), "infeasibility": TEXT, "certificate": shared("certificate"), "separate_lower_bound": maybe(NUMBER),
    "choices": shared("choices"), "sources": _SOURCES, "reproduce": _REPRODUCE,
}, {"budgets": listed(_BUDGET), **REPRODUCED})  # fmt: skip

OPTIMIZE = either(shared("solution"), PORTFOLIO)

COMPARE = record({
    "objective": maybe(record({"name": TEXT, "unit": TEXT})), "feasible": FEASIBLE,
    "chips": listed(record({
        "chip": TEXT, "outcome": word("refused", *(each.name for each in Outcome)),
        "status": word("refused", *dict.fromkeys(each.status for each in Outcome)), "message": TEXT,
        **dict.fromkeys(("objective", "share_above_best", "lower_bound", "gap", "chips"), maybe(NUMBER)),
        **{name: every_output()[name] for name in COMPARED},
        "binding": listed(TEXT), "price_usd": maybe(NUMBER), "price_kind": maybe(TEXT), "price_range_usd": maybe(pair(NUMBER)),
        "winning_price_usd": maybe(NUMBER), "winning_step_time_share": maybe(NUMBER),
    })),
})  # fmt: skip

WALLS = record({
    "question": TEXT, "objective": shared("goal"), "feasible": FEASIBLE, "message": TEXT,
    "answers": listed(record({
        "lifted": listed(TEXT), "outcome": OUTCOME, "status": STATUS,
        **dict.fromkeys(("objective", "lower_bound", "gap", "chips"), maybe(NUMBER)), "chosen": ANY,
        "budgets": listed(_BUDGET), "chip_time": by_name(NUMBER), "at_limit": listed(TEXT),
    }, {name: every_output()[name] for name in OF_WALLS})),
    "walls": listed(record({
        "budgets": listed(answer(BudgetUse, {"until": maybe(NUMBER)})), "gained": maybe(NUMBER), "proved": YES_OR_NO,
    })),
    "idle": listed(TEXT), "complete": YES_OR_NO,
})  # fmt: skip

_WORTH = record({
    "part": TEXT, "technology": YES_OR_NO, "share": maybe(NUMBER), "saves": maybe(NUMBER), "saves_unit": TEXT,
    "numbers": listed(record({
        "name": TEXT, "value": NUMBER, "unit": TEXT, "better": NUMBER, "elasticity": maybe(NUMBER), "share": maybe(NUMBER),
        "saves": maybe(NUMBER), "saves_unit": TEXT,
    })),
    "idle": listed(TEXT),
})  # fmt: skip
_PARAMETER = record({
    "name": TEXT, "value": NUMBER, "unit": TEXT, "elasticity": said(maybe(NUMBER), "percent of the objective per percent"),
    "one_sided": YES_OR_NO, "low": maybe(NUMBER), "high": maybe(NUMBER), "range_stated": YES_OR_NO, "kind": maybe(TEXT),
    "source": maybe(TEXT), "swing": maybe(NUMBER),
    "effect": record({"low": maybe(NUMBER), "high": maybe(NUMBER), "solved_again": YES_OR_NO}), "design_elasticities": _NUMBERS,
})  # fmt: skip
SENSITIVITY = either(
    record({
        "question": TEXT, "objective": shared("goal"), "plan": shared("plan"), "chips": maybe(NUMBER), "design": maybe(_NUMBERS),
        "scope": TEXT, "proof": TEXT, "worth": listed(_WORTH), "parameters": listed(_PARAMETER),
        "budgets": listed(answer(BudgetSensitivity)),
        "bounds": by_name(record({"side": TEXT, "elasticity": NUMBER})), "nearly_active": maybe(INTEGER),
        "metrics": by_name(record({"value": maybe(NUMBER), "unit": TEXT, "elasticities": _NUMBERS})), "constants": TEXT,
    }, {"choices": shared("choices")}),
    record({"feasible": said({"const": False}, "no answer to be sensitive"), "message": TEXT}),
)  # fmt: skip

_END = record({
    "factor": NUMBER, "objective": maybe(NUMBER), "lower_bound": maybe(NUMBER), "same_plan": YES_OR_NO, "proved": YES_OR_NO,
})  # fmt: skip
_ENDS = pair(maybe(NUMBER))
INVEST = record({
    "question": TEXT, "objective": shared("goal"), "feasible": FEASIBLE, "message": TEXT, "lower_bound": maybe(NUMBER),
    "chosen": ANY,
    "step_time_factors": maybe(pair(NUMBER)),
    "numbers": listed(record({
        "name": TEXT, "words": TEXT, "part": TEXT, "value": NUMBER, "unit": TEXT, "shown": TEXT, "elasticity": maybe(NUMBER),
        "one_more": record({"words": TEXT, "factor": NUMBER, "share": NUMBER, "change": NUMBER}),
        "tenth_better": record({"factor": NUMBER, "share": NUMBER, "saves": NUMBER}),
        "replanned": maybe(record({"between": _ENDS, "saves": _ENDS, "costs": _ENDS, "better": _END, "worse": _END})),
        "known": record({"kind": maybe(TEXT), "low": maybe(NUMBER), "high": maybe(NUMBER), "stated": YES_OR_NO,
        "source": maybe(TEXT)}),
    })),
    "budgets": listed(_BUDGET),
    "unknown": TEXT, "complete": YES_OR_NO,
})  # fmt: skip

SOURCES = record({"question": TEXT, "sources": _SOURCES})

DEFINITIONS: dict[str, Schema] = {"solution": SOLUTION}
