//! The conformance suite of backends on a GPU that is not here: which cases have candidates. `tests/gpu` runs them.

use planish_cuda::{Cuda, Gpu};
use planish_testing::conformance::{Gap, cases, enumerate};

const EMPTY: &str = "a product without elements is nothing to launch: the host makes it";

/// What stays on the host.
const GAPS: &[Gap] = &[
    Gap { cases: "matmul/*[0x4]*", reason: EMPTY },
    Gap { cases: "matmul/*[4x0]*", reason: EMPTY },
    Gap { cases: "nbits/*[0x32]*", reason: EMPTY },
    Gap { cases: "sparse/*[0x32]*", reason: EMPTY },
    Gap {
        cases: "nbits/*[65x24]*",
        reason: "blocks are multiples of 16: weights in blocks of 8 become floats",
    },
    Gap { cases: "dynquant/*", reason: "a range that is found at run time is found by the host" },
];

#[test]
fn every_case_has_a_candidate_or_is_a_gap() {
    let planner = Cuda::planned(Gpu::known("h200").unwrap());
    match enumerate(&planner, &cases(), GAPS) {
        Ok(report) => println!("{report}"),
        Err(wrong) => panic!("{wrong}"),
    }
}
