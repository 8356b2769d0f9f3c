//! The compile cache: machine code of sources that were compiled before, in the user's cache folder.
//!
//! A file is named by everything that its contents depend on, so entries never go stale; it is written in one
//! piece, so readers meet whole files only, and carries a checksum, so that a damaged one is compiled again. It is
//! a program that runs on the GPU, so a folder or a file that somebody else could have written is left alone.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::SystemTime;

/// When the folder holds more, the files that were not used for longest go.
const MAX_BYTES: u64 = 1 << 30;

/// How many bytes of checksum stand in front of the code.
const CHECKSUM: usize = 32;

/// A folder of compiled code.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    folder: PathBuf,
    max_bytes: u64,
}

impl Cache {
    /// `PLANISH_KERNEL_CACHE` (empty: none), `planish/kernels` in `XDG_CACHE_HOME`, or in `~/.cache`.
    pub(crate) fn of_user() -> Option<Cache> {
        let folder = match std::env::var_os("PLANISH_KERNEL_CACHE") {
            Some(folder) if folder.is_empty() => return None,
            Some(folder) => PathBuf::from(folder),
            None => planish_files::user_cache()?.join("kernels"),
        };
        if let Some(why) = planish_files::distrust(&folder) {
            static SAID: Once = Once::new();
            SAID.call_once(|| eprintln!("note: the cache of compiled kernels is not used: {why}"));
            return None;
        }
        Some(Cache { folder, max_bytes: MAX_BYTES })
    }

    /// In a given folder.
    pub(crate) fn at(folder: &Path) -> Cache {
        Cache { folder: folder.to_path_buf(), max_bytes: MAX_BYTES }
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.cubin"))
    }

    /// The code of this key, if it is there and whole.
    pub(crate) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut file = planish_files::open(&path).ok()?;
        if planish_files::distrust_file(&path, &file).is_some() {
            return None;
        }
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let (checksum, code) = bytes.split_at_checked(CHECKSUM)?;
        if blake3::hash(code).as_bytes() != checksum {
            let _ = fs::remove_file(&path);
            return None;
        }
        // Its time of change says when it was last used. It may belong to someone else; then it does not.
        if let Ok(file) = fs::File::options().append(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        bytes.drain(..CHECKSUM);
        Some(bytes)
    }

    /// Keeps code. A cache that cannot be written is not a reason to fail: what is asked for again is compiled again.
    pub(crate) fn put(&self, key: &str, code: &[u8]) {
        let _ = self.write(key, code);
    }

    fn write(&self, key: &str, code: &[u8]) -> io::Result<()> {
        planish_files::private_folder(&self.folder)?;
        planish_files::write(&self.path(key), |file| {
            file.write_all(blake3::hash(code).as_bytes())?;
            file.write_all(code)
        })?;
        self.trim()
    }

    /// Removes the files that were not used for longest until the rest fits.
    fn trim(&self) -> io::Result<()> {
        let mut files: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)?
            .flatten()
            .filter_map(|entry| {
                let (path, data) = (entry.path(), entry.metadata().ok()?);
                is_ours(&path).then_some((data.modified().ok()?, data.len(), path))
            })
            .collect();
        let mut total: u64 = files.iter().map(|(_, bytes, _)| bytes).sum();
        files.sort();
        for (_, bytes, path) in files {
            if total <= self.max_bytes {
                break;
            }
            fs::remove_file(path)?;
            total -= bytes;
        }
        Ok(())
    }
}

/// Nothing but compiled code is ever removed.
fn is_ours(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "cubin")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(name: &str, max_bytes: u64) -> Cache {
        let folder = std::env::temp_dir().join(format!("planish-{name}-{}", std::process::id()));
        Cache { folder, max_bytes }
    }

    #[test]
    fn code_comes_back_and_damage_is_noticed() {
        let cache = cache("code", MAX_BYTES);
        assert_eq!(cache.get("a"), None);
        cache.put("a", b"machine code");
        assert_eq!(cache.get("a").as_deref(), Some(&b"machine code"[..]));
        let mut bytes = fs::read(cache.path("a")).unwrap();
        bytes[CHECKSUM] ^= 1;
        fs::write(cache.path("a"), &bytes).unwrap();
        assert_eq!(cache.get("a"), None);
        fs::write(cache.path("b"), b"short").unwrap();
        assert_eq!(cache.get("b"), None);
        fs::remove_dir_all(&cache.folder).unwrap();
    }

    #[test]
    fn the_least_recently_used_go_first_and_foreign_files_stay() {
        let cache = cache("trim", 3 * (CHECKSUM as u64 + 100));
        fs::create_dir_all(&cache.folder).unwrap();
        fs::write(cache.folder.join("notes.txt"), [0; 4096]).unwrap();
        for key in ["a", "b", "c"] {
            cache.put(key, &[1; 100]);
            let old = SystemTime::now() - std::time::Duration::from_secs(if key == "b" { 200 } else { 100 });
            fs::File::options().append(true).open(cache.path(key)).unwrap().set_modified(old).unwrap();
        }
        cache.put("d", &[1; 100]);
        let kept: Vec<bool> = ["a", "b", "c", "d"].iter().map(|key| cache.get(key).is_some()).collect();
        assert_eq!(kept, [true, false, true, true]);
        assert!(cache.folder.join("notes.txt").exists());
        fs::remove_dir_all(&cache.folder).unwrap();
    }
}
