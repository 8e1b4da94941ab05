"""Claims under audit: every statement of five articles on clusters, settled by the model.

python -m results.claims            the table
python -m results.claims A56 A66    some rows of it
python -m results.claims --table > results/claims.md
"""

from importlib import import_module
from pathlib import Path

from results.claims.claim import REGISTER, Claim, in_order

_NOT_SUBJECTS = ("__init__", "amended", "__main__", "claim", "machines", "table")

for _path in sorted(Path(__file__).parent.glob("*.py")):
    if _path.stem not in _NOT_SUBJECTS:
        import_module(f"{__name__}.{_path.stem}")

CLAIMS: dict[str, Claim] = {id: REGISTER[id] for id in in_order(REGISTER)}
