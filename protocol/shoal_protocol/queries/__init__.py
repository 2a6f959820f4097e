"""The closed catalogue of what a client may be asked.

A query turns a client's records into one integer vector and states what the vector reveals at
most: its sensitivity under **replacement** of the client's whole contribution, on the lattice,
after rounding, in the norm that the noise mechanism needs. Clients run these queries and nothing
else. Proofs: docs/mathematics.md, section 2.
"""

from typing import Annotated, Literal

from pydantic import Field

from shoal_protocol.queries.columns import Column
from shoal_protocol.queries.design import Mechanism, NoiseBlock, NoiseDesign
from shoal_protocol.queries.moments import (
    OFF_DIAGONAL_SCALE,
    ColumnMoments,
    FirstMoments,
    Moments,
    NormCounts,
    SecondMomentMatrix,
    SecondMoments,
    VectorSum,
    WeightedRowMatrix,
)
from shoal_protocol.queries.scores import (
    ClassScoreSum,
    GradientSum,
    HazardScoreSum,
    PredictionScores,
    ScoreSum,
)
from shoal_protocol.queries.tables import (
    Axis,
    Counts,
    EdgeCut,
    LevelCut,
    Table,
    Tables,
)

Query = Annotated[
    Counts
    | Tables
    | FirstMoments
    | SecondMoments
    | SecondMomentMatrix
    | WeightedRowMatrix
    | ColumnMoments
    | NormCounts
    | ScoreSum
    | HazardScoreSum
    | PredictionScores
    | ClassScoreSum
    | GradientSum
    | VectorSum,
    Field(discriminator="name"),
]
"""Every query that a round may ask."""

QueryName = Literal[
    "counts",
    "tables",
    "first_moments",
    "second_moments",
    "second_moment_matrix",
    "weighted_row_matrix",
    "column_moments",
    "norm_counts",
    "score_sum",
    "hazard_score_sum",
    "prediction_scores",
    "class_score_sum",
    "gradient_sum",
    "vector_sum",
]
"""The names of all queries, as policies list them."""

__all__ = [
    "OFF_DIAGONAL_SCALE",
    "Axis",
    "ClassScoreSum",
    "Column",
    "ColumnMoments",
    "Counts",
    "EdgeCut",
    "FirstMoments",
    "GradientSum",
    "HazardScoreSum",
    "LevelCut",
    "Mechanism",
    "Moments",
    "NoiseBlock",
    "NoiseDesign",
    "NormCounts",
    "PredictionScores",
    "Query",
    "QueryName",
    "ScoreSum",
    "SecondMomentMatrix",
    "SecondMoments",
    "Table",
    "Tables",
    "VectorSum",
    "WeightedRowMatrix",
]
