"""Percentiles of a service in plain Python floats, one request stream at a time."""

from __future__ import annotations

import math

LEVELS = {"p50": (0.5, 0.0), "p95": (0.95, 1.6448536269514722), "p99": (0.99, 2.3263478740408408)}

MEAN = ("mean", "mean")

FULL = 1.0 - 1e-6  # as good as all that can be answered


def cut(rho: float, ca: float, cs: float) -> float:
    """Smaller root of GI/M with balanced hyperexponential arrivals, `u = 1 - sigma`, by the quadratic; times Kingman's ratio."""
    b, c = 2.0 * rho - 1.0, -2.0 * rho * (1.0 - rho) / (ca + 1.0)
    disc = math.sqrt(max(b * b - 4.0 * c, 0.0))
    u = (disc - b) / 2.0 if b < 0 else -2.0 * c / (b + disc)
    if ca < 1.0:  # gamma times between arrivals: one step of Newton's
        shape = max(ca, 0.02)
        laplace = (1.0 + shape * u / rho) ** (-1.0 / shape)
        u -= (1.0 - u - laplace) / (laplace / (rho + shape * u) - 1.0)
    return u * (ca + 1.0) / (ca + cs)


def below(x: float) -> float:
    return 1.0 / (1.0 + math.exp(min(-1.5976 * x - 0.07056 * x**3, 700.0)))


def quantile(mean: float, variance: float, third: float, z: float, floor: float) -> float:
    if z == "mean":
        return mean
    if z == 0.0:
        return floor + (mean - floor) / math.sqrt(1.0 + variance / (mean - floor) ** 2)
    return gamma_quantile(mean, variance, third, z)


def gamma_quantile(mean: float, variance: float, third: float, z: float) -> float:
    sd = math.sqrt(variance)
    skew = third / sd**3
    e = z / 6.0 - skew / 36.0
    return mean + sd * (6.0 * e + 6.0 * skew * e**2 + 2.0 * skew**2 * e**3)


def sequences(asked, full, empty, prompt, rate, slots, passes, streams) -> dict[str, float]:
    """One stream at its load."""
    ca, cp, co, pooled = asked
    each = rate / streams
    load = each * passes * full / slots
    cycle = empty / (1.0 - load * (1.0 - empty / full))
    together = streams if pooled else 1.0
    of_full = slots / passes * prompt / full
    return {
        "load": load, "cycle": cycle, "full": full, "prompt": prompt, "each": each, "passes": passes,
        "phi": each * prompt, "decoding": cycle * (1.0 - each * prompt), "g": load * (1.0 - empty / full),
        "n": together * each * passes * cycle, "slots": together * slots,
        "ca": 1.0 + (ca - 1.0) * together / streams, "slots_each": slots, "of_full": of_full,
        "ca_stream": (1.0 + (ca - 1.0) / streams + ca / streams) / 2 if pooled else 1.0 + (ca - 1.0) / streams,
        "cs": (1.0 - of_full) ** 2 * co + of_full**2 * cp, "cp": cp, "co": co,
    }  # fmt: skip


def with_companions(s: dict) -> float:
    c = s["ca_stream"]
    rate = 2.0 / (c + 1.0) if c > 1.0 else 2.0
    more = (c - 1.0) / 2.0 * (1.0 - math.exp(-rate * s["each"] * s["cycle"])) / s["cycle"]
    added, left = s["prompt"] * more, 1.0 - s["phi"]
    return s["each"] + more / (1.0 + 4.0 * (added / left) ** 2)


def own(s: dict) -> tuple[float, float, float]:
    """Mean, variance and third central moment from a free slot to the first token."""
    rate, gamma, cp = with_companions(s), s["prompt"], s["cp"]
    m2, m3, f = gamma**2 * (1 + cp), gamma**3 * (1 + cp) * (1 + 2 * cp), rate * gamma
    mean = s["decoding"] / (1 - f)
    var = m2 * rate * mean / (1 - f**2)
    k3 = (3 * gamma * m2 * rate**2 * var + m3 * rate * mean) / (1 - f**3)
    met = mean + var / mean
    met_var = k3 / mean + var - (var / mean) ** 2
    met_third = 2 * met_var**2 / met
    share = 0.5 + f
    variance = (met_var + met**2) / 12 + m2 * rate * met + share**2 * met_var + gamma**2 * cp
    mixed = 3 * share * (m2 * rate * met_var + (2 * met * met_var + met_third) / 12)
    third = m3 * rate * met + 2 * gamma**3 * cp**2 + share**3 * met_third + mixed
    return s["decoding"] + gamma + share * met, variance, third


def peakedness(s: dict) -> float:
    phi = s["phi"]
    return ((s["ca"] + phi**2 * s["cp"]) / (1 - phi) + (1 - phi) * s["co"]) / (1 + s["co"])


def normal_tail(z: float) -> tuple[float, float]:
    """Chance to be above z, and the density."""
    z = min(max(z, -9.0), 9.0)
    over = below(-z)
    return over, over * (1.0 - over) * (1.5976 + 3.0 * 0.07056 * z**2)


def gamma_tail(mean: float, variance: float, third: float, t: float) -> tuple[float, float]:
    sd = math.sqrt(variance)
    skew = max(third / sd**3, 1e-3)
    y = max(1.0 + skew / 2.0 * (t - mean) / sd, 1e-3)
    over, density = normal_tail(6.0 / skew * (y ** (1 / 3) - 1.0) + skew / 6.0)
    return over, density / (sd * y ** (2 / 3))


def slot_wait(s: dict) -> tuple[float, float]:
    """Share that waits, and the mean of their waits."""
    g, n, left = s["g"], s["n"], 1 - s["phi"]
    wide = peakedness(s) / (1 - g)
    mean = n + g / (1 - g) + (s["ca"] - 1) / 2 / left
    number = (mean, wide * n, (2 * wide - 1) * wide * n)
    density, body = gamma_tail(*number, s["slots"])[1], 1.0 - gamma_tail(*number, s["slots"] - 0.5)[0]
    z, streams = peakedness(s), s["slots"] / s["slots_each"]
    edge = 0.914 * z**1.11 * left**-0.46 * s["load"] ** -0.33 if s["prompt"] > 0 else z ** (4 / 3)
    h = edge / ((1 + s["ca"]) / 2) * density / cut(s["load"], s["ca"], 1.0)
    goes_on = max(1.0 - cut(s["load"], s["ca"], s["cs"]), 1e-18)
    each = s["passes"] * s["full"] / s["slots_each"]  # between two ends of one stream
    return h / (h + body), each / (1.0 - goes_on**streams)


def after_wait(s: dict) -> tuple[float, float, float]:
    gamma, cp, others = s["prompt"], s["cp"], s["slots_each"] / s["passes"]
    mean = s["full"] / 2 + gamma
    third = gamma**3 * (2 * cp**2 + others * (1 + cp) * (1 + 2 * cp))
    return mean, gamma**2 * (cp + others * (1 + cp)), third


def first_token(found, after, wait: tuple[float, float], level: float, z: float) -> float:
    share, each = wait
    if level == "mean":
        return found[0] + share * (after[0] + each - found[0])
    waited = (after[0] + each, after[1] + each**2, after[2] + 2 * each**3)
    t = gamma_quantile(*found, z)
    if share > 1 - level:
        t = max(t, after[0] + each * math.log(share / (1 - level)))
    least, most = t, t + after[0] - each * math.log(1 - level)
    for _ in range(4):
        one, two = gamma_tail(*found, t), gamma_tail(*waited, t)
        over, density = ((1 - share) * a + share * b for a, b in zip(one, two, strict=True))
        t = min(max(t + over / density * math.log(over / (1 - level)), least), most)
    return t


def power_mean(q: float, scv: float) -> float:
    """Of a gamma variable of mean 1: the sum of log(1 + k c) below q, as an integral and half of its last term."""
    c = max(scv, 0.02)
    top = 1 + max(q - 1, 0) * c
    return math.exp((((math.log(top) - 1) * top + 1) / c + math.log(top) / 2) / q)


def hit(s: dict, level: float) -> float:
    co = max(s["co"], 0.05)
    a, rate = 1 / co, with_companions(s)
    stirling = math.exp(a) / (math.sqrt(2 * math.pi * a) * (1 + 1 / (12 * a)))
    soon, each = rate * (s["prompt"] * (1 + rate * s["cycle"]) + s["decoding"]), rate * s["cycle"]
    none = stirling * (0.5 / s["passes"]) ** a * (soon + each * a / (2 * (a + 1)))
    short = stirling / (1 - level + none)
    at_once = (short * soon + 1e-18) ** co / s["passes"]
    later = ((short * each * a / (a + 1) + 1e-18) ** co / s["passes"]) ** (1 / (1 + co))
    at_once *= power_mean(a, s["cp"])
    later *= power_mean(a + 1, s["cp"]) / math.sqrt(1 - s["phi"])
    x = at_once / 2 + math.sqrt(at_once**2 / 4 + later**2)
    seen = 2 * s["each"] * s["cycle"] / ((s["ca_stream"] + 1) * x)
    even = 1 + max(s["ca_stream"] - 1, 0.0) * (1 + math.expm1(-seen) / seen)
    return x * s["prompt"] * ((even + s["cp"]) / (1 + s["cp"])) ** (min(a, 2.0) / 2)


def token(s: dict, level: float, z: float) -> float:
    g, n = s["g"], s["n"]
    bursts = (s["ca"] - 1) / (1 - s["phi"]) ** 2
    mean = min(s["cycle"] * (1 + g * (1 + 2 / (3 - g) * bursts) / n), s["full"])
    amid = s["cycle"] if s["prompt"] == 0.0 else 0.0
    mean = max(mean, s["cycle"] * (1 - g)) + amid / 2 / s["passes"]
    if z in (0.0, "mean"):
        return mean
    wide = min(mean * z * g * math.sqrt(peakedness(s) * 3 / ((4 - g) * n * (1 - g))), max(s["full"] - mean, 0.0))
    if amid:
        co = max(s["co"], 0.05)
        short = math.exp(1 / co) / (math.sqrt(2 * math.pi / co) * (1 + co / 12)) * (1 - slot_wait(s)[0])
        none = short * (0.5 / s["passes"]) ** (1 / co)
        amid *= (short / ((1 / co + 1) * (1 - level + none))) ** co / s["passes"]
    return mean + math.sqrt(wide**2 + (hit(s, level) + amid) ** 2 + 1e-18 * mean**2)


def prompts_alone(asked, period: float, latency: float, rate: float, prompts: float, replicas: float):
    """Load, and moments of queue and pass."""
    ca, cp, _, pooled = asked
    load = rate * period / (prompts * replicas)
    if load >= FULL:
        return load, None
    k, arrivals = (replicas, ca) if pooled else (1.0, 1 + (ca - 1) / replicas)
    u, own = cut(load, arrivals, 1.0), latency / prompts
    spread, unit = max((arrivals - 1 + 2 * cp) / (arrivals + 1), -0.3), period / prompts / k
    ahead, moments, power = (1 - u) / u, [], 1.0
    for n in (1, 2, 3):
        power *= unit * (1 + (n - 1) * spread) if n > 1 else unit
        moments.append(power * (1 + n * spread) / (n + 1))
    crowd = (1 - load) * max(arrivals - 1, 0.0) * (1 / (arrivals + 4 * cp) - 1 / (arrivals + 4))
    x1, x2, x3 = (each * math.exp(-n * crowd) for n, each in enumerate(moments, 1))
    cumulants = ahead * x1, ahead * x2 + (ahead * x1) ** 2, ahead * x3 + 3 * ahead**2 * x1 * x2 + 2 * (ahead * x1) ** 3
    raw = (
        cumulants[0],
        cumulants[1] + cumulants[0] ** 2,
        cumulants[2] + 3 * cumulants[1] * cumulants[0] + cumulants[0] ** 3,
    )
    one, two, three = ((1 - u) ** (math.sqrt(2 * (k + 1)) - 2) * each for each in raw)
    behind = load * (prompts - 1) * own
    mean = one + own + behind / 2
    variance = two - one**2 + cp * own * (own + behind / 2) + behind**2 / 12
    third = three - 3 * one * two + 2 * one**3 + 2 * cp**2 * own**3
    return load, (mean, variance, third, own / (1 + 4 * cp))


def percentiles(service, plan, state: dict) -> dict[str, float]:
    """All of them and the means by name, infinite where more comes than is answered."""
    two = hasattr(plan, "decode")
    decode, prefill = (plan.decode, plan.prefill) if two else (plan, plan)
    asked = (service.arrival_scv, service.input_scv, service.output_scv, bool(service.least_loaded))
    rate = service.peak_over_mean / state["interval"]
    found = {"busiest_load": rate * state["between"]}
    full, empty = state["step"]["period"], state["empty"]["period"]
    added = 0.0 if two else state["first_pass"]["latency"] - state["step"]["latency"]
    passes = state["passes"] if service.decodes else 1.0
    streams = decode.dp * decode.pp
    busy = rate * passes * full / (decode.micro_batch * streams)
    pass_s = state["first_pass"]["period"] / prefill.pp
    queued, alone = prompts_alone(asked, pass_s, state["first_pass"]["latency"], rate, prefill.micro_batch, prefill.dp)
    ends = busy < FULL and (queued < FULL or not two)
    for name, (level, z) in {**LEVELS, "mean": MEAN}.items():
        first = next_ = math.inf
        if ends:
            s = sequences(asked, full, empty, added, rate, decode.micro_batch, passes, streams)
            next_ = token(s, level, z) / state["gain"]
            parts = alone[:3] if two else own(s)
            if two or service.decodes:
                mean, variance, third = parts
                found_, after, came = (mean, variance, third), after_wait(s), s
                if two:
                    k = prefill.dp
                    left = (1 - queued**2) * (asked[0] - 1) + queued**2 * (asked[1] - 1) / math.sqrt(k)
                    seen = ((1 + left + asked[0]) / 2, *asked[1:])
                    came = sequences(seen, full, empty, added, rate, decode.micro_batch, passes, streams)
                    after = (mean, variance, third)
                first = first_token(found_, after, slot_wait(came), level, z)
                first += state["transfer"]
        if not (two or service.decodes) and alone is not None:
            mean, variance, third, floor = alone
            first = quantile(mean, variance, third, z, floor)
        found[f"time_to_first_token_{name}_s"] = first if service.prefills or two else math.nan
        found[f"time_per_output_token_{name}_s"] = next_ if service.decodes or two else math.nan
    first, next_ = (found.pop(f"time_{name}_token_mean_s") for name in ("to_first", "per_output"))
    if first == math.inf and not service.requests_per_s:
        first = state["first"]  # requests come as slots become free
    next_ = state["token"] if next_ == math.inf else next_
    later, generated = service.output_tokens - 1.0, state["passes"] * state["gain"]
    return found | {
        "time_to_first_token_s": first,
        "time_per_output_token_s": next_,
        "request_time_s": first + later * next_,
        "time_to_first_token_full_batch_s": state["first"],
        "time_per_output_token_full_batch_s": state["token"],
        "request_time_full_batch_s": state["first"] + later * state["token"],
        "users": rate * generated * next_,
    }
