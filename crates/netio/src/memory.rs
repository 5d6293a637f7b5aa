//! Giving freed memory back to the system.

/// Octets from which an allocation is a mapping of its own: glibc's initial value (mallopt(3), M_MMAP_THRESHOLD).
#[cfg(target_env = "gnu")]
const MAPPED_FROM: libc::c_int = 128 << 10;

/// Lets large blocks go back to the system the moment they are freed, for the whole process; call it first in `main`.
///
/// glibc raises the size from which blocks are mapped whenever one is freed, up to 32 MiB, and keeps what is smaller.
/// What loading a zone takes would stay with the process for good. Mapped blocks also grow and shrink without being
/// copied (mremap(2)). Other C libraries are left as they are.
pub fn return_large_blocks() {
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt takes two numbers and only changes how later allocations are made. It fails on numbers that it
    // does not know, which leaves everything as it was.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, MAPPED_FROM);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_freed_blocks_goes_back_to_the_system() {
        return_large_blocks();
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").expect("it is there");
            let n_pages: usize = statm.split(' ').nth(1).and_then(|n| n.parse().ok()).expect("a number");
            n_pages * 4096
        };
        // The last block is not freed: what lies in front of it could not be given back from a heap.
        let mut blocks: Vec<Vec<u8>> = (0..64).map(|_| vec![1; 1 << 20]).collect();
        let before = resident();
        let last = blocks.pop();
        drop(blocks);
        assert!(resident() + (32 << 20) < before, "{} of {before} octets are left", resident());
        drop(last);
    }
}
