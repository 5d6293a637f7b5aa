//! A small generator of repeatable randomness.

/// SplitMix64 (Steele, Lea, Flood 2014): the same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that starts from `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).expect("a usize fits in 64 bits");
        usize::try_from(self.next_u64() % bound).expect("it is below a usize")
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// The next octet.
    pub fn octet(&mut self) -> u8 {
        self.next_u64().to_le_bytes()[0]
    }

    /// One of `items`, which is not empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}
