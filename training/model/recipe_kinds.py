"""The settings of a recipe that a plain training does not name: other optimisers, and words with given vectors."""

from typing import ClassVar, Literal

from clicktower.schemas.section import Factor, section
from clicktower.training.model.recipe import OptimiserSettings, WordVectorSettings


@section
class Tuned(WordVectorSettings):
    """The vectors are trained like everything else."""

    kind: Literal["tuned"] = "tuned"


@section
class Frozen(WordVectorSettings):
    """The vectors are not trained."""

    kind: Literal["frozen"] = "frozen"


@section
class SGD(OptimiserSettings):
    """Plain gradient descent, without momentum.

    Args:
        clip_value: The largest size of a number of the gradient, which is a sum; 0 is any.
    """

    code: ClassVar[str] = "clicktower.training.trainer.optimisers:RowState"
    kind: Literal["sgd"] = "sgd"
    clip_value: Factor = 0.0


@section
class Adam(OptimiserSettings):
    """Adam (Kingma and Ba)."""

    code: ClassVar[str] = "clicktower.training.trainer.adaptive_optimisers:AdamRows"
    matrices: ClassVar[int] = 3
    grows: ClassVar[bool] = False
    kind: Literal["adam"] = "adam"


@section
class AdaGrad(OptimiserSettings):
    """AdaGrad (Duchi et al.)."""

    code: ClassVar[str] = "clicktower.training.trainer.adaptive_optimisers:AdaGradRows"
    matrices: ClassVar[int] = 2
    grows: ClassVar[bool] = False
    kind: Literal["adagrad"] = "adagrad"
