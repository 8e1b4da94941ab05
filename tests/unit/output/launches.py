"""Plans to launch with a report that states what headers need, without an estimate."""

import math
from types import SimpleNamespace

from hwopt.model.report import ServingReport, TrainingReport
from hwopt.output.export.header import Launch
from hwopt.workload.service import Service


def report(workload, servers=1.0, filled=0.5):
    """A report with the fields that launch files read."""
    some = object.__new__(ServingReport if isinstance(workload, Service) else TrainingReport)
    values = {
        "memory_per_chip_bytes": filled, "memory_capacity_bytes": 1.0, "servers": servers, "requests_per_s": 3.0,
        "time_to_first_token_s": 0.1, "time_per_output_token_s": math.nan, "step_time_s": 2.0, "tokens_per_s": 7.0, "mfu": 0.4,
        "memory": SimpleNamespace(weights_bytes=0.3, cache_bytes=0.14), "groups": None,
    }  # fmt: skip
    for name, value in values.items():
        object.__setattr__(some, name, value)
    return some


def launch(workload, plan, *, servers=None, filled=0.5, **stated):
    """A launch of a plan on servers of eight chips, unless their number is given."""
    hosts = math.ceil(float(plan.chips) / 8) if servers is None else servers
    return Launch(workload, plan, report(workload, hosts, filled), **stated)
