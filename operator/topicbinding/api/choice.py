"""When are two choices the same? Asked by the controller for flips back and by the bridge for heartbeats."""

from __future__ import annotations

import hashlib
import json

from topicbinding.api.binding import Choice


def choice_hash(choice: Choice) -> str:
    """A short name for a choice, fit for a label.

    Only what differs from the defaults counts, so a field added by a later version leaves old choices as they
    were. An image left open is not part of it: a new operator must not rebuild every table people have open.
    """
    said = choice.model_dump(mode="json", by_alias=True, exclude_none=True, exclude_defaults=True)
    canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
