"""`hwopt fabrics`: the cost of link jitter by fabric, rack density or scale-up domain; exit code 1 where all are infeasible."""

import argparse
import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hwopt import escape
from hwopt.cli.cluster_flags import CLUSTER, TRAINING
from hwopt.cli.commands.sensitivity import FIGURE
from hwopt.cli.flags import Flag
from hwopt.cli.paths import REPORT
from hwopt.cli.value_types import NAMES, NOT_NEGATIVE, SETTINGS, integer
from hwopt.errors import UserError

if TYPE_CHECKING:
    from hwopt.output.answer import Answer

_OTHERS = ("--mode", "--latency-tail-s", "--bandwidth-spread", "--rack-chips")

FLAGS = (
    *(replace(each, modes=None) for each in CLUSTER
      if each.modes in (None, TRAINING) and each.name not in _OTHERS),
    Flag("--fabrics", "fabrics to compare: catalog entries or .toml files (default: all of the catalog)", NAMES),
    Flag("--racks", "compare rack densities instead, in chips per rack: 8,32,72; failures of denser racks included", NAMES),
    Flag("--domains", "compare scale-up domain sizes instead, in chips: 8,72", NAMES),
    Flag("--spread", "worst case: relative standard deviation of link bandwidth (default: upper end of the catalog's "
         "range)", NOT_NEGATIVE),
    Flag("--tail-s", "worst case: mean latency tail, s (default: upper end of the catalog's range)", NOT_NEGATIVE),
    Flag("--plan", "parallel plan of all machines: tp=8,pp=16,... (default: the cheapest of each with typical jitter)", SETTINGS),
    replace(FIGURE, meaning="also plot the cost of the run by machine and level of jitter, to this image file"),
    replace(REPORT, meaning="also write the answer as one self-contained HTML page: costs, plans, sources"),
)  # fmt: skip


def answer(options: argparse.Namespace) -> "Answer":
    """Return the comparison of machines with ideal links and with link jitter."""
    varied = [flag for flag in ("racks", "domains", "fabrics") if getattr(options, flag) is not None]
    if len(varied) > 1:
        one, other = varied[:2]
        raise UserError(f"--{one} and --{other}: keep one; with --{one}, --fabric names the fabric of all machines")
    if options.domains is not None and options.domain is not None:
        raise UserError(f"--domains and --domain {options.domain}: keep one")
    if options.racks is None and options.domains is None and options.fabric is not None:
        raise UserError(
            f"--fabric {options.fabric}: write --fabrics {options.fabric}, or --racks to vary the density on it"
        )
    from hwopt import catalog
    from hwopt.analysis.fabrics import fabrics, jitter_levels
    from hwopt.calibration.intervals import PredictionContext
    from hwopt.cli.request import cluster_request
    from hwopt.output.answers.fabrics import fabrics_answer

    asked = copy.copy(options)
    asked.mode = TRAINING.names[0]
    vars(asked).update(latency_tail_s=None, bandwidth_spread=None, rack_chips=None)
    work = cluster_request(asked, ())
    words = None if asked.plan is None else catalog.parse_plan(asked.plan)
    held = None
    if words is not None:
        plan = catalog.plan(work.workload, options.chips, sites=options.sites, **words)
        held = lambda cluster: plan
    uneven = jitter_levels(options.operation or "production", options.spread, options.tail_s)
    found = fabrics(work.workload, _machines(options, work), uneven, held)
    around = {
        each.name: work.measured(PredictionContext(float(each.reports[1].mfu), options.chips)) for each in found.trained
    }
    title = f"{catalog.named(options.workload)} on {options.chips:,} x {options.chip}, {options.precision}, site {options.site}"
    title = escape.line(title + work.operated)
    answer = fabrics_answer(found, title + work.words, around, options.constants, work.document, work.sources)
    if not found.trained:  # the screen says why there is nothing to draw
        return answer
    from hwopt.output.figures.fabrics import plot_fabrics

    return replace(answer, draw=lambda path: plot_fabrics(found, path, title))


def _machines(options: argparse.Namespace, work: Any) -> list[Any]:
    """Return the machines to compare: by fabric, by chips in a rack, or by chips in a scale-up domain."""
    from hwopt import catalog
    from hwopt.analysis.fabrics import FabricVariant

    def of(name: str, **changes: Any) -> FabricVariant:
        def cluster(spread: float, tail_s: float) -> Any:
            varied = copy.copy(work.options)
            vars(varied).update(changes, bandwidth_spread=spread, latency_tail_s=tail_s)
            return replace(work, options=varied).cluster(options.chips)

        return FabricVariant(name, cluster)

    if options.domains is not None:
        sizes = [integer().read("--domains", each) for each in options.domains]
        return [of(f"domains of {size:,}", domain=size) for size in sizes]
    if options.racks is None:
        return [of(name, fabric=name) for name in options.fabrics or catalog.names("fabrics")]
    counts = [integer().read("--racks", each) for each in options.racks]
    return [of(f"racks of {count:,}", rack_chips=count) for count in counts]
