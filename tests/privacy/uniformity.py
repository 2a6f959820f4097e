"""Statistics that should look the same whatever was shared: p-values, small if it shows."""

from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from scipy import stats

Words = np.ndarray
"""64-bit words, shape (runs,)."""


def p_values(shares: Sequence[Words], modulus: int) -> Iterator[tuple[str, float]]:
    """Yield named p-values of the hypothesis that shares are uniform and independent.

    Each share, and their sum, has every bit fair, every byte and its size uniform, and is
    unrelated to any other share.
    """
    named = {f"share {k}": share for k, share in enumerate(shares)}
    if len(shares) > 1:
        exact = np.sum(np.array(shares, object), axis=0)  # integers of Python: nothing wraps
        named["their sum"] = (exact % modulus).astype(np.uint64)
    bits = (modulus - 1).bit_length()
    for name, words in named.items():
        yield f"{name}: bits", bits_p(words, bits)
        for byte in range(bits // 8):
            counts = np.bincount(bytes_of(words, byte), minlength=256)
            yield f"{name}: byte {byte}", float(stats.chisquare(counts).pvalue)
        uniform = stats.kstest(words.astype(np.float64) / modulus, "uniform")
        yield f"{name}: size", float(uniform.pvalue)
    for (one, words), (other, others) in combinations(named.items(), 2):
        for byte in range(bits // 8):
            yield f"{one} and {other}: byte {byte}", together_p(words, others, byte)


def bits_p(words: Words, bits: int) -> float:
    """Return the p-value of all bits being fair, by chi-square."""
    ones = [int(np.count_nonzero(words >> np.uint64(bit) & np.uint64(1))) for bit in range(bits)]
    scores = (2.0 * np.array(ones) - len(words)) / np.sqrt(len(words))
    return float(stats.chi2.sf(np.sum(scores**2), bits))


def bytes_of(words: Words, byte: int) -> np.ndarray:
    """Return one byte of each word."""
    return (words >> np.uint64(8 * byte) & np.uint64(255)).astype(np.int64)


def together_p(one: Words, other: Words, byte: int) -> float:
    """Return the p-value of two shares' upper halves of a byte being uniform as a pair."""
    pairs = bytes_of(one, byte) // 16 * 16 + bytes_of(other, byte) // 16
    return float(stats.chisquare(np.bincount(pairs, minlength=256)).pvalue)


def difference_p(one: Sequence[Words], other: Sequence[Words], bits: int) -> Iterator[float]:
    """Yield p-values of two worlds' shares having the same distribution, byte by byte."""
    for words, others in zip(one, other, strict=True):
        for byte in range(bits // 8):
            table = [np.bincount(bytes_of(each, byte), minlength=256) for each in (words, others)]
            yield float(stats.chi2_contingency(np.array(table)).pvalue)


def correlation_p(shares: Sequence[Words], inputs: np.ndarray, modulus: int) -> Iterator[float]:
    """Yield p-values of each share, read as a signed integer, being unrelated to the inputs."""
    for words in shares:
        signed = words.astype(np.float64)
        signed[words > modulus // 2] -= modulus
        yield float(stats.spearmanr(signed, inputs).pvalue)
