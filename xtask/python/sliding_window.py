"""Draws settings of MONAI's sliding_window_inference, runs it, and writes what went in and came out.

usage: sliding_window.py FOLDER CASES SEED
"""

import sys
from pathlib import Path

import numpy as np
import torch
from monai.inferers import sliding_window_inference

PADDINGS = ["constant", "reflect", "replicate", "circular"]
# What the model says of a window, by the number that the case is written with.
KINDS = ["same", "larger", "smaller"]


def predictor(kind, n_axes):
    pixels = tuple(range(2, 2 + n_axes))

    def predict(x, condition):
        y = x * x - condition.mean(dim=pixels, keepdim=True)
        if kind == "larger":
            for axis in pixels:
                y = y.repeat_interleave(2, dim=axis)
        if kind == "smaller":
            y = y[(slice(None), slice(None)) + (slice(None, None, 2),) * n_axes]
        return y.contiguous()

    return predict


def draw(rng, n_axes):
    kind = KINDS[rng.integers(3)]
    roi = [int(rng.integers(2, 12)) for _ in range(n_axes)]
    if kind == "smaller":  # MONAI rounds places of windows by floats: halves are exact
        roi = [size + size % 2 for size in roi]
    padding = PADDINGS[rng.integers(4)]
    least = [size // 2 + 2 if padding in ("reflect", "circular") else 1 for size in roi]
    sizes = [int(rng.integers(low, 30 if n_axes < 3 else 18)) for low in least]
    return {
        "kind": kind,
        "roi": roi,
        "sizes": [int(rng.integers(1, 3)), int(rng.integers(1, 4)), *sizes],
        "batch": int(rng.integers(1, 6)),
        "overlap": [float(rng.choice([0.0, 0.25, 0.5, 0.625, 0.8])) for _ in range(n_axes)],
        "mode": ["constant", "gaussian"][rng.integers(2)],
        "sigma": [float(rng.choice([0.125, 0.05, 0.3])) for _ in range(n_axes)],
        "padding": padding,
        # torch takes a value for constant padding alone
        "cval": float(np.float32(rng.normal())) if padding == "constant" else 0.0,
    }


def main():
    folder, n_cases, seed = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    for case in range(n_cases):
        n_axes = int(rng.integers(2, 4))
        drawn = draw(rng, n_axes)
        x = rng.normal(size=drawn["sizes"]).astype(np.float32)
        w = rng.normal(size=drawn["sizes"]).astype(np.float32)
        y = sliding_window_inference(
            torch.from_numpy(x),
            drawn["roi"],
            drawn["batch"],
            predictor(drawn["kind"], n_axes),
            overlap=drawn["overlap"],
            mode=drawn["mode"],
            sigma_scale=drawn["sigma"],
            padding_mode=drawn["padding"],
            cval=drawn["cval"],
            condition=torch.from_numpy(w),
        )
        np.savez(
            folder / f"{case:03}.npz",
            x=x,
            w=w,
            y=y.numpy(),
            kind=np.int64(KINDS.index(drawn["kind"])),
            roi=np.array(drawn["roi"], np.int64),
            batch=np.int64(drawn["batch"]),
            overlap=np.array(drawn["overlap"]),
            gaussian=np.int64(drawn["mode"] == "gaussian"),
            sigma=np.array(drawn["sigma"]),
            padding=np.int64(PADDINGS.index(drawn["padding"])),
            cval=np.float64(drawn["cval"]),
        )


main()
