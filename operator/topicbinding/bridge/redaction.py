"""Keeps credentials out of every log line, whoever wrote it: the last line of defence, not the first.

Installed by `main` on the process's log handlers; the service tells it what to hide.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterable
from typing import Final

from pydantic import SecretStr

HIDDEN: Final = "**********"
# Shorter values are hidden too, but words such as 'a' would make every line unreadable.
_SHORTEST: Final = 4


class Redaction(logging.Filter):
    """A log filter that replaces known secrets in messages, arguments and tracebacks."""

    def __init__(self) -> None:
        super().__init__()
        self._hidden: tuple[str, ...] = ()

    def hide(self, values: Iterable[SecretStr]) -> None:
        """From now on. Longer ones first, so that no half of one stays."""
        plain = {value.get_secret_value().strip() for value in values}
        # A certificate is public and would cost a search of kilobytes in every line; its key is not.
        kept = {text for text in plain if len(text) >= _SHORTEST and "BEGIN CERTIFICATE" not in text}
        self._hidden = tuple(sorted(kept, key=len, reverse=True))

    def clean(self, text: str) -> str:
        for secret in self._hidden:
            text = text.replace(secret, HIDDEN)
        return text

    def filter(self, record: logging.LogRecord) -> bool:
        if not self._hidden:
            return True
        record.msg, record.args = self.clean(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = self.clean("".join(traceback.format_exception(record.exc_info[1])).rstrip())
        elif record.exc_text:
            record.exc_text = self.clean(record.exc_text)
        return True
