"""Reliability of fleets from the catalogue."""

from __future__ import annotations

from pathlib import Path

from hwopt.catalog.load import leaf, supported
from hwopt.errors import UserError
from hwopt.hardware.reliability import Reliability


def reliability(name: str | Path = "fleet-mean") -> Reliability:
    """How often a fleet's chips interrupt a job, and how it recovers.

    **Arguments:** `name` of an entry (`fleet-mean`, `llama3-2024`), or the path of a `.toml` of the same form.

    **Raises:** `UserError` for an unknown name or a bad file.
    """
    held = supported("reliability", name)
    share = held.si("hardware_share")
    if share > 1.0:
        raise UserError(f"reliability '{held.slug}': 'hardware_share' = {share:g} must not exceed 1")
    return Reliability(
        failures_per_chip_s=leaf(held.si("failures")),
        hardware_share=leaf(share),
        failure_growth_per_k=leaf(held.si("failure_growth")),
        reference_junction_k=leaf(held.si("reference_junction")),
        restart_s=leaf(held.si("restart")),
        snapshot_bandwidth_bytes_per_s=leaf(held.si("snapshot_bandwidth")),
        snapshot_overhead_s=leaf(held.si("snapshot_overhead")),
    )
