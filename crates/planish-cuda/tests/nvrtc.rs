//! Every family's kernels compile for every architecture: one instance a family here, all of them in
//! `cargo xtask nvrtc`. Without NVRTC the test is ignored, and says why.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use planish_cuda::{Gpu, find, nvrtc, offline};

fn main() -> ExitCode {
    let name = "one_instance_of_each_family_compiles_for_every_architecture";
    let trial = Trial::ignorable_test(name, || match find::find(find::Which::Nvrtc) {
        Ok(_) => {
            one_instance_of_each_family_compiles_for_every_architecture();
            Ok(Completion::Completed)
        }
        Err(missing) => Ok(Completion::ignored_with(missing)),
    });
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}

fn one_instance_of_each_family_compiles_for_every_architecture() {
    let mut failures = Vec::new();
    for family in offline::families() {
        for gpu in Gpu::every_architecture() {
            // The first sample that has our own code behind it stands for the family on this architecture.
            let source = offline::samples(family).iter().find_map(|problem| {
                let candidate = offline::candidates(family, &gpu, problem).into_iter().next()?;
                let arranged = offline::arranged(problem, &candidate);
                let sources = offline::sources(&gpu, &arranged, &candidate.tactic).unwrap();
                Some((candidate.tactic, sources))
            });
            let Some((tactic, sources)) = source else {
                continue;
            };
            for source in sources {
                if let Err(error) = nvrtc::compile_cached(&source, &gpu) {
                    failures.push(format!("{tactic}: {error}"));
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
