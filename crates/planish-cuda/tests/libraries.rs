//! The libraries that are on this machine have every function that the backend calls, GPU or not; those that are not
//! here are ignored, and say why.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use planish_cuda::find::{Which, find};
use planish_cuda::{Cuda, offline};
use planish_testing::problems::{conv, matmul, quantized};

fn main() -> ExitCode {
    let mut trials =
        vec![Trial::ignorable_test("without_a_gpu_the_reason_is_one_line", || match Cuda::open(0) {
            Ok(_) => Ok(Completion::ignored_with("there is a GPU")),
            Err(missing) => {
                // Every command of the command line comes to this: one line, and a kind that says so.
                let message = missing.to_string();
                assert!(missing.is_missing(), "{message}");
                assert!(!message.contains('\n') && message.contains("driver"), "{message}");
                Ok(Completion::Completed)
            }
        })];
    for which in [Which::Nvrtc, Which::CublasLt, Which::Cudnn] {
        trials.push(Trial::ignorable_test(format!("{which:?}_has_all_functions"), move || {
            match find(which) {
                Ok(_) => {
                    offline::functions_of(which).unwrap();
                    Ok(Completion::Completed)
                }
                Err(missing) => Ok(Completion::ignored_with(missing)),
            }
        }));
    }
    for which in [Which::CublasLt, Which::Cudnn] {
        trials.push(Trial::ignorable_test(format!("{which:?}_takes_every_sample"), move || {
            match find(which) {
                Ok(_) => {
                    let wide = [matmul::samples(), conv::samples()].concat();
                    let bytes = [quantized::products(), quantized::convolutions()].concat();
                    let problems = [wide, bytes].concat();
                    let described = offline::described_by(which, &problems).unwrap();
                    assert!(!described.is_empty(), "there are no samples");
                    assert!(described.iter().all(|(taken, all)| taken == all), "{described:?}");
                    Ok(Completion::Completed)
                }
                Err(missing) => Ok(Completion::ignored_with(missing)),
            }
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
