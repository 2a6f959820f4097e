"""How well public predictions do at each site: scores and calibration, by one sum."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, NamedTuple, Self

import numpy as np
from pydantic import Field, model_validator

from shoal_protocol.posteriors import plots
from shoal_protocol.posteriors.base import LEVEL, BasePosterior, Finite, FloatMatrix, FloatVector
from shoal_protocol.posteriors.known import Known, Number, NumbersPosterior, reach_of
from shoal_protocol.queries import PredictionScores
from shoal_protocol.queries.bounds import ColumnBounds
from shoal_protocol.queries.columns import ColumnName
from shoal_protocol.queries.gradients import LARGEST_COORDINATE
from shoal_protocol.queries.scores import Family
from shoal_protocol.queries.terms import Level, Term
from shoal_protocol.studies.one_round import SUM_BITS, OneRoundStudy
from shoal_protocol.studies.one_round import Level as Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_TOLD: Final = 2.0
