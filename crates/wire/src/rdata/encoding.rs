//! Hexadecimal, base64 (RFC 4648 section 4) and base32hex without padding (RFC 4648 section 7).
//!
//! Decoders take text piece by piece, because white space may part it in a zone file (RFC 4034 section 2.2).

use std::fmt;

/// A digit that does not belong to its encoding, or text that ends at the wrong place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEncoded;

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const BASE32HEX: &[u8; 32] = b"0123456789ABCDEFGHIJKLMNOPQRSTUV";

/// A decoder of digits that hold `BITS` bits each.
struct Bits<const BITS: u32> {
    pending: u32,
    n_pending: u32,
}

impl<const BITS: u32> Bits<BITS> {
    const START: Bits<BITS> = Bits { pending: 0, n_pending: 0 };

    #[inline]
    fn push(&mut self, digit: u8, out: &mut Vec<u8>) {
        self.pending = self.pending << BITS | u32::from(digit);
        self.n_pending += BITS;
        if self.n_pending >= 8 {
            self.n_pending -= 8;
            let [.., octet] = (self.pending >> self.n_pending).to_be_bytes();
            out.push(octet);
            self.pending &= (1 << self.n_pending) - 1;
        }
    }
}

/// Digits of hexadecimal text, two an octet.
pub struct HexDecoder {
    bits: Bits<4>,
}

impl Default for HexDecoder {
    fn default() -> Self {
        HexDecoder { bits: Bits::START }
    }
}

impl HexDecoder {
    /// Decodes a piece of the text.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<(), NotEncoded> {
        for &octet in text {
            let digit = hex_digit(octet).ok_or(NotEncoded)?;
            self.bits.push(digit, out);
        }
        Ok(())
    }

    /// Says whether the text ended between octets.
    pub fn finish(self) -> Result<(), NotEncoded> {
        if self.bits.n_pending == 0 { Ok(()) } else { Err(NotEncoded) }
    }
}

/// The value of a hexadecimal digit in either case.
pub fn hex_digit(octet: u8) -> Option<u8> {
    match octet {
        b'0'..=b'9' => Some(octet - b'0'),
        b'a'..=b'f' => Some(octet - b'a' + 10),
        b'A'..=b'F' => Some(octet - b'A' + 10),
        _ => None,
    }
}

/// Digits of base64 text with its padding.
pub struct Base64Decoder {
    bits: Bits<6>,
    n_padding: u32,
    n_digits: u64,
}

impl Default for Base64Decoder {
    fn default() -> Self {
        Base64Decoder { bits: Bits::START, n_padding: 0, n_digits: 0 }
    }
}

impl Base64Decoder {
    /// Decodes a piece of the text.
    pub fn push(&mut self, text: &[u8], out: &mut Vec<u8>) -> Result<(), NotEncoded> {
        for &octet in text {
            self.n_digits += 1;
            match base64_digit(octet) {
                Some(digit) if self.n_padding == 0 => self.bits.push(digit, out),
                None if octet == b'=' && self.n_padding < 2 => self.n_padding += 1,
                _ => return Err(NotEncoded),
            }
        }
        Ok(())
    }

    /// Says whether the text ended where base64 can: groups of four digits, no bits left over.
    pub fn finish(self) -> Result<(), NotEncoded> {
        // Two padding digits stand for four left-over bits, one for two; those bits are zero.
        let right = self.n_digits.is_multiple_of(4)
            && self.bits.n_pending == 2 * self.n_padding
            && self.bits.pending == 0;
        if right { Ok(()) } else { Err(NotEncoded) }
    }
}

fn base64_digit(octet: u8) -> Option<u8> {
    match octet {
        b'A'..=b'Z' => Some(octet - b'A'),
        b'a'..=b'z' => Some(octet - b'a' + 26),
        b'0'..=b'9' => Some(octet - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

/// Decodes base32hex without padding, in either case.
pub fn decode_base32hex(text: &[u8], out: &mut Vec<u8>) -> Result<(), NotEncoded> {
    let mut bits = Bits::<5>::START;
    for &octet in text {
        let digit = match octet {
            b'0'..=b'9' => octet - b'0',
            b'a'..=b'v' => octet - b'a' + 10,
            b'A'..=b'V' => octet - b'A' + 10,
            _ => return Err(NotEncoded),
        };
        bits.push(digit, out);
    }
    if bits.n_pending < 5 && bits.pending == 0 { Ok(()) } else { Err(NotEncoded) }
}

/// Prints octets as hexadecimal digits in lower case.
pub struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

/// Prints octets as base64 with padding.
pub struct Base64<'a>(pub &'a [u8]);

impl fmt::Display for Base64<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in self.0.chunks(3) {
            let mut octets = [0; 4];
            octets.iter_mut().skip(1).zip(group).for_each(|(to, from)| *to = *from);
            let bits = u32::from_be_bytes(octets);
            for at in 0..4 {
                let digit = BASE64.get(usize::try_from(bits >> (18 - 6 * at) & 63).unwrap_or(0));
                let shown = digit.filter(|_| at <= group.len());
                f.write_str(shown.map_or("=", |digit| ascii(std::slice::from_ref(digit))))?;
            }
        }
        Ok(())
    }
}

/// Prints octets as base32hex digits in lower case without padding.
pub struct Base32Hex<'a>(pub &'a [u8]);

impl fmt::Display for Base32Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for group in self.0.chunks(5) {
            let mut octets = [0; 8];
            octets.iter_mut().skip(3).zip(group).for_each(|(to, from)| *to = *from);
            let bits = u64::from_be_bytes(octets);
            for at in 0..(group.len() * 8).div_ceil(5) {
                let digit = BASE32HEX.get(usize::try_from(bits >> (35 - 5 * at) & 31).unwrap_or(0));
                let lower = digit.map_or(b'0', u8::to_ascii_lowercase);
                write!(f, "{}", char::from(lower))?;
            }
        }
        Ok(())
    }
}

fn ascii(octets: &[u8]) -> &str {
    std::str::from_utf8(octets).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn base64_prints_the_vectors_of_rfc_4648_section_10() {
        let vectors = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")];
        for (plain, encoded) in vectors {
            assert_eq!(Base64(plain.as_bytes()).to_string(), encoded);
        }
        assert_eq!(Base32Hex(b"foobar").to_string(), "cpnmuoj1e8");
    }

    #[test]
    fn text_that_is_not_the_encoding_is_refused() {
        let base64 = |text: &[u8]| {
            let mut decoder = Base64Decoder::default();
            decoder.push(text, &mut Vec::new()).and_then(|()| decoder.finish())
        };
        for text in [&b"Zg"[..], b"Zg=", b"Zg===", b"Z", b"Zh==", b"Z g==", b"=", b"Zg==Zg=="] {
            assert_eq!(base64(text), Err(NotEncoded), "{text:?}");
        }
        assert_eq!(decode_base32hex(b"cpnmuoj1e", &mut Vec::new()), Err(NotEncoded));
        assert_eq!(decode_base32hex(b"cw", &mut Vec::new()), Err(NotEncoded));
        let mut hex = HexDecoder::default();
        assert_eq!(hex.push(b"0", &mut Vec::new()), Ok(()));
        assert_eq!(hex.finish(), Err(NotEncoded));
    }

    proptest! {
        #[test]
        fn printed_octets_decode_to_themselves(octets in proptest::collection::vec(any::<u8>(), 0..40), cut in 0usize..60) {
            let text = Base64(&octets).to_string();
            let (front, back) = text.as_bytes().split_at(cut.min(text.len()));
            let (mut decoder, mut out) = (Base64Decoder::default(), Vec::new());
            decoder.push(front, &mut out).unwrap();
            decoder.push(back, &mut out).unwrap();
            decoder.finish().unwrap();
            prop_assert_eq!(&out, &octets);
            out.clear();
            decode_base32hex(Base32Hex(&octets).to_string().as_bytes(), &mut out).unwrap();
            prop_assert_eq!(&out, &octets);
            out.clear();
            let mut decoder = HexDecoder::default();
            decoder.push(Hex(&octets).to_string().as_bytes(), &mut out).unwrap();
            decoder.finish().unwrap();
            prop_assert_eq!(&out, &octets);
        }
    }
}
