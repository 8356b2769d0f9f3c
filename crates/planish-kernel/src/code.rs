//! Compiled code that kernels need and plans carry, so that a plan runs where no compiler is.

use planish_tensor::Bytes;

/// One piece of compiled code.
#[derive(Clone, PartialEq, Debug)]
pub struct Code {
    /// Names everything that the code was made from: source, defines, architecture, compiler. Two pieces with
    /// one key have the same bytes.
    pub key: String,
    pub bytes: Bytes,
}
