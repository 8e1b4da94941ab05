"""A service's answers as one plain screen of text."""

from __future__ import annotations

from hwopt.evidence.intervals import Interval
from hwopt.model.serving.report import ServingReport
from hwopt.plan import Disaggregated, Plan
from hwopt.report.layout import bar
from hwopt.report.machine import interval_line, surroundings, time_parts, violations_text
from hwopt.report.serving import serving_plan_document
from hwopt.units import pretty
from hwopt.workload.service import Service

_MEMORY = {
    "weights_bytes": "weights",
    "cache_bytes": "KV cache",
    "working_bytes": "working",
    "reserve_bytes": "reserve",
}


def requests_line(service: Service) -> str:
    """What is asked of a service, in words."""
    cached, drafted = float(service.cached_fraction), float(service.drafted_tokens)
    words = [f"{float(service.input_tokens):,.0f} tokens in" + (f" ({100 * cached:.3g} % cached)" if cached else "")]
    if float(service.decodes):
        words.append(f"{float(service.output_tokens):,.0f} out")
    if drafted:
        words.append(f"{drafted:.0f} drafted a step, {100 * float(service.acceptance):.3g} % accepted")
    formats = f"{float(service.weight_bytes):.3g} B a weight, {float(service.kv_bytes):.3g} B a key or value"
    return f"  requests       {', '.join(words)}; {formats}"


def serving_plan_line(plan: Plan | Disaggregated) -> str:
    """A plan that serves, in the words that `--plan` takes."""
    document = serving_plan_document(plan)
    if isinstance(plan, Disaggregated):
        groups = ((plan.prefill, document["prefill"]), (plan.decode, document["decode"]))
        prompts, answers = (f"{serving_plan_line(own)} on {values['chips']:,} chips" for own, values in groups)
        return f"prompts {prompts}; answers {answers}"
    words = [f"{name}={document[name]}" for name in ("tp", "pp", "dp")]
    if document["ep"] != 1:
        words += [f"{name}={document[name]}" for name in ("ep", "expert_tp")]
    return ", ".join([*words, f"batch={document['batch']}"])


def _plan_lines(plan: Plan | Disaggregated) -> list[str]:
    if not isinstance(plan, Disaggregated):
        return [f"  plan           {serving_plan_line(plan)}"]
    prompts, answers = serving_plan_line(plan).split("; ")
    return [f"  plan           {prompts}", f"{'':17}{answers}"]


def _memory(report: ServingReport) -> list[str]:
    used, capacity = float(report.memory_per_chip_bytes), float(report.memory_capacity_bytes)
    lines = [
        f"  memory         {pretty(used, 'B')} of {pretty(capacity, 'B')} on the fullest chip ({100 * used / capacity:.0f} %)"
    ]
    for name, value in report.memory._asdict().items():
        share = float(value) / capacity
        lines.append(f"    {_MEMORY[name]:<12} {pretty(float(value), 'B', 3):>10}  {bar(share)} {100 * share:5.1f} %")
    return lines


def _latencies(r: ServingReport) -> list[str]:
    """Times that users see, those of them that the machine has."""
    first, each, step = (float(x) for x in (r.time_to_first_token_s, r.time_per_output_token_s, r.step_time_s))
    floor, moved = float(r.floor_time_s), float(r.kv_transfer_s)
    lines = []
    if first:
        moving = f", {pretty(moved, 's', 3)} of it to move keys and values" if moved else ""
        lines.append(f"  first token    {pretty(first, 's')} after the request{moving}")
    if each:
        least = floor * each / step
        lines.append(
            f"  next tokens    {pretty(each, 's')} each; reading weights and cache alone takes {pretty(least, 's')} "
            f"({each / least:.2f} times the floor)"
        )
    if first and each:
        lines.append(f"  whole answer   {pretty(float(r.request_time_s), 's')}")
    return lines


def _throughput(r: ServingReport) -> list[str]:
    each = float(r.time_per_output_token_s)
    user = f", {pretty(1.0 / each, 'token/s')} a user" if each else ""
    lines = [
        f"  throughput     {pretty(float(r.tokens_per_s), 'token/s')}, {pretty(float(r.tokens_per_s_per_chip), 'token/s')} a chip"
        f"{user}; {pretty(float(r.requests_per_s), 'request/s')}"
    ]
    if each:
        users = f"  users          {float(r.users):,.0f} at a time, {1e6 * float(r.users_per_w):,.0f} a MW"
        lines.append(users)
    return lines


def serving_lines(r: ServingReport) -> list[str]:
    """Throughput, latencies, utilisation, memory, heat, power and failures of a concrete report."""
    return [
        *_throughput(r),
        *_latencies(r),
        f"  utilisation    MFU {100 * float(r.mfu):.1f} %, HFU {100 * float(r.hfu):.1f} %, "
        f"{pretty(float(r.model_flops_per_chip_per_s), 'FLOP/s')} a chip",
        *_memory(r),
        *surroundings(r),
        f"  failures       one of a replica in {pretty(float(r.mean_time_between_failures_s), 's')}, "
        f"{100 * float(r.goodput):.1f} % of the time useful",
    ]


def serving_screen(
    report: ServingReport,
    plan: Plan | Disaggregated,
    title: str,
    around: Interval | None = None,
    constants: str = "",
) -> str:
    """One screen for `estimate` of a service.

    **Arguments:** `title`: workload, cluster and requests in words; `around`: the interval of the prediction; `constants` in
    use.
    """
    lines = [title, *_plan_lines(plan)]
    if not bool(report.feasible):
        over = [f"  - it {text}" for text in violations_text(report)]
        return "\n".join([*lines, "", "This plan does not fit:", *over, *_memory(report)])
    r = report
    built = f"{pretty(float(r.capex_usd), 'USD')} to build" if float(r.capex_usd) else "rented"
    lines += [
        *serving_lines(r),
        f"  energy         {pretty(float(r.energy_per_token_j), 'J')} a token",
        f"  money          {built}; {1e6 * float(r.cost_per_token_usd):.4g} $ a million tokens",
        *([interval_line(r, around, constants)] if constants else []),
        *time_parts(r),
        f"  bottleneck: {r.bottleneck_name()}",
    ]
    return "\n".join(lines)
