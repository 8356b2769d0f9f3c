//! DynamicQuantizeLinear against the reference, bit by bit.

use planish_kernel::{Layout, Operand};
use planish_op as op;
use planish_tensor::{DType, Tensor};
use planish_testing::Random;

use super::{DynamicQuantizeFamily, TASK_ELEMENTS};
use crate::isa::Isa;
use crate::trial::{Input, OpTrial};

/// Runs it on every instruction set, in every layout that fits.
#[track_caller]
fn check(x: Tensor) {
    let trial = OpTrial::new(op::DynamicQuantizeLinear {}, &[Input::Data(x.clone())], 3);
    let layouts: &[Layout] =
        if x.rank() == 4 { &[Layout::Plain, Layout::ChannelsLast] } else { &[Layout::Plain] };
    for isa in Isa::available() {
        for layout in layouts {
            let of = |tensor: &Tensor, layout| Operand::dense(tensor.dtype(), tensor.shape(), layout);
            let outputs: Vec<Operand> = trial
                .want
                .iter()
                .enumerate()
                .map(|(idx, want)| of(want, if idx == 0 { *layout } else { Layout::Plain }))
                .collect();
            let got = trial.run(&DynamicQuantizeFamily, isa, &[of(&x, *layout)], &outputs).unwrap();
            assert!(got == trial.want, "{isa} {layout:?} {:?}", x.shape());
        }
    }
}

#[test]
fn many_shapes_and_ranges() {
    let mut random = Random::new(3);
    let shapes: &[&[usize]] = &[
        &[],
        &[0],
        &[1],
        &[7],
        &[16],
        &[17],
        &[3, 31],
        &[2, 5, 3, 7],
        &[TASK_ELEMENTS + 1],
        &[3, TASK_ELEMENTS - 1],
    ];
    for dims in shapes {
        for range in [1e-3, 1.0, 300.0] {
            check(random.tensor(DType::F32, dims, range));
        }
    }
    // One sign only: the range reaches to 0 all the same.
    for offset in [-9f32, 9.0] {
        let elements: Vec<f32> = (0..100).map(|at| offset + at as f32 / 50.0).collect();
        check(Tensor::vector(elements));
    }
}

#[test]
fn ties_zeros_and_what_is_no_number() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let lines: [&[f32]; 6] = [
        &[0.0; 40],
        // The scale is 1: halves are ties.
        &[-127.0, 128.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 127.5],
        &[nan, 3.0, -1.0, nan],
        &[nan, nan],
        &[inf, 1.0, -1.0],
        &[-inf, inf, 0.0, nan, 1e30],
    ];
    for line in lines {
        check(Tensor::vector(line.to_vec()));
    }
}
