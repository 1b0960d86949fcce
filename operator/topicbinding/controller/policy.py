"""What the planner needs to know besides the objects: the installation's own choices, as plain values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


@dataclass(frozen=True, slots=True)
class Policy:
    default_image: str = "topicbinding-spark:dev"  # for bindings that leave spark.image open
    lost_grace: timedelta = timedelta(seconds=2)  # a vanished pod is believed gone after this
    stuck_grace: timedelta = timedelta(seconds=60)  # beyond its own grace a terminating pod is forced
    retry_base: timedelta = timedelta(seconds=1)  # first wait after a driver failed; doubles
    retry_cap: timedelta = timedelta(seconds=60)
    healthy_after: timedelta = timedelta(minutes=10)  # a driver that lived so long starts counting anew
    failures_limit: int = 5  # failures of a candidate's driver before it is given up
    settle: timedelta = timedelta(seconds=1)  # least time between two builds for one binding
    superseded_retention: timedelta = timedelta(
        seconds=60
    )  # a superseded generation can be looked at so long

    def retry_after(self, failures: int) -> timedelta:
        """1, 2, 4, 8 … seconds, at most `retry_cap`."""
        doubled: timedelta = self.retry_base * int(2 ** min(max(failures - 1, 0), 16))
        return self.retry_cap if doubled > self.retry_cap else doubled
