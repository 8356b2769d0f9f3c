//! Generated kernels that compute outputs element by element: fused pointwise programs, copies and reorders.
//!
//! Two forms. In the plain one a thread makes a few neighbours of the output and reads each input where it lies:
//! 16 bytes at once where they are neighbours there too, one element where it repeats. Where an input's
//! neighbours lie along another axis than the output's, blocks bring tiles of it through shared memory.

use std::fmt::Write;

use planish_kernel::KernelError;
use planish_kernel::pointwise::Program;

use crate::codegen::{self, c_type};
use crate::space::{self, Axis, divisor};
use crate::steps::{Arg, Code, MAX_INTS, Plan, Slot};

/// Threads of a block.
const THREADS: usize = 256;
/// The most elements that a thread makes at once.
const MAX_LANES: usize = 8;
/// Rows and columns of a tile, and the least sizes of the two axes for which tiles pay.
const TILE: usize = 64;
const LEAST_TILED: usize = 16;
/// Shared memory that a kernel has without asking.
const SHARED: usize = 48 << 10;
/// Constants of more bytes than this are not written into a kernel's text.
const MAX_CONSTANT: usize = 4096;

/// Where the elements of an operand are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In an operand, so many elements on.
    Operand(Slot, usize),
    /// In the kernel's text: the bytes of a constant, dense.
    Constant(Vec<u8>),
}

/// An input or output of a map.
#[derive(Clone, Debug)]
pub(crate) struct Laid {
    pub(crate) place: Place,
    /// The type in the kernel, as in `f16`.
    pub(crate) storage: &'static str,
    /// Bytes of an element.
    pub(crate) size: usize,
    /// One per axis of the space, in elements.
    pub(crate) strides: Vec<isize>,
}

/// What is computed for every point of a space.
#[derive(Clone, Debug)]
pub(crate) struct Map {
    pub(crate) dims: Vec<usize>,
    pub(crate) inputs: Vec<Laid>,
    pub(crate) outputs: Vec<Laid>,
    pub(crate) body: Body,
}

#[derive(Clone, Debug)]
pub(crate) enum Body {
    /// Input 0 becomes output 0, bit by bit.
    Copy,
    Program(Box<Program>),
}

/// How an operand lies along the innermost axis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Inner {
    Dense,
    Repeats,
    Strided,
    /// Brought through shared memory.
    Tiled,
}

struct Shape<'a> {
    map: &'a Map,
    /// Outermost first; the last is what threads take their neighbours along.
    axes: Vec<Axis>,
    lanes: usize,
    inner: Vec<Inner>,
    /// With tiles: which axis the tiled inputs lie along.
    across: Option<usize>,
}

impl Map {
    fn operands(&self) -> impl Iterator<Item = &Laid> {
        self.inputs.iter().chain(&self.outputs)
    }

    /// The launch that computes it; none where there is nothing to compute.
    pub(crate) fn plan(&self) -> Result<Plan, KernelError> {
        if self.dims.contains(&0) {
            return Ok(Plan::default());
        }
        let shape = Shape::of(self)?;
        let (n_ints, ints, n_blocks) = match shape.across {
            Some(across) => shape.tiled_ints(across)?,
            None => shape.plain_ints()?,
        };
        if n_ints > MAX_INTS {
            return Err(KernelError::unsupported("a map of too many operands"));
        }
        let text = match shape.across {
            Some(across) => shape.tiled_text(across)?,
            None => shape.plain_text()?,
        };
        let mut args: Vec<Arg> = Vec::new();
        for operand in self.operands() {
            if let Place::Operand(slot, offset) = &operand.place {
                args.push(Arg::Address(*slot, offset * operand.size));
            }
        }
        args.push(Arg::Ints(ints));
        let source = Code::new("map.cu", &text, "map", n_ints).source();
        Ok(Plan::one(source, [n_blocks, 1, 1], THREADS as u32, args))
    }
}

impl<'a> Shape<'a> {
    fn of(map: &'a Map) -> Result<Shape<'a>, KernelError> {
        let strides: Vec<&[isize]> = map.operands().map(|operand| operand.strides.as_slice()).collect();
        let mut axes = space::joined(&map.dims, &strides, map.inputs.len());
        if axes.is_empty() {
            axes.push(Axis { dim: 1, strides: vec![1; strides.len()] });
        }
        let last = axes.len() - 1;
        let mut inner: Vec<Inner> = axes[last]
            .strides
            .iter()
            .map(|stride| match stride {
                1 => Inner::Dense,
                0 => Inner::Repeats,
                _ => Inner::Strided,
            })
            .collect();
        // An input whose neighbours lie along another long axis is brought in tiles.
        let mut across = None;
        let mut shared = 0;
        for (idx, input) in map.inputs.iter().enumerate() {
            let along = axes[..last].iter().position(|axis| axis.strides[idx] == 1);
            let Some(along) = along.filter(|_| inner[idx] == Inner::Strided) else { continue };
            let long = axes[along].dim >= LEAST_TILED && axes[last].dim >= LEAST_TILED;
            let tile = TILE * pitch(input.size) * input.size;
            let operand = matches!(input.place, Place::Operand(..));
            if long && operand && across.is_none_or(|axis| axis == along) && shared + tile <= SHARED {
                across = Some(along);
                shared += tile;
                inner[idx] = Inner::Tiled;
            }
        }
        let mut shape = Shape { map, axes, lanes: 1, inner, across };
        shape.lanes = shape.widest();
        Ok(shape)
    }

    /// As many elements at once as every operand with neighbours allows.
    fn widest(&self) -> usize {
        let last = self.axes.len() - 1;
        let dense = || self.map.operands().enumerate().filter(|(idx, _)| self.inner[*idx] == Inner::Dense);
        let mut lanes = dense().map(|(_, operand)| 16 / operand.size).max().unwrap_or(1).clamp(1, MAX_LANES);
        let fits = |lanes: usize| {
            self.axes[last].dim >= lanes
                && dense().all(|(idx, _)| {
                    self.axes[..last].iter().all(|axis| axis.strides[idx] % lanes as isize == 0)
                })
        };
        while lanes > 1 && !fits(lanes) {
            lanes /= 2;
        }
        lanes
    }

    fn plain_ints(&self) -> Result<(usize, Vec<i32>, u32), KernelError> {
        let last = self.axes.len() - 1;
        let n_vectors = self.axes[last].dim.div_ceil(self.lanes);
        let n_rows: usize = self.axes[..last].iter().map(|axis| axis.dim).product();
        let mut ints = vec![space::int(n_vectors * n_rows)?, space::int(self.axes[last].dim)?];
        ints.extend(divisor(n_vectors));
        for axis in self.axes[..last].iter().rev() {
            ints.extend(divisor(axis.dim));
        }
        self.push_strides(&mut ints)?;
        Ok((ints.len(), ints, space::blocks(n_vectors * n_rows, THREADS)?))
    }

    fn push_strides(&self, ints: &mut Vec<i32>) -> Result<(), KernelError> {
        for idx in 0..self.inner.len() {
            let mut reach = 0usize;
            for axis in self.axes.iter().rev() {
                ints.push(space::stride(axis.strides[idx])?);
                reach += (axis.dim - 1) * axis.strides[idx].unsigned_abs();
            }
            // Places are counted in 32 bits too.
            space::int(reach)?;
        }
        Ok(())
    }

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

    /// The program's function, constants, and the kernel's head.
    fn head(&self) -> Result<String, KernelError> {
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
                Place::Constant(bytes) => text.push_str(&constant_array(&format!("c{idx}"), bytes)?),
            }
        }
        let _ = writeln!(
            text,
            "extern \"C\" __global__ void __launch_bounds__({THREADS}) map({}, const Ints a) {{",
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

    fn n_inputs(&self) -> usize {
        self.map.inputs.len()
    }

    fn storage(&self, idx: usize) -> &'static str {
        let n_inputs = self.n_inputs();
        if idx < n_inputs { self.map.inputs[idx].storage } else { self.map.outputs[idx - n_inputs].storage }
    }

    /// Reads every input that is not tiled, computes, and writes, with places `x0`, `x1`, … of the operands and
    /// `left` elements of the row.
    fn element_text(&self, text: &mut String, strides_at: usize, tails: bool) {
        let lanes = self.lanes;
        let n_axes = self.axes.len();
        for idx in 0..self.n_inputs() {
            let (storage, wide, name) = (self.storage(idx), self.wide(idx), self.name(idx));
            let step = strides_at + idx * n_axes;
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
                    "  {wide} i{idx}[{lanes}];\n#pragma unroll\n  for (int j = 0; j < {lanes}; j++) i{idx}[j] = {}po_widen({name}[x{idx} + j * a.v[{step}]]);",
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
            let (storage, step) = (self.storage(idx), strides_at + idx * n_axes);
            let _ = match (self.inner[idx], tails) {
                (Inner::Dense, true) => {
                    writeln!(text, "  po_store_part<{storage}, {lanes}>(p{idx} + x{idx}, o{output}, left);")
                }
                (Inner::Dense, false) => {
                    writeln!(text, "  po_store<{storage}, {lanes}>(p{idx} + x{idx}, o{output});")
                }
                (_, tails) => writeln!(
                    text,
                    "#pragma unroll\n  for (int j = 0; j < {lanes}; j++) {}p{idx}[x{idx} + j * a.v[{step}]] = Narrow<{storage}>::make(o{output}[j]);",
                    if tails { "if (j < left) " } else { "" }
                ),
            };
        }
    }

    fn plain_text(&self) -> Result<String, KernelError> {
        let mut text = self.head()?;
        let n_axes = self.axes.len();
        let last = n_axes - 1;
        let tails = !self.axes[last].dim.is_multiple_of(self.lanes);
        let strides_at = 2 + 3 * n_axes;
        let _ = writeln!(text, "  u32 rest = blockIdx.x * {THREADS}u + threadIdx.x;");
        text.push_str("  if (rest >= (u32)a.v[0]) return;\n");
        for axis in 0..n_axes {
            // Axis 0 is the innermost here.
            let at = 2 + 3 * axis;
            if axis + 1 == n_axes {
                let _ = writeln!(text, "  const int y{axis} = (int)rest;");
            } else {
                let _ = writeln!(
                    text,
                    "  const int y{axis} = po_take(rest, a.v[{at}], a.v[{}], a.v[{}]);",
                    at + 1,
                    at + 2
                );
            }
        }
        let _ = writeln!(text, "  const int col = y0 * {};", self.lanes);
        if tails {
            text.push_str("  const int left = a.v[1] - col;\n");
        }
        for idx in 0..self.inner.len() {
            let mut terms = Vec::new();
            let at = strides_at + idx * n_axes;
            match self.inner[idx] {
                Inner::Dense => terms.push("col".to_string()),
                Inner::Repeats => {}
                _ => terms.push(format!("col * a.v[{at}]")),
            }
            for axis in 1..n_axes {
                if self.axes[last - axis].strides[idx] != 0 {
                    terms.push(format!("y{axis} * a.v[{}]", at + axis));
                }
            }
            let sum = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
            let _ = writeln!(text, "  const int x{idx} = {sum};");
        }
        self.element_text(&mut text, strides_at, tails);
        text.push_str("}\n");
        Ok(text)
    }

    /// Sizes for the tiled form: the innermost axis, the one across, tiles along both, the rest.
    fn tiled_ints(&self, across: usize) -> Result<(usize, Vec<i32>, u32), KernelError> {
        let last = self.axes.len() - 1;
        let (dim_a, dim_b) = (self.axes[last].dim, self.axes[across].dim);
        let (tiles_a, tiles_b) = (dim_a.div_ceil(TILE), dim_b.div_ceil(TILE));
        let mut ints = vec![space::int(dim_a)?, space::int(dim_b)?];
        ints.extend(divisor(tiles_a));
        ints.extend(divisor(tiles_b));
        let mut n_tiles = tiles_a * tiles_b;
        for (idx, axis) in self.axes[..last].iter().enumerate().rev() {
            if idx != across {
                ints.extend(divisor(axis.dim));
                n_tiles *= axis.dim;
            }
        }
        self.push_strides(&mut ints)?;
        Ok((ints.len(), ints, space::blocks(n_tiles, 1)?))
    }

    fn tiled_text(&self, across: usize) -> Result<String, KernelError> {
        let mut text = self.head()?;
        let n_axes = self.axes.len();
        let last = n_axes - 1;
        let n_outer = n_axes - 2;
        let strides_at = 8 + 3 * n_outer;
        // Strides are stored innermost first.
        let b_axis = last - across;
        let outer: Vec<usize> = (1..n_axes).filter(|axis| *axis != b_axis).collect();
        text.push_str("  u32 rest = blockIdx.x;\n");
        let _ = writeln!(text, "  const int a0 = po_take(rest, a.v[2], a.v[3], a.v[4]) * {TILE};");
        let _ = writeln!(text, "  const int b0 = po_take(rest, a.v[5], a.v[6], a.v[7]) * {TILE};");
        for (place, axis) in outer.iter().enumerate() {
            let at = 8 + 3 * place;
            let _ = writeln!(
                text,
                "  const int y{axis} = po_take(rest, a.v[{at}], a.v[{}], a.v[{}]);",
                at + 1,
                at + 2
            );
        }
        for idx in 0..self.inner.len() {
            let at = strides_at + idx * n_axes;
            let mut terms: Vec<String> =
                outer.iter().map(|axis| format!("y{axis} * a.v[{}]", at + axis)).collect();
            terms.push(format!("a0 * a.v[{at}]"));
            terms.push(format!("b0 * a.v[{}]", at + b_axis));
            let _ = writeln!(text, "  const int z{idx} = {};", terms.join(" + "));
        }
        for idx in (0..self.n_inputs()).filter(|idx| self.inner[*idx] == Inner::Tiled) {
            let (storage, size) = (self.storage(idx), self.map.inputs[idx].size);
            let width = 16 / size;
            let (pitch, per_row) = (pitch(size), TILE / width);
            let at = strides_at + idx * n_axes;
            let _ = writeln!(
                text,
                "  __shared__ {storage} t{idx}[{TILE} * {pitch}];\n\
                 #pragma unroll 2\n  for (int i = threadIdx.x; i < {TILE} * {per_row}; i += {THREADS}) {{\n\
                 \x20   const int ra = i / {per_row}, cb = i % {per_row} * {width};\n\
                 \x20   const int n = a.v[1] - b0 - cb;\n\
                 \x20   if (a0 + ra < a.v[0] && n > 0) tile_row<{storage}, {width}>(t{idx} + ra * {pitch} + cb, p{idx} + z{idx} + ra * a.v[{at}] + cb, n);\n\
                 \x20 }}"
            );
        }
        let per_row = TILE / self.lanes;
        let _ = writeln!(
            text,
            "  __syncthreads();\n\
             \x20 for (int i = threadIdx.x; i < {TILE} * {per_row}; i += {THREADS}) {{\n\
             \x20 const int ax = i % {per_row} * {}, bx = i / {per_row};\n\
             \x20 const int left = a.v[0] - a0 - ax;\n\
             \x20 if (left <= 0 || b0 + bx >= a.v[1]) continue;",
            self.lanes
        );
        for idx in (0..self.inner.len()).filter(|idx| self.inner[*idx] != Inner::Tiled) {
            let at = strides_at + idx * n_axes;
            let _ =
                writeln!(text, "  const int x{idx} = z{idx} + ax * a.v[{at}] + bx * a.v[{}];", at + b_axis);
        }
        self.element_text(&mut text, strides_at, true);
        text.push_str("  }\n}\n");
        Ok(format!("{TILE_ROW}{text}"))
    }
}

/// The first `n` of V neighbours from memory to a tile's row, bit by bit.
const TILE_ROW: &str = "\
template <class T, int V> PL_INLINE void tile_row(T* to, const T* from, int n) {
  union { uint4 all; T each[V]; } u;
  if (n >= V && ((u64)from & 15) == 0) {
    u.all = *(const uint4*)from;
#pragma unroll
    for (int i = 0; i < V; i++) to[i] = u.each[i];
  } else {
#pragma unroll
    for (int i = 0; i < V; i++)
      if (i < n) to[i] = from[i];
  }
}
";

/// Elements from one row of a tile to the next: one word more than the row, so that columns fall into
/// different banks.
fn pitch(size: usize) -> usize {
    TILE + (4 / size).max(1)
}

/// An array of these bytes in a kernel's text.
pub(crate) fn constant_array(name: &str, bytes: &[u8]) -> Result<String, KernelError> {
    if bytes.len() > MAX_CONSTANT {
        return Err(KernelError::unsupported("a constant that is too large for a kernel's text"));
    }
    let word = |chunk: &[u8]| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        format!("{:#x}ull", u64::from_le_bytes(word))
    };
    let words: Vec<String> = bytes.chunks(8).map(word).collect();
    Ok(format!("__device__ const u64 {name}[] = {{{}}};\n", words.join(", ")))
}
