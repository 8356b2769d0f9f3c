//! Every family's kernels compile for every architecture: one instance a family here, all of them in
//! `cargo xtask nvrtc`. Without NVRTC the tests are ignored, and say why.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Completion, Trial};
use planish_cuda::{CudaErrorKind, Gpu, Source, find, nvrtc, offline};
use planish_kernel::{Budget, Code, Numeric, Problem};
use planish_tensor::Bytes;
use planish_testing::problems;

const TESTS: [(&str, fn()); 6] = [
    (
        "one_instance_of_each_family_compiles_for_every_architecture",
        one_instance_of_each_family_compiles_for_every_architecture,
    ),
    ("machine_code_comes_out_for_every_architecture", machine_code_comes_out_for_every_architecture),
    ("a_mistake_is_shown_with_its_file_and_line", a_mistake_is_shown_with_its_file_and_line),
    ("the_second_compilation_is_read_from_disk", the_second_compilation_is_read_from_disk),
    ("code_that_a_plan_brought_serves_it_alone", code_that_a_plan_brought_serves_it_alone),
    ("what_nvrtc_makes_passes_the_look_at_images", what_nvrtc_makes_passes_the_look_at_images),
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

/// Those that the NVRTC found here compiles for: every one from 12.8 on.
fn architectures() -> Vec<Gpu> {
    let every = Gpu::every_architecture();
    let (known, unknown): (Vec<Gpu>, Vec<Gpu>) =
        every.into_iter().partition(|gpu| nvrtc::knows(gpu).expect("NVRTC says what it knows"));
    for gpu in unknown {
        println!("left out: {} is not known to NVRTC {}", gpu.architecture(), nvrtc::version().unwrap());
        let error = nvrtc::compile(&scale(), &gpu).unwrap_err().to_string();
        assert!(error.contains(&gpu.architecture()) && error.contains("pip install"), "{error}");
    }
    assert!(known.iter().any(|gpu| gpu.sm == 90), "Hopper is known since 12.0");
    known
}

fn scale() -> Source {
    let text = "extern \"C\" __global__ void scale(float* x, int n) {\n\
                int i = blockIdx.x * blockDim.x + threadIdx.x;\n\
                if (i < n) x[i] *= FACTOR;\n}\n";
    Source::new("scale.cu", text, "scale").define("FACTOR", "3.0f")
}

fn the_second_compilation_is_read_from_disk() {
    let folder = std::env::temp_dir().join(format!("planish-nvrtc-{}", std::process::id()));
    let gpu = Gpu::known("a100").unwrap();
    let first = offline::compile_in(&folder, &scale(), &gpu).unwrap();
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    // What is read is what lies there, not what would be compiled.
    let key = files[0].file_stem().unwrap().to_str().unwrap();
    offline::put_in(&folder, key, b"\x7fELF of another kind");
    let second = offline::compile_in(&folder, &scale(), &gpu).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(first.starts_with(b"\x7fELF"));
    assert_eq!(second, b"\x7fELF of another kind");
}

fn code_that_a_plan_brought_serves_it_alone() {
    let gpu = Gpu::known("h200").unwrap();
    let own = offline::compiled(&[], &scale(), &gpu).unwrap();
    assert!(own.bytes.starts_with(b"\x7fELF"));
    let (source, version) = own.key.split_once(" nvrtc ").unwrap();
    assert_eq!(version, nvrtc::version().unwrap());
    // Another compiler's version does not matter: the plan was built with it. Nor does what was compiled elsewhere.
    let key = format!("{source} nvrtc 12.9");
    let brought = Code { key, bytes: Bytes::from_vec(b"somebody else's".to_vec()) };
    assert_eq!(offline::compiled(std::slice::from_ref(&brought), &scale(), &gpu).unwrap(), brought);
    assert_eq!(offline::compiled(&[], &scale(), &gpu).unwrap(), own);
}

fn what_nvrtc_makes_passes_the_look_at_images() {
    for gpu in architectures() {
        let code = offline::compiled(&[], &scale(), &gpu).unwrap();
        assert_eq!(offline::image_flaw(&code.bytes), None, "{}", gpu.architecture());
        // The length is read out of the image, so no shorter one may pass.
        for len in [0, 4, 63, code.bytes.len() / 2, code.bytes.len() - 1] {
            assert!(offline::image_flaw(&code.bytes[..len]).is_some(), "cut at {len}");
        }
    }
}

fn machine_code_comes_out_for_every_architecture() {
    let source = scale();
    for gpu in architectures() {
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
    let architectures = architectures();
    for family in offline::families() {
        for gpu in &architectures {
            // The first sample that has our own code after it stands for the family on this architecture, and the first
            // of each type of 8 bits.
            let problems = problems::of_family(family);
            let bytes = [Numeric::I8, Numeric::F8];
            let of = |wanted: Option<Numeric>| {
                let own = |problem: &&Problem| Some(problem.numeric).filter(|own| bytes.contains(own));
                problems.iter().filter(move |problem| own(problem) == wanted).find_map(|problem| {
                    let candidate =
                        offline::candidates(family, gpu, problem, &Budget::USUAL).into_iter().next()?;
                    let arranged = problem.for_candidate(&candidate);
                    let sources = offline::sources(gpu, &arranged, &candidate.tactic).unwrap();
                    Some((candidate.tactic, sources))
                })
            };
            let each = [None, Some(Numeric::I8), Some(Numeric::F8)];
            for (tactic, sources) in each.into_iter().filter_map(of) {
                for source in sources {
                    if let Err(error) = nvrtc::compile_cached(&source, gpu) {
                        failures.push(format!("{tactic}: {error}"));
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}
