//! Writing files: under a temporary name first, so that nobody ever sees half of one.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Writes the file with `fill` and puts it in its place when it is complete.
pub(crate) fn write(path: &Path, fill: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    let Some(name) = path.file_name() else { bail!("{} is not a file name", path.display()) };
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}.tmp", std::process::id()));
    let temporary = path.with_file_name(temporary);
    let filled = (|| {
        let mut file = BufWriter::new(File::create(&temporary)?);
        fill(&mut file)?;
        file.into_inner()?.sync_all()?;
        fs::rename(&temporary, path)
    })();
    filled
        .inspect_err(|_| {
            // What is left of a file that could not be finished is of no use.
            let _ = fs::remove_file(&temporary);
        })
        .with_context(cannot)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failure_leaves_the_old_file_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("planish-files-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a.txt");
        write(&path, |file| file.write_all(b"old")).unwrap();
        let error = write(&path, |_| Err(io::Error::other("full"))).unwrap_err();
        assert_eq!(format!("{error:#}"), format!("cannot write {}: full", path.display()));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}
