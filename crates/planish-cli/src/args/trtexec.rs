//! The words of `planish trtexec`, which are trtexec's: see `trtexec/flags.rs`.

#[derive(clap::Args, Debug)]
pub(crate) struct Trtexec {
    /// Flags of trtexec 8 to 11, as --flag=value or --flag value; `planish trtexec --help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "FLAGS")]
    pub(crate) arguments: Vec<String>,
}
