"""What export rules ask of a chip."""

BITS = {"fp32": 32, "tf32": 32, "bf16": 16, "fp8": 8, "int8": 8, "fp4": 4}


def tpp(chip) -> float:
    """Most of tera-operations a second times bits."""
    peaks = zip(chip.peak_flops_per_s, BITS.values(), strict=True)
    return max(float(peak) / 1e12 * bits for peak, bits in peaks) * chip.sold_clock_ratio
