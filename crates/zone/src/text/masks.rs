//! Where a window has octets that may end a token, and where it has dots: a bit an octet, found 64 at a time.
//!
//! The loop over 64 octets compiles to vector instructions on every target; what follows looks at bits, not octets.

/// One bit for each octet of a window, the lowest bit of the first word being the first octet.
#[derive(Debug, Default)]
pub(super) struct Masks {
    special: Vec<u64>,
    dots: Vec<u64>,
}

impl Masks {
    /// Looks at a window; what was known of another one is forgotten.
    pub(super) fn fill(&mut self, window: &[u8]) {
        self.special.clear();
        self.dots.clear();
        let (blocks, rest) = window.as_chunks::<64>();
        for block in blocks {
            self.push(block);
        }
        if !rest.is_empty() {
            let mut block = [b'a'; 64];
            block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            self.push(&block);
        }
    }

    #[inline]
    fn push(&mut self, block: &[u8; 64]) {
        self.special.push(mask_of(block, may_be_special));
        self.dots.push(mask_of(block, |octet| octet == b'.'));
    }

    /// The place of the first octet from `at` on that may be special, or a place past the window.
    #[inline]
    pub(super) fn next_special(&self, at: usize) -> usize {
        next_bit(&self.special, at)
    }

    /// The place of the first dot from `at` on, or a place past the window.
    #[inline]
    pub(super) fn next_dot(&self, at: usize) -> usize {
        next_bit(&self.dots, at)
    }
}

/// Octets that the scanner has to look at, and control octets, which are rare.
#[inline]
fn may_be_special(octet: u8) -> bool {
    // The two parentheses differ in their lowest bit.
    (octet <= b' ') | (octet == b'"') | (octet | 1 == b')') | (octet == b';') | (octet == b'\\')
}

#[inline]
fn mask_of(block: &[u8; 64], is_wanted: impl Fn(u8) -> bool) -> u64 {
    let flags = block.map(|octet| u8::from(is_wanted(octet)));
    let words = flags.as_chunks::<8>().0;
    // The product moves the lowest bits of eight octets into the highest octet, in order.
    let gather = |word: &[u8; 8]| u64::from_le_bytes(*word).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    words.iter().rev().fold(0, |mask, word| mask << 8 | gather(word))
}

#[inline]
fn next_bit(words: &[u64], at: usize) -> usize {
    let first = at / 64;
    let Some(word) = words.get(first) else { return usize::MAX };
    let left = word >> (at % 64);
    if left != 0 {
        return at + trailing_zeros(left);
    }
    for (n, word) in (first + 1..).zip(words.iter().skip(first + 1)) {
        if *word != 0 {
            return n * 64 + trailing_zeros(*word);
        }
    }
    usize::MAX
}

#[inline]
fn trailing_zeros(word: u64) -> usize {
    usize::try_from(word.trailing_zeros()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn bits_stand_where_looking_at_each_octet_finds_them(
            window in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'.'), Just(b'a'), Just(0xa2)], 0..200),
            at in 0usize..220,
        ) {
            let mut masks = Masks::default();
            masks.fill(b"what was there before; (is) gone");
            masks.fill(&window);
            let find = |is_wanted: fn(u8) -> bool| {
                (at..window.len()).find(|&at| is_wanted(window[at])).unwrap_or(usize::MAX)
            };
            prop_assert_eq!(masks.next_dot(at), find(|octet| octet == b'.'));
            prop_assert_eq!(masks.next_special(at), find(|octet| octet <= b' ' || b"\"();\\".contains(&octet)));
        }
    }
}
