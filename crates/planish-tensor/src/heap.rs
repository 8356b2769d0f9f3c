//! What the allocator does with memory that was freed.

#![allow(unsafe_code)]

/// Has all threads allocate from one heap, and large blocks have pages of their own, so that freed memory can be used
/// by everybody or goes back to the system; to be called once, before there are several threads. Gives whether that is
/// so: it is known of glibc alone.
///
/// By itself glibc gives each thread a heap of its own, and what one has freed no other can use; and once a large block
/// was freed, it takes all further ones from the heap, where smaller ones keep it from shrinking. A build of ResNet-50
/// on two threads holds 305 to 316 MB so and 356 MB otherwise. Pages that come and go take time of the system: 0.1 s of a
/// build of ConvNeXt. It is for programs to decide, so no library calls it.
///
/// ```
/// let is_glibc = cfg!(all(target_os = "linux", target_env = "gnu"));
/// assert_eq!(planish_tensor::heap::share_one_heap(), is_glibc);
/// ```
pub fn share_one_heap() -> bool {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        unsafe extern "C" {
            fn mallopt(param: i32, value: i32) -> i32;
        }
        // As `malloc.h` has them.
        const M_TRIM_THRESHOLD: i32 = -1;
        const M_MMAP_THRESHOLD: i32 = -3;
        const M_ARENA_MAX: i32 = -8;
        /// Blocks from here on have pages of their own. At 2 MB the system spends half a second more on pages during a
        /// build, at 8 MB too many weights and activations stay in the heap.
        const LARGE: i32 = 4 << 20;
        /// Free memory at the heap's end beyond this goes back.
        const KEPT: i32 = 64 << 20;
        let set = |param: i32, value: i32| {
            // SAFETY: it takes two numbers and changes how later allocations are served, none that is there.
            unsafe { mallopt(param, value) == 1 }
        };
        set(M_ARENA_MAX, 1) && set(M_MMAP_THRESHOLD, LARGE) && set(M_TRIM_THRESHOLD, KEPT)
    }
    #[cfg(not(all(target_os = "linux", target_env = "gnu")))]
    false
}
