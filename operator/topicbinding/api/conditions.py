"""Conditions, in the form that kubectl wait and kstatus understand."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field

from topicbinding.api.base import Model
from topicbinding.api.schema import list_map


class Condition(Model):
    """One statement about the object, with why."""

    type: str = Field(max_length=316, description="What the statement is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="True, False or Unknown.")
    reason: str = Field(max_length=1024, description="One word for programs and runbooks.")
    message: str = Field("", max_length=32_768, description="A sentence for people.")
    last_transition_time: datetime = Field(description="When the status last changed.")
    observed_generation: int | None = Field(None, description="metadata.generation it speaks of.")


Conditions = Annotated[tuple[Condition, ...], Field(max_length=16, json_schema_extra=list_map("type"))]
