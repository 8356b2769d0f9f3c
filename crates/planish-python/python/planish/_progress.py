"""A bar on standard error, in terminals and in notebooks; nothing elsewhere."""

import sys

WIDTH = 30


def _is_shown(stream):
    # Kernels of notebooks have a stream of their own, which shows what a carriage return overwrites.
    return stream is not None and (stream.isatty() or type(stream).__module__.startswith("ipykernel"))


class Bar:
    """Told the stage of a build, how much of it is done, and of how much."""

    def __init__(self, stream=None):
        self.stream = sys.stderr if stream is None else stream
        self.is_shown = _is_shown(self.stream)
        self.length = 0

    def __call__(self, stage, done, total):
        if not self.is_shown:
            return
        part = min(done / total, 1.0) if total else 0.0
        filled = round(WIDTH * part)
        line = f"{stage:<10}[{'#' * filled}{'.' * (WIDTH - filled)}] {done}/{total}" if total else f"{stage} …"
        self._write(line)

    def close(self):
        """Removes the bar."""
        if self.is_shown and self.length:
            self._write("")
            self.stream.write("\r")
            self.stream.flush()

    def _write(self, line):
        self.stream.write("\r" + line.ljust(self.length))
        self.stream.flush()
        self.length = len(line)
