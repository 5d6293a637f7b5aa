//! What counts as the same answer, and which differences between servers are allowed.
//!
//! Compared are the response code, the flags, the three sections as sets (names without compression and case, TTLs
//! included) and whether there is an OPT record. Each allowed difference is a [`Rule`] with a row of the same name in
//! docs/RFC.md. A rule that no question needs any longer makes the suite fail, as does a difference without a rule.

use std::collections::BTreeSet;

use crate::message::{Answer, Name, Query, Record};
use crate::questions::{self, Zone};
use crate::rival::Kind;

/// A part of an answer that can differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The response code.
    Rcode,
    /// AA.
    Authoritative,
    /// TC, where at least one of the answers was cut.
    Truncation,
    /// Opcode, RD, RA, AD, CD and the reserved bit.
    OtherFlags,
    /// The answer section.
    Answer,
    /// The authority section.
    Authority,
    /// The additional section.
    Additional,
    /// Whether there is an OPT record, and its version.
    Opt,
}

/// Two answers to one question.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// The zone that both servers have.
    pub zone: &'a Zone,
    /// What was asked.
    pub query: &'a Query,
    /// What Weir says.
    pub ours: &'a Answer,
    /// What the rival says.
    pub theirs: &'a Answer,
    /// Who that is.
    pub rival: Kind,
    /// The octets that an answer may have: over UDP what the client takes, up to what all servers send (1,232, set alike
    /// by their defaults), over TCP 65,535.
    pub room: usize,
}

/// An allowed difference.
#[derive(Debug)]
pub struct Rule {
    /// Its name, which is found in docs/RFC.md as well.
    pub name: &'static str,
    /// The parts that may differ.
    pub parts: &'static [Part],
    /// Whether it may be used here.
    pub holds: fn(&Case<'_>) -> bool,
}

/// What comes of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// No difference.
    Same,
    /// Differences, each allowed by one of these rules.
    Excused(Vec<&'static str>),
    /// Differences that no rule allows.
    Different(Vec<Part>),
}

/// All allowed differences.
pub const RULES: &[Rule] = &[
    // RFC 9471, section 3.1: glue for in-domain name servers is complete, or TC is set. BIND and NSD leave some out.
    Rule {
        name: "in-domain-glue-dropped",
        parts: &[Part::Additional, Part::Truncation],
        holds: |case| {
            matches!(case.rival, Kind::Bind | Kind::Nsd)
                && is_referral(case.theirs)
                && !case.theirs.is_truncated()
                && has_no_room_for(case, case.theirs, &addresses_lacking(case, case.theirs, |_, _| true))
        },
    },
    // RFC 9471, section 3.2: glue for sibling name servers may be left out when there is no room. For addresses that are
    // signed there has to be room for the signature too (RFC 4035, section 3.1.1); Knot and NSD send them without.
    Rule {
        name: "sibling-glue-without-room",
        parts: &[Part::Additional, Part::Truncation],
        holds: |case| {
            let lacking = |a: &Answer, b: &Answer| -> Vec<Record> {
                b.additional.iter().filter(|r| !a.additional.contains(r)).cloned().collect()
            };
            let (ours, theirs) = (case.ours, case.theirs);
            let may_lack = |a, b| lacking(a, b).is_empty() || has_no_room_for(case, a, &lacking(a, b));
            [ours, theirs].iter().all(|a| is_referral(a) && in_domain_glue_lacking(case, a).is_empty())
                && may_lack(ours, theirs)
                && may_lack(theirs, ours)
        },
    },
    // RFC 1034, section 4.3.2, step 3b: addresses that are not glue, from the zone's own data. BIND leaves them out of
    // minimal referrals.
    Rule {
        name: "own-addresses-in-referrals",
        parts: &[Part::Additional],
        holds: |case| {
            let glue = |a: &Answer| -> Vec<Record> {
                a.additional.iter().filter(|r| case.zone.cut_above(&r.owner).is_some()).cloned().collect()
            };
            case.rival == Kind::Bind
                && is_referral(case.theirs)
                && same_set(&glue(case.ours), &glue(case.theirs))
        },
    },
    // RFC 2308, section 3: the SOA record of a negative answer is needed to cache it. Knot leaves it out when it does not
    // fit, without TC.
    Rule {
        name: "negative-soa-dropped",
        parts: &[Part::Authority, Part::Truncation],
        holds: |case| {
            // Names that Knot compresses less may be what keeps the record out: up to the length of the longest.
            case.rival == Kind::Knot
                && (case.ours.is_truncated() || case.ours.octets + 255 > case.room)
                && case.theirs.authority.is_empty()
                && case.theirs.answer.iter().all(is_alias)
        },
    },
    // RFC 1035, section 4.1.4: compression is a matter of degree, and so is what fits by a few octets: BIND spells a long
    // name, the one asked for or that of a server, once or twice more; Weir that of a proof that an alias leads to.
    Rule {
        name: "fits-by-compression",
        parts: &[Part::Truncation],
        holds: |case| {
            let uncut = if case.ours.is_truncated() { case.theirs } else { case.ours };
            let servers = uncut.authority.iter().filter(|r| r.rtype == 2);
            let names =
                uncut.answer.iter().filter(|r| r.rtype == CNAME).chain(servers).map(|r| r.rdata.len());
            let longest = names.chain([case.query.name.wire_len(), 16]).max().unwrap_or_default();
            !uncut.is_truncated() && uncut.octets + 2 * longest > case.room
        },
    },
    // RFC 6604, section 3: the response code is that of the last name of a chain, which an answer with TC may not have got
    // to. BIND and NSD look it up nevertheless.
    Rule {
        name: "rcode-of-a-cut-chain",
        parts: &[Part::Rcode],
        holds: |case| {
            let cut_chain = |a: &Answer| a.is_truncated() && a.rcode() == 0 && a.answer.iter().all(is_alias);
            cut_chain(case.ours) || (case.rival == Kind::Knot && cut_chain(case.theirs))
        },
    },
    // RFC 1034, section 3.6.2: loops of aliases have no right answer. BIND says SERVFAIL, NSD and Knot stop elsewhere.
    Rule {
        name: "alias-loop",
        parts: &[Part::Rcode, Part::Truncation, Part::Answer, Part::Authority, Part::Additional],
        holds: |case| has_loop(&case.ours.answer),
    },
    // RFC 1034, section 4.3.2, step 3a: aliases are followed. Knot stops after five of them in one answer, BIND says
    // SERVFAIL after twelve; past 16, where Weir stops, NSD goes on.
    Rule {
        name: "long-alias-chain",
        parts: &[Part::Rcode, Part::Truncation, Part::Answer, Part::Authority, Part::Additional],
        holds: |case| {
            let n_aliases = |a: &Answer| a.answer.iter().filter(|r| r.rtype == CNAME).count();
            let is_start = || case.theirs.answer.iter().all(|r| case.ours.answer.contains(r));
            let is_cut = match case.rival {
                Kind::Knot => n_aliases(case.theirs) >= 5 && n_aliases(case.ours) > n_aliases(case.theirs),
                Kind::Bind => n_aliases(case.theirs) >= 12 && case.theirs.rcode() == SERVFAIL,
                Kind::Nsd => false,
            };
            n_aliases(case.ours) >= 16 || is_cut && is_start()
        },
    },
    // RFC 1034, section 4.3.2, step 3a: an alias without NSEC is followed for a question for NSEC as for any other type.
    // Knot and BIND say that there is no data.
    Rule {
        name: "nsec-at-an-alias",
        parts: &[Part::Rcode, Part::Truncation, Part::Answer, Part::Authority, Part::Additional],
        holds: |case| {
            matches!(case.rival, Kind::Bind | Kind::Knot)
                && case.query.rtype == NSEC
                && case.ours.answer.iter().any(|r| r.rtype == CNAME && !case.theirs.answer.contains(r))
        },
    },
    // RFC 4035, section 3.1.4.1: of the types at a cut, DS alone is the parent's to answer. BIND answers NSEC as well.
    Rule {
        name: "nsec-at-a-cut",
        parts: &[Part::Authoritative, Part::Truncation, Part::Answer, Part::Authority, Part::Additional],
        holds: |case| {
            let is_cut = case.zone.cut_above(&last_name(case)).is_some();
            case.rival == Kind::Bind && case.query.rtype == NSEC && is_cut
        },
    },
    // RFC 1034, section 4.3.2, step 3a: all RRs that match QTYPE. Knot answers RRSIG with one RRset's signatures.
    Rule {
        name: "rrsig-in-part",
        parts: &[Part::Answer, Part::Truncation],
        holds: |case| {
            case.rival == Kind::Knot
                && case.query.rtype == RRSIG
                && !case.theirs.answer.is_empty()
                && case.theirs.answer.iter().all(|r| case.ours.answer.contains(r))
        },
    },
    // RFC 6672, section 3.2, step 3c: YXDOMAIN when a name grows too long, after the DNAME. Knot adds an SOA record, or
    // what the DNAME's own target has of the type.
    Rule {
        name: "more-with-yxdomain",
        parts: &[Part::Rcode, Part::Answer, Part::Authority, Part::Additional, Part::Truncation],
        holds: |case| {
            case.rival == Kind::Knot
                && case.ours.rcode() == YXDOMAIN
                && case.ours.authority.is_empty()
                && (case.theirs.is_truncated()
                    || case.ours.answer.iter().all(|r| case.theirs.answer.contains(r)))
        },
    },
    // RFC 4035, section 3.1.3.3: the proof that no closer match than the wildcard exists. Knot leaves it out of answers to
    // a question for NSEC, and where the name that was expanded starts with an asterisk itself.
    Rule {
        name: "wildcard-proof-with-nsec",
        parts: &[Part::Authority],
        holds: |case| {
            let is_proven = case.ours.authority.iter().any(|r| r.rtype == NSEC);
            let is_for_nsec = case.query.rtype == NSEC && is_proven && case.theirs.authority.is_empty();
            let has_asterisk = case.ours.answer.iter().any(|r| r.rtype == CNAME && r.owner.is_wildcard());
            let lacks = case.theirs.authority.iter().all(|r| case.ours.authority.contains(r));
            case.rival == Kind::Knot && case.query.dnssec_ok && (is_for_nsec || has_asterisk && lacks)
        },
    },
    // RFC 4035, section 3.1.3.3: the same proof for the name that a DNAME led to. NSD covers another name than that.
    Rule {
        name: "wildcard-proof-after-dname",
        parts: &[Part::Authority],
        holds: |case| {
            case.rival == Kind::Nsd
                && case.query.dnssec_ok
                && case.ours.answer.iter().any(|r| r.rtype == DNAME)
                && case.theirs.authority.iter().any(|r| r.rtype == NSEC)
        },
    },
    // RFC 5155, section 7.2.8: the owners of NSEC3 records are no names of the zone. NSD takes them for closest enclosers.
    Rule {
        name: "names-of-nsec3-records",
        parts: &[Part::Rcode, Part::Answer, Part::Authority, Part::Additional, Part::Truncation],
        holds: |case| matches!(case.rival, Kind::Nsd | Kind::Knot) && is_below_nsec3_owner(case),
    },
    // RFC 1034, section 4.3.2, step 3a: an alias is followed for a question for NSEC3 as well. NSD says that there is no data.
    Rule {
        name: "nsec3-at-an-alias",
        parts: &[Part::Answer, Part::Authority, Part::Additional, Part::Rcode, Part::Truncation],
        holds: |case| {
            case.rival == Kind::Nsd
                && case.query.rtype == NSEC3
                && case.ours.answer.iter().any(|r| r.rtype == CNAME && !case.theirs.answer.contains(r))
        },
    },
    // RFC 5155, section 7.2.3: no data at a name that exists takes the NSEC3 record of that name alone. NSD adds the proof
    // of the closest encloser when the name asked for is the wildcard itself.
    Rule {
        name: "wildcard-asked-literally",
        parts: &[Part::Authority, Part::Truncation],
        holds: |case| {
            case.rival == Kind::Nsd
                && last_name(case).is_wildcard()
                && case.zone.has_type(&case.zone.origin, NSEC3PARAM)
                && case.theirs.authority.iter().any(|r| r.rtype == NSEC3)
        },
    },
    // RFC 4035, section 3.1.3.4: two proofs, that no name is closer than the wildcard and that the wildcard has no such
    // data. For a wildcard that is an empty non-terminal BIND and Knot give the first alone.
    Rule {
        name: "empty-wildcard-proof",
        parts: &[Part::Authority, Part::Truncation],
        holds: |case| {
            matches!(case.rival, Kind::Bind | Kind::Knot)
                && case.query.dnssec_ok
                && is_made_by_empty_wildcard(case)
                && case.theirs.authority.iter().any(|r| r.rtype == NSEC)
        },
    },
    // RFC 4034, section 6.1: what lies below a label that sorts before the asterisk does so too. NSD gives that label's own
    // NSEC record to deny the wildcard, which does not cover it.
    Rule {
        name: "labels-before-the-asterisk",
        parts: &[Part::Authority, Part::Truncation],
        holds: |case| case.rival == Kind::Nsd && case.query.dnssec_ok && has_labels_before_asterisk(case),
    },
    // RFC 5155, section 7.2.5: no data at a wildcard takes the proof of the closest encloser as well. NSD leaves its record
    // out for some wildcards.
    Rule {
        name: "closest-encloser-of-a-wildcard",
        parts: &[Part::Authority, Part::Truncation],
        holds: |case| {
            let name = last_name(case);
            let wildcard = case.zone.closest_encloser(&name).child(b"*");
            let ours = &case.ours.authority;
            case.rival == Kind::Nsd
                && case.query.dnssec_ok
                && case.zone.has_type(&case.zone.origin, NSEC3PARAM)
                && case.zone.exists(&wildcard)
                && !case.zone.exists(&name)
                && (case.ours.is_truncated() || case.theirs.authority.iter().all(|r| ours.contains(r)))
        },
    },
    // RFC 5155, section 7.2.1: an empty non-terminal that is there for unsigned delegations alone has no NSEC3 record under
    // opt-out, and the closest ancestor with one stands in. NSD leaves that one out, Knot sends NXDOMAIN without anything.
    Rule {
        name: "opt-out-empty-non-terminal",
        parts: &[Part::Authoritative, Part::Authority, Part::Truncation],
        holds: |case| {
            let encloser = case.zone.closest_encloser(&last_name(case));
            let wildcard = encloser.child(b"*");
            let is_empty = |name: &Name| case.zone.exists(name) && !case.zone.owns_any(name);
            let holds_theirs = || case.theirs.authority.iter().all(|r| case.ours.authority.contains(r));
            matches!(case.rival, Kind::Nsd | Kind::Knot)
                && case.query.dnssec_ok
                && case.zone.has_type(&case.zone.origin, NSEC3PARAM)
                && (is_empty(&encloser) || case.rival == Kind::Knot && is_empty(&wildcard) && holds_theirs())
        },
    },
    // RFC 6672, section 3.2: a DNAME that leads below itself is followed until the name grows too long. NSD stops after
    // the first time, BIND says SERVFAIL after many.
    Rule {
        name: "dname-below-itself",
        parts: &[Part::Rcode, Part::Answer, Part::Authority, Part::Truncation],
        holds: |case| {
            let names = [case.query.name.clone(), last_name(case)];
            matches!(case.rival, Kind::Nsd | Kind::Bind)
                && names.iter().any(|name| case.zone.is_below_growing_dname(name))
        },
    },
    // RFC 1034, section 4.3.3: a wildcard makes answers of authoritative data. Knot and NSD make addresses of name servers
    // of it as well, even below another cut.
    Rule {
        name: "addresses-from-wildcards",
        parts: &[Part::Additional, Part::Truncation],
        holds: |case| {
            // Whether their signatures fit beside them is another matter (`sibling-glue-without-room`).
            let unsigned = |records: &[Record]| -> Vec<Record> {
                records.iter().filter(|r| r.rtype != RRSIG).cloned().collect()
            };
            let (ours, theirs) = (unsigned(&case.ours.additional), unsigned(&case.theirs.additional));
            let (exact, made): (Vec<_>, Vec<_>) =
                theirs.into_iter().partition(|r| case.zone.exists(&r.owner));
            // What is made takes the room of what there is: addresses of 16 or 28 octets, their owner a pointer.
            let n_lacking = ours.iter().filter(|r| !exact.contains(r)).count();
            let is_full = case.theirs.is_truncated() || case.theirs.octets + 28 * n_lacking > case.room;
            matches!(case.rival, Kind::Knot | Kind::Nsd)
                && is_referral(case.ours)
                && !made.is_empty()
                && (case.theirs.is_truncated() || exact.iter().all(|r| ours.contains(r)))
                && (n_lacking == 0 || is_full)
        },
    },
];

const CNAME: u16 = 5;
const DNAME: u16 = 39;
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
const NSEC3: u16 = 50;
const NSEC3PARAM: u16 = 51;

const SERVFAIL: u16 = 2;
/// The response code of a name that grew too long (RFC 6672, section 2.2).
const YXDOMAIN: u16 = 6;

/// Compares two answers.
pub fn compare(case: &Case<'_>) -> Verdict {
    let mut rules = Vec::new();
    let mut unexcused = Vec::new();
    for part in differences(case) {
        match RULES.iter().find(|rule| rule.parts.contains(&part) && (rule.holds)(case)) {
            Some(rule) => rules.push(rule.name),
            None => unexcused.push(part),
        }
    }
    match (unexcused.is_empty(), rules.is_empty()) {
        (false, _) => Verdict::Different(unexcused),
        (true, false) => Verdict::Excused(rules),
        (true, true) => Verdict::Same,
    }
}

fn differences(case: &Case<'_>) -> Vec<Part> {
    let (ours, theirs) = (case.ours, case.theirs);
    let bits = |a: &Answer| a.flags & !(0x0400 | 0x0200 | 0x000f);
    let opt = |a: &Answer| a.opt.as_ref().map(|o| (o.ttl.to_be_bytes()[1], o.ttl.to_be_bytes()[2] >> 7));
    let mut parts = Vec::new();
    let mut note = |differs: bool, part| {
        if differs {
            parts.push(part);
        }
    };
    note(ours.rcode() != theirs.rcode(), Part::Rcode);
    note(ours.is_authoritative() != theirs.is_authoritative(), Part::Authoritative);
    note(ours.is_truncated() != theirs.is_truncated(), Part::Truncation);
    note(bits(ours) != bits(theirs), Part::OtherFlags);
    note(opt(ours) != opt(theirs), Part::Opt);
    // What a cut answer still holds is of no use to anyone: clients ask again over TCP, and so does the suite.
    if !ours.is_truncated() && !theirs.is_truncated() {
        note(!same_set(&ours.answer, &theirs.answer), Part::Answer);
        note(!same_set(&ours.authority, &theirs.authority), Part::Authority);
        note(!additional_agrees(case), Part::Additional);
    }
    parts
}

/// True if both hold the same records, each once.
fn same_set(a: &[Record], b: &[Record]) -> bool {
    let set = |records: &[Record]| records.iter().cloned().collect::<BTreeSet<_>>();
    set(a) == set(b) && set(a).len() == a.len()
}

/// In a referral the additional section holds glue and has to be the same. Elsewhere it is a courtesy (RFC 1034, section
/// 4.3.2, step 6) which each server measures out as it likes: whatever there is must be the zone's.
fn additional_agrees(case: &Case<'_>) -> bool {
    let ours = &case.ours.additional;
    if is_referral(case.ours) || is_referral(case.theirs) {
        return same_set(ours, &case.theirs.additional);
    }
    ours.iter().all(|r| case.zone.holds(r)) && same_set(ours, ours)
}

/// True if the answer names a delegation's servers and says no more.
fn is_referral(answer: &Answer) -> bool {
    answer.authority.iter().any(|r| r.rtype == 2) && answer.authority.iter().all(|r| r.rtype != 6)
}

/// True if a record leads to another name, or signs one that does.
fn is_alias(record: &Record) -> bool {
    let rtype = match (record.rtype, &record.rdata[..]) {
        (RRSIG, [high, low, ..]) => u16::from_be_bytes([*high, *low]),
        (rtype, _) => rtype,
    };
    matches!(rtype, CNAME | DNAME)
}

/// True if the aliases of an answer come back to where one of them started.
fn has_loop(records: &[Record]) -> bool {
    let next = |name: &Name| records.iter().find(|r| r.rtype == CNAME && r.owner == *name);
    records.iter().filter(|r| r.rtype == CNAME).any(|start| {
        let mut at = questions::target(&start.rdata);
        // As many steps as there are records reach every name of the chain.
        for _ in records {
            if at == start.owner {
                return true;
            }
            match next(&at) {
                Some(alias) => at = questions::target(&alias.rdata),
                None => return false,
            }
        }
        false
    })
}

/// The name that the aliases of our answer lead to: the one that proofs are about.
fn last_name(case: &Case<'_>) -> Name {
    let mut name = case.query.name.clone();
    for _ in &case.ours.answer {
        let alias = case.ours.answer.iter().find(|r| r.rtype == CNAME && r.owner == name);
        match alias {
            Some(alias) => name = questions::target(&alias.rdata),
            None => break,
        }
    }
    name
}

/// True if a label right below the closest encloser, or below the wildcard there, sorts before the asterisk.
fn has_labels_before_asterisk(case: &Case<'_>) -> bool {
    let encloser = case.zone.closest_encloser(&last_name(case));
    let wildcard = encloser.child(b"*");
    [encloser, wildcard].iter().any(|name| case.zone.has_child_before_wildcard(name))
}

/// True if the name asked for, or the one that aliases lead to, is at or below the owner of an NSEC3 record.
fn is_below_nsec3_owner(case: &Case<'_>) -> bool {
    [case.query.name.clone(), last_name(case)].into_iter().any(|name| has_nsec3_owner_above(case, name))
}

fn has_nsec3_owner_above(case: &Case<'_>, mut name: Name) -> bool {
    while name != case.zone.origin && !name.0.is_empty() {
        if case.zone.has_type(&name, NSEC3) {
            return true;
        }
        name = name.parent();
    }
    false
}

/// True if the closest encloser of the name asked for has a wildcard that owns nothing.
fn is_made_by_empty_wildcard(case: &Case<'_>) -> bool {
    let name = last_name(case);
    let encloser = case.zone.closest_encloser(&name);
    let wildcard = encloser.child(b"*");
    encloser != name && case.zone.exists(&wildcard) && !case.zone.owns_any(&wildcard)
}

/// The addresses that a referral lacks of name servers that lie in the delegated zone itself.
fn in_domain_glue_lacking(case: &Case<'_>, answer: &Answer) -> Vec<Record> {
    addresses_lacking(case, answer, Name::is_at_or_below)
}

/// The addresses that a referral lacks of those of its name servers that are `wanted`, given with the cut.
fn addresses_lacking(case: &Case<'_>, answer: &Answer, wanted: fn(&Name, &Name) -> bool) -> Vec<Record> {
    let mut lacking = Vec::new();
    for ns in answer.authority.iter().filter(|r| r.rtype == 2) {
        let server = questions::target(&ns.rdata);
        if wanted(&server, &ns.owner) {
            lacking.extend(case.zone.addresses(&server).filter(|a| !answer.additional.contains(a)).cloned());
        }
    }
    lacking
}

/// True if one of the RRsets that these records are of did not fit in as well: a server may stop at the first.
fn has_no_room_for(case: &Case<'_>, answer: &Answer, records: &[Record]) -> bool {
    // With a compressed owner a record takes 12 octets and its data. A signature goes with it, of 64 octets behind 18 and
    // the signer's name, when it is no glue.
    let signature = 94 + case.zone.origin.wire_len();
    let size = |r: &Record| {
        let rrset = records.iter().filter(|other| (&other.owner, other.rtype) == (&r.owner, r.rtype));
        let is_signed = case.query.dnssec_ok && case.zone.cut_above(&r.owner).is_none();
        rrset.map(|r| 12 + r.rdata.len()).sum::<usize>() + if is_signed { signature } else { 0 }
    };
    records.iter().any(|r| answer.octets + size(r) > case.room)
}

#[cfg(test)]
mod tests {
    use super::RULES;

    #[test]
    fn every_allowed_difference_is_written_down() {
        let table = include_str!("../../../docs/RFC.md");
        for rule in RULES {
            assert!(
                table.contains(&format!("| `{}` |", rule.name)),
                "docs/RFC.md has no row for {:?}",
                rule.name
            );
        }
    }
}
