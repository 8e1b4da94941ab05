"""`hwopt fleet`: one training run on several types of chips; exit code 1 where it does not fit."""

import argparse
import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hwopt import escape
from hwopt.cli.cluster_flags import CLUSTER, MACHINE, RUN, TRAINING
from hwopt.cli.commands.sensitivity import FIGURE
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.value_types import INTEGER, PATH, TEXT, ValueType, integer, one_of
from hwopt.errors import UserError, suggest

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

_OTHERS = ("--mode", "--chips", "--chip", "--sites", "--lines", "--batch-ramp")


def _groups(flag: str, text: str) -> dict[str, int]:
    """Read comma-separated groups, `chip:chips`."""
    found: dict[str, int] = {}
    for part in text.split(","):
        name, colon, count = (each.strip() for each in part.rpartition(":"))
        if not (colon and name and count):
            raise UserError(f"{flag} {text}: write CHIP:NUMBER, such as h100-sxm:1024,a100-80:2048")
        if name in found:
            raise UserError(f"{flag} {text}: duplicate chip '{name}'")
        found[name] = INTEGER.read(flag, count)
    return found


FLAGS = (
    Flag("file", "a .toml file with the run and its [[groups]]: chip, chips, plan and other settings of each group "
         "(optional)", PATH),
    Flag("--groups", "number of chips of each type: h100-sxm:1024,a100-80:2048", ValueType("CHIP:CHIPS", _groups)),
    Flag("--lines", "wide-area links if each group is a separate site: continental, ... (default: one site)", TEXT),
    Flag("--local-steps", "steps between gradient exchanges of the sites", INTEGER, 1),
    Flag("--layout", "how groups share the work: data (sequences of a batch), pipeline (layers of one pipeline), or best "
         "(the faster)",
         one_of("best", "data", "pipeline"), "best"),
    *(replace(each, modes=None, needed=False) for each in CLUSTER
      if each.modes in (None, TRAINING) and each.name not in _OTHERS),
    replace(FIGURE, meaning="also plot share and idle time of each group, to this image file"),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: shares, plans, marginal value of each "
         "group, sources"),
)  # fmt: skip

_OF_GROUP = {each.attribute: each for each in MACHINE if each.modes is None}
_OF_RUN = {
    each.attribute: each
    for each in FLAGS
    if each.name.startswith("--") and each.name not in ("--groups", "--figure", "--report")
}
_KEYS = ("chip", "chips", "plan", *_OF_GROUP)


@dataclass(frozen=True)
class FleetRequest:
    """Fleet as specified by flags or a file.

    **Arguments:** `works` and `groups`: requests and chip groups, both in the stated order.
    """

    options: argparse.Namespace
    works: list[Any]
    groups: list[Any]

    @classmethod
    def of(cls, options: argparse.Namespace) -> "FleetRequest":
        """Read the groups of the flags, or of the file that they name."""
        stated = _stated(options)
        if options.workload is None:
            raise UserError("--workload is needed: hwopt fleet --workload llama3-70b --groups h100-sxm:512,a100-80:512")
        works = [_work(options, each) for each in stated]
        return cls(options, works, [_group(work, each) for work, each in zip(works, stated, strict=True)])

    @property
    def run(self) -> Any:
        """Return the training run that all groups share."""
        return self.works[0].workload

    @property
    def counts(self) -> dict[str, int]:
        """Return the number of chips by chip type."""
        return {each.name: round(float(each.cluster.chips)) for each in self.groups}

    @property
    def title(self) -> str:
        """Return the question in words, as a title."""
        from hwopt import catalog

        options = self.options
        counted = " and ".join(f"{count:,} {chip}" for chip, count in self.counts.items())
        where = f"site {options.site}" if options.lines is None else f"sites joined by {options.lines} lines"
        asked = f"{catalog.named(options.workload)} on {counted}, {options.precision}, {self.run.step_words} a step"
        return escape.line(f"{asked}, {where}{self.works[0].operated}")

    @property
    def document(self) -> dict[str, Any]:
        """Return the question as JSON."""
        from hwopt import catalog

        named, left_out = self.options.workload, catalog.approximations(self.options.workload)
        return {
            "workload": named,
            "approximations": left_out,
            "precision": self.options.precision,
            "chips": self.counts,
        }


def answer(options: argparse.Namespace) -> "Answer":
    """Return the estimate of one training run on several types of chips."""
    asked = FleetRequest.of(options)
    from hwopt.analysis.fleet.data_parallel import fleet
    from hwopt.output.answers.fleet import fleet_answer

    study = fleet(asked.run, asked.groups, options.lines, options.local_steps, options.layout)
    around, title = interval(asked.works, study), asked.title
    sources = tuple(dict.fromkeys(source for each in asked.works for source in each.sources))

    def draw(path: Path) -> None:
        from hwopt.output.figures.fleet import plot_fleet

        plot_fleet(study, path, title)

    found = fleet_answer(study, title, around, options.constants, asked.document, sources)
    return replace(found, draw=draw)


def _stated(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return the groups as stated by flags or file; options of the run in the file are set where no flag sets them."""
    if options.file is None:
        if options.groups is None:
            raise UserError(
                "--groups or a .toml file of them is needed: hwopt fleet --groups h100-sxm:512,a100-80:512 ..."
            )
        return [{"chip": chip, "chips": chips} for chip, chips in options.groups.items()]
    if options.groups is not None:
        raise UserError(f"--groups: {options.file} has groups already; keep one")
    from hwopt.catalog.load import read_toml

    text = read_toml(Path(options.file))
    tables = text.pop("groups", None)
    if not isinstance(tables, list) or not tables or not all(isinstance(each, dict) for each in tables):
        raise UserError(f'{options.file}: no [[groups]]: give each group chip = "h100-sxm" and chips = 1024')
    for key, value in text.items():
        if key not in _OF_RUN:
            raise UserError(f"{options.file}: unknown key '{key}': {suggest(key, (*_OF_RUN, 'groups'))}")
        read = _OF_RUN[key].kind.read(f"{options.file}: {key}", str(value))
        if key not in options.given:
            setattr(options, key, read)
    return [_table(f"{options.file}: group {place + 1}", table) for place, table in enumerate(tables)]


def _table(where: str, table: dict[str, Any]) -> dict[str, Any]:
    """Return a group of a file, its values parsed like the flags of the same names."""
    for key in table:
        if key not in _KEYS:
            raise UserError(f"{where}: unknown key '{key}': {suggest(key, _KEYS)}")
    for key in ("chip", "chips"):
        if key not in table:
            raise UserError(f"{where}: '{key}' is needed")
    read = {key: _OF_GROUP[key].kind.read(f"{where}: {key}", str(table[key])) for key in table if key in _OF_GROUP}
    count = integer().read(f"{where}: chips", str(table["chips"]))
    return read | {"chip": str(table["chip"]), "chips": count, "plan": table.get("plan")}


def _work(options: argparse.Namespace, group: dict[str, Any]) -> Any:
    """Return the `ClusterRequest` of a group: the run's flags, overridden by the group's own."""
    from hwopt.cli.request import cluster_request

    asked = copy.copy(options)
    vars(asked).update(
        {each.attribute: each.default for each in (*MACHINE, *RUN) if not hasattr(asked, each.attribute)}
    )
    vars(asked).update(group | {"mode": TRAINING.names[0], "batch_ramp": "none", "sites": 1, "lines": None})
    return cluster_request(asked, ())


def _group(work: Any, stated: dict[str, Any]) -> Any:
    from hwopt import catalog
    from hwopt.analysis.fleet.data_parallel import FleetGroup
    from hwopt.model.fleet.data_parallel import share_of

    plan, name = stated.get("plan"), escape.line(stated["chip"])
    if plan is None:
        return FleetGroup(name, work.cluster(stated["chips"]))
    words: dict[str, Any] = catalog.parse_plan(str(plan))
    chips, micro_batch = stated["chips"], float(words.get("micro_batch", 1.0))
    divided = share_of(
        work.workload, catalog.leaf(chips * micro_batch)
    )  # its share is not known yet: use one that any plan divides
    held = catalog.plan(divided, chips, **words)
    return FleetGroup(name, work.cluster(stated["chips"]), held)


def interval(works: list[Any], study: Any) -> Any:
    """Return the widest of the groups' prediction intervals: each was measured alone, and all wait for the slowest."""
    from hwopt.calibration.intervals import PredictionContext

    by_chip = {escape.line(work.options.chip): work for work in works}
    found = [
        by_chip[group.name].measured(PredictionContext(float(each.mfu), float(group.cluster.chips)))
        for each, group in zip(study.whole.report.groups, study.whole.groups, strict=True)
    ]
    return max(found, key=lambda each: each.time) if all(found) else None
