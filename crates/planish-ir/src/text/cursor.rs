//! A cursor over the text: spaces and comments skipped, tokens taken one by one, positions kept for errors.

use std::borrow::Cow;

use planish_op::{TensorType, ValueType};
use planish_tensor::{DType, Shape};

use super::error::{ParseError, ParseErrorKind};

/// Sequences of optionals of sequences…: ONNX files reach some 50 levels before their reader stops.
const MAX_TYPE_DEPTH: u32 = 64;
/// How much of a surprise an error shows.
const SHOWN_CHARS: usize = 20;

pub(super) type Result<T> = std::result::Result<T, ParseError>;

/// Whether a value name needs no quotes.
pub(super) fn is_bare_name(name: &str) -> bool {
    !name.is_empty() && !name.ends_with(':') && name.bytes().all(is_name_byte)
}

/// Whether an attribute's name needs no quotes.
pub(super) fn is_key(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit()) && name.bytes().all(is_part)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b':' | b'-')
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'+' | b'-')
}

pub(super) struct Cursor<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str) -> Cursor<'a> {
        Cursor { text, at: 0 }
    }

    /// What is left, after spaces and comments.
    fn rest(&mut self) -> &'a str {
        loop {
            let rest = self.text.get(self.at..).unwrap_or("");
            let trimmed = rest.trim_start();
            self.at += rest.len() - trimmed.len();
            let comment = if trimmed.starts_with("//") {
                trimmed.find('\n').unwrap_or(trimmed.len())
            } else if let Some(inside) = trimmed.strip_prefix("/*") {
                // A comment without an end is left standing, and whoever comes next stumbles over it.
                let Some(end) = inside.find("*/") else { return trimmed };
                end + 4
            } else {
                return trimmed;
            };
            self.at += comment;
        }
    }

    /// The place of the next token.
    pub(super) fn here(&mut self) -> usize {
        self.rest();
        self.at
    }

    pub(super) fn error(&self, at: usize, kind: ParseErrorKind) -> ParseError {
        ParseError::new(kind, self.text, at)
    }

    /// The error that something else stands here.
    pub(super) fn expected(&mut self, expected: impl Into<String>) -> ParseError {
        let rest = self.rest();
        let shown: String = rest.lines().next().unwrap_or("").chars().take(SHOWN_CHARS).collect();
        let found = if rest.is_empty() { "the end".to_string() } else { format!("`{shown}`") };
        self.error(self.at, ParseErrorKind::Syntax { expected: expected.into(), found })
    }

    pub(super) fn peek(&mut self) -> Option<char> {
        self.rest().chars().next()
    }

    /// Takes `c` if it is next.
    pub(super) fn take(&mut self, c: char) -> bool {
        let found = self.rest().starts_with(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    pub(super) fn expect(&mut self, c: char) -> Result<()> {
        if self.take(c) { Ok(()) } else { Err(self.expected(format!("`{c}`"))) }
    }

    pub(super) fn end(&mut self) -> Result<()> {
        if self.rest().is_empty() { Ok(()) } else { Err(self.expected("the end")) }
    }

    /// The next word without taking it; empty if something else is next.
    pub(super) fn peek_word(&mut self) -> &'a str {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| !is_word_byte(byte)).unwrap_or(rest.len());
        rest.get(..end).unwrap_or("")
    }

    /// A name, keyword or number.
    pub(super) fn word(&mut self, expected: &str) -> Result<&'a str> {
        let word = self.peek_word();
        if word.is_empty() {
            return Err(self.expected(expected));
        }
        self.at += word.len();
        Ok(word)
    }

    pub(super) fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.at += word.len();
        }
        found
    }

    /// A word that `parse` understands; `wanted` says what that is.
    pub(super) fn number<T>(&mut self, wanted: &str, parse: impl Fn(&str) -> Option<T>) -> Result<T> {
        let at = self.here();
        let word = self.word(wanted)?;
        parse(word).ok_or_else(|| {
            let text = word.chars().take(2 * SHOWN_CHARS).collect();
            self.error(at, ParseErrorKind::BadNumber { text, wanted: wanted.to_string() })
        })
    }

    /// The name of a value behind its `%`.
    pub(super) fn value_name(&mut self) -> Result<Cow<'a, str>> {
        if !self.take('%') {
            return Err(self.expected("a value such as `%x`"));
        }
        // No spaces between the sign and the name.
        let rest = self.text.get(self.at..).unwrap_or("");
        if rest.starts_with('"') {
            return self.string("a name").map(Cow::Owned);
        }
        let end = rest.bytes().position(|byte| !is_name_byte(byte)).unwrap_or(rest.len());
        // A colon at the end belongs to the type that follows.
        let name = rest.get(..end).unwrap_or("").trim_end_matches(':');
        if name.is_empty() {
            return Err(self.expected("a name after `%`"));
        }
        self.at += name.len();
        Ok(Cow::Borrowed(name))
    }

    /// A text between double quotes.
    pub(super) fn string(&mut self, what: &str) -> Result<String> {
        if !self.take('"') {
            return Err(self.expected(format!("{what} in double quotes")));
        }
        let mut string = String::new();
        loop {
            let rest = self.text.get(self.at..).unwrap_or("");
            let Some(end) = rest.find(['"', '\\']) else {
                self.at = self.text.len();
                return Err(self.expected("a closing `\"`"));
            };
            string.push_str(rest.get(..end).unwrap_or(""));
            self.at += end;
            if self.take('"') {
                return Ok(string);
            }
            string.push(self.escape()?);
        }
    }

    fn escape(&mut self) -> Result<char> {
        let escape = self.text.get(self.at..).unwrap_or("");
        let (c, len) = match escape.as_bytes().get(1) {
            Some(b'n') => ('\n', 2),
            Some(&byte @ (b'"' | b'\\')) => (char::from(byte), 2),
            Some(b'u') => {
                let number = escape.strip_prefix("\\u{").and_then(|rest| rest.get(..rest.find('}')?));
                let c = number.and_then(|digits| {
                    // At most six digits, as in Rust; a sign is none.
                    let is_number = digits.len() <= 6 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
                    char::from_u32(u32::from_str_radix(digits, 16).ok().filter(|_| is_number)?)
                });
                match (c, number) {
                    (Some(c), Some(digits)) => (c, digits.len() + 4),
                    _ => return Err(self.expected("a character number such as `\\u{1f}`")),
                }
            }
            _ => return Err(self.expected("`\\\"`, `\\\\`, `\\n` or `\\u{…}`")),
        };
        self.at += len;
        Ok(c)
    }

    pub(super) fn value_type(&mut self) -> Result<ValueType> {
        self.value_type_at(0)
    }

    fn value_type_at(&mut self, depth: u32) -> Result<ValueType> {
        let at = self.here();
        if depth == MAX_TYPE_DEPTH {
            return Err(self.error(at, ParseErrorKind::TooDeep { limit: MAX_TYPE_DEPTH }));
        }
        let word = self.word("a type such as `f32[2,n]`")?;
        let wrap: fn(Box<ValueType>) -> ValueType = match word {
            "seq" => ValueType::Sequence,
            "optional" => ValueType::Optional,
            _ => {
                let dtype = self.dtype_named(word, at)?;
                return Ok(ValueType::Tensor(TensorType { dtype, shape: self.shape()? }));
            }
        };
        self.expect('(')?;
        let element = self.value_type_at(depth + 1)?;
        self.expect(')')?;
        Ok(wrap(Box::new(element)))
    }

    pub(super) fn dtype(&mut self) -> Result<DType> {
        let at = self.here();
        let word = self.word("an element type such as `f32`")?;
        self.dtype_named(word, at)
    }

    fn dtype_named(&self, word: &str, at: usize) -> Result<DType> {
        let shown: String = word.chars().take(SHOWN_CHARS).collect();
        shown.parse().map_err(|error| self.error(at, ParseErrorKind::UnknownDType(error)))
    }

    /// A shape; `None` for `[*]`.
    fn shape(&mut self) -> Result<Option<Shape>> {
        let rest = self.rest();
        if !rest.starts_with('[') {
            return Err(self.expected("a shape such as `[2,n]`"));
        }
        let end = shape_end(rest).ok_or_else(|| {
            self.at = self.text.len();
            self.expected("`]` after the dimensions")
        })?;
        let text = rest.get(..end).unwrap_or("");
        let shape = if text == "[*]" {
            None
        } else {
            Some(text.parse().map_err(|error| self.error(self.at, ParseErrorKind::Shape(error)))?)
        };
        self.at += end;
        Ok(shape)
    }
}

/// Where the shape that `text` begins with ends: at the first `]` outside the quotes of a symbol.
fn shape_end(text: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    for (idx, byte) in text.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            b']' if !quoted => return Some(idx + 1),
            _ => {}
        }
    }
    None
}
