//! `planish check`: a model is looked over, a plan goes through the deployment checklist.

mod model;
mod plan;

use std::io::Write;

use anyhow::{Result, bail};

use crate::args::Check;
use crate::ending::Answer;
use crate::load;

pub(crate) fn command(args: &Check, out: &mut dyn Write) -> Result<Answer> {
    match load::is_plan(&args.model) {
        true if args.fix => bail!("--fix repairs models; {} is a plan", args.model.display()),
        true => plan::command(args, out),
        false => model::command(args, out),
    }
}
