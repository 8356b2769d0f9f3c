"""Other weights for an engine that is there."""

import os
import tempfile

import numpy as np
import planish

from ._enums import TensorLocation
from ._layers import Weights, array_of
from ._logger import ILogger
from ._parser import ParserError


class OnnxParserRefitter:
    """Takes the weights of another ONNX file of the same network."""

    def __init__(self, refitter, logger):
        self._refitter, self._logger = refitter, logger
        self._errors, self._loaded = [], None

    @property
    def num_errors(self):
        """How many errors there were."""
        return len(self._errors)

    def get_error(self, index):
        """An error, by its number."""
        return self._errors[index]

    def clear_errors(self):
        """Forgets the errors."""
        self._errors.clear()

    def load_model_proto(self, model, path=None):
        """Keeps a model's bytes for `refit_model_proto`."""
        self._loaded = (bytes(model), path)
        return True

    def refit_model_proto(self):
        """The weights of the model that was kept."""
        return self.refit_from_bytes(*self._loaded)

    def _refit(self, source):
        try:
            self._refitter._model = planish.Model(source)
        except planish.errors.Error as error:
            self._errors.append(ParserError.of(error))
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

    def refit_cuda_engine_async(self, stream_handle=0):
        """The same; it waits."""
        return self.refit_cuda_engine()

    def get_named_weights(self, weights_name):
        """None: plans hold weights folded into each other."""
        return Weights()

    get_weights_prototype = get_named_weights

    def get_weights_location(self, weights_name):
        """Where weights are given: on the host."""
        return TensorLocation.HOST

    def unset_named_weights(self, weights_name):
        """There are none to forget."""
        return False

    def get_tensors_with_dynamic_range(self):
        """None: ranges are of the build."""
        return []

    def get_dynamic_range(self, tensor_name):
        """None is known: ranges are of the build."""
        return (0.0, 0.0)

    def set_dynamic_range(self, tensor_name, range):  # noqa: A002, as TensorRT calls it
        """Refused: ranges are of the build."""
        self._logger.log(ILogger.ERROR, f"the range of `{tensor_name}` is settled when an engine is built")
        return False

    def release_refit_resources(self):
        """Forgets the model that weights were to come from."""
        self._model = None
        return True


