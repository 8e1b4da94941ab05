"""A serving machine under a daily load curve: load and latency of each hour, energy and cost of the day."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hwopt.declared import derived, shown
from hwopt.hardware.cluster import AnyCluster
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.workload.service import Service

_HOUR_S = 3600.0

_LEAST = 1e-6
"""Request rate, 1/s, of an hour without requests. A rate of exactly 0 would mean "as many as the machine can serve"."""


@dataclass(frozen=True)
class HourlyLoad:
    """One hour of the day. The p99 latencies are infinite where requests exceed capacity."""

    requests_per_s: float = shown("request/s")
    load: float = shown(meaning="requests over the capacity of the machine")
    first_p99_s: float = shown("s", "p99 of the time to first token; null where requests exceed capacity")
    token_p99_s: float = shown("s", "p99 of the time per output token; null where requests exceed capacity")
    power_w: float = shown("W", "at the utility meter")
    usd_per_s: float = shown("USD/s")


@dataclass(frozen=True)
class DailyLoad:
    """All hours of a day and the day's totals."""

    hours: tuple[HourlyLoad, ...] = shown()
    requests: float = shown("request")
    energy_j: float = shown("J", "at the utility meter")
    usd: float = shown("USD")
    idle_j: float = shown("J", "energy of a whole day without any request")

    @derived(meaning="number of hours in which requests reach or exceed capacity", key="overloaded_hours")
    def overloaded(self) -> int:
        """Return the number of hours in which requests reach or exceed capacity."""
        return sum(hour.load >= 1.0 for hour in self.hours)


def daily_load(service: Service, cluster: AnyCluster, plan: Any, curve: Sequence[float]) -> DailyLoad:
    """Evaluate each hour of a day at its own request rate, with machine and plan fixed.

    Capital costs accrue regardless of the load.

    The energy is `E = sum of P(r_h) 3600 s`. Power is idle power plus a part in proportion to requests, so that the day takes
    as much energy as 24 mean hours. The curve therefore matters only through the busiest hour, which the machine must be able
    to serve.

    **Arguments:**

    - `service`: service whose requests are the mean of the day. Where none are stated, the mean is what the machine serves with
      its headroom.
    - `curve`: requests of each hour, relative to the mean.
    """
    mean = float(evaluate_in_numpy(estimate, service, cluster, plan).requests_per_s)
    hours = [_hour(service, cluster, plan, mean * share) for share in (*curve, 0.0)]
    idle = hours.pop()
    sums = np.array([(hour.requests_per_s, hour.power_w, hour.usd_per_s) for hour in hours]).sum(axis=0) * _HOUR_S
    return DailyLoad(tuple(hours), *map(float, sums), idle_j=idle.power_w * _HOUR_S * len(hours))


def _hour(service: Service, cluster: AnyCluster, plan: Any, rate: float) -> HourlyLoad:
    like, asked = np.ones_like(service.requests_per_s), max(rate, _LEAST)
    own = dataclasses.replace(service, requests_per_s=like * asked, peak_over_mean=like, capacity_in_use=like)
    report = evaluate_in_numpy(estimate, own, cluster, plan)
    return HourlyLoad(
        requests_per_s=rate,
        load=float(report.busiest_load) * rate / asked,
        first_p99_s=float(report.time_to_first_token_p99_s),
        token_p99_s=float(report.time_per_output_token_p99_s),
        power_w=float(report.power_w),
        usd_per_s=float(report.cost_per_token_usd) * float(report.tokens_per_s),
    )
