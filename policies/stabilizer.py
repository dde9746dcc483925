"""Stabilisation windows: follow a recommendation only if it lasts (policies.md §0.4, §3.4)."""


class Stabilizer:
    """Rises to the lowest and falls to the highest of the recent recommendations.

    A window includes its edge: with 300 s, a recommendation exactly 300 s ago still counts, as in
    the table of §20; Kubernetes drops it at that time.
    Source: Kubernetes, horizontal pod autoscaler, ``stabilizeRecommendationWithBehaviors``.
    """

    def __init__(self, up_s: float, down_s: float) -> None:
        """Create a stabilizer without recommendations.

        Args:
            up_s: Window that a rise must last, seconds.
            down_s: Window that a fall must last, seconds.
        """
        self._up_s = up_s
        self._down_s = down_s
        self._recommendations: list[tuple[float, int]] = []

    @property
    def is_empty(self) -> bool:
        """Whether there is no recommendation yet."""
        return not self._recommendations

    def record(self, now_s: float, recommendation: int) -> None:
        """Record a recommendation and drop those older than both windows."""
        oldest_s = now_s - max(self._up_s, self._down_s)
        self._recommendations = [item for item in self._recommendations if item[0] >= oldest_s]
        self._recommendations.append((now_s, recommendation))

    def stabilize(self, now_s: float, current: int, recommendation: int) -> int:
        """Record ``recommendation``; return the target nearest to ``current`` that is stable."""
        self.record(now_s, recommendation)
        low = min(self._recent(now_s, self._up_s, recommendation))
        high = max(self._recent(now_s, self._down_s, recommendation))
        return min(max(current, low), high)

    def _recent(self, now_s: float, window_s: float, recommendation: int) -> list[int]:
        """Return the recommendations of a window; a window of 0 s has no effect."""
        if window_s == 0.0:
            return [recommendation]
        return [n for at_s, n in self._recommendations if at_s >= now_s - window_s]
