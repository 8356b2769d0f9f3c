//! Plugins from files: `.cu` texts, and shared libraries that have the symbol `planish_plugin_get`.
//!
//! Loading a library runs code of it. It happens by explicit request alone, never because a model or a plan names a path.
//! A library that the process has loaded itself (`dlopen`, `ctypes.CDLL`) is found among its libraries.

#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::ffi::{CStr, c_int, c_void};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use libloading::os::unix::Library;

use crate::abi::{COperator, CPlugin};
use crate::declaration;
use crate::plugin::{Plugin, PluginError};

/// The function that a library exports: its plugins one after the other, then null.
const SYMBOL: &[u8] = b"planish_plugin_get\0";
type Get = unsafe extern "C" fn(usize) -> *const CPlugin;

/// More than any library has.
const MAX_PLUGINS: usize = 1024;
/// More than any file of them has: 1 GiB.
const MAX_FILE: u64 = 1 << 30;

/// Reads the plugins of a file without making them known: the text of a `.cu` file, or a shared library, which is loaded.
pub fn read(path: &Path) -> Result<Vec<Plugin>, PluginError> {
    let error = |why: String| PluginError(format!("plugin {}: {why}", path.display()));
    let bytes = planish_files::open(path)
        .and_then(|file| {
            let mut bytes = Vec::new();
            match file.take(MAX_FILE + 1).read_to_end(&mut bytes)? as u64 {
                len if len > MAX_FILE => Err(std::io::Error::other("it has more than 1 GiB")),
                _ => Ok(bytes),
            }
        })
        .map_err(|why| error(why.to_string()))?;
    if path.extension().is_some_and(|extension| extension == "cu") {
        let text = String::from_utf8(bytes).map_err(|_| error("it is not UTF-8".to_string()))?;
        let declared = declaration::in_comment(&text).map_err(error)?;
        let origin = path.display().to_string();
        return Ok(vec![Plugin::with(&declared, None, Some(text.clone()), &origin, text.as_bytes())?]);
    }
    if !bytes.starts_with(b"\x7fELF") {
        return Err(error("it is neither a .cu file nor a shared library".to_string()));
    }
    let whole = path.canonicalize().map_err(|why| error(why.to_string()))?;
    // SAFETY: loading a library runs its code, which is what the caller asks for.
    let library = unsafe { Library::open(Some(&whole), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    // The loader's own words, such as "file too short" or "wrong ELF class", stand behind the error.
    let library = library.map_err(|why| match std::error::Error::source(&why) {
        Some(reason) => error(format!("{why}: {reason}")),
        None => error(why.to_string()),
    })?;
    let found = of_library(&library, path, &bytes);
    // Registered functions live as long as the process.
    std::mem::forget(library);
    found?.ok_or_else(|| error("it does not export `planish_plugin_get`: see planish_plugin.h".to_string()))
}

/// Reads the plugins of a file and makes them known to the process.
pub fn load(path: &Path) -> Result<Vec<Arc<Plugin>>, PluginError> {
    read(path)?.into_iter().map(Plugin::register).collect()
}

/// The plugins of a library; `None` where it has none.
fn of_library(library: &Library, path: &Path, bytes: &[u8]) -> Result<Option<Vec<Plugin>>, PluginError> {
    let origin = path.display().to_string();
    let error = |why: String| PluginError(format!("plugin {origin}: {why}"));
    // SAFETY: a symbol of this name has this signature, says the header.
    let Ok(get) = (unsafe { library.get::<Get>(SYMBOL) }) else { return Ok(None) };
    let mut plugins = Vec::new();
    for idx in 0..MAX_PLUGINS {
        // SAFETY: the header's contract.
        let given = unsafe { get(idx) };
        if given.is_null() {
            return match plugins.is_empty() {
                true => Err(error("it has no plugins".to_string())),
                false => Ok(Some(plugins)),
            };
        }
        // SAFETY: a structure of the library, which stays loaded.
        let plugin = unsafe { CPlugin::read(given) }.map_err(error)?;
        // SAFETY: as above.
        let text = unsafe { CPlugin::text(plugin.declaration, "declaration") }.map_err(error)?;
        // A second text, of CUDA C++, is a plugin of its own for the same operator.
        if !plugin.cuda.is_null() {
            // SAFETY: as above.
            let source = unsafe { CPlugin::text(plugin.cuda, "text of CUDA C++") }.map_err(error)?;
            let declared = declaration::in_comment(&source).map_err(error)?;
            plugins.push(Plugin::with(&declared, None, Some(source.clone()), &origin, source.as_bytes())?);
        }
        if plugin.run.is_some() {
            // One file may hold several.
            let hashed = [bytes, text.as_bytes()].concat();
            plugins.push(Plugin::with(&text, Some(Box::new(COperator(plugin))), None, &origin, &hashed)?);
        }
    }
    Err(error(format!("it has more than {MAX_PLUGINS} plugins")))
}

/// Finds plugins in libraries that the process has loaded by itself, and makes them known. Each library is looked at once.
pub fn discover() -> Result<(), PluginError> {
    static SEEN: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
    for path in loaded_libraries() {
        if !seen.insert(path.clone()) {
            continue;
        }
        // SAFETY: it is loaded already, so nothing of it runs.
        let library = unsafe { Library::open(Some(&path), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
        let Ok(library) = library else { continue };
        // SAFETY: only whether there is one is asked.
        let has = unsafe { library.get::<Get>(SYMBOL) }.is_ok();
        if !has {
            continue;
        }
        let bytes =
            std::fs::read(&path).map_err(|why| PluginError(format!("plugin {}: {why}", path.display())))?;
        let found = of_library(&library, &path, &bytes);
        // Kept: its functions are registered.
        std::mem::forget(library);
        for plugin in found?.unwrap_or_default() {
            plugin.register()?;
        }
    }
    Ok(())
}

/// The paths of all libraries of this process.
fn loaded_libraries() -> Vec<PathBuf> {
    unsafe extern "C" fn note(info: *mut libc::dl_phdr_info, _: usize, into: *mut c_void) -> c_int {
        // SAFETY: the loader gives a description with a name that ends, and hands our list back.
        let (name, list) = unsafe { ((*info).dlpi_name, &mut *into.cast::<Vec<PathBuf>>()) };
        if !name.is_null() {
            // SAFETY: as above.
            let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
            if name.starts_with('/') {
                list.push(PathBuf::from(name.into_owned()));
            }
        }
        0
    }
    let mut list: Vec<PathBuf> = Vec::new();
    // SAFETY: the list outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note), (&raw mut list).cast()) };
    list
}
