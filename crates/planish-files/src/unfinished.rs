//! Files that were begun and not finished: those of this process, and those that killed processes left behind.
//!
//! Whoever writes a file holds a lock on its temporary one, and the system releases that lock however the process ends.
//! So a temporary file that can be locked is nobody's any more, on whatever machine its process ran.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How the names of temporary files end; they begin with a dot.
const SUFFIX: &str = ".planish-tmp";

/// How much of the file's own name its temporary one shows; names have an end at 255 bytes.
const SHOWN_BYTES: usize = 64;

/// The temporary files that this process is writing.
static UNFINISHED: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

fn unfinished() -> MutexGuard<'static, BTreeSet<PathBuf>> {
    UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A new, empty file beside `path`, locked, under a name that nobody can foresee.
pub(crate) fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let not_a_file = || io::Error::new(io::ErrorKind::InvalidInput, "this is not the name of a file");
    let name = path.file_name().ok_or_else(not_a_file)?.to_string_lossy();
    let shown = &name[..name.floor_char_boundary(SHOWN_BYTES)];
    loop {
        // Every `RandomState` has keys that nobody knows, so this is a number that nobody can foresee.
        let number = RandomState::new().build_hasher().finish();
        let temporary = path.with_file_name(format!(".{shown}.{number:016x}{SUFFIX}"));
        unfinished().insert(temporary.clone());
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            // Never written by others, whatever the umask: caches are not used where they may be.
            options.mode(0o644);
        }
        let made = options.open(&temporary);
        let file = match made {
            Ok(file) => file,
            Err(error) => {
                forget(&temporary);
                if error.kind() == io::ErrorKind::AlreadyExists {
                    continue;
                }
                return Err(error);
            }
        };
        // Where files cannot be locked, nobody can take it for abandoned either.
        let _ = file.lock();
        if is_gone(&temporary, &file) {
            // Somebody took it for abandoned in the moment before it was locked.
            forget(&temporary);
            continue;
        }
        return Ok((temporary, file));
    }
}

/// It was finished, or removed.
pub(crate) fn forget(temporary: &Path) {
    unfinished().remove(temporary);
}

/// Whether the file of this name is another than the opened one by now.
pub(crate) fn is_gone(path: &Path, file: &File) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |data: fs::Metadata| (data.dev(), data.ino());
        match (fs::symlink_metadata(path), file.metadata()) {
            (Ok(named), Ok(opened)) => id(named) != id(opened),
            _ => true,
        }
    }
    #[cfg(not(unix))]
    {
        let _ = file;
        !path.exists()
    }
}

/// Removes the temporary files of this process: for whoever ends it while files are being written.
pub fn remove_unfinished() {
    for path in std::mem::take(&mut *unfinished()) {
        let _ = fs::remove_file(path);
    }
}

/// Removes what killed processes left of files that they were writing in this folder. Files that somebody still writes
/// stay, and so does everything that is not ours to remove.
pub fn remove_abandoned(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_temporary = name.to_str().is_some_and(|name| name.starts_with('.') && name.ends_with(SUFFIX));
        if !is_temporary || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            continue;
        }
        let Ok(file) = super::open(&entry.path()) else { continue };
        if file.try_lock().is_ok() {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_is_removed_and_what_is_being_written_stays() {
        let folder = std::env::temp_dir().join(format!("planish-abandoned-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // A process that was killed holds no lock.
        let abandoned = folder.join(".m.plan.0123456789abcdef.planish-tmp");
        fs::write(&abandoned, "half").unwrap();
        let foreign = folder.join(".m.plan.tmp");
        fs::write(&foreign, "another program's").unwrap();
        let (temporary, file) = create_beside(&folder.join("m.plan")).unwrap();
        remove_abandoned(&folder);
        assert_eq!([&abandoned, &foreign, &temporary].map(|path| path.exists()), [false, true, true]);
        drop(file);
        remove_abandoned(&folder);
        assert!(!temporary.exists());
        forget(&temporary);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn long_names_have_short_temporary_ones() {
        let folder = std::env::temp_dir().join(format!("planish-long-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (temporary, _file) = create_beside(&folder.join("é".repeat(127))).unwrap();
        assert!(temporary.file_name().unwrap().len() < 120);
        forget(&temporary);
        assert!(create_beside(Path::new("/")).is_err());
        fs::remove_dir_all(folder).unwrap();
    }
}
