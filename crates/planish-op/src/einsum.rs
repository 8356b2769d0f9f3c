//! The equations of `Einsum`: their text, and the label of every axis once the operands' ranks are known.

use std::fmt;

/// Equations longer than this are refused: real ones name a few dozen axes.
const MAX_EQUATION_LEN: usize = 4096;

/// A parsed equation such as `...ij,jk->...ik`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Equation {
    terms: Vec<Term>,
    /// `None` in the implicit form, which has no arrow.
    output: Option<Term>,
}

/// The name of an axis. Axes with the same label run together.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Label {
    /// An axis under the ellipsis, counted from the last one, so that operands of different ranks align.
    Ellipsis(usize),
    Letter(char),
}

/// The label of every axis of every operand and of the output.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AxisLabels {
    pub inputs: Vec<Vec<Label>>,
    pub output: Vec<Label>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct Term {
    before: Vec<char>,
    has_ellipsis: bool,
    /// Letters after the ellipsis.
    after: Vec<char>,
}

impl Equation {
    /// Spaces mean nothing; letters of both cases are labels.
    pub fn parse(text: &str) -> Result<Equation, EquationError> {
        if text.len() > MAX_EQUATION_LEN {
            return Err(EquationError(format!("the equation is longer than {MAX_EQUATION_LEN} bytes")));
        }
        let text: String = text.chars().filter(|c| *c != ' ').collect();
        let (inputs, output) = match text.split_once("->") {
            Some((inputs, output)) => (inputs, Some(Term::parse(output, &text)?)),
            None => (text.as_str(), None),
        };
        let terms: Vec<Term> =
            inputs.split(',').map(|term| Term::parse(term, &text)).collect::<Result<_, _>>()?;
        if let Some(output) = &output {
            let mut seen = Vec::new();
            for letter in output.letters() {
                if seen.contains(&letter) {
                    return Err(EquationError(format!("`{letter}` stands twice in the output of `{text}`")));
                }
                if !terms.iter().any(|term| term.letters().any(|other| other == letter)) {
                    return Err(EquationError(format!(
                        "`{letter}` of the output is in no input of `{text}`"
                    )));
                }
                seen.push(letter);
            }
        }
        Ok(Equation { terms, output })
    }

    /// The number of operands that the equation has.
    pub fn n_inputs(&self) -> usize {
        self.terms.len()
    }

    /// The labels of operands of these ranks.
    pub fn label(&self, ranks: &[usize]) -> Result<AxisLabels, EquationError> {
        if ranks.len() != self.terms.len() {
            return Err(EquationError(format!(
                "the equation has {} terms for {} operands",
                self.terms.len(),
                ranks.len()
            )));
        }
        let under_ellipsis = |(idx, (term, &rank)): (usize, (&Term, &usize))| {
            let named = term.before.len() + term.after.len();
            rank.checked_sub(named).filter(|rest| term.has_ellipsis || *rest == 0).ok_or_else(|| {
                EquationError(format!("term {idx} names {named} axes of an operand of rank {rank}"))
            })
        };
        let covered: Vec<usize> =
            self.terms.iter().zip(ranks).enumerate().map(under_ellipsis).collect::<Result<_, _>>()?;
        let widest = covered.iter().copied().max().unwrap_or(0);
        let inputs: Vec<Vec<Label>> =
            self.terms.iter().zip(&covered).map(|(term, &n)| term.labels(n)).collect();
        let output = match &self.output {
            Some(output) => output.labels(if output.has_ellipsis { widest } else { 0 }),
            None => implicit_output(&inputs, widest),
        };
        Ok(AxisLabels { inputs, output })
    }
}

/// The axes under the ellipsis, then the letters that stand exactly once, sorted.
fn implicit_output(inputs: &[Vec<Label>], widest: usize) -> Vec<Label> {
    let all: Vec<Label> = inputs.iter().flatten().copied().collect();
    let is_single = |label: &Label| all.iter().filter(|other| *other == label).count() == 1;
    let mut letters: Vec<Label> =
        all.iter().copied().filter(|label| matches!(label, Label::Letter(_)) && is_single(label)).collect();
    letters.sort();
    (0..widest).rev().map(Label::Ellipsis).chain(letters).collect()
}

impl Term {
    fn parse(text: &str, equation: &str) -> Result<Term, EquationError> {
        let (before, after) = match text.split_once("...") {
            Some((before, after)) => (before, Some(after)),
            None => (text, None),
        };
        let letters = |part: &str| match part.chars().find(|c| !c.is_ascii_alphabetic()) {
            Some(found) => Err(EquationError(format!("`{found}` is not a label in `{equation}`"))),
            None => Ok(part.chars().collect()),
        };
        Ok(Term {
            before: letters(before)?,
            has_ellipsis: after.is_some(),
            after: letters(after.unwrap_or_default())?,
        })
    }

    fn letters(&self) -> impl Iterator<Item = char> {
        self.before.iter().chain(&self.after).copied()
    }

    /// One label per axis, `n` of them under the ellipsis.
    fn labels(&self, n: usize) -> Vec<Label> {
        let before = self.before.iter().copied().map(Label::Letter);
        let after = self.after.iter().copied().map(Label::Letter);
        before.chain((0..n).rev().map(Label::Ellipsis)).chain(after).collect()
    }
}

/// An equation that cannot be read or does not fit its operands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EquationError(String);

impl fmt::Display for EquationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for EquationError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels as text, axes under the ellipsis as digits.
    fn show(labels: &[Label]) -> String {
        labels
            .iter()
            .map(|label| match label {
                Label::Letter(letter) => letter.to_string(),
                Label::Ellipsis(idx) => idx.to_string(),
            })
            .collect()
    }

    fn check(equation: &str, ranks: &[usize], expected: &str) {
        let labels = Equation::parse(equation).unwrap().label(ranks).unwrap();
        let inputs: Vec<String> = labels.inputs.iter().map(|labels| show(labels)).collect();
        assert_eq!(format!("{}->{}", inputs.join(","), show(&labels.output)), expected, "{equation}");
    }

    #[test]
    fn axes_get_their_labels() {
        check("ij, jk -> ik", &[2, 2], "ij,jk->ik");
        check("...ij,...jk->...ik", &[4, 3], "10ij,0jk->10ik");
        check("a...b", &[4], "a10b->10ab");
        check("ba", &[2], "ba->ab");
        check("ii", &[2], "ii->");
        check("ij,jk", &[2, 2], "ij,jk->ik");
        check("->", &[0], "->");
        check("bBA", &[3], "bBA->ABb");
        check("...->", &[2], "10->");
        check("i...->i...", &[1], "i->i");
    }

    #[test]
    fn nonsense_is_refused() {
        for equation in ["i1", "ij->ijk", "ij->ii", "i..j", "i...j...", "i->j->k", "i.", "é", "i\tj"] {
            assert!(Equation::parse(equation).is_err(), "{equation}");
        }
        assert!(Equation::parse(&"i".repeat(5000)).is_err());
        let equation = Equation::parse("ij,j...").unwrap();
        assert!(equation.label(&[2]).is_err());
        assert!(equation.label(&[3, 1]).is_err());
        assert!(equation.label(&[2, 0]).is_err());
        assert!(equation.label(&[2, 4]).is_ok());
    }
}
