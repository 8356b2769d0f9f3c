//! The libraries that are on this machine have every function that the backend calls, GPU or not.

use planish_cuda::find::{Which, find};
use planish_cuda::{Cuda, offline};

#[test]
fn libraries_that_are_found_have_all_functions() {
    for which in [Which::Nvrtc, Which::CublasLt, Which::Cudnn] {
        match find(which) {
            Ok(found) => {
                offline::functions_of(which).unwrap();
                println!("{found}");
            }
            Err(missing) => eprintln!("skipped: {missing}"),
        }
    }
}

/// Every command of the command line comes to this where there is no GPU: one line, and a kind that says so.
#[test]
fn without_a_gpu_the_reason_is_one_line() {
    if let Err(missing) = Cuda::open(0) {
        let message = missing.to_string();
        assert!(missing.is_missing(), "{message}");
        assert!(!message.contains('\n') && message.contains("driver"), "{message}");
    }
}
