//! Repeatable randomness: the same seed gives the same zones and queries on every machine.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// The next 64 bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let number = self.next_u64() % bound.max(1) as u64;
        usize::try_from(number).unwrap_or_default()
    }

    /// A number from 0 up to 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        // 53 bits fit in a double without rounding.
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// A label of `n` lower-case letters.
    pub(crate) fn label(&mut self, n: usize) -> String {
        (0..n).map(|_| char::from(b"abcdefghijklmnopqrstuvwxyz"[self.below(26)])).collect()
    }
}

/// Ranks from 0 by Zipf's law with exponent 1: rank r is drawn in proportion to 1 / (r + 1).
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    /// Sums of the weights up to each rank.
    sums: Vec<f64>,
}

impl Zipf {
    /// The law over `n` ranks; `n` is not 0.
    pub(crate) fn new(n: usize) -> Self {
        let mut sum = 0.0;
        let sums = (0..n)
            .map(|rank| {
                sum += 1.0 / (rank + 1) as f64;
                sum
            })
            .collect();
        Zipf { sums }
    }

    /// A rank below `n`.
    pub(crate) fn rank(&self, random: &mut Random) -> usize {
        let whole = self.sums.last().copied().unwrap_or_default();
        let drawn = random.fraction() * whole;
        self.sums.partition_point(|&sum| sum <= drawn).min(self.sums.len().saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed| (0..5).map(|_| Random::new(seed).next_u64()).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }

    #[test]
    fn the_first_rank_of_zipf_is_drawn_twice_as_often_as_the_second() {
        let (zipf, mut random) = (Zipf::new(1000), Random::new(1));
        let mut counts = [0_u32; 1000];
        for _ in 0..200_000 {
            counts[zipf.rank(&mut random)] += 1;
        }
        let ratio = f64::from(counts[0]) / f64::from(counts[1]);
        assert!((1.8..2.2).contains(&ratio), "{ratio}");
    }
}
