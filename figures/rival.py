"""diffprivlib's linear regression, as a rival: pure epsilon, public bounds, centred columns.

Its release 0.6.6 does not import beside scikit-learn 1.9: its forests import two names that
scikit-learn has dropped. Its linear regression needs neither, so they are put back here; what was
missing is stated beside the results.
"""

from functools import cache
from importlib import import_module
from importlib.metadata import version
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_DROPPED: Final = {"DOUBLE": np.float64, "DTYPE": np.float32}  # from sklearn.tree._tree


@cache
def import_failure() -> str | None:
    """Return why diffprivlib does not import as it is, or None; afterwards it is imported."""
    try:
        import_module("diffprivlib.models")
    except ImportError as error:
        failure = f"{type(error).__name__}: {error}".split(" (")[0]
    else:
        return None
    trees = import_module("sklearn.tree._tree")
    for name, kind in _DROPPED.items():
        if not hasattr(trees, name):
            setattr(trees, name, kind)
    import_module("diffprivlib.models")
    return failure


def statement() -> str:
    """Return what is to be said beside diffprivlib's results."""
    found = f"diffprivlib {version('diffprivlib')} beside scikit-learn {version('scikit-learn')}"
    failure = import_failure()
    state = (
        "imports"
        if failure is None
        else f"does not import ({failure}) until the names {', '.join(_DROPPED)}, which only its"
        " forests use, are put back"
    )
    return (
        f"{found} {state}. Its LinearRegression adds Laplace noise to the objective and minimises"
        " without regularisation: where noise leaves the quadratic form indefinite the objective"
        " has no minimum, and the coefficients are wherever the optimiser stops. Pure epsilon,"
        " bounds public, no intercept (columns are centred at no charge)."
    )


def fit(
    rows: Floats, *, bounds: tuple[float, float], epsilon: float, generator: np.random.Generator
) -> Floats:
    """Return the coefficients, shape (d,), for `rows` with features and target within `bounds`."""
    import_failure()
    model: Any = import_module("diffprivlib.models").LinearRegression(
        epsilon=epsilon,
        bounds_X=(-bounds[0], bounds[0]),
        bounds_y=(-bounds[1], bounds[1]),
        fit_intercept=False,
        random_state=int(generator.integers(2**31)),
    )
    features, target = np.clip(rows[:, :-1], -bounds[0], bounds[0]), rows[:, -1]
    model.fit(features, np.clip(target, -bounds[1], bounds[1]))
    return np.asarray(model.coef_, dtype=np.float64).ravel()
