//! Which query comes next: the file in turn, or by popularity.

use std::sync::Arc;

/// The next query, and the next, without end.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Every `step`-th of the file, round and round: thread `t` of `n` starts at `t` with a step of `n`, so that together
    /// they send each query once a round.
    InTurn { next: u64, step: u64, n_queries: u32 },
    /// By chance.
    Zipf { popularity: Arc<Popularity>, random: SplitMix },
}

impl Order {
    /// The share of thread `thread` of `n_threads` in a file of `n_queries`.
    pub(crate) fn in_turn(n_queries: u32, thread: usize, n_threads: usize) -> Order {
        Order::InTurn { next: thread as u64, step: n_threads as u64, n_queries }
    }

    /// The index of the next query.
    #[inline]
    pub(crate) fn next(&mut self) -> u32 {
        match self {
            Order::InTurn { next, step, n_queries } => {
                let index = *next % u64::from(*n_queries);
                *next += *step;
                // Below n_queries, which has 32 bits.
                u32::try_from(index).unwrap_or(0)
            }
            Order::Zipf { popularity, random } => popularity.draw(random),
        }
    }

    /// Takes the last `n` back: they could not be sent and come again. What was drawn by chance does not need to.
    pub(crate) fn give_back(&mut self, n: usize) {
        if let Order::InTurn { next, step, .. } = self {
            *next = next.saturating_sub(*step * n as u64);
        }
    }
}

/// Zipf's law over the queries of a file: the `k`-th line is asked for in proportion to `k` to the power of `-exponent`.
///
/// A draw takes constant time: the alias method (A. J. Walker, 1977; the table is built as M. D. Vose does it, IEEE
/// Transactions on Software Engineering 17(9), 1991). Each column holds its own query below a threshold and another above.
#[derive(Debug)]
pub(crate) struct Popularity {
    columns: Vec<Column>,
}

#[derive(Clone, Copy, Debug)]
struct Column {
    /// Of 2^32: how much of the column is its own query.
    threshold: u32,
    alias: u32,
}

impl Popularity {
    /// Builds the table for `n_queries` queries; `exponent` is 0 for "all alike", about 1 for what is seen of names.
    pub(crate) fn zipf(n_queries: u32, exponent: f64) -> Popularity {
        let weights: Vec<f64> = (1..=n_queries).map(|rank| f64::from(rank).powf(-exponent)).collect();
        let scale = f64::from(n_queries) / weights.iter().sum::<f64>();
        let mut heights: Vec<f64> = weights.iter().map(|weight| weight * scale).collect();
        let mut columns: Vec<Column> =
            (0..n_queries).map(|own| Column { threshold: u32::MAX, alias: own }).collect();
        let (mut low, mut high): (Vec<u32>, Vec<u32>) =
            (0..n_queries).partition(|&i| heights[i as usize] < 1.0);
        while let (Some(&small), Some(&large)) = (low.last(), high.last()) {
            low.pop();
            columns[small as usize] = Column { threshold: share_of(heights[small as usize]), alias: large };
            heights[large as usize] -= 1.0 - heights[small as usize];
            if heights[large as usize] < 1.0 {
                high.pop();
                low.push(large);
            }
        }
        Popularity { columns }
    }

    #[inline]
    fn draw(&self, random: &mut SplitMix) -> u32 {
        let [column, height] = random.halves();
        // Scales 32 random bits to a column without a division.
        let index = (u64::from(column) * self.columns.len() as u64) >> 32;
        let index = u32::try_from(index).unwrap_or(0);
        let column = self.columns[index as usize];
        if height < column.threshold { index } else { column.alias }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of 2^32 between 0 and 1"
)]
fn share_of(height: f64) -> u32 {
    (height.clamp(0.0, 1.0) * f64::from(u32::MAX)) as u32
}

/// A generator of random numbers that is two multiplications long (SplitMix64, Steele, Lea and Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct SplitMix(u64);

impl SplitMix {
    /// The same seed gives the same numbers.
    pub(crate) fn new(seed: u64) -> SplitMix {
        SplitMix(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn halves(&mut self) -> [u32; 2] {
        let [a, b, c, d, e, f, g, h] = self.next().to_ne_bytes();
        [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_a_file_so_that_each_query_comes_once_a_round() {
        let mut seen = [0; 10];
        for thread in 0..3 {
            let mut order = Order::in_turn(10, thread, 3);
            let share = (20 - thread).div_ceil(3);
            (0..share).for_each(|_| seen[order.next() as usize] += 1);
        }
        assert_eq!(seen, [2; 10]);
    }

    #[test]
    fn what_is_given_back_comes_again() {
        let mut order = Order::in_turn(5, 0, 1);
        let first: Vec<u32> = (0..4).map(|_| order.next()).collect();
        order.give_back(2);
        assert_eq!((first[2], first[3]), (order.next(), order.next()));
    }

    #[test]
    fn a_popular_query_comes_as_often_as_zipf_says() {
        let mut order =
            Order::Zipf { popularity: Arc::new(Popularity::zipf(100, 1.0)), random: SplitMix::new(7) };
        let n_draws = 200_000;
        let mut seen = [0_u32; 101];
        (0..n_draws).for_each(|_| seen[order.next() as usize + 1] += 1);
        let harmonic: f64 = (1..=100).map(|rank| 1.0 / f64::from(rank)).sum();
        for rank in [1_u8, 2, 3, 10, 50] {
            let expected = f64::from(n_draws) / f64::from(rank) / harmonic;
            let counted = f64::from(seen[usize::from(rank)]);
            // Five standard deviations of a count; the generator has a fixed seed.
            assert!((counted - expected).abs() < 5.0 * expected.sqrt(), "{rank}: {counted} for {expected}");
        }
    }

    #[test]
    fn popularity_covers_files_of_one_line_and_flat_exponents() {
        let mut random = SplitMix::new(1);
        assert_eq!(Popularity::zipf(1, 2.0).draw(&mut random), 0);
        let flat = Popularity::zipf(4, 0.0);
        let seen: std::collections::BTreeSet<u32> = (0..200).map(|_| flat.draw(&mut random)).collect();
        assert_eq!(seen.len(), 4);
    }
}
