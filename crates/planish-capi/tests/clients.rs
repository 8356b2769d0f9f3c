//! Programs in C and C++ over `planish.h` and over the headers for users of TensorRT: compiled by the system's compilers, linked
//! with the shared library, run, and held against the Rust API. What there is no compiler for counts as ignored.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use libtest_mimic::{Arguments, Failed, Trial};
use planish::{Builder, DType, Device, Engine, Model, NetworkBuilder, Profile, SymbolRange, Tensor, View};
use planish_testing::Random;

const N_ROWS: usize = 5;
const N_FEATURES: usize = 8;
const N_CLASSES: usize = 3;

/// Memory that was not written or is not ours, and memory that nobody can free any more, are errors.
const VALGRIND: [&str; 5] =
    ["valgrind", "--quiet", "--error-exitcode=9", "--leak-check=full", "--errors-for-leak-kinds=definite"];

/// Where the programs and their data are.
struct Workshop {
    folder: PathBuf,
    model: PathBuf,
    other_model: PathBuf,
}

static WORKSHOP: LazyLock<Workshop> = LazyLock::new(|| Workshop::new().expect("a folder for the programs"));

fn numbers(n: usize, seed: u64) -> Vec<f32> {
    let mut random = Random::new(seed);
    (0..n).map(|_| random.float()).collect()
}

fn perceptron(seed: u64) -> Result<Model, planish::Error> {
    let mut net = NetworkBuilder::new("perceptron");
    let x = net.input("x", DType::F32, "batch,8")?;
    let hidden = net.linear(x, Tensor::new(&[16, N_FEATURES], numbers(128, seed))?, None)?;
    let hidden = net.relu(hidden)?;
    let weights = Tensor::new(&[N_CLASSES, 16], numbers(48, seed + 1))?;
    let y = net.linear(hidden, weights, None)?;
    net.output("y", y)?;
    Model::from_network(net)
}

impl Workshop {
    fn new() -> Result<Workshop, Failed> {
        let folder = std::env::temp_dir().join(format!("planish-clients-{}", std::process::id()));
        let library = folder.join("lib");
        fs::create_dir_all(&library)?;
        // Beside the test, where cargo puts it; under the names that an installation gives it.
        let built = std::env::current_exe()?.with_file_name("libplanish_capi.so");
        for name in ["libplanish.so", "libplanish.so.1"] {
            std::os::unix::fs::symlink(&built, library.join(name))?;
        }
        let (model, other_model) = (folder.join("model.onnx"), folder.join("other.onnx"));
        perceptron(1)?.save_onnx(&model)?;
        perceptron(7)?.save_onnx(&other_model)?;
        Ok(Workshop { folder, model, other_model })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

fn succeed(command: &mut Command) -> Result<String, Failed> {
    let output = command.output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("{command:?} ended with {}:\n{said}", output.status).into());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn own(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Compiles a program, warnings being errors.
fn compile(
    compiler: &str,
    arguments: &[&str],
    include: &[PathBuf],
    source: &Path,
    name: &str,
) -> Result<PathBuf, Failed> {
    let program = WORKSHOP.path(name);
    let mut command = Command::new(compiler);
    command.args(arguments).args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread"]);
    for folder in include {
        let mut argument = OsString::from("-I");
        argument.push(folder);
        command.arg(argument);
    }
    command.arg(source).arg("-o").arg(&program);
    let library = WORKSHOP.path("lib");
    command.arg("-L").arg(&library).arg("-lplanish").arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(&mut command)?;
    Ok(program)
}

/// The bytes that the Rust API gives for the model of this seed, built as the programs build it.
fn expected(seed: u64, x: &[f32]) -> Result<Vec<u8>, Failed> {
    let batch = SymbolRange { symbol: "batch".into(), min: 1, opt: 4, max: 16 };
    let builder = Builder::from_model(perceptron(seed)?).device(Device::Cpu).tune_level(0).threads(1);
    let plan = builder.profile(Profile { ranges: vec![batch] }).build()?;
    let mut context = Engine::new(plan, Device::Cpu)?.context()?;
    let outputs = context.run(&[("x", View::new(&[x.len() / N_FEATURES, N_FEATURES], x)?)])?;
    Ok(outputs.at(0).ok_or("there is an output")?.bytes().to_vec())
}

fn bytes(x: &[f32]) -> Vec<u8> {
    x.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// `contract.c`, compiled with a header; run, and its results held against ours.
fn contract(include: &str, name: &str, under: &[&str]) -> Result<(), Failed> {
    let program = compile("cc", &["-std=c11"], &[own(include)], &own("tests/c/contract.c"), name)?;
    let x = numbers(N_ROWS * N_FEATURES, 3);
    let (input, result) = (WORKSHOP.path(&format!("{name}.in")), WORKSHOP.path(&format!("{name}.out")));
    fs::write(&input, bytes(&x))?;
    let mut command = match under {
        [] => Command::new(&program),
        [tool, arguments @ ..] => {
            let mut command = Command::new(tool);
            command.args(arguments).arg(&program);
            command
        }
    };
    command.args([&WORKSHOP.model, &WORKSHOP.other_model, &input, &result]);
    succeed(&mut command)?;
    if under.is_empty() {
        let wanted = [expected(1, &x)?, expected(7, &x)?].concat();
        assert_eq!(fs::read(&result)?, wanted, "the bits of the Rust API");
    }
    Ok(())
}

/// `life.c`: plans after their build.
fn life(name: &str, under: &[&str]) -> Result<(), Failed> {
    let program = compile("cc", &["-std=c11"], &[own("include")], &own("tests/c/life.c"), name)?;
    let words: Vec<OsString> = under.iter().map(OsString::from).chain([program.into_os_string()]).collect();
    let plan = WORKSHOP.path(&format!("{name}.plan"));
    succeed(Command::new(&words[0]).args(&words[1..]).args([&WORKSHOP.model, &WORKSHOP.other_model, &plan]))?;
    Ok(())
}

fn run_model() -> Result<(), Failed> {
    let source = root().join("examples/c/run_model.c");
    let program = compile("cc", &["-std=c11"], &[own("include")], &source, "run_model")?;
    let said = succeed(Command::new(&program).arg(&WORKSHOP.model))?;
    assert!(
        said.contains("input x: batch,8") && said.contains("output y: batch,3, 12 bytes: 0 0 0"),
        "{said}"
    );
    assert!(said.contains(" us  "), "{said}");
    let refused = Command::new(&program).arg(WORKSHOP.path("no.plan")).output()?;
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.starts_with("error (input or output): ") && said.contains("no.plan"), "{said}");
    Ok(())
}

fn classify_csv() -> Result<(), Failed> {
    let source = root().join("examples/c/classify_csv.cpp");
    let program = compile("c++", &["-std=c++17"], &[own("include")], &source, "classify_csv")?;
    // Two full batches and a part; every tenth label is wrong.
    let n = 2 * 32 + 7;
    let x = numbers(n * N_FEATURES, 5);
    let plan = Builder::from_model(perceptron(1)?).device(Device::Cpu).tune_level(0).build()?;
    let path = WORKSHOP.path("csv.plan");
    plan.save(&path)?;
    let mut context = Engine::new(plan, Device::Cpu)?.context()?;
    let outputs = context.run(&[("x", View::new(&[n, N_FEATURES], &x)?)])?;
    let scores = outputs.at(0).and_then(|view| view.as_slice::<f32>()).ok_or("there are scores")?;
    let mut table = String::new();
    for (idx, (row, scores)) in x.chunks(N_FEATURES).zip(scores.chunks(N_CLASSES)).enumerate() {
        let best = (0..N_CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0);
        row.iter().for_each(|value| table += &format!("{value:?},"));
        table += &format!("{}\n", if idx % 10 == 0 { (best + 1) % N_CLASSES } else { best });
    }
    let csv = WORKSHOP.path("samples.csv");
    fs::write(&csv, &table)?;
    let said = succeed(Command::new(&program).args([&path, &csv]))?;
    assert!(said.starts_with("71 samples in batches of 32: 63 right (88.73 %), "), "{said}");
    fs::write(&csv, format!("{table}1,2\n"))?;
    let refused = Command::new(&program).args([&path, &csv]).output()?;
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains(":72: this row has 2 cells"));
    Ok(())
}

/// A client of TensorRT of a generation, compiled unchanged but for the include path; run on the CPU, where CUDA's memory is
/// host memory.
fn tensorrt(major: u32, second: &str) -> Result<String, Failed> {
    let name = format!("tensorrt{major}");
    let arguments = ["-std=c++14".to_string(), format!("-DPLANISH_TENSORRT_MAJOR={major}")];
    let include = [own("include/planish/tensorrt"), own("include/planish/host_cuda")];
    let source = own(&format!("tests/cpp/{name}.cpp"));
    let program = compile("c++", &arguments.each_ref().map(String::as_str), &include, &source, &name)?;
    let x = numbers(N_ROWS * N_FEATURES, 3);
    let (input, result) = (WORKSHOP.path(&format!("{name}.in")), WORKSHOP.path(&format!("{name}.out")));
    fs::write(&input, bytes(&x))?;
    let mut command = Command::new(&program);
    // The memory is the host's, so the plans are the CPU's wherever this runs.
    command.args([&WORKSHOP.model, &WORKSHOP.path(second), &input, &result]).env("CUDA_VISIBLE_DEVICES", "");
    let said = succeed(&mut command)?;
    assert_eq!(fs::read(&result)?, expected(1, &x)?, "the bits of the Rust API");
    Ok(said)
}

fn tensorrt_8() -> Result<(), Failed> {
    tensorrt(8, "calibration.cache")?;
    let cache = fs::read_to_string(WORKSHOP.path("calibration.cache"))?;
    assert!(cache.starts_with("TRT-8600-EntropyCalibration2\n") && cache.contains("\nx: "), "{cache}");
    Ok(())
}

fn tensorrt_10() -> Result<(), Failed> {
    let said = tensorrt(10, "model.engine")?;
    // The file that was not there, the damaged engine, and the run beyond the profile.
    assert!(said.contains("\"TacticName\": ") && said.ends_with("errors 3, on host\n"), "{said}");
    // Serialized engines are plans.
    planish::Plan::open(WORKSHOP.path("model.engine"))?;
    Ok(())
}

/// A test that needs programs of the system.
fn trial(name: &str, needs: &[&str], work: fn() -> Result<(), Failed>) -> Trial {
    let is_there = |tool: &&str| {
        Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success())
    };
    let missing = needs.iter().find(|tool| !is_there(tool));
    let name = match missing {
        Some(tool) => format!("{name} (there is no {tool})"),
        None => name.to_string(),
    };
    Trial::test(name, work).with_ignored_flag(missing.is_some())
}

fn main() {
    let arguments = Arguments::from_args();
    let mut tests = vec![
        trial("the C library does what its header says", &["cc"], || contract("include", "contract", &[])),
        trial("programs of the first header run", &["cc"], || contract("tests/first", "first", &[])),
        trial("metadata, plans without weights and other weights", &["cc"], || life("life", &[])),
        trial("run_model.c", &["cc"], run_model),
        trial("classify_csv.cpp", &["c++"], classify_csv),
        trial("a client of TensorRT 8", &["c++"], tensorrt_8),
        trial("a client of TensorRT 10", &["c++"], tensorrt_10),
    ];
    let valgrind = trial("valgrind finds nothing", &["cc", "valgrind"], || {
        contract("include", "watched", &VALGRIND)?;
        life("watched_life", &VALGRIND)
    });
    // A minute: what `cargo xtask capi test` asks for.
    let is_asked = std::env::var_os("PLANISH_VALGRIND").is_some();
    tests.push(if is_asked { valgrind } else { valgrind.with_ignored_flag(true) });
    let conclusion = libtest_mimic::run(&arguments, tests);
    if LazyLock::get(&WORKSHOP).is_some() {
        let _ = fs::remove_dir_all(&WORKSHOP.folder);
    }
    conclusion.exit();
}
