//! A writer that keeps its first error to itself until it is asked: for libraries that print errors which they meet a
//! second time, where one line is to say why a command ends.

use std::io::{self, ErrorKind, Seek, SeekFrom, Write};

pub(crate) struct FirstError<W> {
    out: W,
    /// Where the next byte goes, or would.
    at: u64,
    /// After it nothing is written any more, and everything seems to be.
    error: Option<io::Error>,
}

impl<W> FirstError<W> {
    pub(crate) fn new(out: W) -> FirstError<W> {
        FirstError { out, at: 0, error: None }
    }

    /// Whether all was written.
    pub(crate) fn end(self) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }

    /// What was done, or `instead` after an error.
    fn attempt<T>(&mut self, instead: T, work: impl FnOnce(&mut W) -> io::Result<T>) -> io::Result<T> {
        if self.error.is_some() {
            return Ok(instead);
        }
        match work(&mut self.out) {
            Err(error) if error.kind() != ErrorKind::Interrupted => {
                self.error = Some(error);
                Ok(instead)
            }
            done => done,
        }
    }
}

impl<W: Write> Write for FirstError<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.attempt(bytes.len(), |out| match out.write(bytes)? {
            0 if !bytes.is_empty() => Err(ErrorKind::WriteZero.into()),
            n => Ok(n),
        })?;
        self.at += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), W::flush)
    }
}

impl<W: Seek> Seek for FirstError<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let instead = match to {
            SeekFrom::Start(at) => at,
            SeekFrom::Current(by) => self.at.saturating_add_signed(by),
            // How long it would be is not known; nobody reads it.
            SeekFrom::End(_) => self.at,
        };
        self.at = self.attempt(instead, |out| out.seek(to))?;
        Ok(self.at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_the_end_of_all_writing() {
        let mut bytes = [0u8; 4];
        let mut out = FirstError::new(io::Cursor::new(&mut bytes[..]));
        out.write_all(b"abc").unwrap();
        // The room for four is full; what is behind seems to be written.
        out.write_all(b"defg").unwrap();
        assert_eq!(out.stream_position().unwrap(), 7);
        assert_eq!(out.seek(SeekFrom::Start(1)).unwrap(), 1);
        out.write_all(b"x").unwrap();
        out.flush().unwrap();
        assert_eq!(out.end().unwrap_err().kind(), ErrorKind::WriteZero);
        assert_eq!(&bytes, b"abcd");
    }
}
