//! Convolution as a matrix product whose left side is never written down: a row is a window, given as pointers
//! to its pixels, one segment per tap; taps in the padding point to zeros.
//!
//! Weights are packed by [`super::pack`]. A task is a block of output pixels and of output channels, small
//! enough that its weights stay in the second-level cache while all its pixels pass; a longer sum is cut into
//! blocks of depth that add to the output. Plain, strided, dilated, grouped and transposed convolutions of
//! one to three axes all run here, and 1x1 is the case of one tap.

use planish_op::window::PlacedAxis;

use super::geometry::{Geometry, Phase};
use super::pack::{Filter, packed_len};
use super::windows::{Place, Windows};
use super::{
    ConvCall, Finished, L2_BYTES, LINE, RunCall, even_part, part, prefetch, prefetch_to_write, wanted_tasks,
};
use crate::gemm::table::Tile;
use crate::gemm::tile::{Ahead, EpilogueCall, TileCall};
use crate::team::{Task, Team};

/// Weights that a task goes through for each tile of pixels: less than half of the cache, the rest is for
/// pixels and for what comes next.
const WEIGHT_BYTES: usize = L2_BYTES * 3 / 8;

/// What computes the tiles of an implicit GEMM, by the type of its elements. An element of the input and of the packed
/// weights is four bytes wide: one f32, or four neighbouring channels of 8 bits.
pub trait TileKernel: Copy + std::fmt::Debug + Send + Sync {
    /// What a run hands over.
    type Call<'a>: RunCall;

    /// Whether a sum may be made in parts, which the output keeps meanwhile.
    const SPLITS_SUMS: bool;

    /// Bytes of an element of the packed weights.
    const ELEMENT_BYTES: usize = size_of::<f32>();

    /// Rows and columns of a full tile.
    fn mr(self) -> usize;
    fn nr(self) -> usize;
    /// How wide a panel of `n` columns is stored.
    fn panel_width(self, n: usize) -> usize;
    /// Whether it multiplies tiles of AMX, which a thread configures for a task. Those are read where they lie if they are
    /// whole: tiles have all their rows, but for the last. Others are about even.
    fn is_amx(self) -> bool {
        false
    }
    /// Bytes of its own that a task needs for windows of `depth` elements.
    fn scratch_bytes(self, depth: usize) -> usize {
        let _ = depth;
        0
    }
    fn input(call: &Self::Call<'_>) -> *const f32;
    /// What a tap in the padding reads.
    fn padding(self) -> f32 {
        0.0
    }
    /// A pixel of that, where only the run knows it.
    fn padding_of(call: &Self::Call<'_>) -> Option<*const f32> {
        let _ = call;
        None
    }
    /// Elements of each slot that tiles are stored to, where they are not stored in place; else 0.
    fn staging(call: &Self::Call<'_>) -> usize {
        let _ = call;
        0
    }

    /// Computes one tile.
    ///
    /// # Safety
    /// The call's addresses must be good for the tile's place, and `at.rows` hold its windows.
    unsafe fn run(self, call: &Self::Call<'_>, at: &TileAt);
}

/// Where one tile is: offsets in elements, for output and residual in elements of their own.
#[derive(Clone, Copy, Debug)]
pub struct TileAt {
    /// The windows' pointers: `n_segments` groups of them, `rows_stride` apart.
    pub rows: *const *const f32,
    pub rows_stride: usize,
    pub n_segments: usize,
    pub depth: usize,
    /// The panel, and its width.
    pub weights: usize,
    pub width: usize,
    /// Weights that are read later and are to be fetched meanwhile: from here on, so many [lines](Ahead::lines).
    pub ahead: Option<(usize, usize)>,
    /// The panel's number among those of all groups.
    pub panel: usize,
    pub channel: usize,
    /// The channel's number among those of all classes of taps.
    pub class_channel: usize,
    pub output: usize,
    pub output_stride: usize,
    /// Where there is one.
    pub residual: Option<usize>,
    pub residual_stride: usize,
    pub m: usize,
    pub n: usize,
    /// Whether the sum begins here, and whether it ends.
    pub first: bool,
    pub last: bool,
    /// Whether the output is asked for before it is written.
    pub fetches_output: bool,
    /// The task's own memory, and whether it has not seen these windows yet.
    pub scratch: *mut u8,
    pub is_first_panel: bool,
}

impl ConvCall<'_> {
    /// What belongs to the sums of a tile beside products.
    ///
    /// # Safety
    /// Bias and residual must reach the tile's place.
    #[inline(always)]
    pub(super) unsafe fn epilogue(&self, at: &TileAt) -> EpilogueCall {
        // SAFETY: granted by the caller.
        unsafe {
            EpilogueCall {
                bias: if self.bias.is_null() { self.bias } else { self.bias.add(at.channel) },
                residual: at.residual.map_or(std::ptr::null(), |residual| self.residual.add(residual)),
                residual_stride: at.residual_stride,
                lo: self.lo,
                hi: self.hi,
            }
        }
    }
}

impl TileKernel for Tile {
    type Call<'a> = ConvCall<'a>;

    const SPLITS_SUMS: bool = true;

    #[inline]
    fn mr(self) -> usize {
        Tile::mr(self)
    }

    #[inline]
    fn nr(self) -> usize {
        Tile::nr(self)
    }

    #[inline]
    fn panel_width(self, n: usize) -> usize {
        Tile::panel_width(self, n)
    }

    fn input(call: &ConvCall<'_>) -> *const f32 {
        call.input
    }

    fn staging(call: &ConvCall<'_>) -> usize {
        call.staging
    }

    #[inline]
    unsafe fn run(self, call: &ConvCall<'_>, at: &TileAt) {
        // SAFETY: granted by the caller.
        unsafe {
            let c = call.output.add(at.output);
            // What is stored at the end is asked for at the beginning.
            for i in 0..if at.fetches_output { at.m } else { 0 } {
                for j in (0..at.n).step_by(LINE) {
                    prefetch_to_write(c.wrapping_add(i * at.output_stride + j));
                }
            }
            let epilogue = if at.last { call.epilogue(at) } else { EpilogueCall::NONE };
            Tile::run(
                self,
                &TileCall {
                    rows: at.rows,
                    rows_stride: at.rows_stride,
                    n_segments: at.n_segments,
                    depth: at.depth,
                    panel: call.weights.add(at.weights),
                    panel_stride: at.width,
                    ahead: at.ahead.map_or(Ahead::NONE, |(from, lines)| Ahead {
                        from: call.weights.wrapping_add(from),
                        lines,
                    }),
                    c,
                    c_stride: at.output_stride,
                    m: at.m,
                    n: at.n,
                    accumulate: !at.first,
                    epilogue,
                },
            );
        }
    }
}

/// Implicit GEMM for one geometry.
#[derive(Debug)]
pub struct Igemm<T = Tile> {
    geometry: Geometry,
    tile: T,
    phases: Vec<PhasePlan>,
    n_tasks: usize,
    /// A pixel of padding.
    padding: Vec<f32>,
    /// Bytes of a table of pointers; a slot has two, and the tile's own memory.
    table_bytes: usize,
    slot_bytes: usize,
    /// Whether pixels are asked for before they are read, and outputs before they are written: where they are
    /// more than the second-level cache keeps beside weights. For less it is work for nothing, 1 % of
    /// MobileNet.
    fetches_input: bool,
    fetches_output: bool,
    /// Whether the next block of weights is asked for while tiles go through one: where they come from memory.
    fetches_weights: bool,
}

/// Images up to this stay in the second-level cache from one step to the next.
const NEAR_BYTES: usize = L2_BYTES / 4;

/// Phases with the same windows: one pass over the input serves them all.
#[derive(Debug)]
struct PhasePlan {
    windows: Windows,
    members: Vec<Member>,
    n_blocks: usize,
    m_blocks: usize,
    /// Whether neighbouring tasks have the same pixels instead of the same channels: where the pixels are more
    /// to read than the weights. A thread then keeps to a part of the image, which it has in its cache from
    /// the step before.
    pixels_first: bool,
    /// Taps, or channels of one tap, that are summed before the next block of depth begins.
    taps_per_block: usize,
    c_per_block: usize,
    /// Tasks of earlier phases.
    first_task: usize,
}

/// What differs between phases with the same windows.
#[derive(Debug)]
struct Member {
    class: usize,
    first_tap: usize,
    /// Offsets of the first output in output and residual.
    output: usize,
    residual: usize,
}

impl<T: TileKernel> Igemm<T> {
    /// Plans a run. Input and output need their channels innermost.
    pub fn new(geometry: Geometry, tile: T) -> Igemm<T> {
        let n_panels = geometry.k.div_ceil(tile.nr());
        let mut phases: Vec<Vec<Phase>> = Vec::new();
        for phase in geometry.phases() {
            match phases.iter_mut().find(|group| group[0].same_windows(&phase)) {
                Some(group) => group.push(phase),
                None => phases.push(vec![phase]),
            }
        }
        let n_phases = phases.len();
        let wanted = wanted_tasks(geometry.flops());
        let mut n_tasks = 0;
        let mut most_taps = 1;
        let plan = |mut phases: Vec<Phase>| {
            let member = |phase: &Phase| Member {
                class: phase.class,
                first_tap: phase.first_tap,
                output: phase.first(&geometry.output),
                residual: geometry.residual.as_ref().map_or(0, |pixels| phase.first(pixels)),
            };
            let members: Vec<Member> = phases.iter().map(member).collect();
            let phase = phases.swap_remove(0);
            let windows = Windows::new(&geometry, phase, tile.mr(), tile.is_amx());
            let n_taps = windows.n_taps();
            most_taps = most_taps.max(n_taps);
            let m_tiles = windows.n_tiles();
            let depth = (n_taps * geometry.c).max(1);
            let panel_bytes = members.len() * depth * tile.nr() * T::ELEMENT_BYTES;
            let panels = (WEIGHT_BYTES / panel_bytes).clamp(1, n_panels.max(1));
            let share = wanted.div_ceil(n_phases * geometry.groups.max(1));
            // Few pixels: cut the channels finer, so that there is work for everyone.
            let n_blocks = n_panels.div_ceil(panels).max(share.div_ceil(m_tiles.max(1))).min(n_panels);
            let m_blocks = share.div_ceil(n_blocks.max(1)).clamp(1, m_tiles.max(1));
            let panels = n_panels.div_ceil(n_blocks.max(1)).max(1);
            let most_depth = (WEIGHT_BYTES / (members.len() * panels * tile.nr() * T::ELEMENT_BYTES)).max(64);
            let (taps_per_block, c_per_block) = if depth <= most_depth || !T::SPLITS_SUMS {
                (n_taps.max(1), geometry.c)
            } else {
                let taps = (most_depth / geometry.c).clamp(1, n_taps);
                (taps, if taps > 1 { geometry.c } else { even_part(geometry.c, most_depth) })
            };
            let first_task = n_tasks;
            n_tasks += geometry.groups * n_blocks * m_blocks * usize::from(m_tiles > 0);
            let n_pixels = geometry.n_images * geometry.axes.iter().map(|axis| axis.input).product::<usize>();
            let pixels_first = geometry.groups == 1 && n_pixels > n_taps * geometry.k;
            PhasePlan {
                windows,
                members,
                n_blocks,
                m_blocks,
                pixels_first,
                taps_per_block,
                c_per_block,
                first_task,
            }
        };
        let phases: Vec<PhasePlan> = phases.into_iter().map(plan).collect();
        let table_bytes = (most_taps * tile.mr() * size_of::<*const f32>()).next_multiple_of(64);
        let scratch = tile.scratch_bytes(most_taps * geometry.c).next_multiple_of(64);
        let slot_bytes = 2 * table_bytes + scratch;
        let padding = vec![tile.padding(); geometry.c];
        let image = |n: usize| geometry.n_images * geometry.groups * n * size_of::<f32>() > NEAR_BYTES;
        let pixels = |size: fn(&PlacedAxis) -> usize| geometry.axes.iter().map(size).product::<usize>();
        let [from, to] = [pixels(|axis| axis.input), pixels(|axis| axis.output)];
        let fetches_input = image(from * geometry.c);
        let fetches_output = image(to * geometry.k);
        let weights = geometry.k * geometry.c * geometry.n_taps() * T::ELEMENT_BYTES;
        let fetches_weights = geometry.groups == 1 && weights > WEIGHT_BYTES;
        Igemm {
            geometry,
            tile,
            phases,
            n_tasks,
            padding,
            table_bytes,
            slot_bytes,
            fetches_input,
            fetches_output,
            fetches_weights,
        }
    }

    /// Elements of a pixel of the input.
    pub fn channels(&self) -> usize {
        self.geometry.c
    }

    /// The most pixels of a tile.
    pub fn tile_rows(&self) -> usize {
        self.tile.mr()
    }

    /// What the work is cut into.
    pub fn n_tasks(&self) -> usize {
        self.n_tasks
    }

    /// Whether every sum is made in one go, so that its output need not be kept meanwhile.
    pub fn is_one_pass(&self) -> bool {
        let is_whole = |plan: &PhasePlan| {
            plan.taps_per_block >= plan.windows.n_taps() && plan.c_per_block >= self.geometry.c
        };
        self.phases.iter().all(is_whole)
    }

    pub fn workspace_bytes(&self, n_slots: usize) -> usize {
        self.slot_bytes * n_slots
    }

    /// # Safety
    /// The call's addresses must be readable, the output and the workspace writable, for what the geometry and
    /// the plan say. Nothing may come after a transposed convolution; outputs are staged only in one pass, with something
    /// that comes after them.
    pub unsafe fn run(&self, call: &T::Call<'_>, team: &Team) {
        team.for_each(self.n_tasks, &|task| {
            #[cfg(target_arch = "x86_64")]
            let _tiles = self.tile.is_amx().then(|| {
                // SAFETY: a tile of AMX exists only where the process may use it.
                unsafe { crate::amx::Configured::new() }
            });
            // SAFETY: granted by the caller; tasks have different outputs, slots different workspace.
            unsafe { self.task(call, task) };
        });
    }

    unsafe fn task(&self, call: &T::Call<'_>, task: Task) {
        let g = &self.geometry;
        let nr = self.tile.nr();
        let later = self.phases.partition_point(|phase| phase.first_task <= task.idx);
        let plan = &self.phases[later - 1];
        let idx = task.idx - plan.first_task;
        let (group, n_block, m_block) = if plan.pixels_first {
            (0, idx % plan.n_blocks, idx / plan.n_blocks)
        } else {
            let (idx, m_block) = (idx / plan.m_blocks, idx % plan.m_blocks);
            (idx / plan.n_blocks, idx % plan.n_blocks, m_block)
        };
        let tiles = part(plan.windows.n_tiles(), plan.m_blocks, m_block);
        let panels = part(g.k.div_ceil(nr), plan.n_blocks, n_block);
        let n_taps = plan.windows.n_taps();
        // SAFETY: the workspace has two tables for each slot, aligned for pointers, and the tile's own memory.
        let table = unsafe { call.workspace().add(task.slot * self.slot_bytes) };
        let tables = [table.cast::<*const f32>(), table.wrapping_add(self.table_bytes).cast()];
        let padding = T::padding_of(call).unwrap_or(self.padding.as_ptr());
        let scratch = table.wrapping_add(2 * self.table_bytes);
        let channels = panels.start * nr..(panels.end * nr).min(g.k);
        let staged = match T::staging(call) {
            0 => None,
            len => Some(Staged { at: task.slot * len, stride: channels.len(), channel: channels.start }),
        };
        let mut depth = self.first_depth(plan);
        // At least one block, so that a phase that no tap reaches still stores its bias.
        loop {
            let last = depth.taps.end == n_taps && depth.c.end == g.c;
            let input = T::input(call).wrapping_add(group * g.c * g.input.channel + depth.c.start);
            let point = |tile_idx: usize| {
                let table = tables[tile_idx % 2];
                // SAFETY: a table has room for all taps of a tile.
                unsafe { plan.windows.point(g, input, padding, depth.taps.clone(), tile_idx, table) }
            };
            // Tasks that follow have the next block of panels, and the same thread takes them.
            let later = match last {
                false => Some((self.after(plan, &depth), panels.start)),
                true => (n_block + 1 < plan.n_blocks).then(|| (self.first_depth(plan), panels.end)),
            };
            let later =
                later.filter(|_| self.fetches_weights && !plan.pixels_first && plan.members.len() == 1);
            let mut next = (!tiles.is_empty()).then(|| point(tiles.start));
            for tile_idx in tiles.clone() {
                let Some(place) = next.take() else { break };
                next = (tile_idx + 1 < tiles.end).then(|| point(tile_idx + 1));
                let rows = tables[tile_idx % 2];
                // The next tile's pixels are fetched while this one is computed, a part with each panel. With
                // several taps most of them are here already.
                let ahead =
                    next.as_ref().filter(|_| n_taps == 1 && self.fetches_input).map_or(0, |place| place.m);
                let n_parts = plan.members.len() * panels.len();
                let members =
                    plan.members.iter().flat_map(|member| panels.clone().map(move |panel| (member, panel)));
                for (idx, (member, panel)) in members.enumerate() {
                    let rows_ahead = part(ahead, n_parts, idx);
                    // SAFETY: the pointers of the next tile are in its table; panels lie inside the packed
                    // weights; output, bias and residual hold all channels of the tile's pixels.
                    unsafe {
                        for i in rows_ahead {
                            let row = *tables[(tile_idx + 1) % 2].add(i);
                            for c in (0..depth.c.len()).step_by(LINE) {
                                prefetch(row.wrapping_add(c));
                            }
                        }
                        let own = (scratch, idx == 0);
                        // The first tile waits for this block itself.
                        let ahead = later.as_ref().filter(|_| tile_idx > 0).and_then(|(depth, first)| {
                            let nth = (tile_idx - 1, plan.windows.n_tiles() - 1);
                            self.fetched(plan, depth, first + idx, nth)
                        });
                        let panel = Panel { idx: panel, staged: staged.as_ref(), ahead };
                        self.tile(call, plan, member, group, &depth, panel, &place, rows, last, own);
                    }
                }
                if let Some((after, output)) = call.after().filter(|_| last) {
                    let first = group * g.k;
                    let channels = first + channels.start..first + channels.end;
                    // The one phase of a plain convolution begins at the first output.
                    let (at, stride) = match &staged {
                        Some(staged) => (staged.at, staged.stride),
                        None => (place.output + channels.start, g.output.axes[2]),
                    };
                    after(&Finished {
                        at: output.wrapping_add(at),
                        stride,
                        pixels: place.first..place.first + place.m,
                        channels,
                        slot: task.slot,
                    });
                }
            }
            if last {
                return;
            }
            depth = self.after(plan, &depth);
        }
    }

    /// The part of the sum that comes first, and the one after another.
    fn first_depth(&self, plan: &PhasePlan) -> Depth {
        Depth {
            taps: 0..plan.taps_per_block.min(plan.windows.n_taps()),
            c: 0..plan.c_per_block.min(self.geometry.c),
        }
    }

    fn after(&self, plan: &PhasePlan, depth: &Depth) -> Depth {
        let n_c = self.geometry.c;
        let (tap, c) = if depth.c.end < n_c { (depth.taps.start, depth.c.end) } else { (depth.taps.end, 0) };
        Depth {
            taps: tap..(tap + plan.taps_per_block).min(plan.windows.n_taps()),
            c: c..(c + plan.c_per_block).min(n_c),
        }
    }

    /// Where in the packed weights the part of a panel lies that tile `nth` of `n_tiles` asks for, and in how many lines at
    /// a time.
    fn fetched(
        &self,
        plan: &PhasePlan,
        depth: &Depth,
        panel: usize,
        (nth, n_tiles): (usize, usize),
    ) -> Option<(usize, usize)> {
        let g = &self.geometry;
        let k0 = panel * self.tile.nr();
        let width = self.tile.panel_width(self.tile.nr().min(g.k.checked_sub(k0).filter(|left| *left > 0)?));
        let len = depth.taps.len() * depth.c.len() * width;
        let lines = Ahead::lines(width, n_tiles);
        let done = nth * Ahead::fetched(depth.taps.len(), depth.c.len(), lines);
        let first = depth.taps.start * g.c + depth.c.start;
        (done < len).then(|| (k0 * plan.windows.n_taps() * g.c + first * width + done, lines))
    }

    /// One tile of one panel.
    ///
    /// # Safety
    /// As for [`Igemm::run`]; `rows` are the pointers of the tile's windows.
    #[allow(clippy::too_many_arguments)]
    #[inline]
    unsafe fn tile(
        &self,
        call: &T::Call<'_>,
        plan: &PhasePlan,
        member: &Member,
        group: usize,
        depth: &Depth,
        Panel { idx: panel, staged, ahead }: Panel<'_>,
        place: &Place,
        rows: *const *const f32,
        last: bool,
        (scratch, is_first_panel): (*mut u8, bool),
    ) {
        let g = &self.geometry;
        let k0 = panel * self.tile.nr();
        let n = self.tile.nr().min(g.k - k0);
        let width = self.tile.panel_width(n);
        let channel = group * g.k + k0;
        let step = plan.windows.phase.axes[2].step;
        // The weights of a group, then of a class, are as long as their taps say.
        let class = (group * g.n_taps() + member.first_tap) * g.c * self.tile.panel_width(g.k);
        let first = depth.taps.start * g.c + depth.c.start;
        let at = class + k0 * plan.windows.n_taps() * g.c + first * width;
        let (output, output_stride) = match staged {
            Some(staged) => (staged.at + k0 - staged.channel, staged.stride),
            None => (member.output + place.output + channel, step * g.output.axes[2]),
        };
        let at = TileAt {
            rows,
            rows_stride: self.tile.mr(),
            n_segments: depth.taps.len(),
            depth: depth.c.len(),
            weights: at,
            width,
            ahead,
            panel: group * g.k.div_ceil(self.tile.nr()) + panel,
            channel,
            class_channel: member.class * g.groups * g.k + channel,
            output,
            output_stride,
            residual: g.residual.map(|_| member.residual + place.residual + channel),
            residual_stride: g.residual.map_or(0, |pixels| step * pixels.axes[2]),
            m: place.m,
            n,
            first: first == 0,
            last,
            fetches_output: self.fetches_output,
            scratch,
            is_first_panel,
        };
        // SAFETY: granted by the caller.
        unsafe { self.tile.run(call, &at) };
    }
}

impl Igemm {
    /// Elements of the packed weights.
    pub fn weights_len(&self) -> usize {
        let g = &self.geometry;
        packed_len(&Filter::new(g.groups, g.c, g.k, &g.axes, g.transposed), self.tile)
    }
}

/// Where a slot's tiles are stored that do not go in place: the first channel of its panels, and from row to row.
struct Staged {
    at: usize,
    stride: usize,
    channel: usize,
}

/// A panel, where its tiles go if not in place, and what is fetched meanwhile.
struct Panel<'a> {
    idx: usize,
    staged: Option<&'a Staged>,
    ahead: Option<(usize, usize)>,
}

/// The part of a sum that is made at once: taps, and channels of each.
struct Depth {
    taps: std::ops::Range<usize>,
    c: std::ops::Range<usize>,
}
