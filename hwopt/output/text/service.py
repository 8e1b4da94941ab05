"""Requirements on a service (tokens, requests, formats), in words and as JSON."""

from typing import Any

from hwopt.output.text.layout import fact
from hwopt.output.text.parts import number
from hwopt.workload.service import Service

_ASKED = (
    "input_tokens", "output_tokens", "cached_fraction", "requests_per_s", "load", "drafted_tokens", "acceptance",
    "draft_fraction", "arrival_scv", "input_scv", "output_scv", "least_loaded", "peak_over_mean", "capacity_in_use",
)  # fmt: skip


def service_document(service: Service, mode: str) -> dict[str, Any]:
    """Return the requirements on a service for JSON. **Arguments:** `mode`: serve, prefill or decode."""
    return {"mode": mode} | {name: number(getattr(service, name)) for name in _ASKED}


def requests_line(service: Service, stored: str = "") -> str:
    """Return the requirements on a service, in words. **Arguments:** `stored`: the formats of its checkpoint, in words."""
    cached, drafted = float(service.cached_fraction), float(service.drafted_tokens)
    words = [f"{float(service.input_tokens):,.0f} input tokens" + (f" ({100 * cached:.3g} % cached)" if cached else "")]
    if float(service.decodes):
        words.append(f"{float(service.output_tokens):,.0f} output tokens")
    if drafted:
        words.append(f"{drafted:.0f} drafted per step, {100 * float(service.acceptance):.3g} % accepted")
    formats = f"{float(service.weight_bytes):.3g} B per weight, {float(service.kv_bytes):.3g} B per key or value"
    return fact("requests", "; ".join(filter(None, (", ".join(words), formats, stored))))
