//! Ids of nodes and values: four bytes each, also as an `Option`, and not to be mixed up.

use std::num::NonZeroU32;

macro_rules! id {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
        pub struct $name(NonZeroU32);

        impl $name {
            /// The id of the entry at `index`; `None` beyond four thousand million.
            pub(crate) fn from_index(index: usize) -> Option<$name> {
                u32::try_from(index).ok()?.checked_add(1).and_then(NonZeroU32::new).map($name)
            }

            /// The place in the arena.
            pub fn index(self) -> usize {
                self.0.get() as usize - 1
            }
        }
    };
}

id! {
    /// A node of one graph.
    NodeId
}
id! {
    /// A value of one graph.
    ValueId
}
