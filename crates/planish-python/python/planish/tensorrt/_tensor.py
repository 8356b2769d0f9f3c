"""Tensors of networks."""

from ._enums import TensorLocation
from ._types import DataType, Dims


class ITensor:
    """A tensor of a network: an input, or what a layer makes."""

    def __init__(self, network, name, dtype=None, shape=None, layer=None, index=0):
        self._network, self._layer, self._index = network, layer, index
        self._name = name
        self._dtype, self._shape = dtype, shape
        #: Of a model that was read: what its file calls the tensor, and its type there.
        self.original, self.original_dtype = None, None
        #: The type that an output of the network was given.
        self.wanted = None
        self.axis_names = {}
        self.dynamic_range = None
        self.allowed_formats = 1
        self.location = TensorLocation.DEVICE
        self.broadcast_across_batch = False

    def _is_input(self):
        """Whether nothing makes it; what makes an output of a model that was read is looked for as soon as the model is changed."""
        if self._layer is None and self.original is not None and not self.is_network_input and not self._network._is_as_read:
            self._network._layers  # noqa: B018, which names the layers' outputs
        return self._layer is None

    @property
    def name(self):
        """Its name."""
        return self._name

    @name.setter
    def name(self, name):
        self._name = name
        self._network._changed()

    @property
    def shape(self):
        """Its sizes, -1 where they are open. Those of an input can be set."""
        return Dims(self._shape if self._is_input() else self._network._inferred(self)[1])

    @shape.setter
    def shape(self, shape):
        if not self.is_network_input:
            raise ValueError(f"the sizes of `{self.name}` follow from those of the inputs; set them there")
        self._shape = Dims(shape)
        self._network._changed()

    @property
    def dtype(self):
        """Its element type. That of an input or an output of the network can be set."""
        if self.wanted is not None:
            return self.wanted
        return self._dtype if self._is_input() else self._network._inferred(self)[0]

    @dtype.setter
    def dtype(self, dtype):
        self._network._changed()
        if self._is_input():
            self._dtype = DataType(dtype)
        else:
            self.wanted = DataType(dtype)

    @property
    def is_network_input(self):
        """Whether it is an input."""
        return any(self is tensor for tensor in self._network._inputs)

    @property
    def is_network_output(self):
        """Whether it is an output."""
        return any(self is tensor for tensor in self._network._outputs)

    @property
    def is_shape_tensor(self):
        """Whether its elements are sizes: none is said to be."""
        return False

    is_execution_tensor = True

    def get_dimension_name(self, index):
        """The name of an axis's size; empty where it has none."""
        return self.axis_names.get(index, "")

    def set_dimension_name(self, index, name):
        """Names the size of an axis of an input: sizes of one name are equal."""
        self.axis_names[index] = name
        self._network._changed()

    def set_dynamic_range(self, min, max):  # noqa: A002, as TensorRT calls them
        """The range of its elements, for integers of 8 bits."""
        self.dynamic_range = (min, max)
        return True

    def reset_dynamic_range(self):
        """Forgets the range."""
        self.dynamic_range = None
