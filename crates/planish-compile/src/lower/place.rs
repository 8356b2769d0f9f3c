//! What a device could compute but had better leave to the host: a few small steps between host steps are not
//! worth the transfers to the device and back.
//!
//! Units are regions that a device took; each has a price there and, where the host has a kernel for all of its
//! nodes, one on the host. A value is transferred once into each memory where it is read and was not made. The search
//! is a descent: whole islands of the device first (a chain of small steps is worth nothing in part), then single
//! units, until nothing gets cheaper. Prices are the cost model's, so equal graphs are always placed the same.

use std::collections::{BTreeSet, HashSet};

use planish_kernel::{Layout, Prices, Whole};

use crate::backends::HOST;
use crate::lower::candidates::Catalog;
use crate::lower::steps::Lowering;
use crate::lower::{DraftStep, DraftValue, Source};
use crate::price::policy::{MAX_HOST_BYTES, MAX_PLACING_SWEEPS};

/// A region, and what it costs where.
#[derive(Clone, Debug)]
pub(crate) struct Unit {
    /// The device that took it, or the host.
    pub(crate) target: u32,
    pub(crate) there_ns: f64,
    /// `None` where the host has no kernel but the slow reference.
    pub(crate) host_ns: Option<f64>,
    /// Values, by number; weights are left out, they lie wherever they are read.
    pub(crate) reads: Vec<usize>,
    pub(crate) writes: Vec<usize>,
}

/// A value, as far as transfers go.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Carried {
    pub(crate) bytes: usize,
    /// An output of the graph: read by the host at last.
    pub(crate) is_output: bool,
}

impl Lowering<'_> {
    /// Nodes in regions of devices that cost less on the host, the transfers that this saves counted in.
    pub(super) fn cheaper_on_host(
        &self,
        whole: &Whole,
        regions: &[(Vec<u32>, u32)],
        catalog: &Catalog<'_>,
    ) -> Vec<u32> {
        let taken: HashSet<u32> = regions.iter().flat_map(|(nodes, _)| nodes.iter().copied()).collect();
        if taken.len() == self.node_ids.len() {
            return Vec::new();
        }
        let of_host = (0..self.node_ids.len() as u32).filter(|node| !taken.contains(node));
        let all: Vec<(Vec<u32>, u32)> =
            regions.iter().cloned().chain(of_host.map(|node| (vec![node], HOST))).collect();
        let largest = catalog.sizes.largest(&catalog.options.profiles);
        let is_light = |step: &DraftStep| {
            let bytes = |value: &usize| {
                let operand = largest.operand(&self.draft.values[*value].ty, Layout::Plain);
                operand.map_or(usize::MAX, |operand| operand.span_bytes())
            };
            step.inputs.iter().flatten().chain(&step.outputs).all(|value| bytes(value) <= MAX_HOST_BYTES)
        };
        let unit = |(nodes, target): &(Vec<u32>, u32)| {
            let step = self.step(whole, nodes, *target);
            let on_host = |&node: &u32| catalog.predicted_ns(&self.draft, &self.step(whole, &[node], HOST));
            let carried = |value: &usize| !matches!(self.draft.values[*value].source, Source::Weight(_));
            Unit {
                target: *target,
                there_ns: match *target {
                    HOST => 0.0,
                    _ => catalog.predicted_ns(&self.draft, &step).unwrap_or(f64::INFINITY),
                },
                host_ns: match *target {
                    HOST => Some(0.0),
                    _ if !is_light(&step) => None,
                    // As one step if the host has a kernel for it, else node by node.
                    _ => catalog
                        .predicted_ns(&self.draft, &DraftStep { target: HOST, ..step.clone() })
                        .or_else(|| nodes.iter().map(on_host).sum()),
                },
                reads: step.inputs.iter().flatten().copied().filter(carried).collect(),
                writes: step.outputs,
            }
        };
        let units: Vec<Unit> = all.iter().map(unit).collect();
        let carried = |(at, value): (usize, &DraftValue)| {
            let operand = catalog.sizes.operand(&value.ty, Layout::Plain);
            Carried {
                bytes: operand.map_or(0, |operand| operand.span_bytes()),
                is_output: self.draft.outputs.contains(&at),
            }
        };
        let values: Vec<Carried> = self.draft.values.iter().enumerate().map(carried).collect();
        let prices: Vec<Prices> = catalog.backends.all().iter().map(|backend| backend.prices()).collect();
        let on_host = better_on_host(&units, &values, &prices);
        on_host.into_iter().flat_map(|unit| all[unit].0.iter().copied()).collect()
    }
}

/// The units that are cheaper on the host, ascending.
pub(crate) fn better_on_host(units: &[Unit], values: &[Carried], prices: &[Prices]) -> Vec<usize> {
    if units.iter().all(|unit| unit.target != HOST) {
        return Vec::new();
    }
    let mut placing = Placing::new(units, values, prices);
    for island in placing.islands() {
        placing.improve(&island);
    }
    for _ in 0..MAX_PLACING_SWEEPS {
        let mut changed = false;
        for unit in 0..units.len() {
            changed |= placing.improve(&[unit]);
        }
        if !changed {
            break;
        }
    }
    (0..units.len()).filter(|&unit| placing.side[unit] != units[unit].target).collect()
}

struct Placing<'a> {
    units: &'a [Unit],
    values: &'a [Carried],
    prices: &'a [Prices],
    maker: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    /// Where each unit is now.
    side: Vec<u32>,
}

impl<'a> Placing<'a> {
    fn new(units: &'a [Unit], values: &'a [Carried], prices: &'a [Prices]) -> Placing<'a> {
        let mut maker = vec![None; values.len()];
        let mut readers = vec![Vec::new(); values.len()];
        for (idx, unit) in units.iter().enumerate() {
            unit.writes.iter().for_each(|&value| maker[value] = Some(idx));
            unit.reads.iter().for_each(|&value| readers[value].push(idx));
        }
        let side = units.iter().map(|unit| unit.target).collect();
        Placing { units, values, prices, maker, readers, side }
    }

    /// Units of a device that are tied by values made there, in the order of their first ones.
    fn islands(&self) -> Vec<Vec<usize>> {
        let mut seen = vec![false; self.units.len()];
        let mut islands = Vec::new();
        for first in 0..self.units.len() {
            if seen[first] || self.side[first] == HOST {
                continue;
            }
            seen[first] = true;
            let mut island = vec![first];
            let mut next = 0;
            while let Some(&unit) = island.get(next) {
                next += 1;
                let unit = &self.units[unit];
                let makers = unit.reads.iter().filter_map(|&value| self.maker[value]);
                let readers = unit.writes.iter().flat_map(|&value| self.readers[value].iter().copied());
                for other in makers.chain(readers) {
                    if !seen[other] && self.side[other] == unit.target {
                        seen[other] = true;
                        island.push(other);
                    }
                }
            }
            islands.push(island);
        }
        islands
    }

    /// Brings units to the host, or back to their device, if that is cheaper; all of them are on one side.
    fn improve(&mut self, moved: &[usize]) -> bool {
        let Some(&first) = moved.first() else { return false };
        let is_home = self.side[first] == HOST;
        if self.units[first].target == HOST || moved.iter().any(|&unit| self.units[unit].host_ns.is_none()) {
            return false;
        }
        let around: BTreeSet<usize> = moved
            .iter()
            .flat_map(|&unit| self.units[unit].reads.iter().chain(&self.units[unit].writes))
            .copied()
            .collect();
        let before = self.price(moved, &around);
        for &unit in moved {
            self.side[unit] = if is_home { self.units[unit].target } else { HOST };
        }
        if self.price(moved, &around) < before {
            return true;
        }
        for &unit in moved {
            self.side[unit] = if is_home { HOST } else { self.units[unit].target };
        }
        false
    }

    /// What some units and the transfers of some values cost as things stand.
    fn price(&self, units: &[usize], values: &BTreeSet<usize>) -> f64 {
        let of_unit = |&unit: &usize| match self.side[unit] {
            HOST => self.units[unit].host_ns.unwrap_or(f64::INFINITY),
            _ => self.units[unit].there_ns,
        };
        units.iter().map(of_unit).sum::<f64>()
            + values.iter().map(|&value| self.transfers(value)).sum::<f64>()
    }

    /// What it costs to have a value wherever it is read. Inputs of the graph are on the host.
    fn transfers(&self, value: usize) -> f64 {
        let made = self.maker[value].map_or(HOST, |unit| self.side[unit]);
        let mut read: BTreeSet<u32> = self.readers[value].iter().map(|&unit| self.side[unit]).collect();
        if self.values[value].is_output {
            read.insert(HOST);
        }
        let one = |&to: &u32| match (made == to, to) {
            (true, _) => 0.0,
            (false, HOST) => self.prices[made as usize].transfer(self.values[value].bytes),
            (false, device) => self.prices[device as usize].transfer(self.values[value].bytes),
        };
        read.iter().map(one).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: u32 = 1;
    /// A host, and a device far away.
    const PRICES: [Prices; 2] = [
        Prices {
            step_ns: 1_500.0,
            reorder_ns: 1_500.0,
            reorder_ns_per_byte: 0.25,
            transfer_ns_per_byte: 0.0,
            transfer_ns: 0.0,
        },
        Prices {
            step_ns: 300.0,
            reorder_ns: 2_500.0,
            reorder_ns_per_byte: 0.001,
            transfer_ns_per_byte: 0.04,
            transfer_ns: 8_000.0,
        },
    ];

    fn unit(target: u32, there_ns: f64, host_ns: f64, reads: &[usize], writes: &[usize]) -> Unit {
        Unit { target, there_ns, host_ns: Some(host_ns), reads: reads.to_vec(), writes: writes.to_vec() }
    }

    fn values(bytes: &[usize]) -> Vec<Carried> {
        let mut values: Vec<Carried> =
            bytes.iter().map(|&bytes| Carried { bytes, is_output: false }).collect();
        values.last_mut().unwrap().is_output = true;
        values
    }

    #[test]
    fn a_graph_without_host_steps_stays_on_its_device() {
        let units = [unit(DEVICE, 1e6, 1.0, &[0], &[1])];
        assert!(better_on_host(&units, &values(&[4, 4]), &PRICES).is_empty());
    }

    #[test]
    fn a_small_island_between_host_steps_comes_to_the_host_as_a_whole() {
        // Host, two small steps of the device, host. One of the two alone would gain nothing.
        let units = [
            unit(HOST, 0.0, 500.0, &[0], &[1]),
            unit(DEVICE, 2e3, 3e3, &[1], &[2]),
            unit(DEVICE, 2e3, 3e3, &[2], &[3]),
            unit(HOST, 0.0, 500.0, &[3], &[4]),
        ];
        assert_eq!(better_on_host(&units, &values(&[4096; 5]), &PRICES), [1, 2]);
    }

    #[test]
    fn work_that_the_device_does_much_faster_stays_there() {
        let units = [
            unit(DEVICE, 5e4, 5e6, &[0], &[1]),
            unit(HOST, 0.0, 500.0, &[1], &[2]),
            unit(DEVICE, 5e4, 5e6, &[2], &[3]),
        ];
        assert!(better_on_host(&units, &values(&[1 << 20; 4]), &PRICES).is_empty());
    }

    #[test]
    fn the_end_of_a_device_part_comes_to_the_host_where_that_makes_the_transfer_smaller() {
        // A tiny value that the host reads, made by the device from a tiny value: the first step is worth the
        // device, the second is not.
        let units = [
            unit(DEVICE, 5e4, 5e6, &[0], &[1]),
            unit(DEVICE, 2e3, 200.0, &[1], &[2]),
            unit(HOST, 0.0, 500.0, &[2], &[3]),
        ];
        assert_eq!(better_on_host(&units, &values(&[1 << 20, 64, 64, 64]), &PRICES), [1]);
        // The other way round, a step that makes a large value small stays before the transfer.
        assert!(better_on_host(&units, &values(&[1 << 20, 1 << 20, 64, 64]), &PRICES).is_empty());
    }

    #[test]
    fn what_the_host_has_no_kernel_for_stays() {
        let mut units = vec![
            unit(HOST, 0.0, 500.0, &[0], &[1]),
            unit(DEVICE, 2e3, 3e3, &[1], &[2]),
            unit(HOST, 0.0, 500.0, &[2], &[3]),
        ];
        assert_eq!(better_on_host(&units, &values(&[4096; 4]), &PRICES), [1]);
        units[1].host_ns = None;
        assert!(better_on_host(&units, &values(&[4096; 4]), &PRICES).is_empty());
    }
}
