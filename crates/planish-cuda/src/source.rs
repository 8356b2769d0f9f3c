//! `Source`: the text of a kernel with its settings, and the key that its compiled form is found by.

use std::borrow::Cow;
use std::fmt::Write;

use crate::gpu::Gpu;

/// Half types, conversions and the tensor cores' instructions by inline PTX; put in front of every source.
pub const PRELUDE: &str = include_str!("../kernels/prelude.cuh");

/// Raised when [`OPTIONS`] or the way of compiling changes: compiled code of another way is not taken.
const REVISION: u32 = 1;

/// What NVRTC is told besides the architecture. No `--use_fast_math`: divisions, square roots and denormals
/// are as IEEE says unless a kernel asks for an approximation itself.
pub const OPTIONS: [&str; 4] =
    ["--std=c++17", "--device-as-default-execution-space", "--extra-device-vectorization", "-lineinfo"];

/// A piece of CUDA C++ for NVRTC. It includes nothing; the prelude stands in front of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The file's name, for messages and profilers.
    pub file: &'static str,
    pub text: Cow<'static, str>,
    /// `#define`d in front of the prelude, in this order.
    pub defines: Vec<(String, String)>,
    /// The `extern "C"` kernels in it that the family looks up.
    pub entries: Vec<String>,
}

impl Source {
    /// A source of one kernel.
    pub fn new(file: &'static str, text: impl Into<Cow<'static, str>>, entry: &str) -> Source {
        Source { file, text: text.into(), defines: Vec::new(), entries: vec![entry.to_string()] }
    }

    /// With another kernel in it.
    pub fn entry(mut self, name: &str) -> Source {
        self.entries.push(name.to_string());
        self
    }

    /// With a macro: a tile size, a type, a switch. Values are one line.
    pub fn define(mut self, name: &str, value: impl ToString) -> Source {
        self.defines.push((name.to_string(), value.to_string()));
        self
    }

    /// What the compiler reads.
    pub fn full_text(&self) -> String {
        let mut full = String::with_capacity(self.text.len() + PRELUDE.len() + 64 * self.defines.len() + 64);
        for (name, value) in &self.defines {
            let _ = writeln!(full, "#define {name} {value}");
        }
        full.push_str("#line 1 \"prelude.cuh\"\n");
        full.push_str(PRELUDE);
        let _ = writeln!(full, "\n#line 1 \"{}\"", self.file);
        full.push_str(&self.text);
        full
    }

    /// Names the compiled form on this architecture: everything that the machine code depends on but the
    /// compiler's own version.
    pub fn key(&self, gpu: &Gpu) -> String {
        let mut hash = blake3::Hasher::new();
        let mut field = |bytes: &[u8]| {
            hash.update(&(bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(&REVISION.to_le_bytes());
        field(gpu.architecture().as_bytes());
        for option in OPTIONS {
            field(option.as_bytes());
        }
        field(self.full_text().as_bytes());
        hash.finalize().to_hex().to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_tell_text_defines_and_architecture_apart() {
        let (hopper, ada) = (Gpu::known("h200").unwrap(), Gpu::known("l4").unwrap());
        let source = Source::new("a.cu", "extern \"C\" __global__ void a() {}", "a");
        let tiled = source.clone().define("TILE", 64);
        let keys = [source.key(&hopper), source.key(&ada), tiled.key(&hopper)];
        assert!(keys[0] != keys[1] && keys[0] != keys[2], "{keys:?}");
        assert_eq!(keys[2], source.define("TILE", "64").key(&hopper));
        assert!(tiled.full_text().starts_with("#define TILE 64\n"));
    }
}
