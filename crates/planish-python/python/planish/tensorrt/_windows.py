"""Layers that slide a window over axes."""

from ._enums import LayerType, PaddingMode, PoolingType
from ._layers import ILayer, array_of, weight
from ._types import Dims


def _pads(layer, rank):
    """Padding before and after each axis, and ONNX's word for padding by rule."""
    rule = {PaddingMode.SAME_UPPER: "SAME_UPPER", PaddingMode.SAME_LOWER: "SAME_LOWER"}.get(layer.padding_mode)
    if rule:
        return None, rule
    before, after = list(layer.pre_padding), list(layer.post_padding)
    return before + after, None


class _Window(ILayer):
    """What slides over axes: `stride_nd`, `padding_nd`, `pre_padding`, `post_padding`, and the same with two axes."""

    def __getattr__(self, key):
        # Older names of the same.
        other = {"stride": "stride_nd", "padding": "padding_nd", "dilation": "dilation_nd", "kernel_size": "kernel_size_nd", "window_size": "window_size_nd"}.get(key)
        return getattr(self, other) if other else super().__getattr__(key)

    def __setattr__(self, key, value):
        other = {"stride": "stride_nd", "padding": "padding_nd", "dilation": "dilation_nd", "kernel_size": "kernel_size_nd", "window_size": "window_size_nd"}.get(key, key)
        if other == "padding_nd":
            super().__setattr__("pre_padding", tuple(value))
            super().__setattr__("post_padding", tuple(value))
        if other in ("stride_nd", "padding_nd", "dilation_nd", "pre_padding", "post_padding"):
            value = Dims(value)
        super().__setattr__(other, value)


class IConvolutionLayer(_Window):
    """A convolution."""

    type = LayerType.CONVOLUTION
    _op = "Conv"

    def nodes(self, graph, names, shapes):
        """Conv, or ConvTranspose."""
        window = tuple(self.kernel_size_nd)
        kernel, bias = array_of(self.kernel), array_of(self.bias)
        channels = shapes[0][1]
        if kernel is not None:
            sizes = self._sizes(self.num_output_maps, channels, self.num_groups)
            names = [names[0], weight(graph, f"{self.name}.kernel", kernel.reshape(sizes + window))]
        if bias is not None:
            names = names[:2] + [weight(graph, f"{self.name}.bias", bias.reshape(-1))]
        pads, rule = _pads(self, len(window))
        told = {"kernel_shape": window, "strides": tuple(self.stride_nd), "group": int(self.num_groups), "dilations": tuple(self.dilation_nd), "pads": pads, "auto_pad": rule}
        return [graph.node(self._op, names, label=self.name, **told)]

    @staticmethod
    def _sizes(n_out, n_in, groups):
        return (n_out, n_in // groups)


class IDeconvolutionLayer(IConvolutionLayer):
    """A transposed convolution."""

    type = LayerType.DECONVOLUTION
    _op = "ConvTranspose"

    @staticmethod
    def _sizes(n_out, n_in, groups):
        return (n_in, n_out // groups)


class IPoolingLayer(_Window):
    """The largest, or the mean, of a window."""

    type = LayerType.POOLING
    _kind = "pooling"

    def nodes(self, graph, names, shapes):
        """MaxPool or AveragePool."""
        window = tuple(self.window_size_nd)
        pads, rule = _pads(self, len(window))
        if self.pooling == PoolingType.MAX_AVERAGE_BLEND:
            raise NotImplementedError(f"`{self.name}`: pooling that blends maximum and average is not among the layers here")
        is_max = self.pooling == PoolingType.MAX
        ceil = self.padding_mode in (PaddingMode.EXPLICIT_ROUND_UP, PaddingMode.CAFFE_ROUND_UP)
        told = {"kernel_shape": window, "strides": tuple(self.stride_nd), "pads": pads, "auto_pad": rule, "ceil_mode": int(ceil)}
        if not is_max:
            told["count_include_pad"] = int(not self.average_count_excludes_padding)
        return [graph.node("MaxPool" if is_max else "AveragePool", names, label=self.name, **told)]
