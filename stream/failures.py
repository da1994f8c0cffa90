"""Failure: what is kept of an exception. Pure.

Error texts are hostile input: they may be huge, hold null characters, or raise when asked for. Whatever they do,
there is a failure to write down in the end.
"""

from __future__ import annotations

import hashlib
import sysconfig
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from stream.errors import TransientError, text_of
from stream.outcomes import Stage
from stream.policy import FailureKind, is_deploy_fault, kind_of
from stream.schemas import DecodeError

MOST_MESSAGE_BYTES = 1024
MOST_STACK_BYTES = 8192

_NOT_OURS = tuple(
    str(Path(path).resolve())
    for path in {
        str(Path(__file__).parent),
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed try, as tables and headers keep it. `fingerprint` is equal for what failed alike."""

    kind: FailureKind
    stage: Stage
    error_class: str
    message: str
    stack: str | None
    fingerprint: str
    retry_after: float | None = None
    deploy_fault: bool = False


def failure_of(error: BaseException, stage: Stage, *, stack: bool = True) -> Failure:
    """What to keep of an error that a try ended with; its stack costs more than all the rest."""
    kind = kind_of(error, stage)
    name = class_name(error)
    place = error.reason if isinstance(error, DecodeError) else top_own_frame(error.__traceback__)
    return Failure(
        kind,
        stage,
        name,
        clamped(text_of(error), MOST_MESSAGE_BYTES) or name,
        clamped(_stack(error), MOST_STACK_BYTES, end=True) if stack and stage != "decode" else None,
        hashlib.sha256(f"{name}\x1f{stage}\x1f{place}".encode(errors="replace")).hexdigest()[:12],
        _seconds(getattr(error, "retry_after", None)) if isinstance(error, TransientError) else None,
        is_deploy_fault(error, kind),
    )


def _seconds(value: object) -> float | None:
    """A subclass may have set anything."""
    return float(value) if isinstance(value, int | float) and value == value else None


def class_name(error: BaseException) -> str:
    """`smtplib.SMTPDataError`; of the builtins the bare name."""
    cls = type(error)
    module = str(cls.__module__)
    name = str(cls.__qualname__)
    return clamped(name if module == "builtins" else f"{module}.{name}", 200)


def clamped(text: str, most_bytes: int, *, end: bool = False) -> str:
    """Text that UTF-8 and PostgreSQL can hold, in at most so many bytes: its beginning, or its `end`."""
    text = text[-most_bytes - 1 :] if end else text[: most_bytes + 1]  # before anything is made of it
    encoded = text.replace("\0", "\\0").encode(errors="backslashreplace")
    if len(encoded) <= most_bytes:
        return encoded.decode()
    kept = encoded[-most_bytes + 3 :] if end else encoded[: most_bytes - 3]
    cut = kept.decode(errors="ignore")
    return "..." + cut if end else cut + "..."


def top_own_frame(tb: TracebackType | None) -> str:
    """`email.py:send` of the innermost frame that is neither ours, the standard library's nor a package's.

    No line number: it would change with every deploy.
    """
    found = "?"
    while tb is not None:
        code = tb.tb_frame.f_code
        if found == "?" or not code.co_filename.startswith(_NOT_OURS):
            found = f"{Path(code.co_filename).name}:{code.co_name}"
        tb = tb.tb_next
    return found


def _stack(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))
    except Exception as raised:  # noqa: BLE001  # somebody else's code
        return f"(its stack cannot be shown: {type(raised).__name__})"
