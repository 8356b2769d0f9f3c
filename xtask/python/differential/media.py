"""Cases of resampling, detection and signal operators."""

import numpy as np

from .case import Case, registry

GENERATORS, generator = registry()


@generator("Resize")
def resize(draw, name):
    mode = draw.pick(["nearest", "linear", "cubic"])
    coordinates = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_crop_and_resize"]
    if mode != "nearest":
        # Single precision moves exact coordinates of this mode off their pixels, so nearest ones differ.
        coordinates.append("half_pixel_symmetric")
    attributes = {"mode": mode, "coordinate_transformation_mode": draw.pick(coordinates)}
    if mode == "nearest":
        attributes["nearest_mode"] = draw.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic" and draw.chance(0.5):
        attributes["cubic_coeff_a"] = draw.pick([-0.5, -0.75])
    if mode == "cubic" and draw.chance(0.3):
        attributes["exclude_outside"] = 1
    roi = None
    if attributes["coordinate_transformation_mode"] == "tf_crop_and_resize":
        attributes["extrapolation_value"] = draw.pick([0.0, -7.5])
        start, end = draw.array("float32", [2], -0.2, 0.4), draw.array("float32", [2], 0.5, 1.2)
        roi = np.concatenate([[0, 0], start, [1, 1], end]).astype(np.float32)
    elif mode != "nearest" and draw.chance(0.3):
        attributes["antialias"] = 1
    shape = [1, draw.integer(1, 2), draw.integer(2, 6), draw.integer(2, 6)]
    data = draw.array("float32", shape)
    # An axis whose length stays is copied by ONNX Runtime whatever the scale or the region says.
    if draw.chance(0.5):
        factors = [0.5, 1.5, 2, 3, 0.6, 0.7, 1.3, 2.4] + ([1] if roi is None else [])
        fits = [[f for f in factors if f == 1 or int(np.float32(n) * np.float32(f)) != n] for n in shape[2:]]
        scales = np.asarray([1, 1, draw.pick(fits[0]), draw.pick(fits[1])], np.float32)
        return Case(name, [data, roi, scales], attributes, opset=19, parameters=(1, 2))
    lengths = [draw.pick([to for to in range(1, 10) if roi is None or to != n]) for n in shape[2:]]
    if roi is None and "antialias" not in attributes and draw.chance(0.3):
        attributes["axes"] = [2, 3]
        attributes["keep_aspect_ratio_policy"] = draw.pick(["span", "not_larger", "not_smaller"])
        shape = []
    sizes = np.asarray(shape[:2] + lengths, np.int64)
    return Case(name, [data, roi, None, sizes], attributes, opset=19, parameters=(1, 3))


@generator("Upsample")
def upsample(draw, name):
    data = draw.array("float32", [1, 2, draw.integer(1, 5), draw.integer(1, 5)])
    scales = np.asarray([1, 1, draw.pick([1, 2, 3]), draw.pick([1, 2, 3])], np.float32)
    return Case(name, [data, scales], {"mode": draw.pick(["nearest", "linear"])}, opset=9, parameters=(1,))


@generator("GridSample")
def grid_sample(draw, name):
    n_axes = draw.pick([2, 2, 3])
    shape = [draw.integer(1, 2), draw.integer(1, 2)] + [draw.integer(2, 5) for _ in range(n_axes)]
    points = [draw.integer(1, 4) for _ in range(n_axes)]
    grid = draw.array("float32", [shape[0], *points, n_axes], -1.3, 1.3)
    attributes = {
        "mode": draw.pick(["linear", "nearest", "cubic"] if n_axes == 2 else ["linear", "nearest"]),
        "padding_mode": draw.pick(["zeros", "border", "reflection"]),
        "align_corners": draw.integer(0, 1),
    }
    return Case(name, [draw.array("float32", shape), grid], attributes, opset=20)


@generator("AffineGrid")
def affine_grid(draw, name):
    n_axes = draw.pick([2, 3])
    batch = draw.integer(1, 2)
    # One pixel alone between corners that are pixels has no place; libraries choose -1, 0 or 1.
    lengths = [draw.integer(2, 5) for _ in range(n_axes)]
    theta = draw.array("float32", [batch, n_axes, n_axes + 1])
    sizes = np.asarray([batch, 3, *lengths], np.int64)
    return Case(name, [theta, sizes], {"align_corners": draw.integer(0, 1)}, opset=20, parameters=(1,))


@generator("RoiAlign")
def roi_align(draw, name):
    data = draw.array("float32", [draw.integer(1, 2), draw.integer(1, 3), 8, 9])
    count = draw.integer(1, 3)
    low, high = draw.array("float32", [count, 2], 0, 4), draw.array("float32", [count, 2], 4.5, 8)
    batch = draw.array("int64", [count], 0, data.shape[0] - 1)
    attributes = {
        "mode": draw.pick(["avg", "max"]) if draw.chance(0.3) else "avg",
        "output_height": draw.integer(1, 4),
        "output_width": draw.integer(1, 4),
        "sampling_ratio": draw.integer(0, 3),
        "spatial_scale": draw.pick([1.0, 0.5]),
        "coordinate_transformation_mode": draw.pick(["half_pixel", "output_half_pixel"]),
    }
    return Case(name, [data, np.concatenate([low, high], 1), batch], attributes, opset=16)


@generator("NonMaxSuppression")
def nms(draw, name):
    n_batches, n_boxes, n_classes = draw.integer(1, 2), draw.integer(1, 12), draw.integer(1, 3)
    corner = draw.array("float32", [n_batches, n_boxes, 2], 0, 6)
    boxes = np.concatenate([corner, corner + draw.array("float32", corner.shape, 0.5, 4)], 2)
    scores = draw.rng.permutation(n_batches * n_classes * n_boxes).reshape(n_batches, n_classes, n_boxes)
    scores = (scores / scores.size).astype("float32")
    inputs = [boxes, scores, np.asarray([draw.integer(0, 6)], np.int64), np.asarray([draw.pick([0.2, 0.5, 0.8])], np.float32)]
    if draw.chance(0.5):
        inputs.append(np.asarray([0.3], np.float32))
    return Case(name, inputs, {"center_point_box": draw.integer(0, 1)})


@generator("DFT")
def dft(draw, name):
    shape = [draw.integer(1, 2), draw.integer(2, 9), draw.integer(1, 2)]
    onesided = int(shape[2] == 1 and draw.chance(0.5))
    inverse = 0 if onesided else draw.integer(0, 1)
    return Case(name, [draw.array(draw.pick(["float32", "float64"]), shape)], {"axis": 1, "onesided": onesided, "inverse": inverse}, opset=17)


@generator("STFT")
def stft(draw, name):
    length, frame = draw.integer(16, 40), draw.pick([4, 8, 7])
    signal = draw.array("float32", [1, length, 1])
    step = np.asarray(draw.integer(1, 5), np.int64)
    window = draw.array("float32", [frame], 0.1, 1)
    return Case(name, [signal, step, window, np.asarray(frame, np.int64)], {"onesided": draw.integer(0, 1)}, opset=17, parameters=(1, 3))


@generator("HannWindow", "HammingWindow", "BlackmanWindow")
def window(draw, name):
    return Case(name, [np.asarray(draw.integer(1, 20), np.int64)], {"periodic": draw.integer(0, 1)}, opset=17, parameters=(0,))


@generator("MelWeightMatrix")
def mel(draw, name):
    inputs = [np.asarray(v, np.int64) for v in (draw.integer(4, 10), draw.pick([64, 128]), 8000)]
    inputs += [np.asarray(v, np.float32) for v in (0.0, 4000.0)]
    return Case(name, inputs, opset=17, parameters=(0, 1, 2, 3, 4))
