"""Training software that reads a settings file, by name."""

from hwopt.output.export import nemo, torchtitan
from hwopt.output.export.trainer import Trainer

TRAINERS: dict[str, Trainer] = {"torchtitan": torchtitan.TRAINER, "nemo": nemo.TRAINER}
