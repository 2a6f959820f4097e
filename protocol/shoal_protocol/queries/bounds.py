"""Public bounds of columns, from general knowledge and never from the data."""

from pydantic import model_validator

from shoal_protocol.queries.columns import Column, ColumnName
from shoal_protocol.queries.terms import Term, refuse_unusable_range
from shoal_protocol.wire.documents import Model
from shoal_protocol.wire.numbers import Real


class ColumnBounds(Model):
    """A column's name and the public range that its values are assumed to lie in.

    What a `term` makes of a record's variables is in the range that follows from theirs: see
    `of_term`.
    """

    name: ColumnName
    lower: Real
    upper: Real
    term: Term | None = None

    @model_validator(mode="after")
    def _usable(self) -> "ColumnBounds":
        refuse_unusable_range(self.lower, self.upper)
        return self

    @classmethod
    def of_term(cls, name: str, term: Term) -> "ColumnBounds":
        """Return the column of a term, with the bounds that follow from its variables'.

        Raises:
            ValueError: the term is the same of all records.
        """
        lower, upper = term.range
        return cls(name=name, lower=lower, upper=upper, term=term)

    @property
    def centre(self) -> float:
        """The middle of the range."""
        return self.lower / 2.0 + self.upper / 2.0

    @property
    def half_range(self) -> float:
        """Half the width of the range."""
        return self.upper / 2.0 - self.lower / 2.0

    def column(self) -> Column:
        """Return the column of a query that takes the range to [-1, 1]."""
        return Column(name=self.name, centre=self.centre, scale=self.half_range, term=self.term)
