//! Opening what is to be read: regular files, and nothing that could wait for ever.

use std::fs::{self, File, FileType, OpenOptions};
use std::io;
use std::path::Path;

/// Opens a regular file. A folder, a named pipe, a socket or a device is refused by name, before anything waits for it.
pub fn open(path: &Path) -> io::Result<File> {
    // Looked at before it is opened, since opening some devices does something; and again by the handle, since another
    // file may have taken the name meanwhile.
    refuse(fs::metadata(path)?.file_type())?;
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A named pipe that was put there meanwhile must not wait for its writer. Regular files do not care.
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed());
    }
    let file = options.open(path)?;
    refuse(file.metadata()?.file_type())?;
    Ok(file)
}

/// Opens a regular file by a path without links, as [`Path::canonicalize`] gives it, and refuses it if the opened file
/// is not the one of that path: a link may have been put into it since it was resolved and judged.
pub fn open_canonical(path: &Path) -> io::Result<File> {
    let file = open(path)?;
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;
        // Without /proc there is nothing to compare with.
        let opened = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd()));
        if opened.is_ok_and(|opened| opened != path) {
            let message = "another file took its place while it was opened; try again";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
    }
    Ok(file)
}

fn refuse(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let message = format!("it is {}, not a regular file", name(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// What something that is not a regular file is.
pub(crate) fn name(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    if kind.is_dir() { "a folder" } else { "something else" }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn only_regular_files_are_opened() {
        let folder = std::env::temp_dir().join(format!("planish-open-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let pipe = folder.join("pipe");
        let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
        assert!(made.success());
        let refused = |path: &Path| open(path).unwrap_err().to_string();
        assert_eq!(refused(&pipe), "it is a named pipe, not a regular file");
        assert_eq!(refused(&folder), "it is a folder, not a regular file");
        assert_eq!(refused(Path::new("/dev/zero")), "it is a device, not a regular file");
        let file = folder.join("file");
        fs::write(&file, "x").unwrap();
        assert!(open(&file).is_ok());
        let link = folder.join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(open(&link).is_ok());
        let canonical = file.canonicalize().unwrap();
        assert!(open_canonical(&canonical).is_ok());
        let linked = canonical.with_file_name("link");
        assert!(open_canonical(&linked).unwrap_err().to_string().starts_with("another file took its place"));
        fs::remove_dir_all(folder).unwrap();
    }
}
