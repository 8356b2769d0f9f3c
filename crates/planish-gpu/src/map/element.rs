//! What both forms of a map's kernel have in common: its head, and how a thread reads, computes and writes its elements.

use std::fmt::Write;

use planish_kernel::KernelError;

use super::tiled::pitch;
use super::{Body, Inner, Place, Shape, THREADS};
use crate::codegen::{self, c_type};

impl Shape<'_> {
    fn is_epilogue(&self) -> bool {
        matches!(&self.map.body, Body::Program(program) if codegen::has_running(program))
    }

    /// The computed type of an operand.
    fn wide(&self, idx: usize) -> String {
        match &self.map.body {
            Body::Copy => self.map.inputs[0].storage.to_string(),
            Body::Program(program) => {
                let n_inputs = self.map.inputs.len();
                let kind = match idx.checked_sub(n_inputs) {
                    None => program.inputs[idx].kind,
                    Some(output) => program.kinds[program.outputs[output].0 as usize],
                };
                c_type(kind).to_string()
            }
        }
    }

    /// The program's function, constants, and the head of a kernel that takes this structure.
    pub(super) fn head(&self, args: &str) -> Result<String, KernelError> {
        if self.is_epilogue() {
            return Err(KernelError::unsupported("an epilogue has nothing in front of it here"));
        }
        let mut text = String::new();
        match &self.map.body {
            Body::Copy => {
                let storage = self.map.inputs[0].storage;
                let _ = writeln!(
                    text,
                    "PL_INLINE void program({storage} in0, {storage}& out0) {{ out0 = in0; }}"
                );
            }
            Body::Program(program) => text.push_str(&codegen::function(program, "program")),
        }
        let mut parameters = Vec::new();
        for (idx, operand) in self.map.operands().enumerate() {
            let qualifier = if idx < self.map.inputs.len() { "const " } else { "" };
            match &operand.place {
                Place::Operand(..) => parameters.push(format!("{qualifier}{}* p{idx}", operand.storage)),
                Place::Constant(bytes) => text.push_str(&codegen::constant_array(&format!("c{idx}"), bytes)?),
            }
        }
        let _ = writeln!(
            text,
            "extern \"C\" __global__ void __launch_bounds__({THREADS}) map({}, const {args} a) {{",
            parameters.join(", ")
        );
        text.push_str("  let_next_begin();\n  wait_for_inputs();\n");
        Ok(text)
    }

    fn name(&self, idx: usize) -> String {
        let operand = self.map.operands().nth(idx);
        match operand.map(|operand| &operand.place) {
            Some(Place::Constant(_)) => format!("((const {}*)c{idx})", self.storage(idx)),
            _ => format!("p{idx}"),
        }
    }

    pub(super) fn n_inputs(&self) -> usize {
        self.map.inputs.len()
    }

    pub(super) fn storage(&self, idx: usize) -> &'static str {
        let n_inputs = self.n_inputs();
        if idx < n_inputs { self.map.inputs[idx].storage } else { self.map.outputs[idx - n_inputs].storage }
    }

    /// Reads every input that is not tiled, computes, and writes, with places `x0`, `x1`, … of the operands and
    /// `left` elements of the row.
    pub(super) fn element_text(&self, text: &mut String, tails: bool) {
        let lanes = self.lanes;
        for idx in 0..self.n_inputs() {
            let (storage, wide, name) = (self.storage(idx), self.wide(idx), self.name(idx));
            let _ = match self.inner[idx] {
                Inner::Dense if tails => writeln!(
                    text,
                    "  {wide} i{idx}[{lanes}]; po_load_part<{storage}, {lanes}>(i{idx}, {name} + x{idx}, left, ({wide})0);"
                ),
                Inner::Dense => writeln!(
                    text,
                    "  {wide} i{idx}[{lanes}]; po_load<{storage}, {lanes}>(i{idx}, {name} + x{idx});"
                ),
                Inner::Repeats => writeln!(text, "  const {wide} i{idx} = po_widen({name}[x{idx}]);"),
                Inner::Strided => writeln!(
                    text,
                    "  {wide} i{idx}[{lanes}];\n#pragma unroll\n  for (int j = 0; j < {lanes}; j++) i{idx}[j] = {}po_widen({name}[x{idx} + j * a.strides[{idx}][0]]);",
                    if tails { format!("j >= left ? ({wide})0 : ") } else { String::new() }
                ),
                Inner::Tiled => writeln!(
                    text,
                    "  {wide} i{idx}[{lanes}];\n#pragma unroll\n  for (int j = 0; j < {lanes}; j++) i{idx}[j] = po_widen(t{idx}[(ax + j) * {} + bx]);",
                    pitch(self.map.inputs[idx].size)
                ),
            };
        }
        let mut arguments = Vec::new();
        for idx in 0..self.n_inputs() {
            arguments.push(match self.inner[idx] {
                Inner::Repeats => format!("i{idx}"),
                _ => format!("i{idx}[j]"),
            });
        }
        for output in 0..self.map.outputs.len() {
            let _ = writeln!(text, "  {} o{output}[{lanes}];", self.wide(self.n_inputs() + output));
            arguments.push(format!("o{output}[j]"));
        }
        let _ = writeln!(
            text,
            "#pragma unroll\n  for (int j = 0; j < {lanes}; j++) program({});",
            arguments.join(", ")
        );
        for output in 0..self.map.outputs.len() {
            let idx = self.n_inputs() + output;
            let storage = self.storage(idx);
            let _ = match (self.inner[idx], tails) {
                (Inner::Dense, true) => {
                    writeln!(text, "  po_store_part<{storage}, {lanes}>(p{idx} + x{idx}, o{output}, left);")
                }
                (Inner::Dense, false) => {
                    writeln!(text, "  po_store<{storage}, {lanes}>(p{idx} + x{idx}, o{output});")
                }
                (_, tails) => writeln!(
                    text,
                    "#pragma unroll\n  for (int j = 0; j < {lanes}; j++) {}p{idx}[x{idx} + j * a.strides[{idx}][0]] = Narrow<{storage}>::make(o{output}[j]);",
                    if tails { "if (j < left) " } else { "" }
                ),
            };
        }
    }
}
