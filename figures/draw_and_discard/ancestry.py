"""Bounds how many noises all instances of a later snapshot share since one contribution.

Traced backwards, each of the k instances of a snapshot has a lineage. At each earlier submission
the lineage on the replaced instance gets that submission's noise and continues on the drawn one,
where it may meet another lineage. Once all have met, the common lineage is the trunk: its noises
hide a contribution on it from an observer of all instances. The bounds assume that draws and
replacements are uniform and independent of each other, of all data and of when clients answer.
Proofs: docs/mathematics.md, theorem 10.
"""

import math
from dataclasses import dataclass

from shoal_protocol.privacy.mechanisms import require_probability


@dataclass(frozen=True, kw_only=True)
class Ancestry:
    """A snapshot of `instances` instances, `later` submissions after a contribution's own.

    Between a draw and its answer at most `overlap` other submissions arrive: 0 if each draw is
    answered before the next one. With `goes_on`, the observer also sees the draws that are still
    unanswered: all later instances follow from both, without the contribution.
    """

    instances: int
    later: int
    overlap: int
    goes_on: bool = False

    def __post_init__(self) -> None:
        if self.instances < 1 or self.later < 0 or self.overlap < 0:
            raise ValueError("instances must be positive, later and overlap not negative")

    def meeting(self, failure: float) -> int:
        """Return a number of submissions within which all lineages meet with 1 - `failure`.

        Raises:
            ValueError: `failure` is not strictly within (0, 1), or so many sessions overlap that
                there is no such number.
        """
        require_probability(failure)
        k, overlap = self.instances, self.overlap
        if self.lineages == 1:
            return 0
        if overlap == 0:
            # P(not met after m) <= 3 (k-1)/(k+1) (1 - 2/k^2)^m
            start = 3.0 * (k - 1.0) / (k + 1.0) / failure
            return max(0, math.ceil(math.log(start) / -math.log1p(-2.0 / k**2)))
        chance = self._chance_to_meet
        if chance == 0.0:
            raise ValueError("so many sessions overlap that lineages cannot be said to meet")
        others = self.lineages - 1.0
        jumps = math.ceil(math.log(2.0 * others / failure) / -math.log1p(-chance))
        # the last jump's meeting may be as far back as a session lasts, and so may a first draw
        ends = (2 if self.goes_on else 1) * overlap + 1
        return self._submissions_for(jumps, failure / (2.0 * others)) + ends

    @property
    def lineages(self) -> int:
        """The number of lineages: of the instances and, with `goes_on`, of open draws."""
        return self.instances + (self.overlap if self.goes_on else 0)

    @property
    def _chance_to_meet(self) -> float:
        """The least probability that a jump of one of two lineages meets the other."""
        k = self.instances
        if k == 1:
            return 0.0  # it is replaced by each submission
        return math.exp((self.overlap + 1.0) * math.log1p(-1.0 / k)) / k

    def survival(self, *, unmet: float) -> float:
        """Return an upper bound of the probability that the snapshot depends on the contribution.

        1 / k if all lineages have met, plus the probability `unmet` that they have not; 1 where
        sessions overlap.
        """
        return min(1.0, 1.0 / self.instances + unmet) if self.overlap == 0 else 1.0

    def trunk(self, *, unmet: float, failure: float) -> int:
        """Return a lower bound on the noises of a contribution on the trunk, its own included.

        It holds with probability 1 - `failure`, given that all lineages have met as
        `meeting(unmet)` says; 0 if no bound is known.

        Raises:
            ValueError: a probability is not strictly within (0, 1).
        """
        require_probability(failure)
        require_probability(unmet)
        if self.lineages > 1 and self.overlap and self._chance_to_meet * self.later < 0.5:
            return 0  # they need ln(2) / chance jumps at least, which is more than come
        left = self.later - self.meeting(unmet)
        if left < 0:
            return 0
        low, high = 0, left
        while low < high:
            middle = (low + high + 1) // 2
            if self._fewer(middle, left) <= failure:
                low = middle
            else:
                high = middle - 1
        return 1 + low

    def _fewer(self, jumps: int, submissions: int) -> float:
        """Bound the probability that one lineage jumps less often within so many submissions."""
        free = submissions - jumps * self.overlap
        return _binomial_below(jumps, free, 1.0 / self.instances)

    def _submissions_for(self, jumps: int, failure: float) -> int:
        low, high = jumps, 2 * jumps
        while self._fewer(jumps, high) > failure:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if self._fewer(jumps, middle) <= failure:
                high = middle
            else:
                low = middle
        return high


def _binomial_below(successes: int, trials: int, chance: float) -> float:
    """Return Chernoff's bound of the probability of fewer than so many successes.

    exp(-n KL(a, p)) with a = (successes - 1) / n below p (Hoeffding 1963, Theorem 1).
    """
    if successes <= 0:
        return 0.0
    if successes > trials:
        return 1.0
    share = (successes - 1.0) / trials
    if chance == 1.0:
        return 0.0  # all succeed
    if share >= chance:
        return 1.0
    divergence = (1.0 - share) * (math.log1p(-share) - math.log1p(-chance))
    if share > 0.0:
        divergence += share * math.log(share / chance)
    return math.exp(-trials * divergence)
