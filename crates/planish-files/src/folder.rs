//! Folders of the user's own: where they are, and whether somebody else can change what lies in them.

use std::fs::{self, DirBuilder, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};

/// `planish` in the user's cache folder: `XDG_CACHE_HOME`, or `.cache` at home. `None` where neither is known.
pub fn user_cache() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let root = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")))?;
    Some(root.join("planish"))
}

/// Makes a folder, and those above it, that only this user may enter. One that is there already stays as it is.
pub fn private_folder(path: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Why what lies in a folder may not be what this user put there: somebody else owns it, or may write into it. `None` for
/// a folder that is the user's alone, or the administrator's, and for one that is not there.
pub fn distrust(folder: &Path) -> Option<String> {
    let why = suspicion(&fs::metadata(folder).ok()?)?;
    Some(format!("{} {why}", folder.display()))
}

/// The same for a file that was opened.
pub fn distrust_file(path: &Path, file: &File) -> Option<String> {
    let why = suspicion(&file.metadata().ok()?)?;
    Some(format!("{} {why}", path.display()))
}

#[cfg(unix)]
fn suspicion(about: &Metadata) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    const ROOT: u32 = 0;
    let own = rustix::process::geteuid().as_raw();
    let (owner, mode) = (about.uid(), about.mode() & 0o777);
    if owner != own && owner != ROOT {
        return Some(format!("belongs to another user (id {owner})"));
    }
    (mode & 0o022 != 0).then(|| format!("may be written by others (mode {mode:o}; chmod go-w mends it)"))
}

#[cfg(not(unix))]
fn suspicion(_: &Metadata) -> Option<String> {
    None
}

/// Whether two names lead to one file: by another spelling, a link or a hard link. `false` where one is not there.
pub fn is_same_file(a: &Path, b: &Path) -> bool {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        let id = |path: &Path| fs::metadata(path).map(|about| (about.dev(), about.ino())).ok();
        id(a).is_some() && id(a) == id(b)
    }
    #[cfg(not(unix))]
    {
        a.canonicalize().ok().is_some_and(|a| b.canonicalize().is_ok_and(|b| a == b))
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn folders_that_others_may_write_are_not_trusted() {
        let folder = std::env::temp_dir().join(format!("planish-private-{}", std::process::id()));
        assert_eq!(distrust(&folder), None);
        private_folder(&folder.join("inner")).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!([mode(&folder), mode(&folder.join("inner"))], [0o700, 0o700]);
        assert_eq!(distrust(&folder), None);
        for loose in [0o770, 0o702] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(loose)).unwrap();
            let why = distrust(&folder).unwrap();
            assert!(why.contains(&format!("may be written by others (mode {loose:o}")), "{why}");
        }
        // Only the administrator can give a folder away.
        if std::os::unix::fs::chown(&folder, Some(65534), None).is_ok() {
            assert!(distrust(&folder).unwrap().ends_with("belongs to another user (id 65534)"));
        }
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn one_file_has_many_names() {
        let folder = std::env::temp_dir().join(format!("planish-same-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (a, b, linked) = (folder.join("a"), folder.join("b"), folder.join("linked"));
        fs::write(&a, "x").unwrap();
        fs::write(&b, "x").unwrap();
        fs::hard_link(&a, &linked).unwrap();
        assert!(is_same_file(&a, &folder.join(".").join("a")));
        assert!(is_same_file(&a, &linked));
        assert!(!is_same_file(&a, &b) && !is_same_file(&a, &folder.join("none")));
        fs::remove_dir_all(folder).unwrap();
    }
}
