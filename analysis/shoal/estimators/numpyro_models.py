"""An estimator of the latents of a NumPyro model that is installed on both sides; imports none."""

from dataclasses import dataclass

from shoal.estimators.base import Estimator
from shoal.estimators.columns import Bounds
from shoal_protocol.studies.numpyro_model import NumpyroPosterior, NumpyroTask


@dataclass(kw_only=True, eq=False, repr=False)
class NumpyroModel(Estimator[NumpyroPosterior]):
    """Variational inference of any NumPyro model's global latents. Parameters: see `NumpyroTask`.

    `posterior_.sample` gives draws of the latents, for predictions by the model itself. Intervals
    know of the noise, not of clipping; `posterior_.convergence` says if it arrived,
    as far as noise and clip let that be told.
    """

    task_type = NumpyroTask

    entry_point: str
    digest: str
    unconstrained: int
    columns: Bounds
    rounds: int
    batch: int | None
    normalised: bool = False
    clip: float = 1.0
    learning_rate: float = 0.1
    grid_bits: int = 20
    records_per_client: int = 1
