"""Request bodies of the control interface. Strict: a number in quotes is refused, an unknown field is refused."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class KnobPatch(BaseModel):
    """PATCH /pbkv/knobs."""

    model_config = ConfigDict(strict=True, extra="forbid")

    if_version: int = Field(ge=0, le=2**32, description="knob version the caller has seen; another one is refused with 409")
    changes: dict[str, int | float | str] = Field(min_length=1, max_length=32, description="knob name to new value")
    actor: str = Field(min_length=1, max_length=100, description="who asks")
    reason: str = Field(default="", max_length=100, description="why, for the event log")
    source: Literal["manual", "revert", "guard"] = Field(default="manual", description="what caused the change")
    expires_s: float | None = Field(default=None, gt=0, le=86_400, description="the engine reverts unless confirmed in time, seconds")


class RecordAsk(BaseModel):
    """POST /pbkv/record."""

    model_config = ConfigDict(strict=True, extra="forbid")

    epoch: int = Field(default=0, ge=0, lt=2**63, description="recording that the caller has rows of; 0 = none")
    after: int = Field(default=0, ge=0, lt=2**63, description="number of the newest row that the caller has")


class Confirm(BaseModel):
    """POST /pbkv/knobs/confirm."""

    model_config = ConfigDict(strict=True, extra="forbid")

    version: int = Field(ge=0, le=2**32, description="version returned by the change to keep")
