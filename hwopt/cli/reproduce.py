"""`hwopt estimate --design ANSWER.json`: evaluate an answer again, and compare every number with those of the file."""

import argparse
import dataclasses
import json
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote

from hwopt.cli.flags import Flag
from hwopt.cli.question import asked_objective
from hwopt.cli.value_types import PATH
from hwopt.errors import UserError, suggest
from hwopt.units import read_number

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

DESIGN = Flag(
    "--design", "evaluate again the answer in this file, which hwopt optimize or hwopt fleet printed with --json; no other flag "
    "but --json", PATH._replace(metavar="ANSWER.json"),
)  # fmt: skip

EQUAL = 1e-9
"""Largest relative difference of numbers that count as equal: rounding errors, far below the model's accuracy."""

_LOGARITHMS = ("margins", "violations", "max_violation")
"""Keys whose numbers are logarithms; their differences are already relative."""


def reproduce(options: argparse.Namespace) -> "Answer":
    """Evaluate the design of a saved answer again, and compare every number with the saved one."""
    others = [written for name, written in options.given.items() if name not in ("design", "json")]
    if others:
        raise UserError(f"--design states workload, cluster and plan: leave out {others[0]}")
    stated = _read(options.design)
    asked = _command(options.design, stated, options.cli.parse)
    on_page = "setting" in stated and asked.command != "fleet"
    evaluate, point = _KINDS[asked.command]
    try:
        design: tuple[Any, ...] = _point_of_setting(stated) if on_page else point(stated)
    except (KeyError, TypeError, AttributeError, OverflowError):  # malformed file; evaluation errors are not caught
        raise UserError(f"--design {options.design}: its design is not one that {asked.command} prints") from None
    if on_page:
        return _setting(asked, *design, command=options.command_line)
    answer = evaluate(asked, *design)
    differences = dict(_differences(stated, answer.document()))
    where = max(differences, key=lambda name: differences[name], default="")
    largest = differences.get(where, 0.0)
    found = {"file": options.design, "numbers": len(differences), "largest_difference": largest, "where": where}
    words = f"Reproduced: {len(differences)} numbers of {options.design} agree within {largest:.1e} (relative)."
    if largest > EQUAL:
        cause = "the catalog, constants or code have changed"
        words = f"Differs from {options.design} by up to {100 * largest:.2g} % ({where}): {cause}."
    from hwopt.output.answer import Section, Sentences

    said = Section("Reproduced", [Sentences([words], "", "")], titled=False)
    return dataclasses.replace(answer, also={**answer.also, "reproduced": found}, sections=[*answer.sections, said])


_MACHINES = re.compile(r"^const machines = (\[.*\]);\r?$", re.MULTILINE)
"""Machines of a page with sliders, in its script (`hwopt/output/html/live.js`)."""


def _read(path: str) -> dict[str, Any]:
    from hwopt.catalog.load import read_text

    file, _, link = (path, "", "") if Path(path).exists() or "#" not in path else path.rpartition("#")
    # The address bar of a browser has file://, and quotes spaces.
    text = read_text(Path(unquote(file[7:]) if file.startswith("file://") else file))
    page = _MACHINES.search(text)
    try:
        stated = json.loads(page[1] if page else text)
    except (ValueError, RecursionError) as failure:
        page_like = text.lstrip("\ufeff").startswith("<")
        why = "is a page without sliders, or cut off" if page_like else f"is not JSON ({failure})"
        raise UserError(
            f"--design {path}: {why}; name a page of hwopt explore, or what a command printed with --json"
        ) from None
    if page:
        setting = dict(parse_qsl(link, keep_blank_values=True))
        machines = {
            each["name"]: each for each in stated if isinstance(each, dict) and isinstance(each.get("name"), str)
        }
        name = setting.pop("machine", next(iter(machines), ""))
        if name not in machines:
            raise UserError(f"--design: machine '{name}' is not on {file}: {suggest(name, machines)}")
        stated = machines[name] | {"setting": setting}
    if not isinstance(stated, dict):
        raise UserError(
            f"--design {path}: is not an answer; name a file that hwopt optimize or hwopt fleet printed with --json"
        )
    return stated


def _command(
    path: str, stated: Mapping[str, Any], parse: Callable[[list[str]], argparse.Namespace]
) -> argparse.Namespace:
    """Return the options of the command that printed an answer."""
    text = stated.get("command")
    try:
        words = shlex.split(text) if isinstance(text, str) else []
    except ValueError:
        words = []
    if words[:1] != ["hwopt"] or words[1:2] not in ([name] for name in _KINDS) or {"-h", "--help"} & {*words}:
        raise UserError(
            f"--design {path}: names no command that it is the answer of ({' or '.join(_KINDS)}, with --json)"
        )
    try:
        return parse(words[1:])
    except UserError as error:
        raise UserError(f"--design {path}: {error}") from None


def _point_of_optimum(stated: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Return the choices of an answer, and the variables by portfolio member; "" stands for a single question."""
    chosen = next((dict(each["choice"]) for each in stated["choices"] if each["outcome"] == "best"), {})
    answers = {each["name"]: each["answer"] for each in stated["members"]} if "members" in stated else {"": stated}
    return chosen, {name: _values(each) for name, each in answers.items()}


def _with_choices(asked: argparse.Namespace, chosen: Mapping[str, str]) -> Any:
    """Return the question of a command with the choices that its answer made."""
    question: Any = asked_objective(asked)
    if unlike := {
        x for x, to in chosen.items() if not isinstance(to, str) or not isinstance(getattr(question, x, None), str)
    }:
        raise UserError(f"choices: '{min(unlike)}' is not a choice of {asked.objective}")
    return dataclasses.replace(question, **chosen)


def _optimum(asked: argparse.Namespace, chosen: Mapping[str, str], designs: Mapping[str, dict[str, Any]]) -> "Answer":
    from hwopt.calibration.intervals import question_interval
    from hwopt.design.portfolio import portfolio_of
    from hwopt.output.answers.optimum import solution_answer
    from hwopt.output.answers.portfolio import portfolio_answer
    from hwopt.solver.portfolio.solution import evaluate_portfolio
    from hwopt.solver.solution import evaluate_design

    objective = _with_choices(asked, chosen)
    portfolio = portfolio_of(objective)
    if portfolio is not None:
        return portfolio_answer(evaluate_portfolio(portfolio, designs))
    solution = evaluate_design(objective.problem(), designs.get("", {}))
    return solution_answer(solution, question_interval(solution), solution.problem.provenance.mode)


def _values(answer: Mapping[str, Any]) -> dict[str, float]:
    """Return the design variables of a saved answer (SI) by name."""
    return {name: each["value"] for name, each in answer["design"].items()} | answer["lookups"]


def _point_of_fleet(stated: Mapping[str, Any]) -> tuple[list[str], str, list[Any]]:
    """Return chip groups of a saved fleet answer in plan order, their layout (shared batch or layers), and plan values."""
    return [str(each["chip"]) for each in stated["groups"]], str(stated["layout"]), list(stated["leaves"])


def _point_of_setting(machine: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, str], dict[str, str]]:
    """Return the design of a page with sliders, the choices of its answer, and the setting that a link states."""
    start = {each["name"]: float(each["value"]) for each in machine["controls"] if 0.0 < each["value"] < math.inf}
    return start, dict(machine["chosen"].items()), machine["setting"]


def _setting(
    asked: argparse.Namespace,
    start: Mapping[str, float],
    chosen: Mapping[str, str],
    stated: Mapping[str, str],
    command: str,
) -> "Answer":
    """Evaluate a setting of a page with sliders by the exact model. **Arguments:** `command`: that states page and setting."""
    from hwopt.calibration.intervals import question_interval
    from hwopt.design.live_model import LiveModel
    from hwopt.output.answers.optimum import solution_answer
    from hwopt.solver.solution import evaluate_design

    question, controls = _with_choices(asked, chosen).problem(), dict[str, Any]()
    with suppress(KeyError, ArithmeticError):  # malformed page
        controls = {each["name"]: each for each in LiveModel(question, start).controls}
    if not controls or controls.keys() != start.keys():
        raise UserError("--design: the sliders are not those of the command that the page states; write the page again")
    model, setting = LiveModel(question, start), {each: _slider_value(each, x, controls) for each, x in stated.items()}
    if not model.is_buildable(setting):
        raise UserError(
            f"--design: {', '.join(map('='.join, stated.items()))} cannot be built with the other integers of the page"
        )
    question, design = model.stated(setting)
    solution = evaluate_design(question, design)
    return solution_answer(
        solution,
        question_interval(solution),
        solution.problem.provenance.mode,
        reproduce=command.removesuffix(" --json"),
    )


def _slider_value(name: str, text: str, controls: Mapping[str, Any]) -> float:
    """Return the value of a setting, within the range of its slider."""
    if name not in controls:
        raise UserError(f"--design: setting '{name}' is not on this page: {suggest(name, controls)}")
    own, value = controls[name], read_number(text, where=f"--design: setting {name}: ")
    low, high = (own["lower"], own["upper"]) if own["group"] != "limit" else (math.ulp(0.0), math.inf)
    if not low * (1.0 - EQUAL) <= value <= high * (1.0 + EQUAL) or (own["integer"] and value % 1.0):
        kind = "a whole number" if own["integer"] else "a number"
        raise UserError(f"--design: setting {name} = {text}: must be {kind} from {low:g} to {high:g}, as its slider is")
    return value


def _fleet(asked: argparse.Namespace, names: list[str], layout: str, leaves: list[Any]) -> "Answer":
    from hwopt.analysis.fleet.data_parallel import restated
    from hwopt.cli.commands.fleet import FleetRequest, interval
    from hwopt.output.answers.fleet import fleet_answer

    fleet = FleetRequest.of(asked)
    study = restated(fleet.run, fleet.groups, names, layout, leaves, asked.lines, asked.local_steps)
    return fleet_answer(study, fleet.title, interval(fleet.works, study), asked.constants, fleet.document, ())


_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "optimize": (_optimum, _point_of_optimum),
    "explore": (_optimum, _point_of_optimum),
    "fleet": (_fleet, _point_of_fleet),
}


def _differences(stated: Any, found: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield the path and relative difference of each number that both documents contain."""
    if isinstance(stated, Mapping) and isinstance(found, Mapping):
        for key in stated.keys() & found.keys():
            yield from _differences(stated[key], found[key], f"{path}.{key}".lstrip("."))
    elif isinstance(stated, list) and isinstance(found, list):
        for place, pair in enumerate(zip(stated, found, strict=False)):
            yield from _differences(*pair, f"{path}[{place}]")
    elif isinstance(stated, int | float) and isinstance(found, int | float) and not isinstance(stated, bool):
        logarithm = any(key in path for key in _LOGARITHMS)
        difference = abs(stated - found) / (1.0 if logarithm else max(abs(stated), abs(found)) or 1.0)
        yield path, difference if difference <= 1.0 else 1.0  # 1 also stands for an infinite or undefined difference
