//! Prints `planish.h`, made by cbindgen of the crate in the folder that is given: `cargo xtask capi header` runs it.

use std::io::Write;
use std::path::PathBuf;

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("the folder of the crate is given"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).expect("cbindgen.toml can be read");
    let made = cbindgen::Builder::new().with_crate(folder).with_config(config).generate();
    let mut text = Vec::new();
    made.expect("cbindgen reads the sources").write(&mut text);
    let text = String::from_utf8(text).expect("the header is UTF-8");
    // A heading of Rust's documentation, in words for C.
    let text = text.replace(" * # Safety\n", " * The caller sees to it that\n");
    std::io::stdout().write_all(text.as_bytes()).expect("the header can be printed");
}
