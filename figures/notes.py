"""What must be said beside the figures: prices really paid, cautions, how they were made."""

import platform
from importlib.metadata import version
from typing import Any, Final

from figures import figure2, figure3, rival
from figures.authors import DELTA, FIGURE2_EPSILONS, FIGURE3_EPSILONS, key
from figures.datasets import Gdsc
from figures.spending import one_release_per_drug, published_cost, understated_sensitivity

_ALL_DRUGS: Final = 265  # of GDSC's release 6, as in the paper's Figure 3
_PACKAGES: Final = ("shoal", "numpy", "scipy", "scikit-learn", "diffprivlib", "matplotlib")

NOT_PRIVATE: Final = (
    "* as published, for comparison: NOT private as claimed. The round that measures spreads has"
    " {factor:.1f} times too little noise, so the projected methods really spend epsilon = {spent}"
    " for the claimed {claimed}, at delta = 0.0001. Methods without projection (and input"
    " perturbation) take bounds for granted and never cut to them: no epsilon holds for a record"
    " outside."
)
SCALING: Final = (
    "Every column is centred and scaled to range 10 with all rows, test rows included, as the"
    " authors did: neither is charged to any method here. The last wine is a row of zeros"
    " and infants count as female abalone, as the authors loaded them; figure2_correct_loading has"
    " the sets as they are. Bounds of +-7.5 are public. Neighbours differ by one replaced record."
)
SEARCHES: Final = (
    "The published search for thresholds is random: the band spans {searches} seeds of it, and the"
    " rules compare ours with its best at each price. Algorithm 2 corrected is the product's"
    " LinearRegressionInBounds, with rows centred at no charge as the published methods have them."
    " {default}"
)
ADASSP: Final = (
    "AdaSSP is Wang's (2018, arXiv:1803.02596), which takes the public bounds for the columns'"
    " spreads; its three releases and all of ours are composed exactly."
)
CORRECT_LOADING: Final = (
    "Here every wine counts, and infants and females each have a column of their own among abalone."
)
DRUG_BY_DRUG: Final = (
    "(epsilon, delta) holds for one drug's release. A cell line that is in the releases of all"
    " {here} drugs here spends epsilon = {spent_here} for the claimed {claimed}; of all 265 drugs"
    " {spent_all}."
)
CAUTIONS: Final = (
    "One fixed direction, fitted without privacy and the same for all drugs, scores"
    " {direction:.3f}: below that a method has shown little. Spearman's correlation says nothing of"
    " calibration, and clipping responses biases their scale."
)
OURS3: Final = (
    "Ours gets the cell lines as they are in the file and pays for centres and spreads of genes and"
    " responses out of the same epsilon; the published methods are centred at no charge, which is"
    " not private."
)


def about_figure2() -> list[str]:
    """Return the sentences that stand under Figure 2."""
    factor = understated_sensitivity((figure2.ASSUMED[0],) * 12)
    spent = [
        published_cost(epsilon=epsilon, delta=DELTA, understated=factor)
        for epsilon in FIGURE2_EPSILONS
    ]
    return [
        NOT_PRIVATE.format(
            factor=factor, spent=_list(spent), claimed=_list(list(FIGURE2_EPSILONS))
        ),
        SCALING,
        SEARCHES.format(
            searches=figure2.SEARCHES,
            default="Our default estimator, README's, is drawn once for each split.",
        ),
        ADASSP,
        rival.statement(),
    ]


def about_figure3(found: figure3.Found, data: Gdsc) -> list[str]:
    """Return the sentences that stand under Figure 3."""
    features, target = figure3.ASSUMED
    factor = understated_sensitivity((features,) * len(data.genes) + (target,))
    spent = [
        published_cost(epsilon=epsilon, delta=DELTA, understated=factor)
        for epsilon in FIGURE3_EPSILONS
    ]
    claimed = _list(list(FIGURE3_EPSILONS))
    together = {
        drugs: _list(
            [
                one_release_per_drug(epsilon=epsilon, delta=DELTA, drugs=drugs)
                for epsilon in FIGURE3_EPSILONS
            ]
        )
        for drugs in (len(found.drugs), _ALL_DRUGS)
    }
    said = [
        NOT_PRIVATE.format(factor=factor, spent=_list(spent), claimed=claimed),
        OURS3,
        SEARCHES.format(
            searches=figure3.SEARCHES,
            default=f"Our default estimator is fitted on {figure3.DEFAULT_SPLITS} splits.",
        ),
        DRUG_BY_DRUG.format(
            here=len(found.drugs),
            spent_here=together[len(found.drugs)],
            spent_all=together[_ALL_DRUGS],
            claimed=claimed,
        ),
        CAUTIONS.format(direction=found.one_direction),
    ]
    if found.left_out:
        said.append(f"Left out, with fewer than {figure3.FEWEST} cell lines: {found.left_out}.")
    return said


def circumstances(seconds: dict[str, float], processes: int) -> dict[str, Any]:
    """Return seeds, versions, machine and time."""
    return {
        "seeds": {
            "splits of Figure 2": "numpy.random.RandomState(1), the authors'",
            "splits of Figure 3": "numpy.random.RandomState(number of the split)",
            "noise of Figure 2": [figure2.SEED, "loading", "data set", "split", "epsilon"],
            "noise of Figure 3": [figure3.SEED, "drug", "split", "epsilon"],
        },
        "versions": {name: version(name) for name in _PACKAGES}
        | {"python": platform.python_version()},
        "machine": f"{platform.machine()}, {processes} processes",
        "seconds": {what: round(value, 1) for what, value in seconds.items()},
    }


def _list(values: list[float]) -> str:
    return ", ".join(key(value) for value in values)
