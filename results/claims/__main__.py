"""`python -m results.claims [ID ...] [--table]`."""

import argparse
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before JAX loads

from results.claims import CLAIMS
from results.claims.table import row, written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ids", nargs="*", metavar="ID", help="claims such as A56; all of them without")
    parser.add_argument("--table", action="store_true", help="the whole table in Markdown")
    options = parser.parse_args()
    unknown = [id for id in options.ids if id not in CLAIMS]
    if unknown:
        parser.error(f"no claim '{unknown[0]}': A1 to A81, B1 to B38")
    if options.table:
        print(written(), end="")
        return
    for id in options.ids or CLAIMS:
        found = row(id)
        print(
            f"{id} ({found.article}) {found.says}\n   {found.verdict.upper()}: {found.figure}\n   {found.arithmetic}\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
