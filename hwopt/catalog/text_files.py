"""Reading of a user's text files."""

from pathlib import Path

from hwopt.errors import UserError
from hwopt.validation import file_bytes


def read_text(path: Path) -> str:
    """Return the text of a user's UTF-8 file, with or without a byte order mark.

    **Raises:** `UserError` for a file that cannot be read, or is in another encoding.
    """
    try:
        raw = file_bytes(path)
    except OSError as failure:
        raise UserError(f"cannot read {path}: {failure.strerror or failure}") from None
    except ValueError as failure:  # a NUL in the name
        raise UserError(f"cannot read {path}: {failure}") from None
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as failure:
        intent = "it is UTF-16; save it as UTF-8" if raw.startswith((b"\xff\xfe", b"\xfe\xff")) else "save it as UTF-8"
        raise UserError(f"{path} is not UTF-8 text (byte {failure.start}): {intent}") from None
