//! Small plans as the fuzz target `read_plan` takes them: `cargo run -p planish-plan --example seeds -- FOLDER PLAN…`
//!
//! Each plan becomes its sections, after a length of two bytes each, then its weights.

use std::path::{Path, PathBuf};

use planish_plan::unseal;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args_os().skip(1).map(PathBuf::from);
    let folder = arguments.next().ok_or("give a folder, then plans")?;
    std::fs::create_dir_all(&folder)?;
    for path in arguments {
        let seed = seed(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        std::fs::write(folder.join(path.file_name().ok_or("a plan has a name")?), seed)?;
    }
    Ok(())
}

fn seed(path: &Path) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (coded, data) = unseal(&std::fs::read(path)?)?;
    let mut bytes = Vec::new();
    for section in coded {
        let len = u16::try_from(section.len()).map_err(|_| "a seed's sections are below 64 KiB")?;
        bytes.extend_from_slice(&len.to_le_bytes());
        bytes.extend_from_slice(&section);
    }
    bytes.extend_from_slice(&data);
    Ok(bytes)
}
