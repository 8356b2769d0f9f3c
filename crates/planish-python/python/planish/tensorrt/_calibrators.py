"""Calibrators: classes that scripts derive their own from."""


import numpy as np

from .. import _device
from .._named import Named


class CalibrationAlgoType(Named):
    """How thresholds are found."""

    LEGACY_CALIBRATION = 0
    ENTROPY_CALIBRATION = 1
    ENTROPY_CALIBRATION_2 = 2
    MINMAX_CALIBRATION = 3


class IInt8Calibrator:
    """Gives batches of samples: `get_batch_size`, `get_batch`, `read_calibration_cache`, `write_calibration_cache`."""

    #: How Planish finds the thresholds.
    calibrator = "entropy"
    algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION_2

    def get_algorithm(self):
        """How thresholds are found."""
        return self.algorithm

    def get_batch_size(self):
        """How many samples a batch has."""
        raise NotImplementedError("a calibrator has a method get_batch_size()")

    def get_batch(self, names):
        """The addresses of the next batch of each input, in host memory; None at the end."""
        raise NotImplementedError("a calibrator has a method get_batch(names)")

    def read_calibration_cache(self):
        """The cache of an earlier calibration; None where there is none."""
        return None

    def write_calibration_cache(self, cache):
        """Is given the cache of this calibration."""


class IInt8EntropyCalibrator2(IInt8Calibrator):
    """Thresholds by the entropy of the quantized distribution."""


class IInt8EntropyCalibrator(IInt8Calibrator):
    """Thresholds by the entropy of the quantized distribution."""

    algorithm = CalibrationAlgoType.ENTROPY_CALIBRATION


class IInt8LegacyCalibrator(IInt8Calibrator):
    """Thresholds by a quantile; here by 99.99 percent of all magnitudes."""

    calibrator = "percentile:99.99"
    algorithm = CalibrationAlgoType.LEGACY_CALIBRATION


class IInt8MinMaxCalibrator(IInt8Calibrator):
    """Thresholds by the largest magnitude."""

    calibrator = "minmax"
    algorithm = CalibrationAlgoType.MINMAX_CALIBRATION


def samples_of(calibrator, infos, shapes):
    """The batches of a calibrator, as arrays by input; sizes that `shapes` does not give are those of a batch."""
    names = [info.name for info in infos]
    n = calibrator.get_batch_size()
    while True:
        addresses = calibrator.get_batch(names)
        if not addresses:
            return
        sample = {}
        for info, address in zip(infos, addresses):
            shape = shapes.get(info.name) or [size if isinstance(size, int) else n for size in info.shape]
            # Scripts fill the same memory again for the next batch.
            sample[info.name] = np.empty(shape, info.dtype)
            _device.copy_to_host(sample[info.name], int(address))
        yield sample
