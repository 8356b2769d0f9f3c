//! One process at a time: a lock on a file of its own, beside the file that is to be changed.

use std::fs::{self, File, OpenOptions};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::unfinished::is_gone;

/// Whoever holds a lock longer is stuck or means harm. Files are written in one piece, so going on without it can at
/// worst lose what somebody else adds in the same moment.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);

/// Held while it lives.
#[derive(Debug)]
pub struct Lock {
    path: PathBuf,
    _file: File,
}

impl Lock {
    /// Waits for the lock of `path`, which only this user can hold. `None` where files cannot be locked or somebody does
    /// not let go of it; then nobody is kept off.
    pub fn beside(path: &Path) -> Option<Lock> {
        let name = path.file_name()?.to_string_lossy();
        let lock = path.with_file_name(format!(".{name}.lock"));
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false);
        #[cfg(unix)]
        {
            use std::os::unix::fs::OpenOptionsExt;
            let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
            // Not to be opened by others: who can open a file can lock it.
            options.mode(0o600).custom_flags(flags.bits().cast_signed());
        }
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let file = options.open(&lock).ok()?;
            if !file.metadata().ok()?.is_file() {
                return None;
            }
            match file.try_lock() {
                // Who held it before may have removed the file; the lock of that one keeps nobody off.
                Ok(()) if !is_gone(&lock, &file) => return Some(Lock { path: lock, _file: file }),
                Ok(()) => {}
                Err(fs::TryLockError::WouldBlock) => thread::sleep(PAUSE),
                Err(fs::TryLockError::Error(_)) => return None,
            }
        }
        None
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // While it is held, so that nobody locks a file that has no name any more without noticing.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn one_holds_it_at_a_time_and_nothing_is_left() {
        let folder = std::env::temp_dir().join(format!("planish-lock-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let lock = Lock::beside(&folder.join("t")).unwrap();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir_all(folder).unwrap();
    }
}
