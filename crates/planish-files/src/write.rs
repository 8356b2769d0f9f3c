//! Writing files in one piece: under a temporary name in the same folder, synced, renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::{open, unfinished};

/// A file that is being written. It appears under its name, complete, when it is committed; dropped before that, it
/// leaves nothing.
#[derive(Debug)]
pub struct NewFile {
    file: BufWriter<File>,
    place: Place,
}

/// Where the bytes go.
#[derive(Debug)]
enum Place {
    /// To a temporary file that is renamed at the end.
    Beside { temporary: PathBuf, path: PathBuf },
    /// Straight to a pipe or a device (`/dev/stdout`), which cannot be replaced by a file.
    Straight,
}

impl NewFile {
    /// Begins a file. What is there under its name stays until it is committed; a link keeps leading where it does.
    pub fn create(path: &Path) -> io::Result<NewFile> {
        let path = match fs::metadata(path) {
            Ok(about) if about.is_file() => path.canonicalize()?,
            Ok(about) if about.is_dir() => {
                return Err(io::Error::new(io::ErrorKind::IsADirectory, "it is a folder"));
            }
            Ok(_) => {
                let file = OpenOptions::new().write(true).open(path)?;
                return Ok(NewFile { file: BufWriter::new(file), place: Place::Straight });
            }
            Err(_) => path.to_path_buf(),
        };
        unfinished::remove_abandoned(folder_of(&path));
        let (temporary, file) = unfinished::create_beside(&path)?;
        Ok(NewFile { file: BufWriter::new(file), place: Place::Beside { temporary, path } })
    }

    /// Takes what is to be in the file.
    pub fn writer(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }

    /// Has everything on the disk, still under the temporary name.
    fn settle(&mut self) -> io::Result<u64> {
        self.file.flush()?;
        let file = self.file.get_ref();
        if let Place::Beside { .. } = self.place {
            file.sync_all()?;
        }
        Ok(file.metadata()?.len())
    }

    /// Has everything on the disk and gives where it lies until `commit`, for whoever wants to read it back before the
    /// name is its; `None` where it is written straight to its place.
    pub fn written(&mut self) -> io::Result<Option<&Path>> {
        self.settle()?;
        Ok(match &self.place {
            Place::Beside { temporary, .. } => Some(temporary),
            Place::Straight => None,
        })
    }

    /// Gives the file its name.
    fn rename(&mut self) -> io::Result<()> {
        if let Place::Beside { temporary, path } = &self.place {
            fs::rename(temporary, path)?;
            unfinished::forget(temporary);
            self.place = Place::Straight;
        }
        Ok(())
    }

    fn folder(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Beside { path, .. } => Some(folder_of(path).to_path_buf()),
            Place::Straight => None,
        }
    }

    /// Puts the complete file in its place; gives its length.
    pub fn commit(mut self) -> io::Result<u64> {
        let len = self.settle()?;
        let folder = self.folder();
        self.rename()?;
        sync_folder(folder.as_deref());
        Ok(len)
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if let Place::Beside { temporary, .. } = &self.place {
            let _ = fs::remove_file(temporary);
            unfinished::forget(temporary);
        }
    }
}

/// Puts several files in their places: none before all are complete and on the disk.
pub fn commit_all(mut files: Vec<NewFile>) -> io::Result<()> {
    for file in &mut files {
        file.settle()?;
    }
    let mut folders: Vec<PathBuf> = files.iter().filter_map(NewFile::folder).collect();
    folders.dedup();
    for file in &mut files {
        file.rename()?;
    }
    folders.iter().for_each(|folder| sync_folder(Some(folder)));
    Ok(())
}

/// Writes a file with `fill` and puts it in its place when it is complete; gives its length.
pub fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> io::Result<u64> {
    let mut file = NewFile::create(path)?;
    fill(file.writer())?;
    file.commit()
}

/// Says before any work is done whether a file could be written under this name.
pub fn check_target(path: &Path) -> io::Result<()> {
    let refuse = |kind, message: String| Err(io::Error::new(kind, message));
    if path.file_name().is_none() {
        return refuse(io::ErrorKind::InvalidInput, "this is not the name of a file".into());
    }
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => refuse(io::ErrorKind::IsADirectory, "it is a folder".into()),
        Ok(about) if !about.is_file() => {
            let kind = open::name(about.file_type());
            refuse(io::ErrorKind::InvalidInput, format!("it is {kind}, not a regular file"))
        }
        Ok(_) => try_folder(folder_of(&path.canonicalize()?)),
        Err(_) => try_folder(folder_of(path)),
    }
}

/// Whether files can be made in this folder, by making one: permissions alone do not tell (read-only systems, quotas).
fn try_folder(folder: &Path) -> io::Result<()> {
    if !folder.is_dir() {
        let message = format!("there is no folder {}", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, message));
    }
    NewFile::create(&folder.join("planish-check")).map(drop)
}

/// Whether a file could not be written because the disk is full or a limit is reached, or not be read for want of
/// memory: what the machine lacks, and no fault of the file.
pub fn is_out_of_room(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, OutOfMemory, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge | OutOfMemory)
}

/// The folder of a file; that of a bare name is the current one.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Has a rename on the disk. The file itself is there already, so a folder that cannot be synced costs nothing but the
/// new name after a power failure.
fn sync_folder(folder: Option<&Path>) {
    if let Some(folder) = folder
        && let Ok(handle) = File::open(folder)
    {
        let _ = handle.sync_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("planish-write-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap().flatten();
        let mut names: Vec<_> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let folder = folder("failure");
        let path = folder.join("a.txt");
        assert_eq!(write(&path, |file| file.write_all(b"old")).unwrap(), 3);
        let error = write(&path, |file| {
            file.write_all(b"new")?;
            Err(io::Error::other("full"))
        });
        assert_eq!(error.unwrap_err().to_string(), "full");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(&folder), ["a.txt"]);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn several_files_appear_together() {
        let folder = folder("several");
        let begin = |name: &str| {
            let mut file = NewFile::create(&folder.join(name)).unwrap();
            file.writer().write_all(name.as_bytes()).unwrap();
            file
        };
        drop([begin("a"), begin("b")]);
        assert!(names(&folder).is_empty());
        let both = vec![begin("a"), begin("b")];
        assert!(!names(&folder).contains(&"a".to_string()));
        commit_all(both).unwrap();
        assert_eq!(names(&folder), ["a", "b"]);
        assert_eq!(fs::read(folder.join("b")).unwrap(), b"b");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn targets_are_judged_before_they_are_written() {
        let folder = folder("target");
        let refused = |path: &Path| check_target(path).unwrap_err().to_string();
        assert_eq!(refused(&folder), "it is a folder");
        assert_eq!(refused(Path::new("/")), "this is not the name of a file");
        let nowhere = folder.join("none");
        assert_eq!(refused(&nowhere.join("x")), format!("there is no folder {}", nowhere.display()));
        check_target(&folder.join("new")).unwrap();
        assert!(names(&folder).is_empty());
        fs::remove_dir_all(folder).unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn links_keep_leading_where_they_do_and_pipes_are_no_files() {
        let folder = folder("link");
        let (path, link) = (folder.join("a"), folder.join("link"));
        write(&path, |file| file.write_all(b"old")).unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        write(&link, |file| file.write_all(b"new")).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert_eq!(fs::read(&path).unwrap(), b"new");
        write(Path::new("/dev/null"), |file| file.write_all(b"gone")).unwrap();
        assert!(check_target(Path::new("/dev/null")).is_err());
        assert!(!Path::new("/dev/null").is_file());
        fs::remove_dir_all(folder).unwrap();
    }
}
