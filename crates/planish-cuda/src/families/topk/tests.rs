//! TopK against the reference: order, ties and NaN.

use planish_tensor::{DType, Tensor};
use planish_testing::{Tolerance, problems};

use super::TopKFamily;
use crate::trial;

#[test]
fn samples_are_selected() {
    for problem in problems::topk::samples() {
        trial::check(&TopKFamily, &problem, 5, Tolerance::EXACT);
    }
}

#[test]
fn equal_elements_keep_their_order() {
    let problem = &problems::topk::samples()[2];
    let values = [3.0, 1.0, 3.0, 1.0, 7.0, -1.0, 3.0, 0.0, 7.0, 2.0, 0.0, 0.0, 3.0, 1.0, 7.0, 2.0, -5.0, 9.0];
    let x = Tensor::from_f64s(DType::I32, &[9, 2], &values).unwrap();
    trial::check_on(&TopKFamily, problem, &[x], Tolerance::EXACT);
}
