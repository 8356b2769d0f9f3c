"""Writes the benchmark suite as ONNX: opset 18, dynamic batch, seeded weights, one file a model.

usage: export_suite.py FOLDER [NAME...]     (all models if none is named; files that exist are kept)

The image classifiers are torchvision's. The others are small networks of the kinds that users run: microscopy
UNets in two and three dimensions, a masked autoencoder over volumes, text encoders, and the three networks of an
image generator. Whatever a constructor leaves constant (scales, shifts, statistics, some biases and last layers) is
drawn around what training leaves after, so that nothing is trivial to fold and every layer shows in the output.
"""

import math
import os
import sys

import torch
from torch import nn
from torch.nn import functional as F

SEED = 0
OPSET = 18
MAX_BATCH = 256
VOCABULARY = 30522


def conv(dims, *args, **kw):
    return (nn.Conv2d if dims == 2 else nn.Conv3d)(*args, **kw)


def double_conv(dims, channels_in, channels_out):
    norm = nn.BatchNorm2d if dims == 2 else nn.BatchNorm3d
    layers = []
    for channels in (channels_in, channels_out):
        layers += [conv(dims, channels, channels_out, 3, padding=1), norm(channels_out), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Four levels; channels double on the way down, skips are concatenated on the way up."""

    def __init__(self, dims, base, levels=4):
        super().__init__()
        widths = [base << level for level in range(levels)]
        transposed = nn.ConvTranspose2d if dims == 2 else nn.ConvTranspose3d
        self.down = nn.ModuleList(double_conv(dims, i, o) for i, o in zip([1] + widths, widths))
        self.pool = nn.MaxPool2d(2) if dims == 2 else nn.MaxPool3d(2)
        steps = list(zip(widths[::-1], widths[-2::-1]))
        self.up = nn.ModuleList(transposed(i, o, 2, stride=2) for i, o in steps)
        self.merge = nn.ModuleList(double_conv(dims, 2 * o, o) for _, o in steps)
        self.head = conv(dims, base, 1, 1)

    def forward(self, x):
        skips = []
        for block in self.down[:-1]:
            skips.append(block(x))
            x = self.pool(skips[-1])
        x = self.down[-1](x)
        for up, merge, skip in zip(self.up, self.merge, reversed(skips)):
            x = merge(torch.cat([up(x), skip], 1))
        return self.head(x)


class CifarCnn(nn.Module):
    """Images come channels-last, as the Keras models of this kind take them."""

    def __init__(self):
        super().__init__()
        stages = [(3, 64), (64, 128), (128, 256)]
        self.features = nn.Sequential(*(nn.Sequential(double_conv(2, i, o), nn.MaxPool2d(2)) for i, o in stages))
        self.classes = nn.Sequential(nn.Flatten(), nn.Linear(256 * 16, 512), nn.ReLU(), nn.Linear(512, 10))

    def forward(self, x):
        return F.softmax(self.classes(self.features(x.permute(0, 3, 1, 2))), -1)


class EncoderLayer(nn.Module):
    """Self-attention and a two-layer perceptron, normalized after each (as BERT has it)."""

    def __init__(self, hidden, heads, inner):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(hidden, hidden) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.inner, self.outer = nn.Linear(hidden, inner), nn.Linear(inner, hidden)

    def forward(self, x):
        batch, length, hidden = x.shape
        size = hidden // self.heads

        def split(t):
            return t.view(batch, length, self.heads, size).transpose(1, 2)

        q, k, v = split(self.q(x)), split(self.k(x)), split(self.v(x))
        mixed = torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(size), -1) @ v
        x = self.norm1(x + self.o(mixed.transpose(1, 2).reshape(batch, length, hidden)))
        return self.norm2(x + self.outer(F.gelu(self.inner(x))))


def encoder(hidden, heads, inner, layers):
    return nn.Sequential(*(EncoderLayer(hidden, heads, inner) for _ in range(layers)))


class TextEncoder(nn.Module):
    def __init__(self, hidden, heads, inner, layers):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, hidden), nn.Embedding(512, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = encoder(hidden, heads, inner, layers)

    def forward(self, ids):
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        return self.layers(self.norm(self.tokens(ids) + self.places(places)))


class Mae3d(nn.Module):
    """Patches of 8x8x8 voxels, an encoder over them, and the voxels of each patch again."""

    def __init__(self, hidden=384, patch=8, size=64):
        super().__init__()
        self.patches = nn.Conv3d(1, hidden, patch, patch)
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 3, hidden) * 0.02)
        self.layers = encoder(hidden, 6, 4 * hidden, 6)
        self.voxels = nn.Linear(hidden, patch**3)

    def forward(self, x):
        tokens = self.patches(x).flatten(2).transpose(1, 2) + self.places
        return self.voxels(self.layers(tokens))


class Residual(nn.Module):
    """Two normalized convolutions around a skip, and self-attention over the pixels if wanted."""

    def __init__(self, channels, attention=False):
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(16, channels), nn.GroupNorm(16, channels)
        self.conv1, self.conv2 = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.attention = attention
        if attention:
            self.norm3 = nn.GroupNorm(16, channels)
            self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        x = x + self.conv2(F.silu(self.norm2(self.conv1(F.silu(self.norm1(x))))))
        if not self.attention:
            return x
        batch, channels, height, width = x.shape
        q, k, v = self.qkv(self.norm3(x)).reshape(batch, 3, channels, height * width).unbind(1)
        weights = torch.softmax(q.transpose(1, 2) @ k / math.sqrt(channels), -1)
        return x + self.out((v @ weights.transpose(1, 2)).reshape(batch, channels, height, width))


def halve(channels_in, channels_out):
    return nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1)


def same(channels_in, channels_out):
    return nn.Conv2d(channels_in, channels_out, 3, padding=1)


def twice(channels_in, channels_out):
    return nn.Sequential(nn.Upsample(scale_factor=2.0, mode="nearest"), same(channels_in, channels_out))


def gen_encoder():
    return nn.Sequential(
        same(3, 64), Residual(64), halve(64, 128), Residual(128), halve(128, 256), Residual(256),
        halve(256, 256), Residual(256, True), same(256, 4),
    )  # fmt: skip


class GenUNet(nn.Module):
    """The denoiser: three levels over the latent image, attention on the two lower ones."""

    def __init__(self, base=128):
        super().__init__()
        a, b, c = base, 2 * base, 4 * base
        self.first = same(4, a)
        self.down1, self.half1 = Residual(a), halve(a, b)
        self.down2, self.half2 = Residual(b, True), halve(b, c)
        self.middle = nn.Sequential(Residual(c, True), Residual(c))
        self.twice2, self.up2 = twice(c, b), Residual(b, True)
        self.twice1, self.up1 = twice(b, a), Residual(a)
        self.norm, self.last = nn.GroupNorm(16, a), same(a, 4)

    def forward(self, latent):
        high = self.down1(self.first(latent))
        low = self.down2(self.half1(high))
        x = self.middle(self.half2(low))
        x = self.up2(self.twice2(x) + low)
        x = self.up1(self.twice1(x) + high)
        return self.last(F.silu(self.norm(x)))


def gen_decoder():
    return nn.Sequential(
        same(4, 256), Residual(256, True), twice(256, 256), Residual(256), twice(256, 128), Residual(128),
        twice(128, 64), Residual(64), nn.GroupNorm(16, 64), nn.SiLU(), same(64, 3), nn.Tanh(),
    )  # fmt: skip


def classifier(name):
    import torchvision

    return lambda: getattr(torchvision.models, name)(weights=None)


def floats(*shape):
    return lambda batch: torch.randn(batch, *shape)


def tokens(length):
    return lambda batch: torch.randint(0, VOCABULARY, (batch, length))


# name -> (constructor, example input of a batch size, name of the input)
MODELS = {
    **{f"resnet18_{n}": (classifier("resnet18"), floats(3, n, n), "x") for n in (224, 256, 384, 512)},
    "resnet50_224": (classifier("resnet50"), floats(3, 224, 224), "x"),
    "mobilenet_v2_224": (classifier("mobilenet_v2"), floats(3, 224, 224), "x"),
    "efficientnet_b0_224": (classifier("efficientnet_b0"), floats(3, 224, 224), "x"),
    "convnext_tiny_224": (classifier("convnext_tiny"), floats(3, 224, 224), "x"),
    "vit_b_16_224": (classifier("vit_b_16"), floats(3, 224, 224), "x"),
    "cifar_cnn": (CifarCnn, floats(32, 32, 3), "x"),
    "labelfree_unet2d_256": (lambda: UNet(2, 32), floats(1, 256, 256), "x"),
    "seg_unet3d_64": (lambda: UNet(3, 16), floats(1, 64, 64, 64), "x"),
    "mae3d_64": (Mae3d, floats(1, 64, 64, 64), "x"),
    "bert_base_128": (lambda: TextEncoder(768, 12, 3072, 12), tokens(128), "ids"),
    "minilm_128": (lambda: TextEncoder(384, 12, 1536, 6), tokens(128), "ids"),
    "gen_encoder_256": (gen_encoder, floats(3, 256, 256), "image"),
    "gen_unet_32": (GenUNet, floats(4, 32, 32), "latent"),
    "gen_decoder_32": (gen_decoder, floats(4, 32, 32), "latent"),
}


def as_trained(model):
    """Numbers where constructors leave constants: training leaves none, and equal weights hide mistakes.

    ViT's last layer begins as zeros, so that no error could show in its output; ConvNeXt's branches begin with a
    scale of 1e-6; scales and shifts of normalizations and many biases are all one or all zero.
    """
    generator = torch.Generator().manual_seed(SEED + 1)

    def normal(tensor):
        return torch.randn(tensor.shape, generator=generator)

    for name, weight in model.named_parameters():
        if weight.numel() < 2 or weight.min() != weight.max():
            continue
        if name.endswith("layer_scale"):
            weight.copy_(0.2 + 0.05 * normal(weight))
        elif weight.dim() == 2:
            weight.copy_(normal(weight) / math.sqrt(weight.shape[1]))
        else:
            weight.copy_(weight + 0.1 * normal(weight))


def settle(model, batch):
    """Statistics of batch normalization as training leaves them: those of the activations.

    Left at 0 and 1, they let the signal of MobileNetV2 and EfficientNet die out on its way (two inputs differ by
    1e-8 in the output), and that of ResNet-50 grow to 40.
    """
    norms = [layer for layer in model.modules() if isinstance(layer, (nn.BatchNorm2d, nn.BatchNorm3d))]
    for norm in norms:
        norm.momentum = 1.0
        norm.train()
    if norms:
        model(batch)
    model.eval()


def prepared(name):
    """The model with its weights and statistics, ready to be run or exported."""
    make, example, _ = MODELS[name]
    torch.manual_seed(SEED)
    model = make().eval()
    with torch.no_grad():
        as_trained(model)
        settle(model, example(4))
    return model


def export(name, path, model=None):
    _, example, input_name = MODELS[name]
    model = model or prepared(name)
    with torch.no_grad():
        torch.onnx.export(
            model,
            (example(2),),
            path,
            input_names=[input_name],
            output_names=["out"],
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
            dynamic_shapes=({0: torch.export.Dim("batch", min=1, max=MAX_BATCH)},),
        )


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    folder, names = sys.argv[1], sys.argv[2:] or list(MODELS)
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        sys.exit(f"no such model: {', '.join(unknown)}; there are {', '.join(MODELS)}")
    os.makedirs(folder, exist_ok=True)
    for name in names:
        path = os.path.join(folder, name + ".onnx")
        if os.path.exists(path):
            continue
        partial = path + ".tmp"
        export(name, partial)
        os.replace(partial, path)
        print(f"{name}: {os.path.getsize(path) / 1e6:.1f} MB", flush=True)


if __name__ == "__main__":
    main()
