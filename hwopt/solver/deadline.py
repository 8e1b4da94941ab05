"""Time limits of searches, kept even while code is running that cannot be interrupted."""

import atexit
import math
import threading
import time
from collections.abc import Callable
from typing import Literal, TypeVar

Answer = TypeVar("Answer")


class Deadline:
    """Time limit in seconds from its creation on, possibly infinite."""

    def __init__(self, seconds: float = math.inf):
        self.ends = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """Seconds left; infinite without a limit, never below 0."""
        return max(0.0, self.ends - time.monotonic())

    @property
    def over(self) -> bool:
        """Whether the time limit has passed."""
        return self.left == 0.0

    @property
    def stop(self) -> Literal["time limit", "node limit"]:
        """Return the reason why a search did not complete: the deadline if it has passed, else the limit on nodes."""
        return "time limit" if self.over else "node limit"

    @property
    def endless(self) -> bool:
        return math.isinf(self.ends)


GRACE_S = 0.7
"""Extra time beyond a deadline for work that is about to end, s."""


def by_deadline(deadline: Deadline, work: Callable[[], Answer], fallback: Callable[[], Answer]) -> Answer:
    """Return the result of `work`, or that of `fallback` if the work is not done by the deadline.

    Compilers and solvers cannot be interrupted from outside. The work therefore runs in a thread and checks the deadline where
    it can. If it is late, the thread is left to end by itself, and the fallback makes a result of the state that the work has
    recorded.

    The fallback must not run compiled programs: two threads that do may wait for each other forever (jax 0.10.1).

    **Raises:** any exception that the work raises in time.
    """
    if deadline.endless:
        return work()
    if deadline.over:  # work of an earlier deadline may still be running
        return fallback()
    answers: list[Answer] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(work())
        except BaseException as error:  # raised again in the waiting thread
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(deadline.left + GRACE_S)
    if thread.is_alive():
        atexit.register(thread.join)  # ending the interpreter while XLA compiles would abort it
    if errors:
        raise errors[0]
    return answers[0] if answers else fallback()
