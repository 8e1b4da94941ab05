"""A time by which an answer must be there, and what keeps it whatever is under way."""

import atexit
import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Answer = TypeVar("Answer")


class Deadline:
    """Seconds from now on, perhaps without end."""

    def __init__(self, seconds: float = math.inf):
        self.ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds that are left; infinite without an end, not below 0."""
        return max(0.0, self.ends - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether it is time to stop."""
        return self.left == 0.0

    @property
    def endless(self) -> bool:
        return math.isinf(self.ends)


GRACE_S = 0.7
"""Beyond a deadline, for work that is about to end."""


def by_deadline(deadline: Deadline, work: Callable[[], Answer], fallback: Callable[[], Answer]) -> Answer:
    """What work comes to, or a fallback where it is given up at a deadline, wherever it stands.

    Compilers and solvers cannot be interrupted from outside, so the work runs in a thread of its own and looks at the
    deadline whenever it can; what it is in then is left to end by itself, and the fallback answers from what it left behind.
    The fallback must not run compiled programs: two threads that do may wait for each other forever (jax 0.10.1).

    **Raises:** whatever the work raises in time.
    """
    if deadline.endless:
        return work()
    if deadline.over:  # work of an earlier deadline may still be under way
        return fallback()
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # handed over to whoever waits
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline.left + GRACE_S)
    if thread.is_alive():
        atexit.register(thread.join)  # an interpreter that ends while XLA compiles aborts
    if errors:
        raise errors[0]
    return answers[0] if answers else fallback()
