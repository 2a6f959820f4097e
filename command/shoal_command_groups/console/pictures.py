"""Draws a posterior as SVG, by the picture that its report has."""

import io
from threading import Lock
from typing import Any

from shoal_protocol.certificates.posterior_report import PosteriorReport

_drawing = Lock()  # matplotlib's figures are the process's


def picture(report: PosteriorReport) -> bytes:
    """Return the report's `plot` as SVG, whose text stays text.

    Raises:
        ImportError: matplotlib is not installed.
    """
    with _drawing:
        try:
            import matplotlib

            matplotlib.use("agg")  # no window, whatever the machine has
            from matplotlib import pyplot
        except ImportError as error:
            raise ImportError("pictures need the extra `analysis`") from error
        with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "shoal"}):
            figure: Any = report.plot().figure
            drawn = io.BytesIO()
            figure.savefig(drawn, format="svg", metadata={"Date": None})
            pyplot.close(figure)
    return drawn.getvalue()
