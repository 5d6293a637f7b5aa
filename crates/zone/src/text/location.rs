//! Positions on Earth (RFC 1876 section 3).

use super::fields::FieldReader;
use super::number::decimal;
use super::scanner::{Stop, Token};
use weir_wire::rdata::{LocSize, MAX_LOC_ALTITUDE_CM};

/// `D [M [S]] N|S D [M [S]] E|W ALTITUDE [SIZE [HORIZONTAL [VERTICAL]]]`, to the end of the entry.
pub(super) fn location<'t>(reader: &mut FieldReader<'_, 't>, first: Option<Token<'t>>) -> Result<(), Stop> {
    let latitude = angle(reader, first, b"NS", 90)?;
    let token = reader.scanner.token()?;
    let longitude = angle(reader, token, b"EW", 180)?;
    let token = reader.scanner.token()?;
    let altitude = reader.parsed(token, altitude_cm, "an altitude in metres")?;
    let mut sizes = [DEFAULT_SIZE, DEFAULT_HORIZONTAL, DEFAULT_VERTICAL];
    let mut next = reader.scanner.token()?;
    for size in &mut sizes {
        if next.is_none() {
            break;
        }
        *size = reader.parsed(next, packed_size, "a size in metres")?;
        next = reader.scanner.token()?;
    }
    reader.nothing_follows(next)?;
    reader.out.push(0);
    reader.out.extend(sizes.map(|size| size.0));
    reader.out.extend_from_slice(&latitude.to_be_bytes());
    reader.out.extend_from_slice(&longitude.to_be_bytes());
    reader.out.extend_from_slice(&altitude.to_be_bytes());
    Ok(())
}

/// One metre.
const DEFAULT_SIZE: LocSize = LocSize(0x12);
/// Ten kilometres.
const DEFAULT_HORIZONTAL: LocSize = LocSize(0x16);
/// Ten metres.
const DEFAULT_VERTICAL: LocSize = LocSize(0x13);
/// What the equator and the prime meridian are written as.
const ORIGIN: u32 = 1 << 31;

/// Degrees, minutes and seconds up to a hemisphere letter, in thousandths of a second from 2^31.
fn angle<'t>(
    reader: &mut FieldReader<'_, 't>,
    first: Option<Token<'t>>,
    hemispheres: &[u8; 2],
    max_degrees: u64,
) -> Result<u32, Stop> {
    let mut total = 1000 * 3_600 * reader.number(first, max_degrees)?;
    let mut unit = 60_000;
    loop {
        let token = reader.scanner.token()?;
        let found = reader.required(token, "a hemisphere (N, S, E or W)")?;
        match found.text {
            [letter] if hemispheres.contains(&letter.to_ascii_uppercase()) => {
                let is_negative = hemispheres.last() == Some(&letter.to_ascii_uppercase());
                let milliseconds = u32::try_from(total).unwrap_or(u32::MAX);
                if total > 1000 * 3_600 * max_degrees {
                    return Err(reader.scanner.wrong("rdata", format!("more than {max_degrees} degrees")));
                }
                return Ok(if is_negative { ORIGIN - milliseconds } else { ORIGIN + milliseconds });
            }
            _ if unit == 60_000 => total += unit * reader.number(token, 59)?,
            _ if unit == 1_000 => {
                total += reader.parsed(token, thousandths, "seconds below 60 with up to three decimals")?;
            }
            _ => return Err(reader.expected("a hemisphere (N, S, E or W)", found)),
        }
        unit = if unit == 60_000 { 1_000 } else { 0 };
    }
}

fn thousandths(text: &[u8]) -> Option<u64> {
    fixed_point(text, 3).filter(|value| *value < 60_000)
}

/// Centimetres above 100 km below the reference.
fn altitude_cm(text: &[u8]) -> Option<u32> {
    let text = text.strip_suffix(b"m").unwrap_or(text);
    let (sign, text) = text.strip_prefix(b"-").map_or((1, text), |text| (-1, text));
    let centimetres = sign * i64::try_from(fixed_point(text, 2)?).ok()?;
    if centimetres > MAX_LOC_ALTITUDE_CM {
        return None;
    }
    u32::try_from(centimetres.checked_add(10_000_000)?).ok()
}

fn packed_size(text: &[u8]) -> Option<LocSize> {
    LocSize::from_centimetres(fixed_point(text.strip_suffix(b"m").unwrap_or(text), 2)?)
}

/// A number with at most `n_decimals` decimals, in units of its last possible decimal.
fn fixed_point(text: &[u8], n_decimals: usize) -> Option<u64> {
    let mut parts = text.splitn(2, |&octet| octet == b'.');
    let whole = decimal(parts.next()?)?;
    let decimals = parts.next().unwrap_or(b"0");
    if decimals.len() > n_decimals.max(1) {
        return None;
    }
    let missing = u32::try_from(n_decimals - decimals.len()).ok()?;
    let fraction = decimal(decimals)? * 10u64.pow(missing);
    whole.checked_mul(10u64.pow(u32::try_from(n_decimals).ok()?))?.checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_optional_and_bounded() {
        assert_eq!(fixed_point(b"12", 2), Some(1_200));
        assert_eq!(fixed_point(b"12.3", 2), Some(1_230));
        assert_eq!(fixed_point(b"12.345", 3), Some(12_345));
        assert_eq!(fixed_point(b"12.345", 2), None);
        assert_eq!(altitude_cm(b"-24m"), Some(10_000_000 - 2_400));
        assert_eq!(altitude_cm(b"-100000.00m"), Some(0));
        assert_eq!(altitude_cm(b"-100000.01"), None);
        assert_eq!(altitude_cm(b"42849672.95"), Some(u32::MAX));
        assert_eq!(altitude_cm(b"42849672.96"), None);
        assert_eq!(altitude_cm(b"92233720368547758.07m"), None);
        assert_eq!(altitude_cm(b"-92233720368547758.07m"), None);
        assert_eq!(altitude_cm(b"184467440737095516.15m"), None);
    }
}
