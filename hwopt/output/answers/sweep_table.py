"""Variants of a sweep as one table for other programs: CSV, and Parquet where pyarrow is installed."""

import importlib.util
from pathlib import Path
from typing import Any

from hwopt.errors import UserError

ROWS = "variant"


def variants_table(dataset: Any) -> Any:
    """Return a pandas frame with a row for each variant of a sweep.

    Its columns are case, choices, variables, metrics and the binding constraint, with coded values by name.

    **Raises:** `UserError` for a sweep that kept no variants.
    """
    kept = {
        name: each for name, each in dataset.data_vars.items() if ROWS in each.dims and set(each.dims) <= {"case", ROWS}
    }
    if not kept:
        raise UserError("the sweep stored no designs: leave out --no-rows, or reduce --samples")
    frame = dataset[list(kept)].to_dataframe().reset_index()
    for name, each in kept.items():
        if "flag_meanings" in each.attrs:  # replace codes by their names
            words = dict(zip(each.attrs["flag_values"], str(each.attrs["flag_meanings"]).split(), strict=True))
            frame[name] = frame[name].map(words)
    strange = [name for name in frame if name not in (*kept, *dataset.coords, ROWS, "case")]
    return frame.drop(columns=strange)


def check_table(flag: str, text: str) -> None:
    """Reject a table that could not be written, before any work starts.

    **Raises:** `UserError` for Parquet without pyarrow.
    """
    if flag == "--parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UserError(f"--parquet {text}: requires pyarrow: pip install 'hwopt[parquet]', or use --csv")


def write_table(path: Path, dataset: Any) -> None:
    """Write the table of variants as CSV or Parquet, by the file's extension. The file is complete or absent, never partial.

    **Raises:** `UserError` where it cannot be written.
    """
    frame, beside = variants_table(dataset), path.with_name(f".{path.name}.partial")
    try:
        if path.suffix == ".parquet":
            frame.to_parquet(beside, index=False)
        else:
            frame.to_csv(beside, index=False)
        beside.replace(path)
    except OSError as failure:
        raise UserError(f"{path}: cannot be written ({failure.strerror or failure})") from None
    finally:
        beside.unlink(missing_ok=True)
