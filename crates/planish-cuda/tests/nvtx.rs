//! NVTX ranges through a tool's library: one that a C++ compiler makes here, and that writes down what it is called
//! with. Without a compiler the test is ignored, and says why.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use libtest_mimic::{Arguments, Completion, Trial};

/// Set for the process that makes the ranges.
const CHILD: &str = "PLANISH_NVTX_CHILD";
/// Where the tool writes, and whether it wants domains.
const LOG: &str = "PLANISH_NVTX_LOG";
const NO_DOMAINS: &str = "PLANISH_NVTX_NO_DOMAINS";

/// A tool of the least kind, written against the interface: every module is asked for and every slot looked at.
const TOOL: &str = r#"
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

typedef void (*Function)(void);
typedef Function **Table;
struct Callbacks { size_t size; int (*module_table)(int, Table *, unsigned *); };
struct Version { size_t size; uint32_t version; uint32_t reserved; void (*set)(uint32_t); };
struct Attributes {
    uint16_t version, size; uint32_t category; int32_t color_type; uint32_t color; int32_t payload_type, reserved;
    uint64_t payload; int32_t message_type; const char *message;
};

static FILE *out;
static int domain;

static int push(const char *name) { fprintf(out, "push %s\n", name); fflush(out); return 0; }
static int pop() { fprintf(out, "pop\n"); fflush(out); return 0; }
static void *create(const char *name) { fprintf(out, "domain %s\n", name); return &domain; }
static int domain_push(void *in, const Attributes *event) {
    if (in != &domain || event->version != 3 || event->size != sizeof(Attributes) || event->message_type != 1) abort();
    fprintf(out, "domain push %s\n", event->message);
    fflush(out);
    return 0;
}
static int domain_pop(void *in) {
    if (in != &domain) abort();
    fprintf(out, "domain pop\n");
    fflush(out);
    return 0;
}

extern "C" int InitializeInjectionNvtx2(const void *(*tables)(uint32_t)) {
    out = fopen(getenv("PLANISH_NVTX_LOG"), "w");
    const Callbacks *callbacks = (const Callbacks *)tables(1);
    const Version *version = (const Version *)tables(3);
    if (!out || !callbacks || callbacks->size != sizeof(Callbacks) || tables(2) || tables(4)) return 0;
    if (!version || version->size != sizeof(Version)) return 0;
    version->set(3);
    fprintf(out, "version %u, modules", version->version);
    Table table = 0;
    unsigned size = 0;
    for (int module = 1; module <= 6; ++module) {
        if (!callbacks->module_table(module, &table, &size)) return 0;
        if (table[0] || table[size]) return 0;
        for (unsigned number = 1; number < size; ++number) {
            if (!table[number] || *table[number]) return 0;
        }
        fprintf(out, " %u", size);
    }
    fprintf(out, "\n");
    if (callbacks->module_table(0, &table, &size) || callbacks->module_table(7, &table, &size)) return 0;
    callbacks->module_table(1, &table, &size);
    *table[9] = (Function)push;
    *table[11] = (Function)pop;
    if (!getenv("PLANISH_NVTX_NO_DOMAINS")) {
        callbacks->module_table(5, &table, 0);
        *table[4] = (Function)domain_push;
        *table[5] = (Function)domain_pop;
        *table[12] = (Function)create;
    }
    return 1;
}
"#;

/// The library, or why there is no compiler.
fn tool(folder: &Path) -> Result<PathBuf, String> {
    let (file, library) = (folder.join("tool.cc"), folder.join("libtool.so"));
    std::fs::write(&file, TOOL).unwrap();
    let made = Command::new("g++").args(["-shared", "-fPIC", "-o"]).args([&library, &file]).output();
    match made {
        Ok(made) => {
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
            Ok(library)
        }
        Err(why) => Err(format!("no g++ to make a tool with ({why})")),
    }
}

/// Runs `make_ranges` in a process of its own, and gives what the tool wrote.
fn seen(library: &Path, log: &Path, domains: bool) -> String {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.env(CHILD, "1").env(LOG, log);
    child.env("NVTX_INJECTION64_PATH", library);
    if !domains {
        child.env(NO_DOMAINS, "1");
    }
    let output = child.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    std::fs::read_to_string(log).unwrap_or_default()
}

/// What a child process does.
fn make_ranges() {
    planish_cuda::nvtx::begin("resnet");
    planish_cuda::nvtx::begin("layer1/conv + relu");
    planish_cuda::nvtx::end();
    planish_cuda::nvtx::begin("a\0b");
    planish_cuda::nvtx::end();
    planish_cuda::nvtx::end();
    // From another thread: the tool is the process's.
    std::thread::spawn(|| {
        planish_cuda::nvtx::begin("beside");
        planish_cuda::nvtx::end();
    })
    .join()
    .unwrap();
}

fn ranges_reach_a_tool() -> Completion {
    let folder = std::env::temp_dir().join(format!("planish-nvtx-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let library = match tool(&folder) {
        Ok(library) => library,
        Err(why) => return Completion::ignored_with(why),
    };
    let log = folder.join("log");
    let in_domain = seen(&library, &log, true);
    let plain = seen(&library, &log, false);
    // A library that is not there, and one that is not a tool: nothing happens.
    std::fs::remove_file(&log).unwrap();
    assert_eq!(seen(&folder.join("missing.so"), &log, true), "");
    assert_eq!(seen(Path::new("libm.so.6"), &log, true), "");
    let first = "version 3, modules 16 9 15 7 16 7\n";
    let ranges = "push resnet\npush layer1/conv + relu\npop\npush a b\npop\npop\npush beside\npop\n";
    assert_eq!(plain, format!("{first}{ranges}"));
    let ranges: String = ranges.lines().map(|line| format!("domain {line}\n")).collect();
    assert_eq!(in_domain, format!("{first}domain planish\n{ranges}"));
    std::fs::remove_dir_all(&folder).unwrap();
    Completion::Completed
}

fn main() -> ExitCode {
    if std::env::var_os(CHILD).is_some() {
        make_ranges();
        return ExitCode::SUCCESS;
    }
    let trial = Trial::ignorable_test("ranges_reach_a_tool", || Ok(ranges_reach_a_tool()));
    libtest_mimic::run(&Arguments::from_args(), vec![trial]).exit_code()
}
