"""What the operations of a host are made of on the wire: names, keys of entries, values and failures."""

from typing import Annotated, Any, Self, TypeVar

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from moorage.api.fields import Sent
from moorage.journal.model import NO_INPUT, EntryKey, Value
from moorage.kernel import canonical
from moorage.kernel.errors import FailureTag
from moorage.kernel.limits import (
    BODY_NAME_CHARACTERS,
    ID_CHARACTERS,
    JOURNAL_VALUE_BYTES,
    RETRY_ATTEMPTS,
    TEXT_CHARACTERS,
)
from moorage.runs.model import Failure

S = TypeVar("S", bound="Sent")

Text = Annotated[str, Field(min_length=1, max_length=int(TEXT_CHARACTERS))]
Label = Annotated[str, Field(min_length=1, max_length=int(ID_CHARACTERS), description="The step's label.")]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 in lower-case hex.")]
_POSITION = r"^[0-9]{1,9}(\.[0-9]{1,9}/[0-9]{1,9})*$"
Position = Annotated[
    str,
    Field(max_length=int(TEXT_CHARACTERS), pattern=_POSITION, description="Where in the body it is asked for."),
]
Attempt = Annotated[int, Field(ge=1, le=10 * int(RETRY_ATTEMPTS))]
BodyName = Annotated[str, Field(min_length=1, max_length=int(BODY_NAME_CHARACTERS), description="A body's name.")]
ScopeName = Annotated[str, Field(min_length=1, max_length=int(TEXT_CHARACTERS), description="What the execution is of.")]


class BlobSent(Sent):
    """A value that was stored before: its digest, and the bytes of its canonical JSON."""

    sha256: Sha256
    size: int = Field(ge=0, le=int(JOURNAL_VALUE_BYTES))

    def value(self) -> Value:
        """What the substrate takes."""
        return Value(None, self.size, self.sha256)


class StepFailureSent(Sent):
    """Why a step or a run failed: a tag of the closed set, a sentence for people, and what it was about."""

    tag: Annotated[FailureTag, Field(strict=False)]
    message: str = Field(max_length=64 * int(TEXT_CHARACTERS))
    code: Text | None = None
    step: Label | None = None

    def failure(self) -> Failure:
        """What the substrate takes."""
        return Failure(self.tag.value, self.message, self.code, self.step)


class KeyedSent(Sent):
    """An entry by its key; without a hash, that of a step without input."""

    label: Label
    input_sha256: Sha256 = NO_INPUT

    @property
    def key(self) -> EntryKey:
        """What the substrate takes."""
        return EntryKey(self.label, self.input_sha256)


class Valued(KeyedSent):
    """An entry with a value: any JSON, null too, or a blob; one of the two."""

    value: Any = None
    blob: BlobSent | None = None

    @model_validator(mode="after")
    def _one(self) -> Self:
        return exactly_one(self, "value")

    def told(self) -> Value:
        """What the substrate takes."""
        return value_of(self.value, self.blob)


def exactly_one(sent: S, name: str) -> S:
    """The shape, if it has exactly one of the member and `blob`. Raises PydanticCustomError."""
    if (name in sent.model_fields_set) == ("blob" in sent.model_fields_set):
        raise PydanticCustomError("one_value", "has either {name} or blob", {"name": name})
    return sent


def value_of(given: Any, blob: BlobSent | None) -> Value:
    """A value that was sent, or the blob that stands for it."""
    return blob.value() if blob is not None else Value.of(canonical.dumps(given))
