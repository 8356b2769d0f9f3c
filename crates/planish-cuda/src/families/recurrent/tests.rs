//! Recurrent layers against the reference, one block at a time on the host; clusters on a device.

use planish_testing::{Random, Tolerance, problems};

use super::{Form, RecurrentFamily};
use crate::trial;

/// States stay within one; errors of products and functions pass from step to step.
const STATES: Tolerance = Tolerance { relative: 2e-5, absolute: 4e-6 };

/// The same after rounding to f16 (11 bits) or bf16 (8 bits) of values within one.
const ROUNDED: Tolerance = Tolerance { relative: 8e-3, absolute: 4e-3 };

#[test]
fn samples_are_stepped_through() {
    for problem in problems::recurrent::samples().into_iter().chain([problems::recurrent::without_rows()]) {
        let mut numbers = Random::new(5);
        let inputs: Vec<_> =
            problem.inputs.iter().map(|operand| numbers.tensor(operand.dtype, &operand.dims, 0.5)).collect();
        let tolerance = if problem.inputs[0].dtype.bits() == 32 { STATES } else { ROUNDED };
        trial::check_on(&RecurrentFamily, &problem, &inputs, tolerance);
    }
}

#[test]
fn names_come_back_as_forms() {
    for form in [Form { blocks: 8, rows: 4, resident: true }, Form { blocks: 1, rows: 1, resident: false }] {
        assert_eq!(Form::named(&form.name()), Some(form));
    }
    for wrong in
        ["recurrent_c16_r1_shared", "recurrent_c8_r3_shared", "recurrent_c8_r1", "recurrent_c8_r1_shared_x"]
    {
        assert_eq!(Form::named(wrong), None, "{wrong}");
    }
}
