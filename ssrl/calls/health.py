"""When failures are no longer an accident: the run stops and says what to start."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable

from ssrl.errors import UserError
from ssrl.types import SearchStatus


class Health:
    """The share of failures among the last `window` calls, which may not exceed `max_error_frac` (1: whatever happens).

    `hint` is the command that starts, or the variable that repairs, what answers the calls.
    """

    def __init__(self, max_error_frac: float, window: int, hint: str) -> None:
        if not 0 <= max_error_frac <= 1:
            raise UserError(f"calls.max_error_frac={max_error_frac} must lie between 0 and 1; type calls.max_error_frac=0.05")
        if window < 1:
            raise UserError(f"calls.window={window} must be at least 1; type calls.window=200")
        self._max_error_frac = max_error_frac
        self._least = max(1, -(-window // 5))  # a fifth, rounded up
        self._hint = hint
        self._failed: deque[bool] = deque(maxlen=window)
        self._lock = threading.Lock()

    def note(self, statuses: Iterable[SearchStatus]) -> None:
        """Counts the ends of some calls.

        Raises:
            UserError: a fifth of the window is known and more than the allowed share of it failed.
        """
        with self._lock:
            self._failed.extend(status.failed for status in statuses)
            count, failed = len(self._failed), sum(self._failed)
        if count >= self._least and failed / count > self._max_error_frac:
            raise UserError(
                f"{failed} of the last {count} calls to the outside failed, which is more than calls.max_error_frac={self._max_error_frac:g} allows. "
                f"Start or repair what answers them, then run the same command to continue: {self._hint}"
            )
