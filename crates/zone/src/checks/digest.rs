//! The zone's digest of itself (RFC 8976).

use super::Report;
use crate::canonical;
use crate::finding::Rule;
use crate::tree::Zone;
use sha1::digest::DynDigest;
use weir_wire::rtype::Rtype;

/// RFC 8976 section 5.2: the only scheme there is.
const SIMPLE: u8 = 1;

pub(super) fn check(report: &mut Report<'_>) {
    let zone = report.zone;
    let apex = zone.apex();
    let Some(digests) = apex.rrset(Rtype::ZONEMD) else { return };
    for record in digests.records.iter() {
        let Some((&[s3, s2, s1, s0, scheme, algorithm], expected)) = record.rdata.split_first_chunk::<6>()
        else {
            continue;
        };
        if u32::from_be_bytes([s3, s2, s1, s0]) != zone.serial() {
            report.push(Rule::Zonemd, apex, Rtype::ZONEMD, "it is for another serial");
            continue;
        }
        let hasher: Box<dyn DynDigest> = match (scheme, algorithm) {
            (SIMPLE, 1) => Box::new(sha2::Sha384::default()),
            (SIMPLE, 2) => Box::new(sha2::Sha512::default()),
            // RFC 8976 section 4: what is not known is passed over.
            _ => continue,
        };
        if *simple(zone, hasher) != *expected {
            report.push(Rule::Zonemd, apex, Rtype::ZONEMD, "the digest is another");
        }
    }
}

/// The digest over all records in canonical order, the digest itself and its signatures left out (section 3.3).
fn simple(zone: &Zone, mut hasher: Box<dyn DynDigest>) -> Box<[u8]> {
    let class = zone.class().0.to_be_bytes();
    for (number, node) in zone.nodes().enumerate() {
        let owner = node.owner(zone);
        for record in canonical::records(zone, node) {
            let covers_digest = record.rdata.first_chunk() == Some(&Rtype::ZONEMD.0.to_be_bytes());
            let is_digest = record.rtype == Rtype::ZONEMD || (record.rtype == Rtype::RRSIG && covers_digest);
            if number == 0 && is_digest {
                continue;
            }
            let Ok(len) = u16::try_from(record.canonical.len()) else { continue };
            hasher.update(owner.folded().octets());
            hasher.update(&record.rtype.0.to_be_bytes());
            hasher.update(&class);
            hasher.update(&record.ttl.to_be_bytes());
            hasher.update(&len.to_be_bytes());
            hasher.update(&record.canonical);
        }
    }
    hasher.finalize()
}
