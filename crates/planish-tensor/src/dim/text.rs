//! The text form of dimensions: printing, and a parser that takes any string without panicking.
//!
//! ```text
//! sum     = ["-"] product (("+" | "-") product)*
//! product = factor ("*" factor)*
//! factor  = number | (symbol | call) ["^" number] | "(" sum ")" | "-" factor
//! call    = name "(" [sum ("," sum)*] ")"
//! symbol  = [A-Za-z_][A-Za-z0-9_.]* | '"' (character | '\"' | '\\' | '\n' | '\u{hex}')* '"'
//! ```
//!
//! A name is a function only with "(" after it, so a symbol called `max` is no trouble. Spaces may stand
//! between tokens. `unknown()` is the unknown dimension.

use super::Dim;
use super::Repr;
use super::calls::MAX_ARGS;
use super::poly::{Atom, Func, MAX_DEPTH};
use crate::{Quoted, ShapeError, ShapeErrorKind};
use std::fmt::{self, Display, Formatter, Write};
use std::str::FromStr;

/// Longest text of a dimension. The size limit of expressions keeps what `Display` prints below it: 512
/// nodes of at most 30 bytes, and at most 4 KiB of names that escapes lengthen at most eightfold.
pub(crate) const MAX_DIM_TEXT: usize = 64 * 1024;
/// Parentheses within parentheses; printing needs one level for a nested call.
const MAX_NESTING: u32 = 2 * MAX_DEPTH;

impl Display for Dim {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let poly = match &self.0 {
            Repr::Const(value) => return write!(f, "{value}"),
            Repr::Unknown => return f.write_str("unknown()"),
            Repr::Expr(poly) => poly,
        };
        for (i, term) in poly.terms.iter().enumerate() {
            match (i, term.coef < 0) {
                (_, true) => f.write_char('-')?,
                (0, false) => {}
                (_, false) => f.write_char('+')?,
            }
            let mut separator = "";
            if term.coef.unsigned_abs() != 1 || term.mono.is_one() {
                write!(f, "{}", term.coef.unsigned_abs())?;
                separator = "*";
            }
            for (atom, power) in term.mono.factors() {
                f.write_str(separator)?;
                write_atom(f, atom)?;
                if *power != 1 {
                    write!(f, "^{power}")?;
                }
                separator = "*";
            }
        }
        Ok(())
    }
}

fn write_atom(f: &mut Formatter<'_>, atom: &Atom) -> fmt::Result {
    match atom {
        Atom::Symbol(name) if is_identifier(name) => f.write_str(name),
        Atom::Symbol(name) => Quoted(name).fmt(f),
        Atom::Call(call) => {
            let name = Func::NAMES.iter().find(|(_, func)| *func == call.func).map_or("", |(name, _)| name);
            f.write_str(name)?;
            for (i, arg) in call.args.iter().enumerate() {
                write!(f, "{}{arg}", if i == 0 { '(' } else { ',' })?;
            }
            f.write_char(')')
        }
    }
}

fn is_identifier(name: &str) -> bool {
    name.starts_with(is_name_start) && name.chars().all(is_name_part)
}

fn is_name_start(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

fn is_name_part(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '.'
}

impl FromStr for Dim {
    type Err = ShapeError;

    fn from_str(text: &str) -> Result<Dim, ShapeError> {
        let mut parser = Parser::new(text, MAX_DIM_TEXT)?;
        let dim = parser.sum()?;
        parser.end()?;
        Ok(dim)
    }
}

/// A cursor over the text, shared with the parser of shapes.
pub(crate) struct Parser<'a> {
    text: &'a str,
    at: usize,
    nesting: u32,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str, limit: usize) -> Result<Parser<'a>, ShapeError> {
        if text.len() > limit {
            return Err(ShapeErrorKind::TextTooLong { bytes: text.len(), limit }.into());
        }
        Ok(Parser { text, at: 0, nesting: 0 })
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn peek(&mut self) -> Option<char> {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
        self.rest().chars().next()
    }

    /// Takes `c` if it is next, after spaces.
    pub(crate) fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.at += c.len_utf8();
        }
        found
    }

    pub(crate) fn expect(&mut self, c: char, expected: &'static str) -> Result<(), ShapeError> {
        if self.take(c) { Ok(()) } else { Err(self.error(expected)) }
    }

    pub(crate) fn end(&mut self) -> Result<(), ShapeError> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.error("an operator or the end")),
        }
    }

    fn take_while(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let taken = rest.find(|c| !accept(c)).and_then(|end| rest.get(..end)).unwrap_or(rest);
        self.at += taken.len();
        taken
    }

    fn error(&self, expected: &'static str) -> ShapeError {
        ShapeErrorKind::Syntax { at: self.at, found: self.rest().chars().take(20).collect(), expected }.into()
    }

    /// Runs `parse` one level deeper.
    fn nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, ShapeError>) -> Result<T, ShapeError> {
        if self.nesting == MAX_NESTING {
            return Err(ShapeErrorKind::NestedTooDeep { at: self.at, limit: MAX_NESTING }.into());
        }
        self.nesting += 1;
        let result = parse(self);
        self.nesting -= 1;
        result
    }

    pub(crate) fn sum(&mut self) -> Result<Dim, ShapeError> {
        let mut negative = self.take('-');
        let mut parts = Vec::new();
        loop {
            parts.push(self.product(negative)?);
            negative = match self.peek() {
                Some('+') => false,
                Some('-') => true,
                _ => return Ok(Dim::sum_of(parts)),
            };
            self.at += 1;
        }
    }

    fn product(&mut self, negative: bool) -> Result<Dim, ShapeError> {
        let mut product = self.factor(negative)?;
        while self.take('*') {
            product = product * self.factor(false)?;
        }
        Ok(product)
    }

    /// The sign goes in here so that the smallest number, which has no positive twin, can be read.
    fn factor(&mut self, negative: bool) -> Result<Dim, ShapeError> {
        let next = self.peek();
        let value = match next {
            Some('0'..='9') => return self.number(negative).map(Dim::from),
            Some('(') => {
                self.at += 1;
                let value = self.nested(Parser::sum)?;
                self.expect(')', "`)`")?;
                value
            }
            Some('-') => {
                self.at += 1;
                self.nested(|parser| parser.factor(true))?
            }
            Some('"') => {
                let symbol = Dim::symbol(&self.quoted()?);
                self.powered(symbol)?
            }
            Some(c) if is_name_start(c) => {
                let name = self.take_while(is_name_part);
                let value = if self.peek() == Some('(') { self.call(name)? } else { Dim::symbol(name) };
                self.powered(value)?
            }
            _ => return Err(self.error("a number, a symbol, a function or `(`")),
        };
        Ok(if negative { -value } else { value })
    }

    fn number(&mut self, negative: bool) -> Result<i64, ShapeError> {
        let at = self.at;
        let digits = self.take_while(|c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(self.error("a number"));
        }
        let value = digits.parse::<i128>().ok().map(|value| if negative { -value } else { value });
        value
            .and_then(|value| i64::try_from(value).ok())
            .ok_or_else(|| ShapeErrorKind::NumberOutOfRange { at }.into())
    }

    /// A power after a symbol or call, where `Display` prints one.
    fn powered(&mut self, base: Dim) -> Result<Dim, ShapeError> {
        if !self.take('^') {
            return Ok(base);
        }
        self.peek();
        let at = self.at;
        if base.as_atom().is_none() && !base.is_unknown() {
            return Err(self.error("no power after an expression that simplifies to more than one factor"));
        }
        let power = u32::try_from(self.number(false)?).ok();
        Ok(base.power(power.ok_or(ShapeErrorKind::NumberOutOfRange { at })?))
    }

    fn call(&mut self, name: &str) -> Result<Dim, ShapeError> {
        let at = self.at;
        self.expect('(', "`(`")?;
        if name == "unknown" {
            return self.expect(')', "`)`").map(|()| Dim::UNKNOWN);
        }
        let Some((name, func)) = Func::NAMES.iter().find(|(known, _)| *known == name) else {
            let name = name.chars().take(20).collect();
            return Err(ShapeErrorKind::UnknownFunction { at, name }.into());
        };
        let mut args = vec![self.nested(Parser::sum)?];
        while self.take(',') {
            if args.len() == MAX_ARGS {
                return Err(self.error("`)`, this being the largest number of arguments"));
            }
            args.push(self.nested(Parser::sum)?);
        }
        self.expect(')', "`,` or `)`")?;
        if args.len() < 2 || (args.len() > 2 && !func.is_variadic()) {
            return Err(ShapeErrorKind::ArgumentCount { at, name, count: args.len() }.into());
        }
        Ok(func.apply(&args))
    }

    fn quoted(&mut self) -> Result<String, ShapeError> {
        self.expect('"', "`\"`")?;
        let mut name = String::new();
        loop {
            name.push_str(self.take_while(|c| c != '"' && c != '\\'));
            let escape = self.rest().starts_with('\\');
            if self.rest().is_empty() {
                return Err(self.error("a closing `\"`"));
            }
            self.at += 1;
            if !escape {
                return Ok(name);
            }
            let c = match self.rest().chars().next() {
                Some(c @ ('"' | '\\')) => c,
                Some('n') => '\n',
                Some('u') => {
                    self.at += 1;
                    self.unicode()?
                }
                _ => return Err(self.error("`\"`, `\\`, `n` or `u{…}` after `\\`")),
            };
            self.at += 1;
            name.push(c);
        }
    }

    /// `{hex` of an escape; the caller steps over the `}` that was seen.
    fn unicode(&mut self) -> Result<char, ShapeError> {
        let expected = "`{`, a character number in hexadecimal and `}`";
        if !self.rest().starts_with('{') {
            return Err(self.error(expected));
        }
        self.at += 1;
        let digits = self.take_while(|c| c.is_ascii_hexdigit());
        let c = u32::from_str_radix(digits, 16).ok().and_then(char::from_u32);
        c.filter(|_| self.rest().starts_with('}')).ok_or_else(|| self.error(expected))
    }
}
