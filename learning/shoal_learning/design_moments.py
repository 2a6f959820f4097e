"""The sums of one round that a linear regression given the design works from.

The model itself is in `design_model`, which needs the extra `numpyro`: `model` imports it.
"""

import hashlib
import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Final, Self

import numpy as np
from numpy.typing import NDArray

from shoal_learning.quasi_likelihood import NoisyMoments
from shoal_protocol.queries import SecondMomentMatrix, UnitRowMatrix
from shoal_protocol.queries.sums import matrix_from
from shoal_protocol.rounds.released_sum import ReleasedSum
from shoal_protocol.studies.measurements import noisy_count, record_law

if TYPE_CHECKING:
    from shoal_learning.design_model import Evidence, Kind

FloatVector = NDArray[np.float64]

WITHOUT_NUMPYRO: Final = (
    "inference conditional_design needs NumPyro: pip install 'shoal[numpyro]', or build "
    "the trainer's image with --build-arg LOCK=numpyro; inference quasi_likelihood needs nothing"
)
_LARGEST_MEAN_SQUARE: Final = 1.0 / 3.0  # of a column in [-1, 1], as the prior expects it


@dataclass(frozen=True, kw_only=True)
class DesignMoments:
    """Noisy second moments of rows (design, target), and what is public about the rows.

    Of up to `most` rows `seen` went in, plus noise of standard deviation `seen_sd`. `prior_sd`,
    shape (k,): independent normal priors of b with mean zero. `constant` is the design's first
    coordinate before rows shrink, 0 if there is none.
    `squared_radius` is that of the ball into which rows were shrunk, None if none was. `laplace`:
    the noise is Laplace's.
    """

    moments: NoisyMoments
    prior_sd: FloatVector
    constant: float
    squared_radius: float | None
    most: int
    seen: float
    seen_sd: float
    laplace: bool

    @classmethod
    def of(cls, released: ReleasedSum, prior_sd: FloatVector) -> Self:
        """Return what a round released of second moments.

        Raises:
            ValueError: it answers another query.
        """
        query = released.query
        if not isinstance(query, SecondMomentMatrix):
            raise ValueError("sampling given the design needs a round of second moments")
        limit = query.squared_norm_limit
        diagonal_sd, off_diagonal_sd = (released.noise_sd[[0, -2]] / query.grid**2).tolist()
        rows, rows_sd = record_law(released)
        seen, seen_sd = noisy_count(released)
        return cls(
            moments=NoisyMoments(
                matrix=matrix_from(query, released.values),
                diagonal_sd=diagonal_sd,
                off_diagonal_sd=off_diagonal_sd,
                records=max(rows, 1.0),
                records_sd=rows_sd,
                largest_square=largest_square(query),
            ),
            prior_sd=prior_sd,
            constant=query.constant / query.grid,
            squared_radius=None if limit is None else limit / query.grid**2,
            most=released.cohort_size * query.records_per_client,
            seen=seen,
            seen_sd=seen_sd,
            laplace=released.mechanism == "discrete_laplace",
        )

    @property
    def kind(self) -> "Kind":
        """The model's shape."""
        kind: Kind = model().Kind(
            constant=self.constant > 0.0,
            shrunk=self.squared_radius is not None,
            laplace=self.laplace,
        )
        return kind

    @property
    def mean_square(self) -> float:
        """What the prior expects of a column, from what the ball leaves for all of them."""
        if self.squared_radius is None:
            return _LARGEST_MEAN_SQUARE
        columns = len(self.moments.matrix) - (self.constant > 0.0)
        left = self.squared_radius - self.constant**2
        left = max(left, self.squared_radius / (columns + 1))
        return min(left / columns, _LARGEST_MEAN_SQUARE)

    @property
    def least_fraction(self) -> float:
        """The least part of `most` that is considered: more rows than coefficients."""
        return (len(self.prior_sd) + 0.5) / self.most

    @property
    def seed(self) -> int:
        """A seed derived from the public sums, so that anyone with them can repeat the draws."""
        numbers = [*self.moments.matrix.ravel().tolist(), self.moments.diagonal_sd]
        digest = hashlib.sha256(np.array(numbers, dtype="<f8").tobytes()).digest()
        return int.from_bytes(digest[:4], "little")

    def evidence(self) -> "Evidence":
        """Return what the model is given, of one data set."""
        matrix = self.moments.matrix
        evidence: Evidence = model().Evidence(
            gram=matrix[:-1, :-1],
            cross=matrix[:-1, -1],
            square=matrix[-1, -1],
            diagonal_sd=np.float64(self.moments.diagonal_sd),
            off_diagonal_sd=np.float64(self.moments.off_diagonal_sd),
            most=np.float64(self.most),
            least_fraction=np.float64(self.least_fraction),
            seen=np.float64(self.seen),
            seen_sd=np.float64(self.seen_sd),
            prior_sd=self.prior_sd,
            mean_square=np.float64(self.mean_square),
            constant=np.float64(self.constant),
        )
        return evidence


def largest_square(query: SecondMomentMatrix | UnitRowMatrix) -> float:
    """Return what no row's squared norm exceeds, in normalised units."""
    limit = query.squared_norm_limit
    return float(query.width if limit is None else limit / query.grid**2)


def model() -> ModuleType:
    """Return the module `shoal_learning.design_model`.

    Raises:
        ImportError: NumPyro is not installed; the message says what to do.
    """
    try:
        return importlib.import_module("shoal_learning.design_model")
    except ModuleNotFoundError as error:
        raise ImportError(WITHOUT_NUMPYRO) from error
