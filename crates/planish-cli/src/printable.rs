//! Text as it may be shown on a terminal: names come from files, and control characters in them could move the cursor,
//! change what was printed before or send commands. Everything that is printed passes here.

use std::borrow::Cow;
use std::io::{self, Write};

/// Whether a character may do something else than be seen.
fn is_hidden(c: char) -> bool {
    let turns_text = matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    (c.is_control() && !matches!(c, '\n' | '\t')) || turns_text
}

/// The text with such characters spelled out, as JSON does it, so that JSON stays what it is.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_hidden) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_hidden(c) {
            true => shown.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// Passes text on, printable.
pub(crate) struct Printable<W> {
    out: W,
    /// The beginning of a character whose end has not come yet.
    begun: Vec<u8>,
}

impl<W: Write> Printable<W> {
    pub(crate) fn new(out: W) -> Printable<W> {
        Printable { out, begun: Vec::new() }
    }
}

impl<W: Write> Write for Printable<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begun.extend_from_slice(bytes);
        let taken = std::mem::take(&mut self.begun);
        let mut rest = &taken[..];
        while !rest.is_empty() {
            let (text, after, is_end) = match std::str::from_utf8(rest) {
                Ok(text) => (text, &[][..], true),
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    let text = std::str::from_utf8(valid).unwrap_or_default();
                    match error.error_len() {
                        None => (text, after, true),
                        Some(len) => (text, &after[len..], false),
                    }
                }
            };
            self.out.write_all(printable(text).as_bytes())?;
            if is_end {
                self.begun = after.to_vec();
                break;
            }
            self.out.write_all("\u{fffd}".as_bytes())?;
            rest = after;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_spelled_out() {
        assert_eq!(printable("plain ✓\t\n"), "plain ✓\t\n");
        assert_eq!(
            printable("a\x1b[2Jb\u{9b}c\rd\u{202e}e\x7f"),
            "a\\u001b[2Jb\\u009bc\\u000dd\\u202ee\\u007f"
        );
    }

    #[test]
    fn pieces_of_characters_come_together() {
        let mut out = Vec::new();
        let mut printable = Printable::new(&mut out);
        for byte in "é\u{9b}✓".as_bytes() {
            printable.write_all(&[*byte]).unwrap();
        }
        printable.write_all(b"\xff.").unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "é\\u009b✓\u{fffd}.");
    }
}
