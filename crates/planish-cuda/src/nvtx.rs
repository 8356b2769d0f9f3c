//! NVTX ranges: names that profilers such as Nsight Systems show beside a process's kernels.
//!
//! NVTX 3 is headers alone: a program that has them loads the tool's library (`NVTX_INJECTION64_PATH` names it) and
//! hands it tables of slots, into which the tool writes the functions that it wants to be called. That protocol is
//! spoken here in its own words, so that nothing of a toolkit is linked. Without a tool a range costs one load.

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Names the tool's library; profilers set it for the processes that they start.
const VARIABLE: &str = "NVTX_INJECTION64_PATH";
/// What the library exports.
const ENTRY: &[u8] = b"InitializeInjectionNvtx2\0";
/// The protocol's version.
const VERSION: u32 = 3;

/// How many functions each module has, by the module's number less one: core, CUDA, OpenCL, CUDA runtime, core 2 and
/// synchronization. Tools may ask for all of them; called are functions of core and core 2.
const N_FUNCTIONS: [usize; 6] = [15, 8, 14, 6, 15, 6];
const CORE: usize = 0;
const CORE2: usize = 4;
/// Numbers of functions in their module.
const RANGE_PUSH_A: usize = 9;
const RANGE_POP: usize = 11;
const DOMAIN_RANGE_PUSH_EX: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE_A: usize = 12;

/// Functions are counted from 1, and a null stands after the last.
const MOST: usize = 17;
/// Where the tool writes its functions.
static SLOTS: [[AtomicPtr<c_void>; MOST]; 6] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST] }; 6];
/// What the tool is given: pointers to the slots.
static TABLES: [[AtomicPtr<c_void>; MOST]; 6] =
    [const { [const { AtomicPtr::new(std::ptr::null_mut()) }; MOST] }; 6];

/// The export table by which tools ask for modules.
#[repr(C)]
struct Callbacks {
    size: usize,
    module_table: unsafe extern "C" fn(c_uint, *mut *const c_void, *mut c_uint) -> c_int,
}

/// The export table that tells the version.
#[repr(C)]
struct VersionInfo {
    size: usize,
    version: u32,
    reserved: u32,
    set_tool_version: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks { size: size_of::<Callbacks>(), module_table };
static VERSION_INFO: VersionInfo =
    VersionInfo { size: size_of::<VersionInfo>(), version: VERSION, reserved: 0, set_tool_version };

extern "C" fn set_tool_version(_version: u32) {}

extern "C" fn export_table(id: u32) -> *const c_void {
    match id {
        1 => (&raw const CALLBACKS).cast(),
        3 => (&raw const VERSION_INFO).cast(),
        _ => std::ptr::null(),
    }
}

/// # Safety
/// Both places must be writable or null.
unsafe extern "C" fn module_table(module: c_uint, table: *mut *const c_void, size: *mut c_uint) -> c_int {
    let Some(idx) = (module as usize).checked_sub(1).filter(|idx| *idx < TABLES.len()) else {
        return 0;
    };
    // SAFETY: the tool gives places for both, or null where it does not want one.
    unsafe {
        if !table.is_null() {
            table.write(TABLES[idx].as_ptr().cast());
        }
        if !size.is_null() {
            size.write(N_FUNCTIONS[idx] as c_uint + 1);
        }
    }
    1
}

/// An event's attributes as the interface lays them out.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

/// A message of bytes that end with a null.
const MESSAGE_ASCII: i32 = 1;
/// The row under which tools list our ranges.
const DOMAIN: &CStr = c"planish";

type PushA = unsafe extern "C" fn(*const c_char) -> c_int;
type Pop = unsafe extern "C" fn() -> c_int;
type DomainCreateA = unsafe extern "C" fn(*const c_char) -> *mut c_void;
type DomainPushEx = unsafe extern "C" fn(*mut c_void, *const Attributes) -> c_int;
type DomainPop = unsafe extern "C" fn(*mut c_void) -> c_int;

/// What an attached tool wants to be called.
#[derive(Debug)]
enum Tool {
    /// Ranges in a domain of our own.
    Domain { domain: AtomicPtr<c_void>, push: DomainPushEx, pop: DomainPop },
    /// Ranges among everybody's, for tools that know no domains.
    Plain { push: PushA, pop: Pop },
}

/// Nobody has asked yet.
const UNKNOWN: usize = 0;
/// There is no tool.
const ABSENT: usize = 1;
/// One of the two above, or the address of the tool.
static STATE: AtomicUsize = AtomicUsize::new(UNKNOWN);

/// Begins a range on this thread.
pub fn begin(name: &str) {
    if let Some(tool) = tool() {
        tool.push(name);
    }
}

/// Ends the innermost range of this thread.
pub fn end() {
    if let Some(tool) = tool() {
        tool.pop();
    }
}

fn tool() -> Option<&'static Tool> {
    match STATE.load(Ordering::Acquire) {
        ABSENT => None,
        UNKNOWN => look(),
        // SAFETY: the address of a tool that was leaked below.
        address => Some(unsafe { &*std::ptr::with_exposed_provenance::<Tool>(address) }),
    }
}

#[cold]
fn look() -> Option<&'static Tool> {
    static LOOKING: Mutex<()> = Mutex::new(());
    let _held = LOOKING.lock().unwrap_or_else(PoisonError::into_inner);
    if STATE.load(Ordering::Acquire) != UNKNOWN {
        return tool();
    }
    let found = std::env::var_os(VARIABLE).and_then(|path| attach(&path));
    let found = found.map(|tool| &*Box::leak(Box::new(tool)));
    let state = found.map_or(ABSENT, |tool| std::ptr::from_ref(tool).expose_provenance());
    STATE.store(state, Ordering::Release);
    found
}

/// Loads the tool's library and lets it fill the slots. A library that cannot be loaded or refuses is none, as for
/// every program with such ranges.
fn attach(path: &OsStr) -> Option<Tool> {
    for ((table, slots), n_functions) in TABLES.iter().zip(&SLOTS).zip(N_FUNCTIONS) {
        for (entry, slot) in table.iter().zip(slots).skip(1).take(n_functions) {
            entry.store(slot.as_ptr().cast(), Ordering::Relaxed);
        }
    }
    // SAFETY: whoever started the process named this library to be loaded into it.
    let library = Box::leak(Box::new(unsafe { libloading::Library::new(path) }.ok()?));
    type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
    // SAFETY: an export of this name has this signature; the library stays loaded.
    let initialize = unsafe { *library.get::<Initialize>(ENTRY).ok()? };
    // SAFETY: the tables are whole, and their slots may be written until the process ends.
    if unsafe { initialize(export_table) } == 0 {
        return None;
    }
    let function = |module: usize, number: usize| {
        let pointer = SLOTS[module][number].load(Ordering::Acquire);
        (!pointer.is_null()).then_some(pointer)
    };
    if let (Some(create), Some(push), Some(pop)) = (
        function(CORE2, DOMAIN_CREATE_A),
        function(CORE2, DOMAIN_RANGE_PUSH_EX),
        function(CORE2, DOMAIN_RANGE_POP),
    ) {
        // SAFETY: functions under these numbers have these signatures.
        let (create, push, pop) = unsafe {
            (
                std::mem::transmute::<*mut c_void, DomainCreateA>(create),
                std::mem::transmute::<*mut c_void, DomainPushEx>(push),
                std::mem::transmute::<*mut c_void, DomainPop>(pop),
            )
        };
        // SAFETY: the name ends with a null and stays.
        let domain = unsafe { create(DOMAIN.as_ptr()) };
        return Some(Tool::Domain { domain: AtomicPtr::new(domain), push, pop });
    }
    let (push, pop) = (function(CORE, RANGE_PUSH_A)?, function(CORE, RANGE_POP)?);
    // SAFETY: as above.
    let (push, pop) = unsafe {
        (std::mem::transmute::<*mut c_void, PushA>(push), std::mem::transmute::<*mut c_void, Pop>(pop))
    };
    Some(Tool::Plain { push, pop })
}

impl Tool {
    fn push(&self, name: &str) {
        let name = CString::new(name.replace('\0', " ")).unwrap_or_default();
        match self {
            Tool::Domain { domain, push, .. } => {
                let attributes = Attributes {
                    version: VERSION as u16,
                    size: size_of::<Attributes>() as u16,
                    category: 0,
                    color_type: 0,
                    color: 0,
                    payload_type: 0,
                    reserved: 0,
                    payload: 0,
                    message_type: MESSAGE_ASCII,
                    message: name.as_ptr(),
                };
                // SAFETY: the domain is the tool's own, and what it wants of the message it copies before it returns.
                unsafe { push(domain.load(Ordering::Relaxed), &raw const attributes) };
            }
            Tool::Plain { push, .. } => {
                // SAFETY: as above.
                unsafe { push(name.as_ptr()) };
            }
        }
    }

    fn pop(&self) {
        match self {
            Tool::Domain { domain, pop, .. } => {
                // SAFETY: the domain is the tool's own; a range that is not open is the tool's to refuse.
                unsafe { pop(domain.load(Ordering::Relaxed)) };
            }
            Tool::Plain { pop, .. } => {
                // SAFETY: as above.
                unsafe { pop() };
            }
        }
    }
}
