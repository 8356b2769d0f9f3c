//! What values were when they were written: a step compared on what it read would not show that something else was
//! written there in between.

use std::collections::HashMap;

use planish_plan::{Program, Step};
use planish_runtime::Observed;
use planish_tensor::Tensor;

/// A value: the path to its program, and its number there.
type StepValue = (Vec<(usize, usize)>, u32);

#[derive(Default)]
pub(super) struct Written {
    /// By the path to its program and its number there: its hash, and the step that wrote it.
    hashes: HashMap<StepValue, (u64, usize)>,
}

impl Written {
    /// Four lanes of multiplications, since every value of a model goes through it twice; nobody chooses these bytes.
    fn hash(tensor: &Tensor) -> u64 {
        const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;
        let mix = |lane: u64, word: u64| (lane.rotate_left(23) ^ word).wrapping_mul(FACTOR);
        let (blocks, rest) = tensor.bytes().as_chunks::<32>();
        let mut lanes = [1u64, 2, 3, 4];
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for (lane, word) in lanes.iter_mut().zip(words) {
                *lane = mix(*lane, u64::from_le_bytes(*word));
            }
        }
        let rest = rest.iter().map(|&byte| u64::from(byte));
        rest.chain(lanes).fold(tensor.bytes().len() as u64, mix)
    }

    /// Why a value that the step reads is not what was written.
    pub(super) fn changed(&self, program: &Program, step: &Step, observed: &Observed) -> Option<String> {
        step.inputs.iter().zip(&observed.inputs).find_map(|(value, seen)| {
            let (value, seen) = ((*value)?, seen.as_ref()?);
            let (hash, maker) = self.hashes.get(&(observed.path.clone(), value))?;
            let name = &program.values[value as usize].name;
            (Written::hash(seen) != *hash)
                .then(|| format!("`{name}` is no longer what step {maker} wrote: its memory was used again"))
        })
    }

    pub(super) fn keep(&mut self, step: &Step, observed: &Observed) {
        for (value, made) in step.outputs.iter().zip(&observed.outputs) {
            if let (Some(value), Some(made)) = (value, made) {
                self.hashes.insert((observed.path.clone(), *value), (Written::hash(made), observed.step));
            }
        }
    }
}
