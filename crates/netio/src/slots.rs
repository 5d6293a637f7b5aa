//! Arrays that the kernel writes into: made once, never moved, reached by raw pointers that stay valid.
//!
//! A `Box<[T]>` will not do: it claims to be the only way to its memory, and moving it ends the validity of the
//! pointers that the message headers keep. [`Slots`] owns its memory by a raw pointer instead, and every reference
//! is derived from that pointer for as long as it is used.

use std::ptr::NonNull;

/// A cache line. Buffers start at one, so that no two buffers share one.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub(crate) struct Line([u8; Line::OCTETS]);

impl Line {
    /// Octets of a cache line on the machines that matter (x86-64; ARM's 64 or 128 costs sharing, not correctness).
    pub(crate) const OCTETS: usize = 64;
    /// A line of zeros.
    pub(crate) const ZERO: Self = Self([0; Self::OCTETS]);
}

/// A fixed array whose address never changes while it lives.
pub(crate) struct Slots<T> {
    /// invariant: comes from `Box::into_raw` of a slice of `length` elements and is freed by `drop` alone.
    start: NonNull<T>,
    length: usize,
}

impl<T: Copy> Slots<T> {
    /// Makes `length` copies of `value`.
    pub(crate) fn new(length: usize, value: T) -> Self {
        let raw = Box::into_raw(vec![value; length].into_boxed_slice());
        // A box's pointer is never null, so the dangling default is out of reach.
        Self { start: NonNull::new(raw.cast::<T>()).unwrap_or(NonNull::dangling()), length }
    }

    /// Yields the elements.
    pub(crate) fn as_slice(&self) -> &[T] {
        // SAFETY: `start` points to `length` initialised elements (invariant), and the shared borrow of self keeps
        // every safe writer away while the slice lives; the kernel writes only during a call that borrows self mutably.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Yields the elements for writing.
    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the exclusive borrow of self keeps every other reference away.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    /// Yields the address of element `i`, valid until self is dropped.
    ///
    /// # Panics
    /// When there is no such element.
    pub(crate) fn address(&self, i: usize) -> *mut T {
        assert!(i < self.length, "slot out of range");
        // SAFETY: `i` is within the allocation, asserted above.
        unsafe { self.start.as_ptr().add(i) }
    }
}

impl Slots<Line> {
    /// Yields `n_octets` octets from the start of line `first`.
    ///
    /// # Panics
    /// When they reach beyond the end.
    pub(crate) fn octets(&self, first: usize, n_octets: usize) -> &[u8] {
        self.assert_within(first, n_octets);
        let start = self.address(first).cast::<u8>();
        // SAFETY: the range lies in the allocation (asserted), lines are plain octets, and the shared borrow of self
        // keeps writers away.
        unsafe { std::slice::from_raw_parts(start, n_octets) }
    }

    /// Yields `n_octets` octets from the start of line `first`, for writing.
    ///
    /// # Panics
    /// When they reach beyond the end.
    pub(crate) fn octets_mut(&mut self, first: usize, n_octets: usize) -> &mut [u8] {
        self.assert_within(first, n_octets);
        let start = self.address(first).cast::<u8>();
        // SAFETY: as in `octets`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(start, n_octets) }
    }

    fn assert_within(&self, first: usize, n_octets: usize) {
        let available = self.length.saturating_sub(first) * Line::OCTETS;
        assert!(n_octets <= available, "octets beyond the last line");
    }
}

impl<T> Drop for Slots<T> {
    fn drop(&mut self) {
        let slice = std::ptr::slice_from_raw_parts_mut(self.start.as_ptr(), self.length);
        // SAFETY: the pointer and the length are those of the box that was taken apart (invariant), and this is the
        // only place that puts it together again.
        drop(unsafe { Box::from_raw(slice) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_stay_when_the_array_is_moved() {
        let slots = Slots::new(4, 7_u32);
        let before = slots.address(3);
        let moved = Box::new(slots);
        assert_eq!(before, moved.address(3));
        assert_eq!(moved.as_slice(), [7; 4]);
    }

    #[test]
    fn octets_written_are_read_back_and_lines_do_not_overlap() {
        let mut lines = Slots::new(4, Line::ZERO);
        lines.octets_mut(1, 100).fill(1);
        lines.octets_mut(3, 64).fill(3);
        assert_eq!(lines.octets(0, 64), [0; 64]);
        assert_eq!(lines.octets(1, 100), [1; 100]);
        assert_eq!(lines.octets(3, 64), [3; 64]);
    }

    #[test]
    #[should_panic(expected = "beyond the last line")]
    fn octets_beyond_the_end_are_refused() {
        let _ = Slots::new(2, Line::ZERO).octets(1, 65);
    }
}
