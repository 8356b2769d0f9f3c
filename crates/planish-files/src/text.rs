//! Small text files (timings, locks of tactics, calibrations): a first line that names the format, then lines of
//! tab-separated fields; read with bounds, written in one piece.

use std::fmt;
use std::io::{self, Read, Write};
use std::path::Path;

/// Longer files are neither read nor written: a measured problem takes about 500 bytes a candidate.
pub const MAX_BYTES: u64 = 256 << 20;

/// Why a text file could not be read.
#[derive(Debug)]
pub enum TextError {
    /// The system did not give its bytes.
    Io(io::Error),
    /// It is not what it should be: what, where, and what to try.
    Bad(String),
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TextError::Io(error) => write!(f, "{error}"),
            TextError::Bad(what) => write!(f, "{what}"),
        }
    }
}

impl std::error::Error for TextError {}

/// A kind of file, by the word on its first line, and the version of its format.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub name: &'static str,
    pub version: u32,
}

impl Format {
    /// What a file begins with.
    pub fn first_line(self) -> String {
        format!("planish {} {}", self.name, self.version)
    }

    /// The file of these lines, under a line of comment that names the fields.
    pub fn text(self, fields: &str, lines: impl Iterator<Item = String>) -> String {
        let mut text = format!("{}\n# {fields}\n", self.first_line());
        for line in lines {
            text.push_str(&line);
            text.push('\n');
        }
        text
    }

    /// The lines that hold something, each with its number, after the first has been checked.
    pub fn lines(self, text: &str) -> Result<impl Iterator<Item = (usize, &str)>, TextError> {
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
            return Err(TextError::Bad(what));
        }
        Ok(lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#')))
    }
}

/// What is wrong with a line, and where.
pub fn bad_line(number: usize, what: impl fmt::Display) -> TextError {
    TextError::Bad(format!("line {number}: {what}; correct the line or delete it"))
}

/// A field without tabs and line ends, to be read back by [`unescape`].
pub fn escape(field: &str) -> String {
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
pub fn unescape(field: &str) -> Option<String> {
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
pub fn read(path: &Path) -> Result<Option<String>, TextError> {
    let file = match crate::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(TextError::Io(error)),
    };
    let mut bytes = Vec::new();
    // One more than allowed tells a long file from one that just fits; what it claims to be does not matter.
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(TextError::Io)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(TextError::Bad(format!("the file is longer than {} MB", MAX_BYTES >> 20)));
    }
    let not_text = |_| TextError::Bad("the file is not text; this is another kind of file".to_string());
    String::from_utf8(bytes).map(Some).map_err(not_text)
}

/// Writes a file in one piece.
pub fn write(path: &Path, text: &str) -> io::Result<()> {
    crate::write(path, |file| file.write_all(text.as_bytes())).map(drop)
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
