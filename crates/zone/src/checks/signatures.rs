//! Signatures: there, made by a key of the zone, and neither over nor about to be (RFC 4034 section 3).

use super::Report;
use super::keys::Keys;
use crate::checks::Limits;
use crate::finding::Rule;
use crate::tree::{Node, Rrset};
use std::cmp::Ordering;
use weir_wire::name::Name;
use weir_wire::rtype::Rtype;

pub(super) fn check(node: Node<'_>, keys: &Keys, limits: &Limits, report: &mut Report<'_>) {
    for rrset in node.rrsets() {
        // RFC 4035 section 2.2: at a zone cut only what the parent says of it is signed.
        let is_signed = !node.is_delegation() || matches!(rrset.rtype, Rtype::DS | Rtype::NSEC);
        if is_signed && rrset.signatures.n_records == 0 {
            report.push(Rule::SignatureMissing, node, rrset.rtype, "");
        }
        for signature in rrset.signatures.iter() {
            if let Some(signature) = Signature::read(signature.rdata) {
                judge(&signature, node, &rrset, keys, limits, report);
            }
        }
    }
}

fn judge(
    signature: &Signature<'_>,
    node: Node<'_>,
    rrset: &Rrset<'_>,
    keys: &Keys,
    limits: &Limits,
    report: &mut Report<'_>,
) {
    let owner = node.owner(report.zone);
    let name = owner.folded().name();
    // RFC 4034 section 3.1.3: the asterisk of a wildcard is not counted. Elsewhere in a name it is a label like any.
    let n_labels = name.n_labels() - usize::from(name.is_wildcard());
    let is_of_zone = signature.signer == report.zone.origin().name();
    if !is_of_zone
        || !keys.has(signature.key_tag, signature.algorithm)
        || usize::from(signature.n_labels) != n_labels
    {
        report.push(Rule::SignatureKey, node, rrset.rtype, format!("key tag {}", signature.key_tag));
        return;
    }
    let Some(now) = limits.now else { return };
    let (is_over, is_early) =
        (is_before(signature.expiration, now), !is_before(signature.inception, now.saturating_add(1)));
    let rule = if is_over || is_early {
        Rule::SignatureExpired
    } else if is_before(signature.expiration, now.saturating_add(u64::from(limits.signature_margin))) {
        Rule::SignatureEndsSoon
    } else {
        return;
    };
    let at = if is_early { signature.inception } else { signature.expiration };
    let word = if is_early { "from" } else { "until" };
    report.push(rule, node, rrset.rtype, format!("{word} {}", weir_wire::rdata::Timestamp(at)));
}

/// Compares as serial numbers do (RFC 4034 section 3.1.5).
#[expect(clippy::cast_possible_truncation, reason = "serial numbers are seconds modulo 2^32")]
fn is_before(time: u32, now: u64) -> bool {
    (time.wrapping_sub(now as u32).cast_signed()).cmp(&0) == Ordering::Less
}

/// What is judged of RRSIG's RDATA (RFC 4034 section 3.1).
struct Signature<'z> {
    algorithm: u8,
    n_labels: u8,
    expiration: u32,
    inception: u32,
    key_tag: u16,
    signer: Name<'z>,
}

impl<'z> Signature<'z> {
    fn read(rdata: &'z [u8]) -> Option<Signature<'z>> {
        let (head, rest) = rdata.split_first_chunk::<18>()?;
        let [_, _, algorithm, n_labels, _, _, _, _, e3, e2, e1, e0, i3, i2, i1, i0, k1, k0] = *head;
        Some(Signature {
            algorithm,
            n_labels,
            expiration: u32::from_be_bytes([e3, e2, e1, e0]),
            inception: u32::from_be_bytes([i3, i2, i1, i0]),
            key_tag: u16::from_be_bytes([k1, k0]),
            signer: Name::parse(rest).ok()?.0,
        })
    }
}
