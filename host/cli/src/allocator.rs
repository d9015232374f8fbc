//! How the process's memory is managed.

/// Batches are made on one thread and freed on another. With an arena for each of many threads, which is glibc's way,
/// what was freed in one of them is not used again by the others, and a run holds twice the memory that it needs.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub(crate) fn few_arenas() {
    // SAFETY: the call takes two numbers and changes the allocator's settings, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Other allocators have no such setting.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub(crate) fn few_arenas() {}
