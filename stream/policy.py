"""When a failed event is tried again. Pure."""

from __future__ import annotations

from stream.errors import TransientError

FIRST_S = 1.0
MOST_S = 30.0


def retry_delay(attempt: int, error: BaseException | None, chance: float) -> float:
    """Seconds until the next try after `attempt` tries; `chance` is a random number from 0 to 1.

    Full jitter, so that what failed together does not come back together: chance x min(30 s, 1 s x 2^attempt). A
    TransientError's `retry_after` is the least, up to the same cap.
    """
    # The cap first: 2 to the power of a thousand attempts is no float.
    delay = chance * min(MOST_S, FIRST_S * 2.0 ** min(attempt, 10))
    if isinstance(error, TransientError) and isinstance(error.retry_after, int | float):
        least = min(max(float(error.retry_after), 0.0), MOST_S)
        delay = max(delay, least if least == least else 0.0)  # NaN is no time
    return delay
