"""What scripts derive their own classes from, to be told of a build."""

import zlib


class Watched:
    """Tells a progress monitor of a build; a monitor that wants it to stop ends it."""

    def __init__(self, monitor):
        self._monitor, self._phase = monitor, None

    def __call__(self, stage, done, total):
        if stage != self._phase:
            self.close()
            self._phase = stage
            self._monitor.phase_start(stage, None, max(total, 1))
        if done and not self._monitor.step_complete(stage, done - 1):
            raise KeyboardInterrupt("the progress monitor ended the build")

    def close(self):
        """The last phase is over."""
        if self._phase is not None:
            self._monitor.phase_finish(self._phase)
            self._phase = None


class IProgressMonitor:
    """Is told how far a build is: `phase_start`, `step_complete` (False ends it), `phase_finish`."""

    def phase_start(self, phase_name, parent_phase, num_steps):
        """A stage begins."""

    def phase_finish(self, phase_name):
        """A stage is over."""

    def step_complete(self, phase_name, step):
        """A step of a stage is done; gives whether to go on."""
        return True


class IAlgorithmSelector:
    """Is told which kernels were chosen: `report_algorithms`. `select_algorithms` is never asked: choosing is the build's."""

    def select_algorithms(self, context, choices):
        """Never called."""
        return list(range(len(choices)))

    def report_algorithms(self, contexts, choices):
        """Is given the layers, and the kernel of each."""


class IAlgorithmContext:
    """A layer that a kernel was chosen for."""

    def __init__(self, name):
        self.name = name
        self.num_inputs = self.num_outputs = 0


class IAlgorithmVariant:
    """A kernel, by its name and a number made of it."""

    def __init__(self, kernel):
        self.name = kernel
        self.implementation = zlib.crc32(kernel.split(" ")[0].encode())
        self.tactic = zlib.crc32(kernel.encode())


class IAlgorithm:
    """A kernel that was chosen."""

    timing_msec, workspace_size = 0.0, 0

    def __init__(self, kernel):
        self.algorithm_variant = IAlgorithmVariant(kernel)


class IStreamWriter:
    """Is given the bytes of a plan: `write(data)` gives how many it took."""
