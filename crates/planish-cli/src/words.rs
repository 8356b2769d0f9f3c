//! `planish completions` and `planish man`: the command line's own words for shells and manuals.

use std::io::Write;

use anyhow::{Context, Result};
use clap::CommandFactory;

use crate::args::{Args, Completions, Man};
use crate::ending::Answer;

pub(crate) fn completions(args: &Completions, out: &mut dyn Write) -> Result<Answer> {
    let mut text = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "planish", &mut text);
    out.write_all(&text)?;
    Ok(Answer::Yes)
}

pub(crate) fn man(args: &Man, out: &mut dyn Write) -> Result<Answer> {
    let folder = &args.folder;
    std::fs::create_dir_all(folder)
        .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    clap_mangen::generate_to(Args::command(), folder)
        .with_context(|| format!("cannot write into {}", folder.display()))?;
    let n = std::fs::read_dir(folder).map_or(0, |entries| entries.flatten().count());
    writeln!(
        out,
        "pages   {n} in {}; man -M shows them, as in `man {}/planish.1`",
        folder.display(),
        folder.display()
    )?;
    Ok(Answer::Yes)
}
