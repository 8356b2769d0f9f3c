"""Classes that scripts derive their own from, or name, and that nothing here calls but the error recorder."""

from ._enums import APILanguage, ErrorCodeTRT
from ._logger import ILogger


class IErrorRecorder:
    """Keeps errors: `report_error(code, description)` is called for each that a builder, a runtime or a context has."""

    MAX_DESC_LENGTH = 127

    def report_error(self, code, desc):
        """Is given an error; gives whether it was kept."""
        raise NotImplementedError("an error recorder has a method report_error(code, description)")


def fail(logger, message, recorder=None, code=ErrorCodeTRT.INVALID_ARGUMENT):
    """Tells a logger, and the recorder if there is one, what went wrong."""
    if logger is not None:
        logger.log(ILogger.ERROR, message)
    if recorder is not None:
        recorder.report_error(code, message[: IErrorRecorder.MAX_DESC_LENGTH])


class IVersionedInterface:
    """What has a version."""

    api_language = APILanguage.PYTHON


class InterfaceInfo:
    """The kind and the version of an interface."""

    def __init__(self, kind="", major=1, minor=0):
        self.kind, self.major, self.minor = kind, major, minor


class IGpuAllocator(IVersionedInterface):
    """Gives memory of a GPU: taken, and not called, as contexts have memory of their own."""


class IGpuAsyncAllocator(IGpuAllocator):
    """The same on streams."""


class IDebugListener(IVersionedInterface):
    """Is told tensors while a run makes them: taken, and not called."""


class IPluginResource(IVersionedInterface):
    """What plugins share: taken, and not called."""


class IPluginCapability(IVersionedInterface):
    """A part of a plugin."""


class IPluginV2Ext:
    """A plugin of TensorRT's in Python: it may be defined; networks take those of `planish.plugin`."""

    def __init__(self, *_):
        pass


class IPluginV2DynamicExt(IPluginV2Ext):
    """The same, with open sizes."""

    FORMAT_COMBINATION_LIMIT = 100


class IPluginV3(IVersionedInterface):
    """A plugin of TensorRT's in Python: it may be defined; networks take those of `planish.plugin`."""

    def __init__(self, *_):
        pass


class IPluginV3OneCore(IPluginCapability):
    """The name of a plugin."""

    def __init__(self, *_):
        pass


class IPluginV3OneBuild(IPluginCapability):
    """What a plugin takes and gives."""

    DEFAULT_FORMAT_COMBINATION_LIMIT = 100

    def __init__(self, *_):
        pass


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """The same, with outputs that are inputs' memory."""


class IPluginV3OneRuntime(IPluginCapability):
    """What a plugin computes."""

    def __init__(self, *_):
        pass


class IPluginCreatorInterface(IVersionedInterface):
    """Makes plugins."""


class IPluginCreatorV3One(IPluginCreatorInterface):
    """Makes plugins of version 3: kept by the registry, and not called by networks."""

    def __init__(self, *_):
        pass


class PluginTensorDesc:
    """A tensor that a plugin is asked about."""

    def __init__(self):
        self.dims = self.type = self.format = self.scale = None


class DynamicPluginTensorDesc:
    """The same, with open sizes."""

    def __init__(self):
        self.desc = self.min = self.max = self.opt = None


class DimsExprs(list):
    """Sizes that a plugin computes."""
