"""Every constant of the regressions' inference: what it is for, and the command that found it.

`python -m bench.regressions` measures on real data sets what intervals hold, how wide they are, and
how often verdicts trust them. A constant whose change no row of that table shows does not belong
here.

Constants of numerical methods (iterations, tolerances) stand where they are used.
"""

from typing import Final

SHARES: Final = (0.1, 0.2, 0.2, 0.2, 0.3)
"""The five rounds' shares of the job's mu^2, or of its epsilon under Laplace noise."""

TARGET_REACH: Final = 4.0
"""The round of moments cuts the target this many spreads from its mean."""

CUTS: Final = {"normal": 3.0, "poisson": 3.0, "negative_binomial": 3.5, "gamma": 3.0}
"""Residuals are cut at this many of their standard deviations. Noise is in proportion."""

FARTHEST_CUT: Final = 2.0
"""Residuals are cut at up to this many times that, where noise is cheap."""

ROWS_BEFORE_CUT: Final = 1.5
"""Where noise is cheap, the ball of rows grows alone to this many times its radius, and from then
on as much as residuals' cut."""

CHEAP_NOISE: Final = 1.0
"""Noise of a sum of scores over their own scatter, up to which it is cheap."""

SMALLEST_LEVEL: Final = 0.003
"""Least share of a class, and least mean of a count over its upper bound."""

CONSTANT_SD: Final = 5.0
"""Standard deviation of the constant's prior; of a number, 1 of the target's."""

PRIOR_PARTS: Final = (0.04, 0.1, 0.2, 0.4, 1.0)
"""The prior's standard deviation over the one that the task states: all as likely beforehand."""

DESIGN_ERRORS: Final = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Relative errors of what a plausible design expects of scores: all as likely beforehand."""

SAMPLE_ROWS: Final = 1024
"""Rows of the public sample: its own error is part of how firmly moments are met."""

WIDE: Final = 16
"""Predictors above which a design is wide: it meets a covariance, and no other moments."""

WIDE_DESIGNS: Final = 8
"""How many designs a posterior of a wide design is mixed of."""

WIDEST: Final = 128
"""Predictors above which one design stands for all, so that a fit ends within minutes. There
intervals do not know what noise hides of features that nearly are sums of others."""

ROWS_A_VARIABLE: Final = 16
"""Rows of the public sample for each variable of a wide design, at least."""

DESIGNS: Final = ((6, 64), (10_000, 32))
"""How many designs a posterior is mixed of, by the largest number of coefficients."""

POINT_DESIGNS: Final = 8
"""How many designs the next round's point and basis are the means of."""

LEAST_EFFECTIVE: Final = 0.3
"""Part of the designs that counts at least, however much likelier others are."""

LEAST_MOMENT_ERROR: Final = 1e-3
"""Error of a moment of the sample, over its spread: no weights meet it closer."""

AS_DRAWN: Final = 0.25
"""How firmly a moment is met that was drawn with its noise, over that noise."""

NEAR_SINGULAR: Final = 0.9
"""a, where correlations C have the prior density |C|^-a. 0 shuns what is nearly collinear, and from
1 on the prior is no distribution."""

ODDS_OF_INDICATORS: Final = 9.0
"""Odds that a column with bounds 0 and 1 has these two values alone, beforehand."""

SHIFT_OF_WEIGHTED: Final = 1.0
"""Error, in half ranges, with which means of records tell those of weighted records."""

CHAIN_WARM_UP: Final = 100
"""Steps of the chain of correlations before the first draw."""

CHAIN_STEPS: Final = 8
"""Steps of that chain from one draw to the next."""

GAMMA_FLOOR: Final = 0.1
"""Positive numbers: this share of the mean is added to means that residuals are divided by."""

UNKNOWN_DISPERSION: Final = 0.5
"""Dispersion of counts and positive numbers where noise hides the target's spread."""

HIDDEN: Final = 2.0
"""Looseness of the target's spread above which noise hides it."""

MOST_OF_FAR: Final = 0.5
"""Part of a feature's mean square that long rows lose by their weight: above it, the fit is one of
the other half."""

FAR_BY_RECORDS: Final = 20.0
"""The same part times the root of the number of records: the fit of the other half differs by about
as much, and the more records, the less error hides it."""

CONTRADICT: Final = 10.0
"""Odds that the design's error is large, from which on rounds contradict each other."""

LARGE_ERROR: Final = 0.3
"""Relative error of a design that is large."""

FAR_SLOPES: Final = 0.3
"""How far slopes of rows far out are from those of others beforehand, in residual deviations for a
spread of a feature: as far as those of a sample of 11 records, the inverse of its square."""

UNEVEN: Final = 0.25
"""By what part a slope's variance by the records' scatter is above that of records that scatter
alike, times the part of squares that the narrow ball loses. Above it, few records far out decide
the slope."""

CUT_SHARE: Final = 0.02
"""Share of residuals that are cut beyond what the family explains."""

MOST_OF_DISPERSION: Final = 4.0
"""Largest dispersion over the one that the first round's mean and spread of the target tell."""

MOST_OF_NOISE: Final = 1.0
"""Relative error of a wide design's covariance by noise, above which it may hide a direction."""

WIDER: Final = 1.5
"""Squared radius of a ball, over that of the first round of scores, from which on only wide rounds
tell coefficients."""

HIDDEN_EIGENVALUE: Final = 3.0
"""Eigenvalues of a wide covariance below this many times their noise are hidden by it."""

SAME_EIGENVALUE: Final = 0.3
"""Eigenvalues of a wide covariance within this part of their noise are one."""

LEAST_HIDDEN: Final = 0.01
"""The least that a hidden eigenvalue may be, over the largest that noise hides."""

TWINS_APART: Final = 2.0
"""Deviations of noise by which products of two features are surely unlike their squares."""

CROWDED: Final = 0.55
"""Spread of a target over half its range from which on values crowd at bounds: a tenth of a normal
target may be cut."""

APART: Final = 0.25
"""Records that seem of the other class, over those of the rarer of two, below which classes are
nearly apart."""

OUTWEIGHED: Final = 0.6
"""Mean square error of predictors over their variance: above it the mean may predict as well."""

BETTER: Final = 1.5
"""Predictors' mean square over its deviation: below it the mean errs less with odds of 1 to 3."""

MOVED: Final = 1.0
"""Root mean square change of a predictor since the last round's point that is far."""

SCATTER_UNLIKE: Final = 0.3
"""Relative differences that coordinates' scatter has beforehand."""

PRIOR_SCATTER_SD: Final = 0.7
"""Deviation, beforehand, of the records' scatter over the model's."""

LEAST_SCATTER: Final = 0.25
"""Least that the records' scatter is over the model's."""

AT_RISK_ERROR: Final = 0.05
"""Relative error of how many are at risk in an interval: sampled rows leave as the model says."""

HAZARD_CUTS: Final = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Where cumulative hazards may be cut."""

DRIFT: Final = 0.6
"""Change of a coefficient beforehand, over the root of the share of events that a cut leaves."""
