//! Convolution as a matrix product whose left side is never written down: a row is a window, given as pointers
//! to its pixels, one segment per tap; taps in the padding point to zeros.
//!
//! Weights are packed by [`super::pack`]. A task is a block of output pixels and of output channels, small
//! enough that its weights stay in the second-level cache while all its pixels pass; a longer sum is cut into
//! blocks of depth that add to the output. Plain, strided, dilated, grouped and transposed convolutions of
//! one to three axes all run here, and 1x1 is the case of one tap.

use super::geometry::{AXES, Geometry, Phase};
use super::pack::{Filter, packed_len};
use super::{ConvCall, L2_BYTES, part, wanted_tasks};
use crate::gemm::table::Tile;
use crate::gemm::tile::{Finish, TileCall};
use crate::team::{Task, Team};

/// Weights that a task goes through for each tile of pixels: less than half of the cache, the rest is for
/// pixels and for what comes next.
const WEIGHT_BYTES: usize = L2_BYTES * 3 / 8;

/// Implicit GEMM for one geometry.
#[derive(Debug)]
pub struct Igemm {
    geometry: Geometry,
    tile: Tile,
    phases: Vec<PhasePlan>,
    n_tasks: usize,
    /// A pixel of padding.
    zeros: Vec<f32>,
    /// Bytes of a slot's pointers.
    slot_bytes: usize,
}

#[derive(Debug)]
struct PhasePlan {
    phase: Phase,
    /// Each tap's distance from the window's origin: per axis, and in elements of the input.
    taps: Vec<([isize; AXES], isize)>,
    /// Pixels in a row whose addresses are evenly spaced, and how many such rows there are.
    run: usize,
    n_runs: usize,
    tiles_per_run: usize,
    n_blocks: usize,
    m_blocks: usize,
    /// Taps, or channels of one tap, that are summed before the next block of depth begins.
    taps_per_block: usize,
    c_per_block: usize,
    /// Tasks of earlier phases.
    first_task: usize,
}

/// The pixels of one tile.
struct Place {
    /// Offset of the first one in the output and the residual, in elements.
    output: usize,
    residual: usize,
    m: usize,
}

impl Igemm {
    /// Plans a run. Input and output need their channels innermost.
    pub fn new(geometry: Geometry, tile: Tile) -> Igemm {
        let n_panels = geometry.k.div_ceil(tile.nr());
        let phases = geometry.phases();
        let n_phases = phases.len();
        let wanted = wanted_tasks(geometry.flops());
        let mut n_tasks = 0;
        let mut most_taps = 0;
        let plan = |phase: Phase| {
            let taps = phase_taps(&phase, &geometry);
            most_taps = most_taps.max(taps.len());
            let places: Vec<_> =
                [Some(&geometry.output), geometry.residual.as_ref()].into_iter().flatten().collect();
            let run = phase.run(geometry.n_images, &places);
            let n_runs = (geometry.n_images * phase.n_pixels()).checked_div(run).unwrap_or(0);
            let tiles_per_run = run.div_ceil(tile.mr());
            let m_tiles = n_runs * tiles_per_run;
            let depth = (taps.len() * geometry.c).max(1);
            let panel_bytes = depth * tile.nr() * size_of::<f32>();
            let panels = (WEIGHT_BYTES / panel_bytes).clamp(1, n_panels.max(1));
            let share = wanted.div_ceil(n_phases * geometry.groups.max(1));
            // Few pixels: cut the channels finer, so that there is work for everyone.
            let n_blocks = n_panels.div_ceil(panels).max(share.div_ceil(m_tiles.max(1))).min(n_panels);
            let m_blocks = share.div_ceil(n_blocks.max(1)).clamp(1, m_tiles.max(1));
            let panels = n_panels.div_ceil(n_blocks.max(1)).max(1);
            let most_depth = (WEIGHT_BYTES / (panels * tile.nr() * size_of::<f32>())).max(64);
            let (taps_per_block, c_per_block) = if depth <= most_depth {
                (taps.len().max(1), geometry.c)
            } else {
                let taps_per_block = (most_depth / geometry.c).clamp(1, taps.len());
                (
                    taps_per_block,
                    if taps_per_block > 1 { geometry.c } else { even_part(geometry.c, most_depth) },
                )
            };
            let first_task = n_tasks;
            n_tasks += geometry.groups * n_blocks * m_blocks * usize::from(m_tiles > 0);
            PhasePlan {
                phase,
                taps,
                run,
                n_runs,
                tiles_per_run,
                n_blocks,
                m_blocks,
                taps_per_block,
                c_per_block,
                first_task,
            }
        };
        let phases: Vec<PhasePlan> = phases.into_iter().map(plan).collect();
        let slot_bytes = (most_taps.max(1) * tile.mr() * size_of::<*const f32>()).next_multiple_of(64);
        let zeros = vec![0.0; geometry.c];
        Igemm { geometry, tile, phases, n_tasks, zeros, slot_bytes }
    }

    /// Elements of the packed weights.
    pub fn weights_len(&self) -> usize {
        let g = &self.geometry;
        packed_len(&Filter::new(g.groups, g.c, g.k, &g.axes, g.transposed), self.tile)
    }

    /// What the work is cut into.
    pub fn n_tasks(&self) -> usize {
        self.n_tasks
    }

    pub fn scratch_bytes(&self, n_slots: usize) -> usize {
        self.slot_bytes * n_slots
    }

    /// # Safety
    /// The call's addresses must be readable, the output and the scratch writable, for what the geometry and
    /// the plan say.
    pub unsafe fn run(&self, call: &ConvCall, team: &Team) {
        team.for_each(self.n_tasks, &|task| {
            // SAFETY: granted by the caller; tasks have different outputs, slots different scratch.
            unsafe { self.task(call, task) }
        });
    }

    unsafe fn task(&self, call: &ConvCall, task: Task) {
        let g = &self.geometry;
        let (nr, mr) = (self.tile.nr(), self.tile.mr());
        let later = self.phases.partition_point(|phase| phase.first_task <= task.idx);
        let plan = &self.phases[later - 1];
        let idx = task.idx - plan.first_task;
        let (idx, m_block) = (idx / plan.m_blocks, idx % plan.m_blocks);
        let (group, n_block) = (idx / plan.n_blocks, idx % plan.n_blocks);
        let tiles = part(plan.n_runs * plan.tiles_per_run, plan.m_blocks, m_block);
        let panels = part(g.k.div_ceil(nr), plan.n_blocks, n_block);
        let n_taps = plan.taps.len();
        let depth = n_taps * g.c;
        // The weights of a group, then of a class, are as long as their taps say.
        let padded_k = self.tile.panel_width(g.k);
        let class = (group * g.n_taps() + plan.phase.first_tap) * g.c * padded_k;
        let out_step = plan.phase.axes[2].step * g.output.axes[2];
        let residual_step = g.residual.map_or(0, |pixels| plan.phase.axes[2].step * pixels.axes[2]);
        // SAFETY: the scratch has `slot_bytes` for each slot, aligned for pointers.
        let table = unsafe { call.scratch.add(task.slot * self.slot_bytes) }.cast::<*const f32>();
        let mut tap = 0;
        let mut c = 0;
        // At least one block, so that a phase that no tap reaches still stores its bias.
        loop {
            let taps = tap..(tap + plan.taps_per_block).min(n_taps);
            let c_end = (c + plan.c_per_block).min(g.c);
            let first = tap == 0 && c == 0;
            let last = taps.end == n_taps && c_end == g.c;
            for tile_idx in tiles.clone() {
                // SAFETY: the table has room for all taps of a tile.
                let place = unsafe { self.point(call, plan, group, taps.clone(), c, tile_idx, table) };
                for panel in panels.clone() {
                    let k0 = panel * nr;
                    let n = nr.min(g.k - k0);
                    let width = self.tile.panel_width(n);
                    let channel = group * g.k + k0;
                    // SAFETY: panels lie inside the packed weights; output, bias and residual hold all
                    // channels of the tile's pixels.
                    unsafe {
                        let finish = if last {
                            Finish {
                                bias: if call.bias.is_null() { call.bias } else { call.bias.add(channel) },
                                residual: match g.residual {
                                    Some(_) => call.residual.add(place.residual + channel),
                                    None => std::ptr::null(),
                                },
                                residual_stride: residual_step,
                                lo: call.lo,
                                hi: call.hi,
                            }
                        } else {
                            Finish::NONE
                        };
                        self.tile.run(&TileCall {
                            rows: table,
                            rows_stride: mr,
                            n_segments: taps.len(),
                            depth: c_end - c,
                            panel: call.weights.add(class + k0 * depth + (tap * g.c + c) * width),
                            panel_stride: width,
                            c: call.output.add(place.output + channel),
                            c_stride: out_step,
                            m: place.m,
                            n,
                            accumulate: !first,
                            finish,
                        });
                    }
                }
            }
            if last {
                return;
            }
            if c_end < g.c {
                c = c_end;
            } else {
                (tap, c) = (taps.end, 0);
            }
        }
    }

    /// Writes the pointers of one tile's pixels, tap by tap, from channel `c` of the group on.
    ///
    /// # Safety
    /// `table` must have room for the taps of a full tile.
    #[allow(clippy::too_many_arguments)]
    unsafe fn point(
        &self,
        call: &ConvCall,
        plan: &PhasePlan,
        group: usize,
        taps: std::ops::Range<usize>,
        c: usize,
        tile_idx: usize,
        table: *mut *const f32,
    ) -> Place {
        let g = &self.geometry;
        let axes = &plan.phase.axes;
        let (run_idx, tile_in_run) = (tile_idx / plan.tiles_per_run, tile_idx % plan.tiles_per_run);
        let pixels = part(plan.run, plan.tiles_per_run, tile_in_run);
        let m = pixels.len();
        let mut rest = run_idx * plan.run + pixels.start;
        let mut at = [0; AXES];
        for axis in (0..AXES).rev() {
            at[axis] = rest % axes[axis].count;
            rest /= axes[axis].count;
        }
        let mut image = rest;
        let mut place = Place { output: image * g.output.image, residual: 0, m };
        for axis in 0..AXES {
            place.output += (axes[axis].first + at[axis] * axes[axis].step) * g.output.axes[axis];
        }
        if let Some(residual) = g.residual {
            place.residual = image * residual.image;
            for axis in 0..AXES {
                place.residual += (axes[axis].first + at[axis] * axes[axis].step) * residual.axes[axis];
            }
        }
        // Windows are placed from the first channel that this block of depth reads.
        let base = call.input.wrapping_add(group * g.c * g.input.channel + c);
        let zeros = self.zeros.as_ptr();
        let mr = self.tile.mr();
        for i in 0..m {
            let mut origin = (image * g.input.image) as isize;
            let mut inside = true;
            let mut start = [0isize; AXES];
            for axis in 0..AXES {
                start[axis] = (at[axis] * axes[axis].in_step) as isize;
                origin += start[axis] * g.input.axes[axis] as isize;
                inside &= plan.inside(axis, start[axis], g.in_size(axis));
            }
            let window = base.wrapping_offset(origin);
            for (slot, tap) in taps.clone().enumerate() {
                let (offsets, distance) = &plan.taps[tap];
                let there = inside
                    || (0..AXES).all(|axis| {
                        let at = start[axis] + offsets[axis];
                        at >= 0 && (at as usize) < g.in_size(axis)
                    });
                let pointer = if there { window.wrapping_offset(*distance) } else { zeros };
                // SAFETY: `slot` is below the plan's taps and `i` below the tile's rows.
                unsafe { table.add(slot * mr + i).write(pointer) };
            }
            // The next pixel, carrying into the outer axes.
            let mut axis = AXES;
            loop {
                if axis == 0 {
                    image += 1;
                    break;
                }
                axis -= 1;
                at[axis] += 1;
                if at[axis] < axes[axis].count {
                    break;
                }
                at[axis] = 0;
            }
        }
        place
    }
}

impl PhasePlan {
    /// Whether every tap of a window that starts here is inside the input along this axis.
    #[inline]
    fn inside(&self, axis: usize, start: isize, size: usize) -> bool {
        let taps = &self.phase.axes[axis].taps;
        match (taps.first(), taps.last()) {
            // Taps are in order, upwards or (transposed) downwards.
            (Some(&a), Some(&b)) => start + a.min(b) >= 0 && start + a.max(b) < size as isize,
            _ => true,
        }
    }
}

/// Every tap's distance from its window's origin.
fn phase_taps(phase: &Phase, geometry: &Geometry) -> Vec<([isize; AXES], isize)> {
    let [a, b, c] = &phase.axes;
    let mut taps = Vec::with_capacity(phase.n_taps());
    for &x in &a.taps {
        for &y in &b.taps {
            for &z in &c.taps {
                let offsets = [x, y, z];
                let elements = (0..AXES).map(|i| offsets[i] * geometry.input.axes[i] as isize).sum();
                taps.push((offsets, elements));
            }
        }
    }
    taps
}

/// `len` cut into even parts of at most `most`.
fn even_part(len: usize, most: usize) -> usize {
    len.div_ceil(len.div_ceil(most).max(1))
}
