"""Measured times of kernels, kept from build to build."""


class ITimingCache:
    """Times that builds measured, as the bytes of a file of Planish's."""

    def __init__(self, content):
        #: The file; empty where nothing was measured yet.
        self.content = content

    def serialize(self):
        """The bytes of the file."""
        from ._engine import IHostMemory

        return IHostMemory(self.content)

    def combine(self, input_cache, ignore_mismatch):
        """Takes the other's times where this one has none at all."""
        self.content = self.content or input_cache.content
        return True

    def reset(self):
        """Forgets the times."""
        self.content = b""
        return True
