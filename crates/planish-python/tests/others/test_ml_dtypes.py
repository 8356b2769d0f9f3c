"""Element types that numpy lacks, as `ml_dtypes` has them."""

import ml_dtypes
import numpy as np
import planish
import pytest

#: Planish's names of types that only `ml_dtypes` has.
TYPES = {
    "bf16": "bfloat16", "f8e4m3fn": "float8_e4m3fn", "f8e4m3fnuz": "float8_e4m3fnuz", "f8e5m2": "float8_e5m2",
    "f8e5m2fnuz": "float8_e5m2fnuz", "i4": "int4", "u4": "uint4", "i2": "int2", "u2": "uint2", "f4e2m1": "float4_e2m1fn",
}


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 64])
@pytest.mark.parametrize("ours,name", TYPES.items())
def test_small_types_go_in_and_out(ours, name, length):
    text = f'graph "g" {{ input %x: {ours}[n] %y: f32[n] = Cast(%x) {{ to=f32 }} %z: {ours}[n] = Cast(%y) {{ to={ours} }} output %y, %z }}'
    engine = planish.build(planish.Model.parse(text), tune_level=0, threads=1).engine()
    dtype = np.dtype(getattr(ml_dtypes, name))
    assert engine.inputs[0].dtype == name
    # Values that every one of them has.
    least = -2 if name[0] in "if" else 0
    x = (np.arange(length) % 4 + least).clip(None, 1).astype(np.float32).astype(dtype)
    y, z = engine(x)
    np.testing.assert_array_equal(y, x.astype(np.float32))
    assert z.dtype == dtype
    np.testing.assert_array_equal(z.astype(np.float32), x.astype(np.float32))
    # Types below a byte are packed and unpacked; others are where they were.
    is_packed = ours in ("i4", "u4", "i2", "u2", "f4e2m1")
    assert engine.copies == (2 if is_packed else 0)
