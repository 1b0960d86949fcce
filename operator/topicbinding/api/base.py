"""The base of every resource model: camelCase on the wire, snake_case in code, frozen."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    # Unknown fields are ignored rather than refused: the API server has already pruned what the schema does
    # not know, and an older program must be able to read what a newer one wrote.
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore")

    def wire(self) -> dict[str, Any]:
        """As it is written in YAML and sent to the API server: nothing for what was left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    @classmethod
    def read(cls, data: Any) -> Self:
        return cls.model_validate(data)


class Resource(Model):
    """A whole object: its metadata is the API server's, and passed on as it is."""

    metadata: dict[str, Any] = Field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata["namespace"])

    @property
    def uid(self) -> str:
        return str(self.metadata["uid"])
