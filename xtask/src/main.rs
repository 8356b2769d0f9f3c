//! Developer commands: `cargo xtask COMMAND`.

fn main() {}
