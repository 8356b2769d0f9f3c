//! The elements of an operand between the places that its strides say and plain row-major order. The self-check does this
//! to every value of a model, so it goes in tiles: both sides are touched by whole cache lines.

use crate::operand::{Layout, Operand};

/// Elements of a tile along each of its two axes.
const TILE: usize = 16;

/// A rectangle of elements.
struct Tile {
    /// Where it begins, counted in elements: in plain order, and in the operand's memory.
    plain: usize,
    memory: usize,
    /// Elements along its outer and its inner axis, the inner one being the last of the operand.
    outer: Axis,
    inner: Axis,
}

#[derive(Clone, Copy)]
struct Axis {
    size: usize,
    /// From one element to the next, in plain order and in memory.
    plain: usize,
    memory: usize,
}

impl Tile {
    fn for_each(&self, mut see: impl FnMut(usize, usize)) {
        for outer in 0..self.outer.size {
            let plain = self.plain + outer * self.outer.plain;
            let memory = self.memory + outer * self.outer.memory;
            for inner in 0..self.inner.size {
                see(plain + inner * self.inner.plain, memory + inner * self.inner.memory);
            }
        }
    }
}

impl Operand {
    /// The elements in plain order, of the bytes that the operand spans; `None` for elements of less than a byte that are
    /// in another order.
    pub fn gather(&self, bytes: Vec<u8>) -> Option<Vec<u8>> {
        if self.is_dense(Layout::Plain) {
            return Some(bytes);
        }
        match self.element_bytes()? {
            1 => Some(self.gathered::<1>(&bytes)),
            2 => Some(self.gathered::<2>(&bytes)),
            4 => Some(self.gathered::<4>(&bytes)),
            8 => Some(self.gathered::<8>(&bytes)),
            _ => None,
        }
    }

    /// The bytes that the operand spans, of its elements in plain order; zeros between them.
    pub fn scatter(&self, plain: &[u8]) -> Option<Vec<u8>> {
        if self.is_dense(Layout::Plain) {
            return Some(plain.to_vec());
        }
        let mut bytes = vec![0; self.span_bytes()];
        self.scatter_into(plain, &mut bytes).then_some(bytes)
    }

    /// Puts elements in plain order to their places among the bytes that the operand spans, and leaves what lies between
    /// them; false for elements of less than a byte that are in another order.
    pub fn scatter_into(&self, plain: &[u8], bytes: &mut [u8]) -> bool {
        if self.is_dense(Layout::Plain) {
            bytes.copy_from_slice(plain);
            return true;
        }
        match self.element_bytes() {
            Some(1) => self.put::<1>(plain, bytes),
            Some(2) => self.put::<2>(plain, bytes),
            Some(4) => self.put::<4>(plain, bytes),
            Some(8) => self.put::<8>(plain, bytes),
            _ => return false,
        }
        true
    }

    fn element_bytes(&self) -> Option<usize> {
        self.dtype.bytes_for(1).filter(|_| !self.dtype.is_sub_byte())
    }

    fn gathered<const SIZE: usize>(&self, bytes: &[u8]) -> Vec<u8> {
        let (from, _) = bytes.as_chunks::<SIZE>();
        let mut plain = vec![[0; SIZE]; self.len()];
        self.for_each_tile(&mut |tile| tile.for_each(|to, at| plain[to] = from[at]));
        plain.into_flattened()
    }

    fn put<const SIZE: usize>(&self, plain: &[u8], bytes: &mut [u8]) {
        let (plain, _) = plain.as_chunks::<SIZE>();
        let (bytes, _) = bytes.as_chunks_mut::<SIZE>();
        self.for_each_tile(&mut |tile| tile.for_each(|from, at| bytes[at] = plain[from]));
    }

    /// All elements, in tiles along the last axis and the one whose elements are nearest in memory.
    fn for_each_tile(&self, see: &mut dyn FnMut(&Tile)) {
        if self.is_empty() {
            return;
        }
        let one = Axis { size: 1, plain: 0, memory: 0 };
        let mut plain = 1;
        let mut axes: Vec<Axis> = Vec::with_capacity(self.rank());
        for (&size, &memory) in self.dims.iter().zip(&self.strides).rev() {
            axes.push(Axis { size, plain, memory });
            plain *= size;
        }
        axes.retain(|axis| axis.size > 1);
        let inner = if axes.is_empty() { one } else { axes.remove(0) };
        let nearest = axes.iter().enumerate().min_by_key(|(_, axis)| axis.memory);
        let outer = match nearest {
            Some((at, axis)) if axis.memory < inner.memory => axes.remove(at),
            _ => one,
        };
        let mut index = vec![0usize; axes.len()];
        loop {
            let sum = |of: fn(&Axis) -> usize| -> usize {
                index.iter().zip(&axes).map(|(place, axis)| place * of(axis)).sum()
            };
            let (plain, memory) = (sum(|axis| axis.plain), sum(|axis| axis.memory));
            // Without an outer axis a run of any length is as good as a tile.
            let inner_step = if outer.size > 1 { TILE } else { inner.size };
            for first_outer in (0..outer.size).step_by(TILE) {
                for first_inner in (0..inner.size).step_by(inner_step) {
                    see(&Tile {
                        plain: plain + first_outer * outer.plain + first_inner * inner.plain,
                        memory: memory + first_outer * outer.memory + first_inner * inner.memory,
                        outer: Axis { size: TILE.min(outer.size - first_outer), ..outer },
                        inner: Axis { size: inner_step.min(inner.size - first_inner), ..inner },
                    });
                }
            }
            let mut axis = 0;
            loop {
                if axis == axes.len() {
                    return;
                }
                index[axis] += 1;
                if index[axis] < axes[axis].size {
                    break;
                }
                index[axis] = 0;
                axis += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use planish_tensor::DType;

    use super::*;

    /// The place of each element in plain order, one by one.
    fn places(operand: &Operand) -> Vec<usize> {
        let place = |mut flat: usize| {
            let mut at = 0;
            for (size, stride) in operand.dims.iter().zip(&operand.strides).rev() {
                at += flat % size * stride;
                flat /= size;
            }
            at
        };
        (0..operand.len()).map(place).collect()
    }

    #[test]
    fn elements_go_to_plain_order_and_back() {
        let shapes: [&[usize]; 9] = [
            &[],
            &[1],
            &[0, 3],
            &[17, 1, 33],
            &[2, 3, 4, 5],
            &[1, 16, 15, 17],
            &[2, 37, 5, 31],
            &[3, 19, 2, 2, 7],
            &[48],
        ];
        for (dims, dtype) in shapes.into_iter().zip([DType::F32, DType::F16, DType::I64].into_iter().cycle())
        {
            let size = dtype.bytes_for(1).unwrap();
            let gaps = |layout: Layout| {
                let mut operand = Operand::dense(dtype, dims, layout);
                operand.strides.iter_mut().for_each(|stride| *stride *= 2);
                operand
            };
            let mut turned = Operand::dense(dtype, dims, Layout::Plain);
            turned.strides.reverse();
            // Reversed strides are a dense order of the reversed sizes; they fit only if those are the same.
            let is_square = dims.iter().eq(dims.iter().rev());
            let mut operands = vec![
                Operand::dense(dtype, dims, Layout::ChannelsLast),
                gaps(Layout::Plain),
                gaps(Layout::ChannelsLast),
            ];
            operands.extend(is_square.then_some(turned));
            for operand in operands {
                let span: Vec<u8> = (0..operand.span_bytes()).map(|at| (at * 7 + at / 251) as u8).collect();
                let wanted: Vec<u8> = places(&operand)
                    .iter()
                    .flat_map(|at| span[at * size..(at + 1) * size].to_vec())
                    .collect();
                assert_eq!(operand.gather(span.clone()).unwrap(), wanted, "{operand:?}");
                let mut back = vec![0; span.len()];
                for at in places(&operand) {
                    back[at * size..(at + 1) * size].copy_from_slice(&span[at * size..(at + 1) * size]);
                }
                assert_eq!(operand.scatter(&wanted).unwrap(), back, "{operand:?}");
            }
        }
    }

    #[test]
    fn elements_of_less_than_a_byte_stay_where_they_are() {
        let plain = Operand::dense(DType::I4, &[2, 4], Layout::Plain);
        assert_eq!(plain.gather(vec![1, 2, 3, 4]), Some(vec![1, 2, 3, 4]));
        let turned = Operand { strides: vec![1, 2], ..plain };
        assert_eq!((turned.gather(vec![1, 2, 3, 4]), turned.scatter(&[1, 2, 3, 4])), (None, None));
    }
}
