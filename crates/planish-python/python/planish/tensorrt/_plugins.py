"""The registry of plugins, for scripts that look into it: it is empty, and says so."""

import numpy as np

from ._enums import PluginFieldType


class PluginField:
    """A field that a plugin is made with."""

    def __init__(self, name="", data=None, type=PluginFieldType.UNKNOWN):  # noqa: A002, as TensorRT calls it
        self.name, self.type = name, type
        self.data = None if data is None else np.asarray(data)

    @property
    def size(self):
        """How many elements it has."""
        return 0 if self.data is None else self.data.size


class PluginFieldCollection(list):
    """The fields that a plugin is made with."""


class IPluginRegistry:
    """The plugins that there are."""

    def __init__(self):
        self._creators = {}
        self.error_recorder = None
        self.parent_search_enabled = True

    @property
    def plugin_creator_list(self):
        """All of those that scripts registered."""
        return list(self._creators.values())

    all_creators = plugin_creator_list

    def register_creator(self, creator, plugin_namespace=""):
        """Keeps a creator, so that it is found again; networks do not run it."""
        self._creators[(creator.name, getattr(creator, "plugin_version", "1"), plugin_namespace)] = creator
        return True

    def deregister_creator(self, creator):
        """Forgets a creator."""
        self._creators = {key: known for key, known in self._creators.items() if known is not creator}
        return True

    def get_plugin_creator(self, type, version="1", plugin_namespace=""):  # noqa: A002
        """A creator that was registered; None where there is none."""
        return self._creators.get((type, version, plugin_namespace))

    get_creator = get_plugin_creator

    def load_library(self, plugin_path):
        """Refused: libraries of TensorRT's plugins cannot be loaded."""
        raise NotImplementedError(f"`{plugin_path}` is a library of TensorRT's plugins, which cannot be loaded here")


_registry = IPluginRegistry()


def get_plugin_registry():
    """The plugins that there are."""
    return _registry


def init_libnvinfer_plugins(logger, namespace):
    """There are no plugins to look for; says that all is well."""
    return True
