"""What an analyst may ask to be learned: public parameters only, no data and no algorithm.

Bounds must come from general knowledge of the columns, never from the data: nothing here is
charged to the privacy budget. Values outside the bounds are cut to them by the client.
"""

from typing import Literal

from shoal_protocol.tasks.bounds import ColumnBounds
from shoal_protocol.tasks.linear_regression import LinearRegressionTask

Task = LinearRegressionTask
"""Every task that a job may name; more members make this a union discriminated by `name`."""

TaskName = Literal["linear_regression"]
"""The names of all tasks, as data holders' policies list them."""

__all__ = ["ColumnBounds", "LinearRegressionTask", "Task", "TaskName"]
