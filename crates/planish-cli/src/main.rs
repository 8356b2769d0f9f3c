//! The `planish` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(planish_cli::run(std::env::args_os()))
}
