//! Zeroed memory in pages of its own: large pages where the system has them.

use std::io;

use memmap2::MmapMut;

/// Zeros that the system maps when they are touched, given back to it when this is dropped.
///
/// On Linux large pages are asked for (2 MiB on most machines): an arena is mapped a few hundred times as quickly, and
/// kernels that walk through it miss the translation buffer less often.
#[derive(Debug)]
pub struct Pages(MmapMut);

impl Pages {
    /// From this length on memory is worth pages of its own. Between what an allocator hands out and gets back while weights
    /// of growing sizes are packed, copies that stay would leave holes that nothing fits into: as much memory again as the
    /// weights of a convolutional network.
    pub const WORTHWHILE: usize = 256 << 10;

    pub fn zeroed(bytes: usize) -> io::Result<Pages> {
        let memory = MmapMut::map_anon(bytes)?;
        // Advice: a system without large pages declines it.
        #[cfg(target_os = "linux")]
        let _ = memory.advise(memmap2::Advice::HugePage);
        Ok(Pages(memory))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}
