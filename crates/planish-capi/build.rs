//! The name under which programs look for the shared library when they start.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        // The number is that of PLANISH_ABI_VERSION: it changes when a program that was compiled before no longer runs.
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libplanish.so.1");
    }
}
