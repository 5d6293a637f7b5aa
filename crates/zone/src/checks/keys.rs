//! The zone's keys, and what refers to them.

use super::Report;
use crate::finding::Rule;
use crate::tree::Zone;
use sha1::Digest;
use weir_wire::rtype::Rtype;

/// The DNSKEY records at the apex.
pub(super) struct Keys {
    keys: Vec<Key>,
}

struct Key {
    tag: u16,
    algorithm: u8,
    rdata: Vec<u8>,
}

impl Keys {
    pub(super) fn of(zone: &Zone) -> Keys {
        let dnskeys = zone.apex().rrset(Rtype::DNSKEY);
        let records = dnskeys.iter().flat_map(|rrset| rrset.records.iter());
        let keys = records.map(|record| Key {
            tag: key_tag(record.rdata),
            algorithm: record.rdata.get(3).copied().unwrap_or(0),
            rdata: record.rdata.to_vec(),
        });
        Keys { keys: keys.collect() }
    }

    /// Whether signatures are to be expected.
    pub(super) fn is_signed(&self) -> bool {
        !self.keys.is_empty()
    }

    /// Whether a key has this tag and algorithm.
    pub(super) fn has(&self, tag: u16, algorithm: u8) -> bool {
        self.keys.iter().any(|key| key.tag == tag && key.algorithm == algorithm)
    }
}

/// A key's tag (RFC 4034 appendix B); algorithm 1 and its other computation are long gone.
fn key_tag(rdata: &[u8]) -> u16 {
    let sum: u32 = rdata
        .iter()
        .enumerate()
        .map(|(at, &octet)| if at % 2 == 0 { u32::from(octet) << 8 } else { u32::from(octet) })
        .fold(0, u32::wrapping_add);
    let [_, _, high, low] = (sum + (sum >> 16)).to_be_bytes();
    u16::from_be_bytes([high, low])
}

/// CDS and CDNSKEY records are for keys that there are (RFC 7344 section 4.1); DS records stand at zone cuts.
pub(super) fn check(keys: &Keys, report: &mut Report<'_>) {
    let zone = report.zone;
    let apex = zone.apex();
    if let Some(cds) = apex.rrset(Rtype::CDS) {
        for record in cds.records.iter().filter(|record| !is_delete(record.rdata)) {
            if !keys.keys.iter().any(|key| is_digest_of(record.rdata, key, zone)) {
                report.push(Rule::KeyMismatch, apex, Rtype::CDS, "");
            }
        }
    }
    if let Some(cdnskey) = apex.rrset(Rtype::CDNSKEY) {
        for record in cdnskey.records.iter().filter(|record| !is_delete_key(record.rdata)) {
            if !keys.keys.iter().any(|key| key.rdata == record.rdata) {
                report.push(Rule::KeyMismatch, apex, Rtype::CDNSKEY, "");
            }
        }
    }
    for node in zone.nodes() {
        if !super::is_occluded(&node) && !node.is_delegation() && node.rrset(Rtype::DS).is_some() {
            report.push(Rule::DsWithoutCut, node, Rtype::DS, "");
        }
    }
}

/// RFC 8078 section 4: a record that asks for the DS records to be removed.
fn is_delete(rdata: &[u8]) -> bool {
    matches!(rdata, [0, 0, 0, 0, ..])
}

fn is_delete_key(rdata: &[u8]) -> bool {
    matches!(rdata, [0, 0, 3, 0, ..])
}

/// Whether a DS or CDS record is the digest of a key (RFC 4034 section 5.1.4); digests of other types are taken for
/// right.
fn is_digest_of(ds: &[u8], key: &Key, zone: &Zone) -> bool {
    let Some((&[t1, t0, algorithm, digest_type], digest)) = ds.split_first_chunk::<4>() else { return false };
    if u16::from_be_bytes([t1, t0]) != key.tag || algorithm != key.algorithm {
        return false;
    }
    let message = [zone.origin().octets(), &key.rdata].concat();
    match digest_type {
        1 => sha1::Sha1::digest(message).as_slice() == digest,
        2 => sha2::Sha256::digest(message).as_slice() == digest,
        4 => sha2::Sha384::digest(message).as_slice() == digest,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_tag_is_that_of_rfc_4034_section_5_4() {
        let key = "AQOeiiR0GOMYkDshWoSKz9XzfwJr1AYtsmx3TGkJaNXVbfi/2pHm822aJ5iI9BMzNXxeYCmZDRD99WYwYqUSdjMmmAphXdvxegXd/M5+X7OrzKBaMbCVdFLUUh6DhweJBjEVv5f2wwjM9XzcnOf+EPbtG9DMBmADjFDc2w/rljwvFw==";
        let text = format!("@ 60 DNSKEY 256 3 5 {key}\n");
        let mut tags = Vec::new();
        let mut sink = |record: crate::text::Record<'_>| tags.push(key_tag(record.rdata));
        let source = crate::text::Source::Octets("key", text.as_bytes());
        crate::text::read(source, weir_wire::name::Name::ROOT, &mut sink, &crate::text::Options::default());
        assert_eq!(tags, [60485]);
    }
}
