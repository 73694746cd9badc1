"""What goes in and comes out, as FastAPI reads it: the OpenAPI page is made from these."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field, WithJsonSchema, model_validator

_NUMBERS = {
    "description": "Nested lists of one length each, in the shape that the model takes, without a batch dimension "
    "(a picture: [channels, height, width] in [0, 1]); or an object of such lists by argument name.",
    "anyOf": [
        {"type": "array", "items": {"anyOf": [{"type": "number"}, {"type": "array", "items": {}}]}},
        {"type": "object"},
    ],
}


class Sent(BaseModel):
    """Whatever is sent has these names and no others."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Item(Sent):
    """One input: exactly one of image, numbers and text."""

    image: str | None = Field(None, description="The file of a picture, as base64 or a data URL.")
    numbers: Annotated[Any, WithJsonSchema(_NUMBERS)] = None
    text: str | None = None
    dtype: Literal["float32", "int64"] = Field("float32", description="Of numbers; int64 for indices of tokens.")

    @model_validator(mode="after")
    def _one(self) -> Item:
        named = [name for name in ("image", "numbers", "text") if getattr(self, name) is not None]
        if len(named) != 1:
            raise ValueError(f"expected exactly one of image, numbers and text, got {' and '.join(named) or 'none'}")
        if self.numbers is not None and not isinstance(self.numbers, list | dict):
            raise ValueError("expected numbers to be a list, or an object of lists")
        return self


class Body(Sent):
    """One or several inputs."""

    inputs: Annotated[list[Item], FailFast()] = Field(min_length=1)


class Class(BaseModel):
    """A class and its probability."""

    index: int
    name: str | None = Field(description="Where the model's classes have names.")
    probability: float


class Doubt(BaseModel):
    """How doubtful the answer is, in nats."""

    total: float
    aleatoric: float | None = Field(description="What more training data could not remove; null for a single network.")
    epistemic: float | None = Field(description="What more training data could remove; null for a single network.")
    most: float = Field(description="The largest that the total can be: the logarithm of the number of classes.")
    samples: int = Field(description="Predictions that it was found from; 1 for a single network.")


class Decision(BaseModel):
    """What the policy says."""

    advice: Literal["accept", "ask a person"]
    method: str | None = Field(description="The score that was judged; null for a policy of answer sets.")
    score: float | None
    threshold: float | None
    answers: list[Class] | None = Field(description="A set that holds the true class as promised, or null.")


class Wrong(BaseModel):
    """How often answers as doubtful as this one were wrong for the reference, with a 90 % interval."""

    probability: float
    low: float
    high: float


class GuardVerdict(BaseModel):
    """What the guard says of an input: whether it is like the reference."""

    p_value: float = Field(description="Of inputs like the reference, at most a share α has p ≤ α.")
    level: float = Field(description="The share of inputs like the reference that are called foreign by mistake.")
    foreign: bool = Field(description="Whether p_value is at most the level.")
    state: Literal["foreign", "unsure", "fine"] = Field(description="unsure: it is known, but its answer is in doubt.")
    witnesses: dict[str, float] = Field(description="As z: about 0 for a usual input, 2 for one in forty.")
    words: str = Field(description="What is unusual about it, in a sentence.")
    wrong: Wrong | None = Field(description="Null where the reference had no labels; says nothing of a foreign input.")


class CheckedInput(GuardVerdict):
    """A verdict with the answer of the network that it is about."""

    predicted: int
    predicted_class: str | None = Field(description="Where the model's classes have names.")
    confidence: float = Field(description="The probability of that class.")
    foreignness: list[list[float]] | None = Field(
        description="−log₁₀ p of each region of a picture, where the model answers at every position and ?maps=true."
    )


class Verdicts(BaseModel):
    """One for each input, in their order."""

    results: list[CheckedInput]
    reference: int = Field(description="How many known inputs each was compared with.")


class AnsweredInput(BaseModel):
    """What every endpoint says of an input."""

    answer: Class
    decision: Decision | None = Field(description="Null where no policy was given.")


class Predicted(AnsweredInput):
    """An answer with its doubt."""

    likeliest: list[Class]
    doubt: Doubt
    verdict: GuardVerdict | None = Field(description="Whether the input is foreign; null where no guard was given.")
    words: str = Field(description="The answer, its doubt and what to do, in plain words.")


class Predictions(BaseModel):
    """One for each input, in their order."""

    results: list[Predicted]
    note: str | None = Field(description="What should be known of all of them.")


class Scored(AnsweredInput):
    """An input's scores by method; higher is more uncertain."""

    scores: dict[str, float]


class Scores(BaseModel):
    """One for each input, in their order."""

    results: list[Scored]


class Explained(AnsweredInput):
    """A map over the input that says which part of it causes the doubt."""

    uncertainty: float = Field(description="What was attributed.")
    residual: float | None = Field(
        description="Sum of the map minus uncertainty: 0 where the method adds up. Null where the model answers at "
        "every position: then the map is the doubt at each, of which the uncertainty is the mean."
    )
    shape: list[int]
    map: list[Any] | None = Field(description="Numbers of this shape, where asked for.")
    overlay: str | None = Field(description="A PNG as base64, the map over the input, where asked for.")
    places: list[str] | None = Field(description="What the places of the map are: tokens, for a text.")


class Explanations(BaseModel):
    """One for each input, in their order."""

    results: list[Explained]
    of: str
    method: str
    about: str


class Health(BaseModel):
    """Whether it works, and what is served (that only with the token, where there is one)."""

    status: Literal["ok", "ending"]
    version: str
    model: str | None = None
    takes: str | None = None
    preprocess: str | None = None
    classes: list[str] | None = None
    methods: list[str] | None = None
    policy: str | None = None
    drift: str | None = None
    guard: str | None = None
    stream: str | None = None


class Error(BaseModel):
    """What is wrong."""

    status: int
    kind: str = Field(description="One word for programs.")
    message: str = Field(description="What was expected, what came, and what to do.")


class Refused(BaseModel):
    """The shape of every error."""

    error: Error
