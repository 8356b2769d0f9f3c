"""Measured times of kernels, kept from build to build."""

import os
import tempfile


class ITimingCache:
    """Times that builds measured, as the bytes of a file of Planish's."""

    #: How such a file begins.
    BEGINNING = b"planish timings"

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


class Kept:
    """The file of a cache for the time of a build; none where there is no cache."""

    def __init__(self, cache):
        self._cache, self._folder = cache, None

    def __enter__(self):
        if self._cache is None:
            return None
        self._folder = tempfile.TemporaryDirectory()
        self._path = os.path.join(self._folder.name, "timing.cache")
        if self._cache.content:
            with open(self._path, "wb") as file:
                file.write(self._cache.content)
        return self._path

    def __exit__(self, *_):
        if self._folder is not None:
            if os.path.exists(self._path):
                with open(self._path, "rb") as file:
                    self._cache.content = file.read()
            self._folder.cleanup()
