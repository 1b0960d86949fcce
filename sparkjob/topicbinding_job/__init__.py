"""The generation's Spark job: three live tables from two topics."""

from typing import Final

VERSION: Final = "0.1.0"
