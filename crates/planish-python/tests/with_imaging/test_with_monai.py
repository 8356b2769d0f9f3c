"""Sliding windows held against MONAI's own function, and TIFF files."""

import numpy as np
import planish
import pytest
import tifffile
import torch
from monai.inferers import sliding_window_inference as of_monai
from planish.imaging import InferenceEngine, sliding_window_inference

N_SETTINGS = 20
#: Sums of a few windows in another order.
TOLERANCE = 1e-5


def engine_of(n_axes, roi):
    """x * x in windows of these sizes, so that windows differ from the image only by where they are."""
    sizes = ",".join(str(size) for size in roi)
    text = f'graph "g" {{ input %x: f32[n,2,{sizes}] %y: f32[n,2,{sizes}] = Mul(%x, %x) output %y }}'
    return planish.build(planish.Model.parse(text), threads=1, tune_level=0).engine()


@pytest.mark.parametrize("seed", range(N_SETTINGS))
def test_equal_to_monai(seed):
    rng = np.random.default_rng(seed)
    n_axes = int(rng.integers(2, 4))
    roi = [int(rng.integers(3, 10)) for _ in range(n_axes)]
    padding = ["constant", "reflect", "replicate", "circular"][rng.integers(4)]
    sizes = [int(rng.integers(size // 2 + 2, 24)) for size in roi]
    x = torch.from_numpy(rng.standard_normal((int(rng.integers(1, 3)), 2, *sizes)).astype(np.float32))
    told = {
        "overlap": [float(rng.choice([0.0, 0.25, 0.5, 0.7])) for _ in range(n_axes)],
        "mode": ["constant", "gaussian"][rng.integers(2)],
        "sigma_scale": float(rng.choice([0.125, 0.05, 0.3])),
        "padding_mode": padding,
        "cval": float(rng.normal()) if padding == "constant" else 0.0,
    }
    batch = int(rng.integers(1, 5))
    # Something that depends on the window: a model that only looks at a pixel would not show where windows begin.
    wanted = of_monai(x, roi, batch, lambda part: part * part, **told)
    got = sliding_window_inference(x, roi, batch, engine_of(n_axes, roi), **told)
    assert isinstance(got, torch.Tensor) and got.shape == wanted.shape
    torch.testing.assert_close(got, wanted, rtol=TOLERANCE, atol=TOLERANCE)


def test_tiff_in_and_out(tmp_path):
    planish.build(planish.Model.parse('graph "g" { input %x: f32[n,1,8,8] %y: f32[n,1,8,8] = Neg(%x) output %y }'), threads=1).save(tmp_path / "neg.plan")
    pixels = np.random.default_rng(0).integers(0, 255, (30, 21)).astype(np.float32)
    tifffile.imwrite(tmp_path / "in.tif", pixels)
    with InferenceEngine(tmp_path / "neg.plan") as engine:
        engine.predict_file(tmp_path / "in.tif", tmp_path / "out.tif", (8, 8), overlap=0.5)
        np.testing.assert_allclose(tifffile.imread(tmp_path / "out.tif"), -pixels, rtol=1e-6)
        # Pages are images where the model takes one channel.
        tifffile.imwrite(tmp_path / "pages.tif", np.stack([pixels, 2 * pixels]))
        assert engine.predict_file(tmp_path / "pages.tif", None, (8, 8)).shape == (2, 1, 30, 21)
    assert not list(tmp_path.glob("*.partial"))
