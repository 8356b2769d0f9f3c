//! How much a graph knows of its values, and the bound on it.
//!
//! Symbolic dimensions and followed contents are worth their cost in every real model, where they are small.
//! A hostile file of a megabyte could make them take gigabytes: each node may make another long vector of
//! long expressions. So a graph keeps count, and past a bound new values keep only what is cheap. Nothing is
//! refused: a shape that is not known before the run is found out by the run.

use planish_op::ValueType;
use planish_op::infer::{Content, Inferred, MAX_FOLLOWED_INTS, MAX_RANK, SymbolicInts};
use planish_tensor::{Dim, Shape};

/// Expression nodes that a graph may hold or read before it turns frugal. Each takes some 40 bytes and 50 ns, so
/// this is 80 MB or a tenth of a second. Of sixty real models the one that needs most, of 1,000 nodes, stays
/// below a tenth.
const MAX_KNOWLEDGE: usize = 1 << 21;

/// On top of the bound, for each node of the graph. Real models need 40 to 150.
const PER_NODE: usize = 128;

/// A frugal graph keeps shapes up to this: every shape of numbers, and small expressions.
const CHEAP: usize = MAX_RANK + 1;

/// Contents of inputs that one node may look at. The same input can be named again for three bytes of file.
const MAX_READ: usize = 1 << 16;

/// Running count of one graph and the bodies in it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Knowledge {
    used: usize,
    allowed: usize,
}

impl Knowledge {
    /// Counts a node that reads these types and contents. Gives whether its rule may see the contents.
    pub(crate) fn read<'a>(
        &mut self,
        inputs: impl Iterator<Item = (&'a ValueType, Option<&'a Content>)>,
    ) -> bool {
        self.allowed += PER_NODE;
        let mut contents = 0usize;
        for (ty, content) in inputs {
            self.used = self.used.saturating_add(of_type(ty));
            contents = contents.saturating_add(content.map_or(0, of_content));
        }
        if contents > MAX_READ || self.is_frugal() {
            return false;
        }
        self.used = self.used.saturating_add(contents);
        true
    }

    /// What is kept of an output.
    pub(crate) fn keep(&mut self, inferred: Inferred) -> Inferred {
        let Inferred { mut ty, mut content } = inferred;
        let weight = of_type(&ty) + content.as_ref().map_or(0, of_content);
        self.used = self.used.saturating_add(weight);
        if self.is_frugal() {
            content = None;
            if of_type(&ty) > CHEAP {
                ty = without_shapes(ty);
            }
        }
        Inferred { ty, content }
    }

    /// Continues from where a body ended.
    pub(crate) fn after(&mut self, body: Knowledge) {
        if body.used > self.used {
            *self = body;
        }
    }

    fn is_frugal(&self) -> bool {
        self.used > MAX_KNOWLEDGE + self.allowed
    }
}

fn of_shape(shape: &Shape) -> usize {
    1 + shape.iter().map(Dim::complexity).sum::<usize>()
}

fn of_type(ty: &ValueType) -> usize {
    match ty {
        ValueType::Tensor(tensor) => tensor.shape.as_ref().map_or(1, of_shape),
        ValueType::Sequence(element) | ValueType::Optional(element) => 1 + of_type(element),
    }
}

/// The elements that are followed; those of a large constant are not looked at.
fn of_content(content: &Content) -> usize {
    match content {
        Content::Tensor(tensor) if tensor.len() > MAX_FOLLOWED_INTS => 1,
        Content::Tensor(tensor) => tensor.len(),
        Content::Ints(SymbolicInts { dims, .. }) | Content::Grid(dims) => {
            dims.iter().map(Dim::complexity).sum()
        }
    }
}

fn without_shapes(ty: ValueType) -> ValueType {
    match ty {
        ValueType::Tensor(tensor) => ValueType::unranked(tensor.dtype),
        ValueType::Sequence(element) => ValueType::Sequence(Box::new(without_shapes(*element))),
        ValueType::Optional(element) => ValueType::Optional(Box::new(without_shapes(*element))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planish_tensor::DType;

    fn long_vector() -> Inferred {
        let dims = (0..1000).map(|idx| Dim::symbol(&format!("n{idx}")) + 1).collect();
        Inferred::ints(DType::I64, SymbolicInts { dims, is_scalar: false })
    }

    #[test]
    fn past_the_bound_only_what_is_cheap_is_kept() {
        let mut knowledge = Knowledge::default();
        assert!(knowledge.keep(long_vector()).content.is_some());
        let kept = (0..10_000).filter(|_| knowledge.keep(long_vector()).content.is_some()).count();
        assert!((100..9000).contains(&kept), "{kept}");
        let wide =
            ValueType::tensor(DType::F32, (0..60).map(|n| Dim::symbol(&format!("n{n}")) + 1).collect());
        let plain = ValueType::tensor(DType::F32, Shape::fixed(&[1; 64]));
        let keep = |knowledge: &mut Knowledge, ty: &ValueType| {
            knowledge.keep(Inferred { ty: ty.clone(), content: None }).ty
        };
        assert_eq!(keep(&mut knowledge, &wide), ValueType::unranked(DType::F32));
        assert_eq!(keep(&mut knowledge, &plain), plain);
        assert_eq!(keep(&mut Knowledge::default(), &wide), wide);
        let Inferred { ty, content } = long_vector();
        assert!(!knowledge.read([(&ty, content.as_ref())].into_iter()));
    }

    #[test]
    fn a_node_may_not_look_at_one_content_a_thousand_times() {
        let Inferred { ty, content } = long_vector();
        let inputs = |n: usize| std::iter::repeat_n((&ty, content.as_ref()), n);
        assert!(Knowledge::default().read(inputs(2)));
        assert!(!Knowledge::default().read(inputs(1000)));
    }

    #[test]
    fn small_shapes_never_use_it_up() {
        let ty = ValueType::tensor(DType::F32, Shape::fixed(&[1, 3, 224, 224]));
        let mut knowledge = Knowledge::default();
        for _ in 0..1_000_000 {
            knowledge.read([(&ty, None), (&ty, None)].into_iter());
            knowledge.keep(Inferred { ty: ty.clone(), content: None });
        }
        assert!(!knowledge.is_frugal());
    }
}
