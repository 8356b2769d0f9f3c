"""What builds and profiles are shown as: lists that print as tables, in terminals and in notebooks."""

from collections import namedtuple
from html import escape

Step = namedtuple("Step", "name operators kernel precision")
StepTime = namedtuple("StepTime", "name operators kernel us")
Range = namedtuple("Range", "min max threshold")

#: The longest that a name is shown.
LONGEST = 48


def _short(text):
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


class Table(list):
    """A list of named tuples that prints as a table."""

    headings = ()

    def rows(self):
        """The cells of the table, as text."""
        return [[_short(str(cell)) for cell in item] for item in self]

    def summary(self):
        """A line below the table; none if empty."""
        return ""

    def __str__(self):
        rows = [list(self.headings)] + self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(len(self.headings))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
        return "\n".join(lines + [self.summary()] if self.summary() else lines)

    def parts(self):
        """How much of the whole each item is, from 0 to 1, drawn as a bar beside it; None where that has no meaning."""
        return None

    def _repr_html_(self):
        def row(cells, tag):
            return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells)

        def bar(part):
            return f'<td style="width:10em"><div style="background:#5b8ff9;height:.8em;width:{100 * part:.1f}%"></div></td>'

        parts = self.parts()
        bars = [""] * len(self) if parts is None else [bar(part) for part in parts]
        rows = row(self.headings, "th") + "</tr>" + "".join(f"{row(cells, 'td')}{drawn}</tr>" for cells, drawn in zip(self.rows(), bars))
        return f"<table>{rows}</table><p>{escape(self.summary())}</p>"


class Steps(Table):
    """The steps of a plan."""

    headings = ("layers", "operators", "kernel", "precision")


class Profile(Table):
    """The times of an engine's steps, in microseconds; `total_us` is the whole run's."""

    headings = ("us", "share", "layers", "operators", "kernel")

    def __init__(self, steps, total_us):
        super().__init__(steps)
        self.total_us = total_us

    def rows(self):
        """The cells of the table, as text."""
        sum_us = sum(step.us for step in self) or 1.0
        return [
            [f"{step.us:.1f}", f"{100 * step.us / sum_us:.1f} %", _short(step.name), _short(step.operators), step.kernel]
            for step in self
        ]

    def parts(self):
        """The share of each step."""
        largest = max((step.us for step in self), default=0.0) or 1.0
        return [step.us / largest for step in self]

    def summary(self):
        """What the steps amount to."""
        return f"{len(self)} steps, {sum(step.us for step in self):.1f} us; the whole run {self.total_us:.1f} us"


def steps(rows):
    """The steps of a plan, from the rows that the library gives."""
    return Steps(Step(*row) for row in rows)


def profile(rows, total_us):
    """The times of an engine's steps, from the rows that the library gives."""
    return Profile((StepTime(*row) for row in rows), total_us)
