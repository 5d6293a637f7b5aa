//! Sets of types from their mnemonics.

use super::fields::{FieldReader, rtype_of, shown};
use super::scanner::{Form, Stop, Token};

/// Windows of types, ascending, whatever the order they are written in (RFC 4034 section 4.1.2).
pub(super) fn windows<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    collect(reader, token)?;
    let types = std::mem::take(&mut reader.scratch.types);
    for window in types.chunk_by(|a, b| a >> 8 == b >> 8) {
        let mut bits = [0u8; 32];
        let mut n_octets = 0u8;
        for &number in window {
            let [window_number, low] = number.to_be_bytes();
            if n_octets == 0 {
                reader.out.push(window_number);
            }
            if let Some(octet) = bits.get_mut(usize::from(low / 8)) {
                *octet |= 0x80 >> (low % 8);
            }
            n_octets = low / 8 + 1;
        }
        reader.out.push(n_octets);
        reader.out.extend_from_slice(bits.get(..usize::from(n_octets)).unwrap_or(&[]));
    }
    reader.scratch.types = types;
    Ok(())
}

/// Types up to 127 in one run of bits (RFC 2535 section 5.2).
pub(super) fn nxt<'t>(reader: &mut FieldReader<'_, 't>, token: Option<Token<'t>>) -> Result<(), Stop> {
    collect(reader, token)?;
    let start = reader.out.len();
    for &number in &reader.scratch.types {
        if number > 127 {
            return Err(reader.scanner.wrong("rdata", "NXT knows types up to 127 only"));
        }
        let at = start + usize::from(number / 8);
        reader.out.resize(at + 1, 0);
        if let Some(octet) = reader.out.get_mut(at) {
            *octet |= 0x80 >> (number % 8);
        }
    }
    Ok(())
}

/// Fills the scratch list with the types that are left in the entry, sorted, each once.
fn collect<'t>(reader: &mut FieldReader<'_, 't>, first: Option<Token<'t>>) -> Result<(), Stop> {
    reader.scratch.types.clear();
    let mut next = first;
    while let Some(token) = next {
        let rtype =
            Some(token).filter(|token| token.form == Form::Plain).and_then(|token| rtype_of(token.text));
        let Some(rtype) = rtype else {
            return Err(reader.scanner.wrong("type", format!("{} is not a record type", shown(token))));
        };
        reader.scratch.types.push(rtype.0);
        next = reader.scanner.token()?;
    }
    reader.scratch.types.sort_unstable();
    reader.scratch.types.dedup();
    Ok(())
}
