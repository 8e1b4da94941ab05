"""Training software whose launch settings can be exported, by name."""

from hwopt.output.export import megatron, nemo, torchtitan
from hwopt.output.export.trainer import Trainer

TRAINERS: dict[str, Trainer] = {"megatron": megatron.TRAINER, "torchtitan": torchtitan.TRAINER, "nemo": nemo.TRAINER}
