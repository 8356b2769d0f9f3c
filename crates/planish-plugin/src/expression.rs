//! Whole numbers computed from sizes and attributes: `b * s`, `d / 2`, `ceildiv(n, 256)`, as declarations write them.

use std::collections::BTreeSet;

use planish_tensor::Dim;

/// Parentheses and calls within each other.
const MAX_DEPTH: usize = 32;

/// An expression over names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Expression {
    Number(i64),
    Name(String),
    Binary(Operation, Box<Expression>, Box<Expression>),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Add,
    Sub,
    Mul,
    /// Rounded down.
    Div,
    CeilDiv,
    Rem,
    Min,
    Max,
}

impl Expression {
    /// Reads the whole of a text.
    pub fn parse(text: &str) -> Result<Expression, String> {
        let mut tokens = Tokens::new(text);
        let parsed = tokens.sum(0)?;
        match tokens.rest() {
            "" => Ok(parsed),
            rest => Err(format!("`{text}` does not go on with `{rest}`")),
        }
    }

    /// The name, where it is nothing else.
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Expression::Name(name) => Some(name),
            _ => None,
        }
    }

    pub fn names(&self, into: &mut BTreeSet<String>) {
        match self {
            Expression::Number(_) => {}
            Expression::Name(name) => _ = into.insert(name.clone()),
            Expression::Binary(_, a, b) => {
                a.names(into);
                b.names(into);
            }
        }
    }

    /// As a number; `None` where a name has none, at an overflow and for a division by zero.
    pub fn eval(&self, lookup: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
        let (operation, a, b) = match self {
            Expression::Number(number) => return Some(*number),
            Expression::Name(name) => return lookup(name),
            Expression::Binary(operation, a, b) => (operation, a.eval(lookup)?, b.eval(lookup)?),
        };
        match operation {
            Operation::Add => a.checked_add(b),
            Operation::Sub => a.checked_sub(b),
            Operation::Mul => a.checked_mul(b),
            Operation::Div if b > 0 => Some(a.div_euclid(b)),
            Operation::CeilDiv if b > 0 => a.checked_add(b - 1).map(|sum| sum.div_euclid(b)),
            Operation::Rem if b > 0 => Some(a.rem_euclid(b)),
            Operation::Min => Some(a.min(b)),
            Operation::Max => Some(a.max(b)),
            Operation::Div | Operation::CeilDiv | Operation::Rem => None,
        }
    }

    /// The same over symbolic sizes.
    pub fn dim(&self, lookup: &dyn Fn(&str) -> Option<Dim>) -> Option<Dim> {
        let (operation, a, b) = match self {
            Expression::Number(number) => return Some(Dim::from(*number)),
            Expression::Name(name) => return lookup(name),
            Expression::Binary(operation, a, b) => (operation, a.dim(lookup)?, b.dim(lookup)?),
        };
        Some(match operation {
            Operation::Add => &a + &b,
            Operation::Sub => &a - &b,
            Operation::Mul => &a * &b,
            Operation::Div => a.floor_div(&b),
            Operation::CeilDiv => a.ceil_div(&b),
            Operation::Rem => a.rem(&b),
            Operation::Min => a.min(&b),
            Operation::Max => a.max(&b),
        })
    }
}

/// What is left of a text.
struct Tokens<'a> {
    whole: &'a str,
    at: usize,
}

impl<'a> Tokens<'a> {
    fn new(whole: &'a str) -> Tokens<'a> {
        Tokens { whole, at: 0 }
    }

    fn rest(&self) -> &'a str {
        self.whole[self.at..].trim_start()
    }

    fn take(&mut self, token: &str) -> bool {
        let rest = self.rest();
        let found = rest.starts_with(token);
        if found {
            self.at = self.whole.len() - rest.len() + token.len();
        }
        found
    }

    fn word(&mut self, is_part: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|letter| !is_part(letter)).unwrap_or(rest.len());
        self.at = self.whole.len() - rest.len() + end;
        &rest[..end]
    }

    fn sum(&mut self, depth: usize) -> Result<Expression, String> {
        if depth > MAX_DEPTH {
            return Err("an expression that is nested too deeply".to_string());
        }
        let mut left = self.product(depth)?;
        loop {
            let operation = match (self.take("+"), self.rest().starts_with('-')) {
                (true, _) => Operation::Add,
                (false, true) => {
                    self.take("-");
                    Operation::Sub
                }
                (false, false) => return Ok(left),
            };
            left = Expression::Binary(operation, Box::new(left), Box::new(self.product(depth)?));
        }
    }

    fn product(&mut self, depth: usize) -> Result<Expression, String> {
        let mut left = self.factor(depth)?;
        loop {
            let operation = if self.take("*") {
                Operation::Mul
            } else if self.take("/") {
                Operation::Div
            } else if self.take("%") {
                Operation::Rem
            } else {
                return Ok(left);
            };
            left = Expression::Binary(operation, Box::new(left), Box::new(self.factor(depth)?));
        }
    }

    fn factor(&mut self, depth: usize) -> Result<Expression, String> {
        if self.take("(") {
            let inner = self.sum(depth + 1)?;
            return if self.take(")") { Ok(inner) } else { Err("a `)` is missing".to_string()) };
        }
        match self.rest().chars().next() {
            Some(digit) if digit.is_ascii_digit() => {
                let word = self.word(|letter| letter.is_ascii_digit());
                word.parse().map(Expression::Number).map_err(|_| format!("{word} is too large a number"))
            }
            Some(letter) if letter.is_ascii_alphabetic() || letter == '_' => {
                let word = self.word(|letter| letter.is_ascii_alphanumeric() || letter == '_');
                if !self.take("(") {
                    return Ok(Expression::Name(word.to_string()));
                }
                let operation = match word {
                    "ceildiv" => Operation::CeilDiv,
                    "min" => Operation::Min,
                    "max" => Operation::Max,
                    _ => {
                        return Err(format!("there is no function `{word}`: ceildiv, min and max there are"));
                    }
                };
                let first = self.sum(depth + 1)?;
                let comma = self.take(",");
                let second = self.sum(depth + 1)?;
                match comma && self.take(")") {
                    true => Ok(Expression::Binary(operation, Box::new(first), Box::new(second))),
                    false => Err(format!("`{word}` takes two arguments")),
                }
            }
            _ => Err(format!("`{}` is no number, name or parenthesis", self.rest())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_read_as_they_are_meant() {
        let at = |name: &str| match name {
            "b" => Some(3),
            "d" => Some(8),
            _ => None,
        };
        let eval = |text: &str| Expression::parse(text).unwrap().eval(&at);
        assert_eq!(eval("b*d/2 + 1"), Some(13));
        assert_eq!(eval("ceildiv(b * d, 5) - (1 - 4)"), Some(8));
        assert_eq!(eval("max(b, min(d, 5)) % 3"), Some(2));
        assert_eq!(eval("b / 0"), None);
        assert_eq!(eval("unknown + 1"), None);
        assert_eq!(eval("9223372036854775807 + b"), None);
        for bad in ["", "b +", "b d", "(b", "twice(b, 1)", "min(b)", "99999999999999999999", "b ^ 2"] {
            assert!(Expression::parse(bad).is_err(), "{bad}");
        }
        assert!(Expression::parse(&"(".repeat(1000)).is_err());
    }

    #[test]
    fn sizes_stay_symbolic() {
        let expression = Expression::parse("2 * s + d / 2").unwrap();
        let lookup = |name: &str| (name == "s").then(|| Dim::symbol("seq")).or(Some(Dim::from(8)));
        assert_eq!(expression.dim(&lookup).unwrap().to_string(), "2*seq+4");
    }
}
