//! Every family's kernels compile for every architecture: one instance a family here, all of them in
//! `cargo xtask nvrtc`. Without NVRTC this says so and tests nothing.

use planish_cuda::{Gpu, find, nvrtc, offline};

#[test]
fn one_instance_of_each_family_compiles_for_every_architecture() {
    if let Err(missing) = find::find(find::Which::Nvrtc) {
        eprintln!("skipped: {missing}");
        return;
    }
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
