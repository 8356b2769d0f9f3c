//! What can be wrong with a dimension, a shape or their text.

use super::Shape;

/// An error about dimensions or shapes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct ShapeError {
    kind: Box<ShapeErrorKind>,
}

impl ShapeError {
    /// What went wrong.
    pub fn kind(&self) -> &ShapeErrorKind {
        &self.kind
    }
}

impl From<ShapeErrorKind> for ShapeError {
    fn from(kind: ShapeErrorKind) -> ShapeError {
        ShapeError { kind: Box::new(kind) }
    }
}

/// The kinds of [`ShapeError`]. Positions `at` are byte offsets into the parsed text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeErrorKind {
    /// Two shapes whose sizes differ where neither is 1.
    #[error(
        "cannot broadcast {left} with {right}: sizes {} and {} meet at axis {axis} of the result; \
         one of them must be 1 or both equal", sizes.0, sizes.1
    )]
    Broadcast {
        /// The left shape.
        left: Shape,
        /// The right shape.
        right: Shape,
        /// The axis of the broadcast shape.
        axis: usize,
        /// The two sizes.
        sizes: (i64, i64),
    },
    /// An axis outside the rank.
    #[error(
        "axis {axis} does not exist in a tensor of rank {rank}{}", axis_hint(*rank)
    )]
    Axis {
        /// The axis as given.
        axis: i64,
        /// The rank of the tensor.
        rank: usize,
    },
    /// An axis that a list names more than once.
    #[error("axis {axis} is named twice; each axis may appear once")]
    RepeatedAxis {
        /// The axis, counted from the front.
        axis: usize,
    },
    /// Text that is not a dimension or shape.
    #[error("expected {expected} at byte {at}, found {}", found_text(found))]
    Syntax {
        /// Where.
        at: usize,
        /// The start of what stands there.
        found: String,
        /// What may stand there.
        expected: &'static str,
    },
    /// A name before `(` that is not a function.
    #[error(
        "no function is called `{name}` (byte {at}); there are floordiv, ceildiv, mod, min, max, broadcast \
         and mul, and a symbol with such a name goes in double quotes"
    )]
    UnknownFunction {
        /// Where.
        at: usize,
        /// The name, or its start.
        name: String,
    },
    /// A function with the wrong number of arguments.
    #[error("`{name}` at byte {at} cannot take {count} arguments")]
    ArgumentCount {
        /// Where.
        at: usize,
        /// The function.
        name: &'static str,
        /// How many there were.
        count: usize,
    },
    /// A number that does not fit.
    #[error("the number at byte {at} does not fit: dimensions are 64-bit, powers 32-bit")]
    NumberOutOfRange {
        /// Where.
        at: usize,
    },
    /// Too many nested parentheses.
    #[error("more than {limit} nested levels at byte {at}")]
    NestedTooDeep {
        /// Where.
        at: usize,
        /// The limit.
        limit: u32,
    },
    /// A text beyond the limit.
    #[error("the text has {bytes} bytes, more than the limit of {limit}")]
    TextTooLong {
        /// The length.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
}

fn axis_hint(rank: usize) -> String {
    match rank {
        0 => ": a scalar has no axes".to_owned(),
        _ => format!(": it must be in -{rank}..={}", rank - 1),
    }
}

fn found_text(found: &str) -> String {
    if found.is_empty() { "the end".to_owned() } else { format!("`{}`", found.escape_debug()) }
}
