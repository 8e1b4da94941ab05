from dataclasses import dataclass
from typing import ClassVar

from objectives.serving import ServingQuestion


@dataclass(frozen=True)
class ServeCost(ServingQuestion):
    """The cheapest output token of a service that meets its latency limits.

    minimize    whole cost of the service over its output tokens (input included)
    over        hardware: clock, NICs per server, chips per rack; if listed in `free`, also HBM stacks, link lanes, scale-up
                domain and storage
                plan: tensor, expert and pipeline parallel degrees, sequences per replica, replicas; for a disaggregated `split`
                the same of the prefill chips
    subject to  time to first token        <= ttft_budget_s, p95 of the busiest hour (ttft_percentile)
                time between output tokens <= tpot_budget_s, of a full batch, so that means of every hour are below it
                percentiles of both        <= ttft_p99_limit_s, tpot_p99_limit_s, and the same for p95, in the busiest hour
                peak facility power        <= power_budget_w
                any other budget of `ServingQuestion`; the plan fits memory, heads, layers and experts; the rack powers, carries and
                cools its chips; the chip sustains its clock

    Defaults: Llama-3.1-70B in fp8, 2,048 input and 512 output tokens, 100 requests/s, TTFT within 1 s, TPOT within 30 ms, a
    peak facility power of 5 MW.
    """

    requests_per_s: float = 100.0
    ttft_budget_s: float = 1.0
    tpot_budget_s: float = 0.03
    power_budget_w: float = 5e6

    name: ClassVar[str] = "serve_cost"
    minimised: ClassVar[str] = "cost_per_token_usd"
    aim: ClassVar[str] = "Cheapest token"
