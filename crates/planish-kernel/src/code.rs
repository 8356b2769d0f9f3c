//! Compiled code that kernels need and plans carry, so that a plan runs where no compiler is.

use planish_tensor::Bytes;

/// One piece of compiled code.
#[derive(Clone, PartialEq, Debug)]
pub struct Code {
    /// Names everything that the code was made from: source, defines, architecture and compiler. It says nothing of
    /// the bytes: whoever writes a plan can put any code under any key, so code serves the engine that was given it
    /// and nobody else.
    pub key: String,
    pub bytes: Bytes,
}
