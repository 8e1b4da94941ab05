from dataclasses import dataclass
from typing import ClassVar

from objectives.serving import ServingQuestion


@dataclass(frozen=True)
class ServeLatency(ServingQuestion):
    """The fastest answers that a budget buys: the least time between two tokens of one user.

    minimise    time between output tokens
    over        as `serve_cost`
    subject to  cost of an output token <= token_cost_budget_usd
                peak facility power     <= power_budget_w
                and whatever else of `ServingQuestion` is limited; plan, rack and chip as in `serve_cost`

    Defaults: Llama-3.1-70B in 8 bit, 2,048 tokens in and 512 out, 10 requests a second, the first token within 1 s,
    10 USD a million tokens, 1 MW at the meter.
    """

    requests_per_s: float = 10.0
    ttft_budget_s: float = 1.0
    token_cost_budget_usd: float = 10e-6
    power_budget_w: float = 1e6

    name: ClassVar[str] = "serve_latency"
    minimised: ClassVar[str] = "time_per_output_token_s"
    aim: ClassVar[str] = "Fastest answers"
