//! The small text files of a build (timings, locks of tactics): a first line that names the format, then lines
//! of tab-separated fields; read with bounds, written in one piece.

use std::io::{self, Read, Write};
use std::path::Path;

use crate::error::{BuildError, BuildErrorKind};

/// Longer files are neither read nor written: a measured problem takes about 500 bytes a candidate.
pub(crate) const MAX_BYTES: u64 = 256 << 20;

/// A kind of file, by the word on its first line, and the version of its format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    pub(crate) name: &'static str,
    pub(crate) version: u32,
}

impl Format {
    fn first_line(self) -> String {
        format!("planish {} {}", self.name, self.version)
    }

    /// The file of these lines, under a line of comment that names the fields.
    pub(crate) fn text(self, fields: &str, lines: impl Iterator<Item = String>) -> String {
        let mut text = format!("{}\n# {fields}\n", self.first_line());
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// The lines that hold something, each with its number, after the first has been checked.
    pub(crate) fn lines(self, text: &str) -> Result<impl Iterator<Item = (usize, &str)>, BuildError> {
        let mut lines = text.lines().enumerate().map(|(idx, line)| (idx + 1, line));
        let first = lines.next().map_or("", |(_, line)| line);
        if first != self.first_line() {
            let version = first.strip_prefix(&format!("planish {} ", self.name));
            let what = match version.and_then(|version| version.parse::<u32>().ok()) {
                Some(version) if version > self.version => format!(
                    "the file has format {version} of {}, this Planish reads {}; update Planish, or delete the \
                     file to start anew",
                    self.name, self.version
                ),
                _ => format!("line 1 is not `{}`; this is another kind of file", self.first_line()),
            };
            return Err(BuildError::new(BuildErrorKind::BadFile, what));
        }
        Ok(lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')))
    }
}

/// What is wrong with a line, and where.
pub(crate) fn bad_line(number: usize, what: &str) -> BuildError {
    let message = format!("line {number}: {what}; correct the line or delete it");
    BuildError::new(BuildErrorKind::BadFile, message)
}

/// A field without tabs and line ends, to be read back by [`unescape`].
pub(crate) fn escape(field: &str) -> String {
    let mut text = String::with_capacity(field.len());
    for c in field.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '\t' => text.push_str("\\t"),
            '\n' => text.push_str("\\n"),
            '\r' => text.push_str("\\r"),
            // A line that starts with it would be a comment.
            '#' if text.is_empty() => text.push_str("\\#"),
            c => text.push(c),
        }
    }
    text
}

/// `None` where a backslash stands before something else than [`escape`] writes.
pub(crate) fn unescape(field: &str) -> Option<String> {
    let mut text = String::with_capacity(field.len());
    let mut chars = field.chars();
    while let Some(c) = chars.next() {
        text.push(match c {
            '\\' => match chars.next()? {
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                c @ ('\\' | '#') => c,
                _ => return None,
            },
            c => c,
        });
    }
    Some(text)
}

/// The text of a file; `None` if there is none.
pub(crate) fn read(path: &Path) -> Result<Option<String>, BuildError> {
    let cannot = |error: io::Error| BuildError::io("read", path, &error);
    let file = match planish_files::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(cannot(error)),
    };
    let mut bytes = Vec::new();
    // One more than allowed tells a long file from one that just fits; what it claims to be does not matter.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > MAX_BYTES {
        let message = format!("{}: the file is longer than {} MB", path.display(), MAX_BYTES >> 20);
        return Err(BuildError::new(BuildErrorKind::BadFile, message));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| {
        let message = format!("{}: the file is not text; this is another kind of file", path.display());
        BuildError::new(BuildErrorKind::BadFile, message)
    })
}

/// Writes a file in one piece.
pub(crate) fn write(path: &Path, text: &str) -> Result<(), BuildError> {
    let written = planish_files::write(path, |file| file.write_all(text.as_bytes()));
    written.map(drop).map_err(|error| BuildError::io("write", path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_field_comes_back_on_one_line() {
        for field in ["", "a b", "#c", "a\tb\\t\nc\r", "\\", "é#"] {
            let escaped = escape(field);
            assert!(!escaped.contains(['\t', '\n', '\r']) && !escaped.starts_with('#'), "{escaped:?}");
            assert_eq!(unescape(&escaped).as_deref(), Some(field));
        }
        assert_eq!((unescape("\\x"), unescape("a\\")), (None, None));
    }

    #[test]
    fn first_lines_tell_kinds_and_versions_apart() {
        let format = Format { name: "timings", version: 1 };
        let lines = format.lines("planish timings 1\n# a\n\nx\n").unwrap();
        assert_eq!(lines.collect::<Vec<_>>(), [(4, "x")]);
        let error = |text: &str| format.lines(text).err().unwrap().to_string();
        assert!(error("planish timings 2\n").starts_with("the file has format 2 of timings"));
        assert!(error("").starts_with("line 1 is not `planish timings 1`"));
        assert!(error("planish tactics 1").starts_with("line 1 is not"));
    }
}
