//! Every family's kernels compile for every architecture: one instance a family here, all of them in
//! `cargo xtask nvrtc`. Without NVRTC the tests are ignored, and say why.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use planish_cuda::{CudaErrorKind, Gpu, Source, find, nvrtc, offline};

const TESTS: [(&str, fn()); 3] = [
    (
        "one_instance_of_each_family_compiles_for_every_architecture",
        one_instance_of_each_family_compiles_for_every_architecture,
    ),
    ("machine_code_comes_out_for_every_architecture", machine_code_comes_out_for_every_architecture),
    ("a_mistake_is_shown_with_its_file_and_line", a_mistake_is_shown_with_its_file_and_line),
];

fn main() -> ExitCode {
    let trial = |(name, test): (&str, fn())| {
        Trial::ignorable_test(name, move || match find::find(find::Which::Nvrtc) {
            Ok(_) => {
                test();
                Ok(Completion::Completed)
            }
            Err(missing) => Ok(Completion::ignored_with(missing)),
        })
    };
    libtest_mimic::run(&Arguments::from_args(), TESTS.map(trial).into()).exit_code()
}

fn machine_code_comes_out_for_every_architecture() {
    let text = "extern \"C\" __global__ void scale(float* x, int n) {\n\
                int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
                if (i < n) x[i] *= FACTOR;\n}\n";
    let source = Source::new("scale.cu", text, "scale").define("FACTOR", "3.0f");
    for gpu in Gpu::every_architecture() {
        let cubin = nvrtc::compile(&source, &gpu).unwrap();
        assert!(cubin.starts_with(b"\x7fELF"), "{}", gpu.architecture());
        let named = cubin.windows(5).any(|window| window == b"scale");
        assert!(named, "no kernel of that name for {}", gpu.architecture());
    }
}

fn a_mistake_is_shown_with_its_file_and_line() {
    let source = Source::new("wrong.cu", "\nextern \"C\" __global__ void wrong() { missing(); }", "wrong");
    let error = nvrtc::compile(&source, &Gpu::known("h200").unwrap()).unwrap_err();
    assert_eq!(error.kind(), CudaErrorKind::Compile);
    let message = error.to_string();
    assert!(message.contains("wrong.cu(2)") && message.contains("missing"), "{message}");
}

fn one_instance_of_each_family_compiles_for_every_architecture() {
    let mut failures = Vec::new();
    for family in offline::families() {
        for gpu in Gpu::every_architecture() {
            // The first sample that has our own code behind it stands for the family on this architecture.
            let source = offline::samples(family).iter().find_map(|problem| {
                let candidate = offline::candidates(family, &gpu, problem).into_iter().next()?;
                let arranged = problem.for_candidate(&candidate);
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
