"""Optimizers and learning rates: divvy/optimizers/*.h in Python."""
import dataclasses
from typing import Optional, Sequence, Union

from divvy._native import Option


@dataclasses.dataclass(frozen=True)
class ExponentialDecay(Option):
    """initial * rate ** (step / decay_steps); with staircase the quotient is rounded down."""

    initial: float
    decay_steps: int
    rate: float
    staircase: bool = False


@dataclasses.dataclass(frozen=True)
class InverseTimeDecay(Option):
    """initial / (1 + rate * step / decay_steps); with staircase the quotient is rounded down."""

    initial: float
    decay_steps: int
    rate: float
    staircase: bool = False


@dataclasses.dataclass(frozen=True)
class PolynomialDecay(Option):
    """(initial - final_rate) * (1 - min(step, decay_steps) / decay_steps) ** power + final_rate."""

    initial: float
    decay_steps: int
    final_rate: float = 1e-4
    power: float = 1.0


@dataclasses.dataclass(frozen=True)
class CosineDecay(Option):
    """Half a cosine from `initial` down to final_fraction of it, over decay_steps.

    With warmup_steps a linear warmup comes first: from 0 to `initial`, or from `initial` to
    warmup_target.
    """

    initial: float
    decay_steps: int
    final_fraction: float = 0.0
    warmup_steps: int = 0
    warmup_target: Optional[float] = None


@dataclasses.dataclass(frozen=True)
class PiecewiseConstant(Option):
    """values[i] for the first i with step <= boundaries[i]; the last value after the last one."""

    boundaries: Sequence[int]
    values: Sequence[float]


LearningRate = Union[float, ExponentialDecay, InverseTimeDecay, PolynomialDecay, CosineDecay,
                     PiecewiseConstant]


@dataclasses.dataclass(frozen=True)
class Sgd(Option):
    """Gradient descent: w -= learning_rate * g."""

    learning_rate: LearningRate


@dataclasses.dataclass(frozen=True)
class Momentum(Option):
    """Gradient descent with momentum in [0, 1]: m = momentum * m - learning_rate * g; w += m."""

    learning_rate: LearningRate
    momentum: float = 0.9
    nesterov: bool = False


@dataclasses.dataclass(frozen=True)
class Adagrad(Option):
    """Adagrad: a += g ** 2; w -= learning_rate * g / (sqrt(a) + epsilon)."""

    learning_rate: LearningRate
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7


@dataclasses.dataclass(frozen=True)
class RowwiseAdagrad(Option):
    """Adagrad with one accumulator for each row, so that large tables can afford it."""

    learning_rate: LearningRate
    initial_accumulator: float = 0.1
    epsilon: float = 1e-7


@dataclasses.dataclass(frozen=True)
class Adam(Option):
    """Adam, with weight_decay AdamW. A sparse gradient changes the rows that it names only."""

    learning_rate: LearningRate
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-7
    weight_decay: float = 0.0
    amsgrad: bool = False


@dataclasses.dataclass(frozen=True)
class RmsProp(Option):
    """RMSProp; `centered` divides by an estimate of the variance."""

    learning_rate: LearningRate
    rho: float = 0.9
    momentum: float = 0.0
    epsilon: float = 1e-7
    centered: bool = False


@dataclasses.dataclass(frozen=True)
class Ftrl(Option):
    """FTRL-Proximal. l1 makes many weights of a linear model exactly 0."""

    learning_rate: LearningRate
    l1: float = 0.0
    l2: float = 0.0
    learning_rate_power: float = -0.5
    initial_accumulator: float = 0.1
    beta: float = 0.0
    l2_shrinkage: float = 0.0


@dataclasses.dataclass(frozen=True)
class GroupFtrl(Option):
    """FTRL with a group lasso on each row: l21 makes whole rows exactly 0."""

    learning_rate: LearningRate
    l21: float = 0.0
    l1: float = 0.0
    l2: float = 0.0
    learning_rate_power: float = -0.5
    initial_accumulator: float = 0.1
    beta: float = 0.0
    l2_shrinkage: float = 0.0


Optimizer = Union[Sgd, Momentum, Adagrad, RowwiseAdagrad, Adam, RmsProp, Ftrl, GroupFtrl]
