"""Scores of predictions at sites; draws of the noise say how surely they are known."""

from typing import Final

import numpy as np

from shoal_protocol.queries import PredictionScores
from shoal_protocol.queries.design import Floats
from shoal_protocol.queries.sums import in_units
from shoal_protocol.rounds.outcomes import ReleasedSum
from shoal_studies.catalogue.measurements import noisy_count, query_of
from shoal_studies.catalogue.validation import (
    CalibrationBin,
    SiteScore,
    ValidationPosterior,
    ValidationTask,
)
from shoal_studies.families.one_round import OneRound, generator_for, noise_of
from shoal_studies.posteriors.forms import Known, tails_of

_DRAWS: Final = 1000
_TOLD: Final = (
    4.0  # standard deviations from none: of fewer records, or less variance, no share is told
)
_SCORE_TOLD: Final = 2.0  # and of a score
_LEAST_SHARE: Final = 1e-3  # of a class, and of a target's variance the square


class Validation(OneRound[ValidationTask, ValidationPosterior]):
    """The learner of one `ValidationTask`."""

    def posterior(self, released: ReleasedSum) -> ValidationPosterior:
        query = query_of(released, PredictionScores)
        seen = in_units(query, released.values)[:-1].reshape(-1, query.block)
        noise = noise_of(released, 0, query.unit)
        drawn = seen - noise.draw((_DRAWS, *seen.shape), generator_for(released))
        blocks = np.concatenate([drawn, seen[None]])  # the last is as it was seen
        names = [each.name for each in self.task.sites]
        if len(names) > 1:
            blocks = np.concatenate([blocks, blocks.sum(axis=1, keepdims=True)], axis=1)
            names.append("all sites")
        scores = tuple(self._score(name, blocks[:, place]) for place, name in enumerate(names))
        total, total_sd = noisy_count(released)
        return ValidationPosterior.of(
            records=max(1, round(total)),
            columns=tuple(each.name for each in self.task.columns),
            tails=tails_of(released.mechanism),
            total=Known(mean=total, sd=total_sd),
            family=self.task.family,
            target=self.task.target.name,
            width=self._width,
            score_limit=self.task.limit,
            scores=scores,
            calibration=self._calibration(blocks[:, -1]),
        )

    @property
    def _width(self) -> float:
        """What 1 is of predictions and targets, in the data's units."""
        return 1.0 if self.task.family == "logistic" else 2.0 * self.task.target.half_range

    def _score(self, name: str, blocks: Floats) -> SiteScore:
        """Return what is known of a site by its blocks, shape (n, block), the last as seen."""
        is_class = self.task.family == "logistic"
        first = self.task.query().scores  # the bins come after these
        count, predicted, observed = blocks[:, first:].reshape(len(blocks), 3, -1).sum(axis=2).T
        records = np.maximum(count, 1.0)
        score = blocks[:, 0] / records * self.task.limit
        mean = np.clip(observed / records, _LEAST_SHARE, 1.0 - _LEAST_SHARE)
        if is_class:
            without = -mean * np.log(mean) - (1.0 - mean) * np.log(1.0 - mean)
        else:
            about = blocks[:, 1] / records - (2.0 * mean - 1.0) ** 2
            without = np.maximum(about / 4.0, _LEAST_SHARE**2)
        known = _known(score if is_class else score * self._width**2)
        is_told = known.mean > _SCORE_TOLD * known.sd
        told = is_told and without[-1] > _TOLD * without[:-1].std()
        return SiteScore(
            name=name,
            records=_known(count),
            score=known if is_told else None,
            cut=_known(2.0 * blocks[:, first - 1] / records),
            bias=_known((predicted - observed) / records * self._width),
            explained=_known(1.0 - score / without) if told else None,
        )

    def _calibration(self, blocks: Floats) -> tuple[CalibrationBin, ...]:
        bins = blocks[:, self.task.query().scores :]
        counts, predicted, observed = np.moveaxis(bins.reshape(len(blocks), 3, -1), 1, 0)
        told = counts[-1] > _TOLD * counts[:-1].std(axis=0) + 1.0
        return tuple(
            CalibrationBin(
                predicted=_known(_share(predicted[:, place], counts[:, place])),
                observed=_known(_share(observed[:, place], counts[:, place])),
            )
            for place in np.flatnonzero(told)
        )


def _share(part: Floats, whole: Floats) -> Floats:
    return np.asarray(np.clip(part / np.maximum(whole, 1.0), 0.0, 1.0))


def _known(values: Floats) -> Known:
    """Return the last value, and how far the draws before it spread about it."""
    *_, seen = values.tolist()
    return Known(mean=seen, sd=float(np.sqrt(np.mean((values[:-1] - seen) ** 2))))
