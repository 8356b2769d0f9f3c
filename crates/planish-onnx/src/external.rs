//! Tensor data in files beside the model: where it is, and that it is nowhere else.

use std::borrow::Cow;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::Tensor;
use crate::error::{OnnxError, OnnxErrorKind, Result, shorten};

/// Where a tensor's data lies outside the model file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct External<'a> {
    /// Path of the file, relative to the model's folder; untrusted, see [`external_path`].
    pub location: Cow<'a, str>,
    /// First byte of the data in that file.
    pub offset: u64,
    /// Bytes of data, where the model says.
    pub length: Option<u64>,
    /// SHA-1 of the file, where the model says; not checked here.
    pub checksum: Option<Cow<'a, str>>,
}

/// The file that holds a tensor's data: a plain file inside `model_dir`. Absolute locations, `..`, and links
/// that lead out of the folder are refused; a file that is not there is named.
pub fn external_path(model_dir: &Path, external: &External<'_>) -> Result<PathBuf> {
    resolve(model_dir, None, external)
}

/// The file that holds a tensor's data, for the model in the file `model`.
///
/// As [`external_path`] has it for the model's folder, with one thing more for download caches, which keep
/// files under their hashes in one folder and link to them from another: where the model itself is a link,
/// its data may be a link to a file in the very folder that the model's link leads to.
pub fn external_path_beside(model: &Path, external: &External<'_>) -> Result<PathBuf> {
    let is_link = model.symlink_metadata().is_ok_and(|metadata| metadata.is_symlink());
    let linked = if is_link { model.canonicalize().ok() } else { None };
    resolve(model.parent().unwrap_or(model), linked.as_deref().and_then(Path::parent), external)
}

/// `linked_dir` is the folder in which data may lie besides, not below.
fn resolve(model_dir: &Path, linked_dir: Option<&Path>, external: &External<'_>) -> Result<PathBuf> {
    let location = external.location.as_ref();
    let escape = |why: &str| {
        OnnxError::new(OnnxErrorKind::ExternalEscape, format!("the location {:?} {why}", shorten(location)))
    };
    let unreadable = |path: &Path, error: io::Error| {
        let what = match error.kind() {
            io::ErrorKind::NotFound => format!("the data file {} does not exist", path.display()),
            _ => format!("the data file {} cannot be opened ({error})", path.display()),
        };
        OnnxError::new(OnnxErrorKind::ExternalMissing, what)
    };
    // Both separators count on every system: a location must not be harmless here and an escape elsewhere.
    let mut segments = location.split(['/', '\\']);
    let drive = location.as_bytes().get(1) == Some(&b':');
    if location.starts_with(['/', '\\']) || drive || Path::new(location).is_absolute() {
        return Err(escape("is absolute"));
    }
    if segments.any(|segment| segment == "..") {
        return Err(escape("leaves the model's folder"));
    }
    // The parent of a bare file name is an empty path.
    let model_dir = if model_dir.as_os_str().is_empty() { Path::new(".") } else { model_dir };
    let root = model_dir.canonicalize().map_err(|error| unreadable(model_dir, error))?;
    let joined = root.join(location);
    let path = joined.canonicalize().map_err(|error| unreadable(&joined, error))?;
    let is_beside_linked = linked_dir.is_some() && path.parent() == linked_dir;
    if !path.starts_with(&root) && !is_beside_linked {
        return Err(escape("is a link that leads out of the model's folder"));
    }
    if !path.metadata().map_err(|error| unreadable(&path, error))?.is_file() {
        return Err(OnnxError::new(
            OnnxErrorKind::ExternalMissing,
            format!("{} is not a file", path.display()),
        ));
    }
    Ok(path)
}

impl External<'_> {
    /// The bytes of a file of `file_len` bytes that hold `tensor`. A length that does not fit the tensor, or
    /// a file that ends too early, is an error.
    pub fn range(&self, tensor: &Tensor<'_>, file_len: u64) -> Result<Range<u64>> {
        let needed = tensor.byte_len()? as u64;
        if let Some(length) = self.length.filter(|&length| length != needed) {
            let what = format!(
                "tensor {:?} claims {length} bytes of {:?}, but its dimensions and type take {needed}",
                shorten(&tensor.name),
                shorten(&self.location),
            );
            return Err(OnnxError::new(OnnxErrorKind::DataLength, what));
        }
        match self.offset.checked_add(needed) {
            Some(end) if end <= file_len => Ok(self.offset..end),
            _ => {
                let what = format!(
                    "tensor {:?} takes {needed} bytes from byte {} of {:?}, which has {file_len}",
                    shorten(&tensor.name),
                    self.offset,
                    shorten(&self.location),
                );
                Err(OnnxError::new(OnnxErrorKind::ExternalShort, what))
            }
        }
    }
}
