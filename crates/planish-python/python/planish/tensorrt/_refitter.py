"""Other weights for an engine that is there."""

import os
import tempfile

import numpy as np
import planish

from ._layers import array_of
from ._logger import ILogger


class OnnxParserRefitter:
    """Takes the weights of another ONNX file of the same network."""

    def __init__(self, refitter, logger):
        self._refitter, self._logger = refitter, logger
        self.num_errors = 0

    def _refit(self, source):
        try:
            self._refitter._model = planish.Model(source)
        except planish.errors.Error as error:
            self.num_errors += 1
            self._logger.log(ILogger.ERROR, str(error))
            return False
        return True

    def refit_from_bytes(self, model, path=None):
        """The weights of a file's bytes."""
        return self._refit(path if path is not None else bytes(model))

    def refit_from_file(self, model):
        """The weights of a file."""
        return self._refit(model)


class Refitter:
    """Exchanges the weights of an engine: by an `OnnxParserRefitter`, or by `set_model` with a model of the same graph."""

    def __init__(self, engine, logger):
        self._engine, self._logger = engine, logger
        self._model = None
        self.error_recorder = None
        self.max_threads = 1
        self.weights_validation = True

    @property
    def logger(self):
        """Who is told."""
        return self._logger

    def set_model(self, model):
        """The weights of a model (a path, bytes, a `planish.Model`) of the same graph."""
        self._model = planish.Model(model) if not isinstance(model, planish.Model) else model
        return True

    def get_all_weights(self):
        """The names of the weights: a model is given whole, so none has to be asked for alone."""
        return []

    def get_all(self):
        """The same by layers."""
        return [], []

    def get_missing_weights(self):
        """What has to be given yet: nothing by name."""
        return []

    def get_missing(self):
        """The same by layers."""
        return [], []

    def set_named_weights(self, name, weights, location=None):
        """Refused: plans hold weights folded into each other, so they are exchanged by the model that they come from."""
        size = np.size(array_of(weights))
        self._logger.log(ILogger.ERROR, f"`{name}` ({size} elements) cannot be set alone; give the whole model: OnnxParserRefitter, or Refitter.set_model")
        return False

    def set_weights(self, layer_name, role, weights):
        """Refused, likewise."""
        return self.set_named_weights(layer_name, weights)

    def refit_cuda_engine(self):
        """Exchanges the weights, and runs the self-check again. Gives whether that worked; contexts take them with their next run."""
        if self._model is None:
            self._logger.log(ILogger.ERROR, "no weights were given; use an OnnxParserRefitter, or Refitter.set_model")
            return False
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.plan")
            with open(path, "wb") as file:
                file.write(self._engine.serialize())
            try:
                plan = planish.Plan.open(path).refit(self._model)
            except planish.errors.Error as error:
                self._logger.log(ILogger.ERROR, str(error))
                return False
            self._engine._replace(plan)
        return True

    def refit_cuda_engine_async(self, stream):
        """The same; it waits."""
        return self.refit_cuda_engine()


