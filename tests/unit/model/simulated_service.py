"""An event simulation of servers that answer requests, in plain Python: nothing of the closed forms is in it."""

from __future__ import annotations

import heapq
from collections import deque
from typing import NamedTuple

import numpy as np


class Server(NamedTuple):
    """A stream: a pass takes `empty + each n + prompts' times`, at most `slots` sequences."""

    empty_s: float
    each_s: float
    prompt_s: float
    slots: int
    tokens: int  # of an answer, mean

    @property
    def full_s(self) -> float:
        """A pass at the most that it can answer: a prompt for every answer that ends."""
        return self.empty_s + self.each_s * self.slots + self.prompt_s * self.slots / (self.tokens - 1)


def gammas(rng: np.random.Generator, mean: float, scv: float, count: int) -> np.ndarray:
    return rng.gamma(1.0 / scv, mean * scv, count) if scv > 0 else np.full(count, mean)


def arrivals(rng: np.random.Generator, rate: float, scv: float, count: int) -> np.ndarray:
    """A renewal process: exponential times, above hyperexponential ones with balanced means, below gamma ones."""
    if scv < 1.0:
        return np.cumsum(gammas(rng, 1.0 / rate, scv, count))
    often = 0.5 * (1.0 + np.sqrt((scv - 1.0) / (scv + 1.0)))
    rates = np.where(rng.uniform(size=count) < often, 2.0 * often * rate, 2.0 * (1.0 - often) * rate)
    return np.cumsum(rng.exponential(size=count) / rates)


def beside(server: Server, load: float, scvs, streams: int = 1, count: int = 40_000, seed: int = 0):
    """Times to the first token and between tokens, of requests that go to the stream with the fewest.

    **Arguments:** `scvs` of arrivals, prompts and answers. A prompt is processed in the pass in which the answer whose place it
    takes ends, all that wait and find a place in the same one; it yields the first token at the end of it.
    """
    rng = np.random.default_rng(seed)
    left = server.tokens - 1
    rate = load * streams * server.slots / (left * server.full_s)
    comes = arrivals(rng, rate, scvs[0], count)
    prompts = gammas(rng, server.prompt_s, scvs[1], count).tolist()
    passes = np.maximum(0, np.round(gammas(rng, left, scvs[2], count))).astype(int).tolist()
    waiting = [deque() for _ in range(streams)]
    running: list[list] = [[] for _ in range(streams)]  # (pass that ends it, request)
    ending: list[dict[int, int]] = [{} for _ in range(streams)]
    number, idle, held = [0] * streams, [True] * streams, [0] * streams
    first, last, events, times = np.zeros(count), np.zeros(count), [], comes.tolist()

    def begin(s: int, now: float) -> None:
        free = server.slots - len(running[s]) + ending[s].pop(number[s] + 1, 0)
        taken = [waiting[s].popleft() for _ in range(min(free, len(waiting[s])))]
        idle[s] = not (taken or running[s])
        if not idle[s]:
            time = server.empty_s + server.each_s * len(running[s]) + sum(prompts[each] for each in taken)
            heapq.heappush(events, (now + time, s, taken))

    next_ = 0
    while next_ < count or events:
        if events and (next_ >= count or events[0][0] <= times[next_]):
            now, s, taken = heapq.heappop(events)
            number[s] += 1
            while running[s] and running[s][0][0] <= number[s]:
                last[heapq.heappop(running[s])[1]] = now
                held[s] -= 1
            for each in taken:
                first[each] = last[each] = now
                if passes[each]:
                    ends = number[s] + passes[each]
                    heapq.heappush(running[s], (ends, each))
                    ending[s][ends] = ending[s].get(ends, 0) + 1
                else:
                    held[s] -= 1
            begin(s, now)
        else:
            s = min(range(streams), key=lambda j: (held[j], (j - next_) % streams)) if streams > 1 else 0
            waiting[s].append(next_)
            held[s] += 1
            if idle[s]:
                begin(s, times[next_])
            next_ += 1
    kept = slice(count // 10, count - count // 50)
    some = np.array(passes[kept]) > 0
    return (first - comes)[kept], ((last - first)[kept] / np.maximum(passes[kept], 1))[some]


def apart(
    prompt_s: float, load: float, scvs, servers: int = 1, together: bool = True, count: int = 200_000, seed: int = 0
):
    """Times to the end of a prompt on servers for prompts alone, one at a time."""
    rng = np.random.default_rng(seed)
    comes = arrivals(rng, load * servers / prompt_s, scvs[0], count)
    lasts = gammas(rng, prompt_s, scvs[1], count)
    where = np.zeros(count, int) if together else rng.integers(0, servers, count)
    taken = np.empty(count)
    for queue in range(1 if together else servers):
        own, free, left = where == queue, [0.0] * (servers if together else 1), []
        for at, time in zip(comes[own].tolist(), lasts[own].tolist(), strict=True):
            left.append(max(at, free[0]) + time)
            heapq.heapreplace(free, left[-1])
        taken[own] = left - comes[own]
    return taken[count // 10 :]


def decoding(server: Server, comes: np.ndarray, passes: np.ndarray, streams: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """When sequences that come have a slot, and when they end; each goes to the stream with the fewest."""
    count, times, lengths = len(comes), comes.tolist(), passes.tolist()
    waiting, joining = [deque() for _ in range(streams)], [[] for _ in range(streams)]
    running: list[list] = [[] for _ in range(streams)]  # (pass that ends it, sequence)
    number, idle, held = [0] * streams, [True] * streams, [0] * streams
    slot, last, events = np.zeros(count), np.zeros(count), []

    def begin(s: int, now: float) -> None:
        for each in joining[s]:
            heapq.heappush(running[s], (number[s] + lengths[each], each))
        joining[s].clear()
        idle[s] = not running[s]
        if running[s]:
            heapq.heappush(events, (now + server.empty_s + server.each_s * len(running[s]), s))

    next_ = 0
    while next_ < count or events:
        if events and (next_ >= count or events[0][0] <= times[next_]):
            now, s = heapq.heappop(events)
            number[s] += 1
            while running[s] and running[s][0][0] <= number[s]:
                last[heapq.heappop(running[s])[1]] = now
                held[s] -= 1
                if waiting[s]:
                    joining[s].append(waiting[s].popleft())
                    slot[joining[s][-1]] = now
            begin(s, now)
        else:
            s = min(range(streams), key=lambda j: (held[j], (j - next_) % streams)) if streams > 1 else 0
            held[s] += 1
            if held[s] <= server.slots:
                slot[next_] = times[next_]
                joining[s].append(next_)
            else:
                waiting[s].append(next_)
            if idle[s]:
                begin(s, times[next_])
            next_ += 1
    return slot, last


def two_groups(
    server: Server, load: float, prompt_load: float, scvs, replicas: int = 1, streams: int = 1,
    transfer_s: float = 0.0, count: int = 40_000, seed: int = 0,
):  # fmt: skip
    """Times to the first token and between tokens where `replicas` process prompts and `streams` answer.

    A prompt is processed alone, by the replica that is free first; its keys and values move for `transfer_s`; the first token is
    out once its sequence has a slot.

    **Arguments:** `load` of the streams, `prompt_load` of the replicas, by which the time of a prompt is set.
    """
    rng = np.random.default_rng(seed)
    server = server._replace(prompt_s=0.0)
    left = server.tokens - 1
    rate = load * streams * server.slots / (left * server.full_s)
    comes = arrivals(rng, rate, scvs[0], count)
    lasts = gammas(rng, prompt_load * replicas / rate, scvs[1], count)
    rounded = np.round(gammas(rng, left, scvs[2], count)).astype(int)
    some, passes = rounded > 0, np.maximum(1, rounded)
    free, ends = [0.0] * replicas, np.empty(count)
    for i, (at, time) in enumerate(zip(comes.tolist(), lasts.tolist(), strict=True)):
        ends[i] = max(at, free[0]) + time
        heapq.heapreplace(free, ends[i])
    order = np.argsort(ends, kind="stable")
    slot, last = np.empty(count), np.empty(count)
    slot[order], last[order] = decoding(server, ends[order] + transfer_s, passes[order], streams)
    kept = slice(count // 10, count - count // 50)
    return (slot - comes)[kept], ((last - slot) / passes)[kept][some[kept]]
