"""Enumerations that print themselves as those of C++ libraries do in Python."""

import enum


class Named(enum.IntEnum):
    """An enumeration that is printed with its name, as `DataType.FLOAT` and not as 0."""

    def __str__(self):
        return f"{type(self).__name__}.{self.name}"

    def __repr__(self):
        return f"<{self}: {int(self)}>"

    def __format__(self, spec):
        return format(str(self), spec)
