"""A machine over a day of requests: what each hour finds, and what the day takes in energy and money."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from hwopt.hardware.cluster import AnyCluster
from hwopt.model.estimate import estimate
from hwopt.trace.cache import evaluate_in_numpy
from hwopt.workload.service import Service

_HOUR_S = 3600.0

_LEAST = 1e-6
"""Of the mean hour's requests, in an hour that has none: a machine asked for 0 would be one that answers all it can."""


class HourlyLoad(NamedTuple):
    """One hour. Percentiles are infinite where more comes than is answered."""

    requests_per_s: float
    load: float  # over what the machine can answer
    first_p99_s: float
    token_p99_s: float
    power_w: float  # at the meter
    usd_per_s: float


class DailyLoad(NamedTuple):
    """Hours, and the day's sums."""

    hours: tuple[HourlyLoad, ...]
    requests: float
    energy_j: float
    usd: float
    idle_j: float  # that the machine would take with no request all day

    @property
    def overloaded(self) -> int:
        """Hours in which more comes than is answered."""
        return sum(hour.load >= 1.0 for hour in self.hours)


def daily_load(service: Service, cluster: AnyCluster, plan: Any, curve: Sequence[float]) -> DailyLoad:
    """Each hour at its own requests, the same machine and plan all day: its capital is paid whatever comes.

    `E = sum of P(r_h) 3600 s`: power is that of idle chips and what requests add, so that a day takes what 24 mean hours take, and
    the curve counts by the busiest hour alone, which the machine must answer.

    **Arguments:** `service` whose requests are the day's mean (as many as the machine answers with its headroom, where none are
    stated); `curve`: requests of each hour over the mean's.
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
