from dataclasses import dataclass
from typing import ClassVar

from objectives.serving import ServingQuestion


@dataclass(frozen=True)
class ServeLatency(ServingQuestion):
    """The fastest answers for a budget: the shortest time per output token.

    minimize    time per output token of a full batch
    over        variables of `serve_cost`
    subject to  cost of an output token <= token_cost_budget_usd
                peak facility power     <= power_budget_w
                any other budget of `ServingQuestion`; plan, rack and chip feasible as in `serve_cost`

    Defaults: Llama-3.1-70B in fp8, 2,048 input and 512 output tokens, 10 requests/s, TTFT within 1 s, $10 per million output
    tokens, a peak facility power of 1 MW.
    """

    requests_per_s: float = 10.0
    ttft_budget_s: float = 1.0
    token_cost_budget_usd: float = 10e-6
    power_budget_w: float = 1e6

    name: ClassVar[str] = "serve_latency"
    minimised: ClassVar[str] = "time_per_output_token_full_batch_s"
    aim: ClassVar[str] = "Fastest answers"
