//! Parameters that change from run to run, and such as make other sizes.

use planish_kernel::{Layout, Operand, Problem, Tactic};
use planish_op as op;
use planish_tensor::{DType, Tensor};
use planish_testing::{Random, Tolerance, assert_close, evaluate_op};

use super::ValuedFamily;
use crate::family::Family;
use crate::isa::Isa;
use crate::team::Team;
use crate::trial::{Input, OpTrial, run_work};

fn dense(tensor: &Tensor) -> Operand {
    Operand::dense(tensor.dtype(), tensor.shape(), Layout::Plain)
}

fn ints(list: &[i64]) -> Tensor {
    Tensor::vector(list.to_vec())
}

fn posed(trial: &OpTrial) -> Problem {
    let operands = |list: &[Tensor]| list.iter().map(dense).collect::<Vec<_>>();
    trial.problem(&operands(&trial.data), &operands(&trial.want))
}

#[test]
fn parameters_of_each_run_count() {
    let mut random = Random::new(5);
    let x = random.floats(&[2, 5, 9]);
    let data = |begin: &[i64], end: &[i64]| vec![x.clone(), ints(begin), ints(end), ints(&[1, 2])];
    let inputs = |list: Vec<Tensor>| list.into_iter().map(Input::Data).collect::<Vec<_>>();
    let first = OpTrial::new(op::Slice {}, &inputs(data(&[0, 0], &[3, 7])), 1);
    let problem = posed(&first);
    for isa in Isa::available() {
        let work = ValuedFamily.prepare(isa, &problem, &Tactic::new("valued", 1)).unwrap();
        for (begin, end) in [([0, 0], [3, 7]), ([0, 0], [3, 7]), ([1, 2], [4, 9]), ([-5, -9], [-2, -2])] {
            let inputs = data(&begin, &end);
            let operands: Vec<Option<&Tensor>> = inputs.iter().map(Some).collect();
            let want = evaluate_op(&op::Slice {}.into(), &operands, 1);
            let got = run_work(&*work, &problem, &inputs, &Team::new(2)).unwrap();
            assert!(got == want, "{isa} {begin:?} {end:?}");
        }
        // Other sizes than the plan has room for.
        assert!(run_work(&*work, &problem, &data(&[0, 0], &[5, 9]), &Team::alone()).is_err());
    }
}

#[test]
fn images_are_resized_by_sizes_of_the_run() {
    let mut random = Random::new(6);
    let resize = |mode: op::ResizeMode| match op::Op::from_attributes("Resize", &[]).unwrap() {
        op::Op::Resize(resize) => op::Op::Resize(op::Resize { mode, ..resize }),
        other => panic!("{other:?}"),
    };
    let x = random.floats(&[1, 3, 7, 6]);
    for mode in [op::ResizeMode::Linear, op::ResizeMode::Nearest, op::ResizeMode::Cubic] {
        let inputs =
            [Input::Data(x.clone()), Input::Absent, Input::Absent, Input::Data(ints(&[1, 3, 11, 13]))];
        let trial = OpTrial::new(resize(mode), &inputs, 1);
        let problem = posed(&trial);
        for isa in Isa::available() {
            let work = ValuedFamily.prepare(isa, &problem, &Tactic::new("valued", 1)).unwrap();
            let got = run_work(&*work, &problem, &trial.data, &Team::new(2)).unwrap();
            assert_close(&got[0], &trial.want[0], Tolerance::absolute(1e-5), &format!("{mode:?} on {isa}"));
        }
    }
}

#[test]
fn data_and_known_parameters_are_left_to_others() {
    let mut random = Random::new(7);
    let x = random.whole(DType::I64, &[4], 0, 3);
    let known = OpTrial::new(
        op::Slice {},
        &[Input::Data(x.clone()), Input::Parameter(ints(&[1])), Input::Parameter(ints(&[3]))],
        1,
    );
    assert!(super::parameters(&posed(&known)).is_none());
    let added = OpTrial::new(op::Add {}, &[Input::Data(x.clone()), Input::Data(x)], 1);
    assert!(super::parameters(&posed(&added)).is_none());
}
