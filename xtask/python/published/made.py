"""Models and images for the scripts: small networks with the inputs and outputs that they expect, and noise to look at."""

import gzip
import struct

import numpy as np
import planish

PICTURES = ("binoculars.jpeg", "reflex_camera.jpeg", "tabby_tiger_cat.jpg", "dog.jpg")


def _numbers(n, mod=13):
    return ",".join(str((idx * 7 % mod - mod // 2) / mod) for idx in range(n))


def classifier(name, channels_last, batch="1"):
    """Images of 224 x 224 to 1000 classes."""
    image = f"{batch},224,224,3" if channels_last else f"{batch},3,224,224"
    turned = '%t: f32[B,3,224,224] = Transpose(%IN) { perm=[0,3,1,2] }' if channels_last else '%t: f32[B,3,224,224] = Identity(%IN)'
    return f"""graph "classifier" {{
        input %IN: f32[{image}]
        const %w: f32[8,3,7,7] = [{_numbers(8 * 3 * 49)}]
        const %v: f32[16,8,3,3] = [{_numbers(16 * 8 * 9, 11)}]
        const %k: f32[16,1000] = [{_numbers(16000, 17)}]
        {turned}
        %a: f32[B,8,56,56] = Conv(%t, %w) {{ pads=[2,2,1,1], strides=[4,4] }}
        %b: f32[B,8,56,56] = Relu(%a)
        %c: f32[B,16,28,28] = Conv(%b, %v) {{ pads=[1,1,0,0], strides=[2,2] }}
        %d: f32[B,16,28,28] = Relu(%c)
        %e: f32[B,16,1,1] = GlobalAveragePool(%d)
        const %s: i64[2] = [-1, 16]
        %f: f32[B,16] = Reshape(%e, %s)
        %g: f32[B,1000] = MatMul(%f, %k)
        %p: f32[B,1000] = Softmax(%g)
        output %p
    }}""".replace("B,", f"{batch},").replace("IN", f'"{name}"' if "/" in name else name)


def detector():
    """Images of 64 x 64 to ten boxes with scores and classes, as detectors with their last step inside give them."""
    return f"""graph "detector" {{
        input %x: f32[1,64,64,3]
        const %axes: i64[2] = [1, 2]
        const %k: f32[3,40] = [{_numbers(120)}]
        const %l: f32[3,10] = [{_numbers(30, 11)}]
        const %box: i64[3] = [1, 10, 4]
        const %ten: i64[1] = [10]
        %m: f32[1,3] = ReduceMean(%x, %axes) {{ keepdims=false }}
        %a: f32[1,40] = MatMul(%m, %k)
        %b: f32[1,40] = Sigmoid(%a)
        %detection_boxes: f32[1,10,4] = Reshape(%b, %box)
        %s: f32[1,10] = MatMul(%m, %l)
        %detection_scores: f32[1,10] = Sigmoid(%s)
        %c: i32[1,10] = Cast(%detection_scores) {{ to=i32 }}
        %detection_classes: i32[1,10] = Identity(%c)
        const %three: i32[1] = [3]
        %num_detections: i32[1] = Identity(%three)
        output %num_detections, %detection_boxes, %detection_scores, %detection_classes
    }}"""


def write(folder):
    """All of it."""
    from PIL import Image

    def model(text, name):
        planish.Model.parse(text).save_onnx(folder / name)

    (folder / "resnet50").mkdir()
    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    for name in PICTURES:
        picture = Image.fromarray(rng.integers(0, 255, (240, 320, 3)).astype(np.uint8))
        picture.save(folder / "resnet50" / name)
        picture.save(folder / "images" / name.replace(".jpeg", ".jpg"))
    # Labels that fit every picture: what a network of random weights says is nobody's business.
    (folder / "resnet50" / "class_labels.txt").write_text("\n" * 1000)
    (folder / "labels.txt").write_text("\n".join(f"thing {idx}" for idx in range(100)))
    model(classifier("gpu_0/data_0", False), "resnet50/ResNet50.onnx")
    model(classifier("x", True), "efficientnet.onnx")
    model(classifier("x", True, "n"), "efficientnet_open.onnx")
    model(detector(), "detector.onnx")
    digits(folder / "mnist")


def digits(folder):
    """Pictures in MNIST's format: a bright bar whose place is the digit."""
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name, count in (("train", 512), ("t10k", 64)):
        labels = np.arange(count) % 10
        images = np.random.default_rng(count).integers(0, 30, (count, 28, 28)).astype(np.uint8)
        for image, label in zip(images, labels):
            image[:, 2 + 2 * label : 6 + 2 * label] = 250
        for kind, header, content in (("images-idx3", (2051, count, 28, 28), images), ("labels-idx1", (2049, count), labels.astype(np.uint8))):
            data = struct.pack(f">{len(header)}i", *header) + content.tobytes()
            (raw / f"{name}-{kind}-ubyte").write_bytes(data)
            (raw / f"{name}-{kind}-ubyte.gz").write_bytes(gzip.compress(data))
