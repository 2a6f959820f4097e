"""What nested noisy counts tell of sums of bins is what least squares by matrices tell."""

import numpy as np
import pytest

from shoal_studies.families.cohort_card import CountTree, NoisyLevel
from shoal_studies.posteriors.forms import REACHES, quantile_points

BINS = 16


def example(widths, seed=1):
    """Return a tree of noisy counts, and mean and covariance of bins and missing by matrices."""
    generator = np.random.default_rng(seed)
    truth = generator.poisson(20, BINS + 1).astype(float)
    rows, sds, levels = [], [], []
    for width, sd in zip(widths, (3.0, 2.0, 5.0), strict=False):
        nodes = np.zeros((BINS // width + 1, BINS + 1))
        nodes[:-1, :-1] = np.repeat(np.eye(BINS // width), width, axis=1)
        nodes[-1, -1] = 1.0
        counts = nodes @ truth + generator.normal(0.0, sd, len(nodes))
        levels.append(NoisyLevel(width=width, counts=counts, sd=sd))
        rows.append(nodes)
        sds.append(np.full(len(nodes), sd))
    total, total_sd = truth.sum() + 1.1, 1.5
    design = np.vstack([*rows, np.ones((1, BINS + 1))]) / np.append(np.hstack(sds), 1.5)[:, None]
    seen = np.append(np.hstack([each.counts for each in levels]), total)
    covariance = np.linalg.inv(design.T @ design)
    mean = covariance @ design.T @ (seen / np.append(np.hstack(sds), 1.5))
    return CountTree(levels, total, total_sd), mean, covariance


@pytest.mark.parametrize("widths", [(1,), (4, 1), (4, 2, 1), (8, 2, 1)])
def test_a_tree_is_solved_as_by_matrices(widths):
    tree, mean, covariance = example(widths)
    np.testing.assert_allclose(tree.bins, mean[:-1])
    assert tree.missing == pytest.approx(mean[-1])
    assert tree.missing_sd == pytest.approx(np.sqrt(covariance[-1, -1]))
    within = covariance[:-1, :-1]
    for weights in np.random.default_rng(2).normal(size=(5, BINS)):
        assert tree.sd(weights) == pytest.approx(np.sqrt(weights @ within @ weights))
    for share in (0.1, 0.5, 0.93):
        means, sds = tree.below(share)
        for edge in range(BINS + 1):
            weights = (np.arange(BINS) < edge) - share
            assert means[edge] == pytest.approx(weights @ mean[:-1])
            assert sds[edge] == pytest.approx(np.sqrt(weights @ within @ weights))


def test_without_noise_a_quantile_lies_in_its_bin():
    edges = np.array([0.0, 1.0, 2.0, 4.0, 8.0])
    below = np.array([-5.0, -1.0, 3.0, 3.0, 5.0])
    points = quantile_points(edges, below, np.full(5, 1e-9))
    assert points[len(REACHES) // 2] == pytest.approx(1.25)
    assert (points[0], points[-1]) == (1.0, 2.0)


def test_ends_of_a_quantile_widen_with_noise_up_to_the_outer_edges():
    edges = np.arange(9.0)
    below = np.linspace(-40.0, 40.0, 9)
    points = np.array(quantile_points(edges, below, np.full(9, 8.0)))
    assert np.all(np.diff(points) >= 0.0) and points[0] == 0.0 and points[-1] == 8.0
    one = (len(REACHES) // 2) + np.array([-4, 4])  # one standard deviation, .8 bins
    assert points[one].tolist() == [3.0, 5.0]
