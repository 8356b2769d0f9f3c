//! `planish debug`: what goes wrong in a model or a plan, and where.

mod accuracy;
mod asking;
mod reduce;
mod replay;
mod shrink;
mod tactics;

use std::io::Write;

use anyhow::Result;

use crate::args::Debug;
use crate::ending::Answer;

pub(crate) fn command(args: &Debug, out: &mut dyn Write) -> Result<Answer> {
    match args {
        Debug::Accuracy(args) => accuracy::command(args, out),
        Debug::Reduce(args) => reduce::command(args, out),
        Debug::Tactics(args) => tactics::command(args, out),
        Debug::Replay(args) => replay::command(args, out),
    }
}
