//! `planish`: the command line. Parses, calls the libraries, prints; exit codes are part of the interface (`ending`).
//! A library, so that the binary and the Python package run the same one.

mod anatomy;
mod args;
mod bench;
mod border;
mod build;
mod bundle;
mod calibrate;
mod capture;
mod check;
mod compare;
mod contract;
mod debug;
mod demo;
mod doctor;
mod edit;
mod ending;
mod explore;
mod exporter;
mod files;
mod inspect;
mod inspect_plan;
mod interrupt;
mod last_words;
mod load;
mod memory;
mod onnxruntime;
mod page;
mod pins;
mod plugin;
mod polygraphy;
mod print;
mod printable;
mod profile;
mod progress;
mod quantize;
mod refit;
mod roof;
mod run;
mod scenario;
mod scratch;
mod sign;
mod slide;
mod start;
mod stats;
mod strip;
mod sweep;
mod timing;
mod trtexec;
mod usage;
mod verbose;
mod watch;
mod words;
mod zoo;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser;

use args::{Args, Command};
use ending::Answer;
use printable::{Printable, printable};

/// Runs the command of these arguments, the program's own name first, and gives its exit code. It is the process's only
/// one: how signals and panics are met is changed for good.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let args = match Args::try_parse_from(arguments) {
        Ok(args) => args,
        Err(error) => {
            // Help and version go to standard output, and nobody may be listening there.
            let _ = match usage::line(&error) {
                Some(line) => writeln!(io::stderr(), "error: {}", printable(&line)),
                None => error.print(),
            };
            return if error.use_stderr() { ending::BAD_INPUT } else { 0 };
        }
    };
    ending::catch_panics();
    // Without them a command still works, it only ends less well.
    let _ = last_words::install().and_then(|()| interrupt::install());
    let (code, message) = ending::outcome(|| {
        let mut out = Printable::new(io::BufWriter::new(io::stdout().lock()));
        let answer = command(args, &mut out)?;
        out.flush()?;
        Ok(answer)
    });
    if let Some(message) = message {
        progress::clear();
        let _ = writeln!(io::stderr(), "error: {}", printable(&message));
    }
    code
}

fn command(args: Args, out: &mut dyn Write) -> anyhow::Result<Answer> {
    verbose::set(args.verbose);
    if let Some(path) = args.command.json().and_then(args::Json::file) {
        print::check_json(path, args.command.model().as_slice())?;
    }
    plugin::load(&args.plugins, &args.command)?;
    match args.command.brought_up_to_date() {
        Command::Inspect(args) => inspect::command(&args, out),
        Command::Build(args) => exporter::command(args, out),
        Command::Run(args) => run::command(&args, out),
        Command::Slide(args) => slide::command(&args, out),
        Command::Refit(args) => refit::refit(&args, out),
        Command::Strip(args) => strip::strip(&args, out),
        Command::Bundle(args) => bundle::command(&args, out),
        Command::Check(args) => check::command(&args, out),
        Command::Simplify(args) => edit::simplify(&args, out),
        Command::Extract(args) => edit::extract(&args, out),
        Command::Surgeon(args) => edit::surgeon(&args, out),
        Command::Calibrate(args) => calibrate::command(&args, out),
        Command::Quantize(args) => quantize::command(&args, out),
        Command::Bench(args) => bench::command(&args, out),
        Command::Compare(args) => compare::command(&args, out),
        Command::Profile(args) => profile::command(&args, out),
        Command::Explore(args) => explore::command(&args, out),
        Command::Sweep(args) => sweep::command(&args, out),
        Command::Debug(args) => debug::command(&args, out),
        Command::Timing(args) => timing::command(&args, out),
        Command::Sign(args) => sign::sign(&args, out),
        Command::Verify(args) => sign::verify(&args, out),
        Command::Plugin(args) => plugin::command(&args, out),
        Command::Zoo(args) => zoo::command(&args, out),
        Command::Demo(args) => demo::command(&args, out),
        Command::Doctor(args) => doctor::command(&args, out),
        Command::Trtexec(args) => trtexec::command(&args, out),
        Command::Polygraphy(args) => polygraphy::command(&args, out),
        Command::Completions(args) => words::completions(&args, out),
        Command::Man(args) => words::man(&args, out),
    }
}

/// One line on standard error that is not an error.
fn say_note(message: &str) {
    progress::line(&format!("note: {}", printable(message)));
}
