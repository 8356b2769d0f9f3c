"""Trains the small classifier of the accuracy tests on Fashion-MNIST and writes it as ONNX.

usage: train_fashion_mnist.py OUT_FOLDER [--data FOLDER] [--epochs N]

Needs torch, numpy and onnx, and the four idx files of Fashion-MNIST (MIT; Debian package `dataset-fashion-mnist`, which
installs them where --data looks by default). OUT_FOLDER gets

- fashion_mnist.onnx: opset 17, input `pixels` f32[batch,1,28,28] in 0..1, output `scores` f32[batch,10]. Batch
  normalization stays apart from the convolutions, as exporters of training frameworks leave it;
- fashion_mnist_test.npz: the first 500 test images (`pixels`, u8[500,1,28,28]) with their `labels` (u8[500]);
- fashion_mnist_calibration.npz: 500 images of the training set, for calibration: none of them is tested on.

The last line says how many of all 10,000 test images PyTorch classifies rightly.
"""

import argparse
import gzip
import pathlib
import time

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional as F

SEED = 0
OPSET = 17
IR_VERSION = 8
BATCH = 128
PEAK_RATE = 0.4
N_TESTED = 500
N_CALIBRATION = 500


class Block(nn.Module):
    """Two convolutions beside a shortcut; the shortcut is a convolution where the sizes change."""

    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels_out)
        self.second = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels_out)
        is_same = channels_in == channels_out and stride == 1
        self.shortcut = None if is_same else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
        self.shortcut_norm = None if is_same else nn.BatchNorm2d(channels_out)

    def forward(self, x):
        y = F.relu(self.first_norm(self.first(x)))
        y = self.second_norm(self.second(y))
        return F.relu(y + (x if self.shortcut is None else self.shortcut_norm(self.shortcut(x))))


class Classifier(nn.Module):
    """91,642 parameters; 9 million multiply-adds an image."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 16, 3, 1, 1, bias=False)
        self.stem_norm = nn.BatchNorm2d(16)
        self.blocks = nn.ModuleList([Block(16, 32, 1), Block(32, 32, 1), Block(32, 64, 2)])
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.stem_norm(self.stem(x))), 2)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Writer:
    """ONNX nodes in the order of the layers."""

    def __init__(self):
        self.nodes, self.weights = [], []

    def node(self, kind, inputs, output, **attributes):
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output, **attributes))
        return output

    def weight(self, name, tensor):
        self.weights.append(numpy_helper.from_array(tensor.detach().numpy(), name))
        return name

    def conv(self, x, conv, norm, name, relu=True):
        pad, stride = conv.padding[0], list(conv.stride)
        weight = self.weight(f"{name}.weight", conv.weight)
        y = self.node("Conv", [x, weight], f"{name}.conv", pads=[pad] * 4, strides=stride,
                      kernel_shape=list(conv.kernel_size))
        parts = {"scale": norm.weight, "bias": norm.bias, "mean": norm.running_mean, "var": norm.running_var}
        names = [self.weight(f"{name}.norm.{part}", tensor) for part, tensor in parts.items()]
        y = self.node("BatchNormalization", [y, *names], f"{name}.norm", epsilon=norm.eps)
        return self.node("Relu", [y], f"{name}.relu") if relu else y

    def block(self, x, block, name):
        y = self.conv(x, block.first, block.first_norm, f"{name}.first")
        y = self.conv(y, block.second, block.second_norm, f"{name}.second", relu=False)
        if block.shortcut is not None:
            x = self.conv(x, block.shortcut, block.shortcut_norm, f"{name}.shortcut", relu=False)
        y = self.node("Add", [y, x], f"{name}.add")
        return self.node("Relu", [y], f"{name}.relu")


def to_onnx(model):
    writer = Writer()
    x = writer.conv("pixels", model.stem, model.stem_norm, "stem")
    x = writer.node("MaxPool", [x], "stem.pool", kernel_shape=[2, 2], strides=[2, 2])
    for idx, block in enumerate(model.blocks):
        x = writer.block(x, block, f"blocks.{idx}")
    x = writer.node("GlobalAveragePool", [x], "mean")
    x = writer.node("Flatten", [x], "features", axis=1)
    weight, bias = writer.weight("head.weight", model.head.weight), writer.weight("head.bias", model.head.bias)
    writer.node("Gemm", [x, weight, bias], "scores", transB=1)
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", *rest])
             for name, rest in [("pixels", [1, 28, 28]), ("scores", [10])]]
    graph = helper.make_graph(writer.nodes, "fashion_mnist", ports[:1], ports[1:], writer.weights)
    opset = helper.make_opsetid("", OPSET)
    whole = helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION,
                              producer_name="train_fashion_mnist.py")
    onnx.checker.check_model(whole, full_check=True)
    return whole


def idx_file(folder, name):
    data = gzip.decompress((folder / f"{name}-ubyte.gz").read_bytes())
    n_axes = data[3]
    shape = np.frombuffer(data, ">i4", n_axes, 4)
    return np.frombuffer(data, np.uint8, offset=4 + 4 * n_axes).reshape(shape)


def load(folder, part):
    images, labels = idx_file(folder, f"{part}-images-idx3"), idx_file(folder, f"{part}-labels-idx1")
    return images[:, None], labels


def train(model, images, labels, epochs):
    pixels, labels = torch.from_numpy(images.copy()), torch.from_numpy(labels.copy()).long()
    optimizer = torch.optim.SGD(model.parameters(), PEAK_RATE, momentum=0.9, weight_decay=5e-4, nesterov=True)
    n_steps = epochs * (len(pixels) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, PEAK_RATE, n_steps, pct_start=0.25)
    for epoch in range(epochs):
        model.train()
        start, total = time.time(), 0.0
        order = torch.randperm(len(pixels))
        for step in range(len(pixels) // BATCH):
            chosen = order[step * BATCH:(step + 1) * BATCH]
            x, y = pixels[chosen].float() / 255, labels[chosen]
            x = torch.where(torch.rand(len(x), 1, 1, 1) < 0.5, x.flip(3), x)
            loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        print(f"epoch {epoch + 1} of {epochs}: loss {total / (step + 1):.4f}, {time.time() - start:.0f} s", flush=True)


def n_right(model, images, labels):
    model.eval()
    right = 0
    with torch.no_grad():
        for start in range(0, len(images), 500):
            x = torch.from_numpy(images[start:start + 500].copy()).float() / 255
            right += int((model(x).argmax(1).numpy() == labels[start:start + 500]).sum())
    return right


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--data", type=pathlib.Path, default=pathlib.Path("/usr/share/datasets/fashion-mnist"))
    parser.add_argument("--epochs", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(SEED)
    model = Classifier()
    print(f"{sum(p.numel() for p in model.parameters())} parameters")
    images, labels = load(args.data, "train")
    train(model, images, labels, args.epochs)
    model.eval()
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "fashion_mnist.onnx").write_bytes(to_onnx(model).SerializeToString(deterministic=True))
    chosen = np.random.default_rng(SEED).permutation(len(images))[:N_CALIBRATION]
    np.savez_compressed(args.out / "fashion_mnist_calibration.npz", pixels=images[chosen])
    images, labels = load(args.data, "t10k")
    np.savez_compressed(args.out / "fashion_mnist_test.npz", pixels=images[:N_TESTED], labels=labels[:N_TESTED])
    right = n_right(model, images, labels)
    print(f"{right} of {len(images)} test images right ({n_right(model, images[:N_TESTED], labels[:N_TESTED])} of the first {N_TESTED})")


if __name__ == "__main__":
    main()
