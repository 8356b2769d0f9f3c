//! Kernels on the host: their text is compiled by its C++ compiler, and their threads are fibers.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock};

use planish_gpu::plan::{Arg, Plan, Slot};
use planish_testing::Fenced;

use crate::planned::source_of;
use crate::source::{PRELUDE, Source};

const SHIM: &str = include_str!("shim.h");
const TAIL: &str = include_str!("tail.h");

type Entry = unsafe extern "C" fn(*const u32, u32, *mut *mut std::ffi::c_void);

/// The kernel of a source as a function of the host; compiled once.
fn compiled(source: &Source) -> Entry {
    static KNOWN: OnceLock<Mutex<HashMap<String, Entry>>> = OnceLock::new();
    let mut text = String::new();
    for (name, value) in &source.defines {
        text.push_str(&format!("#define {name} {value}\n"));
    }
    PRELUDE.lines().filter(|line| line.starts_with("typedef ")).for_each(|line| {
        text.push_str(line);
        text.push('\n');
    });
    text.push_str(SHIM);
    // The functions of programs are plain C++ and stand at the prelude's end.
    let functions =
        PRELUDE.split_once("// Functions of generated programs").expect("the prelude's last part").1;
    text.push_str("//");
    text.push_str(functions);
    text.push_str(&source.text);
    text.push_str(&format!("\n#define EMULATED {}\n", source.entries[0]));
    text.push_str(TAIL);
    let key = blake3::hash(text.as_bytes()).to_hex().to_string();
    let known = KNOWN.get_or_init(Mutex::default);
    if let Some(entry) = known.lock().unwrap().get(&key) {
        return *entry;
    }
    let folder: PathBuf = std::env::temp_dir().join(format!("planish-trial-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (file, library) = (folder.join(format!("{key}.cc")), folder.join(format!("{key}.so")));
    std::fs::write(&file, &text).unwrap();
    let output = std::process::Command::new("g++")
        .args([
            "-std=c++17",
            "-O0",
            "-w",
            "-shared",
            "-fPIC",
            "-fno-strict-aliasing",
            // Shared memory of a template in one kernel is not that of another kernel.
            "-fno-gnu-unique",
            "-ffp-contract=off",
            "-o",
        ])
        .args([&library, &file])
        .output()
        .expect("a C++ compiler");
    assert!(
        output.status.success(),
        "{}: {}\n{}",
        source.file,
        String::from_utf8_lossy(&output.stderr),
        source.text
    );
    // SAFETY: the library was just made from the text above; loading it runs nothing else.
    let loaded = unsafe { libloading::Library::new(&library) }.unwrap();
    // SAFETY: `emulate` is declared so at the end of every such text; the library stays loaded.
    let entry = unsafe { *loaded.get::<Entry>(b"emulate").unwrap() };
    std::mem::forget(loaded);
    // What was loaded stays in memory without its files.
    std::fs::remove_file(&library).unwrap();
    std::fs::remove_file(&file).unwrap();
    known.lock().unwrap().insert(key, entry);
    entry
}

/// Runs a plan on the host; gives the word of the fault that its kernels told of. Operands begin at multiples of 64 bytes, as on a device. One plan at a time: the threads of
/// kernels share one scheduler.
pub(crate) fn emulate(plan: &Plan, from: &[Vec<u8>], to: &mut [Vec<u8>]) -> u64 {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let mut inputs: Vec<Fenced> = from.iter().map(|bytes| Fenced::of(bytes)).collect();
    let mut outputs: Vec<Fenced> = to.iter().map(|bytes| Fenced::of(bytes)).collect();
    let mut workspace = Fenced::workspace(plan.workspace);
    let mut fault = Fenced::of(&[0; 8]);
    for step in &plan.steps {
        if step.grid.contains(&0) {
            continue;
        }
        let entry = compiled(&source_of(&plan.sources[step.source]));
        let mut values: Vec<Vec<u64>> = Vec::new();
        for arg in &step.args {
            values.push(match arg {
                Arg::Address(slot, offset) => {
                    let memory = match slot {
                        Slot::Input(idx) => &mut inputs[*idx],
                        Slot::Output(idx) => &mut outputs[*idx],
                        Slot::Workspace => &mut workspace,
                        Slot::Fault => &mut fault,
                    };
                    vec![memory.mut_ptr().expose_provenance() as u64 + *offset as u64]
                }
                Arg::Nothing => vec![0],
                Arg::Structure(args) => {
                    let mut bytes = args.bytes.clone();
                    bytes.resize(bytes.len().next_multiple_of(8), 0);
                    let word = |word: &[u8]| u64::from_ne_bytes(word.try_into().unwrap());
                    bytes.chunks(8).map(word).collect()
                }
            });
        }
        let mut pointers: Vec<*mut std::ffi::c_void> =
            values.iter_mut().map(|value| value.as_mut_ptr().cast()).collect();
        // SAFETY: the arguments are those of the kernel, and the operands are spanned by the memory above; a
        // kernel that leaves them is the fault that these tests look for.
        unsafe { entry(step.grid.as_ptr(), step.threads, pointers.as_mut_ptr()) };
    }
    for (memory, bytes) in outputs.iter().zip(to) {
        bytes.copy_from_slice(memory.bytes());
        memory.check().expect("a kernel writes its output alone");
    }
    u64::from_ne_bytes(fault.bytes().try_into().unwrap())
}
