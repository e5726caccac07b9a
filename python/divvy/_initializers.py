"""Initial values of variables, and the rules of tables."""
import dataclasses
from typing import Union

from divvy._native import Option


@dataclasses.dataclass(frozen=True)
class Constant(Option):
    """Every element has this value."""

    value: float = 0.0


def Zeros():
    """Every element is 0."""
    return Constant(0.0)


def Ones():
    """Every element is 1."""
    return Constant(1.0)


@dataclasses.dataclass(frozen=True)
class RandomUniform(Option):
    """Uniform in [low, high). Seed 0: the job's seed and the variable's name decide."""

    low: float = -0.05
    high: float = 0.05
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class RandomNormal(Option):
    """Normal with this mean and standard deviation."""

    mean: float = 0.0
    stddev: float = 0.05
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class TruncatedNormal(Option):
    """Normal, without values of more than two standard deviations."""

    mean: float = 0.0
    stddev: float = 0.05
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class GlorotUniform(Option):
    """Glorot and Bengio's, uniform: Keras' default for kernels."""

    seed: int = 0


@dataclasses.dataclass(frozen=True)
class GlorotNormal(Option):
    """Glorot and Bengio's, truncated normal."""

    seed: int = 0


@dataclasses.dataclass(frozen=True)
class HeUniform(Option):
    """He et al.'s, uniform: for ReLU."""

    seed: int = 0


@dataclasses.dataclass(frozen=True)
class HeNormal(Option):
    """He et al.'s, truncated normal: for ReLU."""

    seed: int = 0


@dataclasses.dataclass(frozen=True)
class LecunUniform(Option):
    """LeCun et al.'s, uniform."""

    seed: int = 0


@dataclasses.dataclass(frozen=True)
class LecunNormal(Option):
    """LeCun et al.'s, truncated normal."""

    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Identity(Option):
    """gain on the diagonal of a matrix, 0 elsewhere."""

    gain: float = 1.0


@dataclasses.dataclass(frozen=True)
class Orthogonal(Option):
    """A matrix with orthogonal rows or columns."""

    gain: float = 1.0
    seed: int = 0


Initializer = Union[Constant, RandomUniform, RandomNormal, TruncatedNormal, GlorotUniform,
                    GlorotNormal, HeUniform, HeNormal, LecunUniform, LecunNormal, Identity,
                    Orthogonal]

# ---- which keys of a table have a row ------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class AdmitAlways(Option):
    """A key gets its row from the first finished step that writes to it."""


@dataclasses.dataclass(frozen=True)
class AdmitAfter(Option):
    """A key gets its row from the finished step number `steps` that names it.

    counter_bytes: 0 counts exactly; otherwise a counting Bloom filter of this size.
    """

    steps: int = 2
    counter_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class AdmitWithProbability(Option):
    """Each finished step gives a key that it names a row with this probability, in (0, 1]."""

    probability: float = 1.0


@dataclasses.dataclass(frozen=True)
class EvictNever(Option):
    """Every row stays."""


@dataclasses.dataclass(frozen=True)
class EvictUnusedFor(Option):
    """Rows go that no finished step has named for so many seconds; whole minutes, at least 60."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class EvictBelowNorm(Option):
    """Rows go whose values have a smaller Euclidean norm."""

    norm: float


@dataclasses.dataclass(frozen=True)
class EvictLeastUsed(Option):
    """A full table drops the rows that the fewest steps have named."""


@dataclasses.dataclass(frozen=True)
class EvictLeastRecent(Option):
    """A full table drops the rows that no step has named for the longest time."""


Admission = Union[AdmitAlways, AdmitAfter, AdmitWithProbability]
Eviction = Union[EvictNever, EvictUnusedFor, EvictBelowNorm, EvictLeastUsed, EvictLeastRecent]
