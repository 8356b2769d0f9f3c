//! Attention against the reference: masks, causes, groups, sizes around the tiles.

use planish_op as op;
use planish_tensor::DType;

use super::Attention;
use crate::samples::Sample;
use crate::steps::Planner;
use crate::trial::{self, Tolerance};

/// Weights are rounded to the operands' type before they meet the values: half a unit in the last place of bf16
/// or f16 relative to the largest, averaged over the keys.
const WEIGHTS_F16: Tolerance = Tolerance { relative: 2e-3, absolute: 1e-3 };
const WEIGHTS_BF16: Tolerance = Tolerance { relative: 1e-2, absolute: 8e-3 };
const WEIGHTS_F32: Tolerance = Tolerance { relative: 1e-5, absolute: 1e-5 };

fn tolerance(dtype: DType) -> Tolerance {
    match dtype {
        DType::F16 => WEIGHTS_F16,
        DType::BF16 => WEIGHTS_BF16,
        _ => WEIGHTS_F32,
    }
}

#[test]
fn samples_are_attended() {
    for problem in Attention.samples() {
        trial::check(&Attention, &problem, 5, tolerance(problem.outputs[0].dtype));
    }
}

#[test]
fn heads_in_rows_and_groups_of_them() {
    for dtype in [DType::F16, DType::F32] {
        let attention = op::Attention {
            qk_matmul_output_mode: 0,
            softcap: 3.0,
            softmax_precision: None,
            kv_num_heads: Some(2),
            q_num_heads: Some(4),
            scale: Some(0.25),
            is_causal: true,
        };
        let sample = Sample::op(attention, 4).typed(dtype, &[2, 21, 4 * 16]).typed(dtype, &[2, 33, 2 * 16]);
        let sample = sample.typed(dtype, &[2, 33, 2 * 24]).typed(dtype, &[21, 33]);
        trial::check(&Attention, &sample.problem(), 5, tolerance(dtype));
    }
}
