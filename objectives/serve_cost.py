from dataclasses import dataclass
from typing import ClassVar

from objectives.serving import ServingQuestion


@dataclass(frozen=True)
class ServeCost(ServingQuestion):
    """The cheapest token of a service that answers fast enough.

    minimise    cost of an output token
    over        HBM bandwidth and capacity, clock, scale-up domain and bandwidth, scale-out bandwidth, chips in a rack, tensor,
                expert and pipeline parallel degrees, sequences a replica, replicas; the same of chips for prompts where `split`
                is disaggregated
    subject to  time to first token        <= ttft_budget_s
                time between output tokens <= tpot_budget_s
                percentiles of these       <= ttft_p99_limit_s, tpot_p99_limit_s and the same of p95, in the busiest hour
                peak facility power        <= power_budget_w
                and whatever else of `ServingQuestion` is limited; the plan fits (memory, heads, layers, experts), the rack carries
                and cools its chips, the chip sustains its clock

    Defaults: Llama-3.1-70B in 8 bit, 2,048 tokens in and 512 out, 100 requests a second, the first token within 1 s and the
    others every 30 ms, 5 MW at the meter.
    """

    requests_per_s: float = 100.0
    ttft_budget_s: float = 1.0
    tpot_budget_s: float = 0.03
    power_budget_w: float = 5e6

    name: ClassVar[str] = "serve_cost"
    minimised: ClassVar[str] = "cost_per_token_usd"
    aim: ClassVar[str] = "Cheapest token"
