"""Header of a launch file: prediction, plan, how to reproduce it, hosts, and facts that are not known."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hwopt._version import __version__
from hwopt.output.export.model_facts import Config
from hwopt.output.text.plans import plan_line
from hwopt.units import pretty

PORT = 29500
"""Port of the first host at which the others meet (default of torchrun)."""

_PREDICTED = (
    "step_time_s", "time_to_first_token_s", "time_per_output_token_s", "requests_per_s", "tokens_per_s", "mfu",
    "memory_per_chip_bytes", "memory_capacity_bytes",
)  # fmt: skip
"""Metrics that a launch file states, where the report has them."""


@dataclass(frozen=True)
class Launch:
    """A plan to launch, and what its launch file states about it.

    **Arguments:**

    - `title`: the question in words.
    - `reproduce`: command line that predicts the plan again.
    - `config`: keys of the model's `config.json` that are known.
    - `gradient_bytes`: bytes of a gradient; 4 unless the plan's software reduces 2.
    - `families`: families of the chips.
    - `checkpoint`: format of the published weights; `checkpoint_bytes`: mean bytes of one.
    - `passed`: sentence on a better plan that the software cannot express.
    - `deduplicated`: whether of a token's copies for experts of one scale-up domain only one travels there (DeepEP).
    - `software`: stack of the catalog whose efficiencies the prediction assumes.
    - `words`: stated words of a training run by name, such as its dispatcher (`hwopt.run_words`).
    """

    workload: Any
    plan: Any
    report: Any
    title: str = ""
    reproduce: str = ""
    config: Config = field(default_factory=dict)
    gradient_bytes: float = 4.0
    families: Sequence[str] = ()
    checkpoint: str = ""
    passed: str = ""
    software: str = ""
    deduplicated: bool = False
    words: Mapping[str, str | float] = field(default_factory=dict)
    checkpoint_bytes: float = math.nan

    @property
    def predicted(self) -> dict[str, float]:
        """Return the predicted metrics of the plan, by name."""
        values = {name: float(getattr(self.report, name, math.nan)) for name in _PREDICTED}
        return {name: value for name, value in values.items() if math.isfinite(value)}

    def lines(self, first: str) -> list[str]:
        """Return the lines of the header. **Arguments:** `first`: software, version and size, in words."""
        said = [f"{first}: {self.title}", *([self.passed] if self.passed else [])]
        software = f" for the stack {self.software}" if self.software else ""
        said += [f"predicted by hwopt {__version__}{software}: {_predicted_words(self.predicted)}"]
        said += [f"plan: {plan_line(self.report, self.plan)}"]
        return said + ([f"reproduce: {self.reproduce}"] if self.reproduce else [])


def _predicted_words(values: Mapping[str, float]) -> str:
    names = {
        "step_time_s": ("s", "{} a step"), "time_to_first_token_s": ("s", "TTFT {}"), "time_per_output_token_s": ("s", "TPOT {}"),
        "requests_per_s": ("request/s", "{}"), "tokens_per_s": ("token/s", "{}"),
    }  # fmt: skip
    words = [form.format(pretty(values[name], unit, 4)) for name, (unit, form) in names.items() if name in values]
    words += [f"MFU {100.0 * values['mfu']:.1f} %"] if "mfu" in values else []
    filled, capacity = (values[name] / 1e9 for name in ("memory_per_chip_bytes", "memory_capacity_bytes"))
    return ", ".join([*words, f"{filled:.1f} of {capacity:.1f} GB on the fullest chip"])


def host_count(chips: int, servers: float) -> int:
    """Return the number of hosts with equal numbers of chips: at least `servers`, and a divisor of `chips`."""
    return next(hosts for hosts in range(max(1, math.ceil(servers - 1e-6)), chips + 1) if chips % hosts == 0)


def slurm(hosts: int, per_host: int, script: str) -> str:
    """Return the command that starts one copy of a script on every host under Slurm."""
    return f"srun --nodes {hosts} --ntasks-per-node 1 --gpus-per-node {per_host} {script}"


FIRST_HOST = 'export MASTER_ADDR=${MASTER_ADDR:-$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)}'
"""Line of bash that sets the first host, unless it is set: the first of a Slurm job."""


def torchrun(hosts: int, per_host: int, program: str) -> str:
    """Return the command that starts a program on every chip of a host; run it on every host."""
    meet = f'"$MASTER_ADDR:{PORT}"' if hosts > 1 else f"localhost:{PORT}"
    return (
        f"torchrun --nnodes {hosts} --nproc-per-node {per_host} --rdzv-id hwopt --rdzv-backend c10d "
        f"--rdzv-endpoint {meet} {program}"
    )
