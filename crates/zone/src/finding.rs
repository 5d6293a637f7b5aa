//! What a zone as a whole may have wrong: rules on RRsets and nodes, each with its advice.
//!
//! What a single line may have wrong is the reader's matter ([`crate::text`]).

use std::fmt;
use weir_wire::name::FoldedBuf;
use weir_wire::rtype::Rtype;

/// A rule that the records of a zone break together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// The zone has no SOA record at its apex (RFC 1035 section 5.2).
    SoaMissing,
    /// The zone has several SOA records (RFC 1035 section 5.2).
    SoaMultiple,
    /// An SOA record below the apex.
    SoaNotAtApex,
    /// The apex has no NS record (RFC 1035 section 5.2, RFC 2181 section 6.1).
    NsMissing,
    /// A CNAME record beside other data (RFC 1034 section 3.6.2, RFC 2181 section 10.1).
    CnameWithOtherData,
    /// Several CNAME records at one name (RFC 2181 section 10.1).
    CnameMultiple,
    /// Several DNAME records at one name (RFC 6672 section 2.4).
    DnameMultiple,
    /// Records below a DNAME: they are not answered from (RFC 6672 section 2.4).
    BelowDname,
    /// Records of one RRset with differing TTLs; the lowest is used (RFC 2181 section 5.2).
    TtlsDiffer,
    /// The same record twice; it is kept once (RFC 2181 section 5).
    Duplicate,
    /// Records of one RRset that are longer together than a message may be (RFC 1035 section 4.2.2).
    RrsetTooLarge,
    /// An RRSIG record that covers no RRset; it is left out.
    SignatureOfNothing,
    /// An NS, MX or SRV record that names an alias (RFC 2181 section 10.3).
    TargetAlias,
    /// An NS, MX or SRV record that names a host of the zone without an address.
    TargetWithoutAddress,
    /// A name server below the zone cut that it serves, without an address (RFC 1034 section 4.2.1).
    GlueMissing,
    /// An RRset without a signature in a zone with keys (RFC 4035 section 2.2).
    SignatureMissing,
    /// An RRSIG record that no key of the zone can have made (RFC 4035 section 5.3.1).
    SignatureKey,
    /// An RRSIG record that is not valid now (RFC 4034 section 3.1.5).
    SignatureExpired,
    /// An RRSIG record whose end is near.
    SignatureEndsSoon,
    /// A CDS or CDNSKEY record that is of no key in the zone (RFC 7344 section 4.1).
    KeyMismatch,
    /// A DS record where no zone is delegated (RFC 4034 section 5).
    DsWithoutCut,
    /// An NSEC or NSEC3 record that is missing or does not lead to the next (RFC 4034 section 4, RFC 5155 section 7.1).
    NsecChain,
    /// NSEC and NSEC3 records that are not used, because of each other or for want of their apex (RFC 5155 sections
    /// 4.1 and 10).
    NsecMixed,
    /// Proofs that live longer than negative answers (RFC 9077 section 3).
    NsecTtl,
    /// NSEC3 with iterations (RFC 9276 section 3.1).
    Nsec3Iterations,
    /// NSEC3 with more iterations than are served (RFC 9276 section 3.2).
    Nsec3TooManyIterations,
    /// NSEC3 with a salt (RFC 9276 section 3.1).
    Nsec3Salt,
    /// A ZONEMD record that does not match the zone (RFC 8976 section 4).
    Zonemd,
    /// A name with an asterisk that is not its first label (RFC 4592 section 2.1.1).
    WildcardInside,
    /// NS, DNAME or DS records at a wildcard (RFC 4592 section 4, RFC 6672 section 3.3).
    WildcardType,
    /// The zone is larger than its positions can tell.
    TooLarge,
}

impl Rule {
    /// Whether the zone cannot be answered from because of it.
    pub fn is_error(self) -> bool {
        matches!(
            self,
            Rule::SoaMissing
                | Rule::SoaMultiple
                | Rule::SoaNotAtApex
                | Rule::NsMissing
                | Rule::CnameWithOtherData
                | Rule::CnameMultiple
                | Rule::DnameMultiple
                | Rule::Nsec3TooManyIterations
                | Rule::TooLarge
        )
    }

    /// Whether the zone cannot be answered from whatever else it holds: what records broke that are there, and not
    /// what is missing.
    pub(crate) fn is_broken_by_any_part(self) -> bool {
        matches!(
            self,
            Rule::SoaMultiple
                | Rule::SoaNotAtApex
                | Rule::CnameWithOtherData
                | Rule::CnameMultiple
                | Rule::DnameMultiple
        )
    }

    /// A short name for lists and scripts.
    pub fn name(self) -> &'static str {
        match self {
            Rule::SoaMissing => "soa-missing",
            Rule::SoaMultiple => "soa-multiple",
            Rule::SoaNotAtApex => "soa-not-at-apex",
            Rule::NsMissing => "ns-missing",
            Rule::CnameWithOtherData => "cname-with-other-data",
            Rule::CnameMultiple => "cname-multiple",
            Rule::DnameMultiple => "dname-multiple",
            Rule::BelowDname => "below-dname",
            Rule::TtlsDiffer => "ttls-differ",
            Rule::Duplicate => "duplicate",
            Rule::RrsetTooLarge => "rrset-too-large",
            Rule::SignatureOfNothing => "signature-of-nothing",
            Rule::TargetAlias => "target-alias",
            Rule::TargetWithoutAddress => "target-without-address",
            Rule::GlueMissing => "glue-missing",
            Rule::SignatureMissing => "signature-missing",
            Rule::SignatureKey => "signature-key",
            Rule::SignatureExpired => "signature-expired",
            Rule::SignatureEndsSoon => "signature-ends-soon",
            Rule::KeyMismatch => "key-mismatch",
            Rule::DsWithoutCut => "ds-without-cut",
            Rule::NsecChain => "nsec-chain",
            Rule::NsecMixed => "nsec-mixed",
            Rule::NsecTtl => "nsec-ttl",
            Rule::Nsec3Iterations => "nsec3-iterations",
            Rule::Nsec3TooManyIterations => "nsec3-too-many-iterations",
            Rule::Nsec3Salt => "nsec3-salt",
            Rule::Zonemd => "zonemd",
            Rule::WildcardInside => "wildcard-inside",
            Rule::WildcardType => "wildcard-type",
            Rule::TooLarge => "too-large",
        }
    }

    fn sentence(self) -> &'static str {
        match self {
            Rule::SoaMissing => "the zone has no SOA record at its apex; every zone starts with one",
            Rule::SoaMultiple => "a zone has exactly one SOA record; remove the others",
            Rule::SoaNotAtApex => {
                "an SOA record stands below the apex; is the zone's name the one that the file is for?"
            }
            Rule::NsMissing => "the apex has no NS record; name the zone's servers",
            Rule::CnameWithOtherData => {
                "a CNAME record must stand alone; remove it or the other records of this name"
            }
            Rule::CnameMultiple => "a name has at most one CNAME record",
            Rule::DnameMultiple => "a name has at most one DNAME record",
            Rule::BelowDname => "the record lies below a DNAME record and is never answered",
            Rule::TtlsDiffer => "the TTLs of one RRset differ; the lowest is used",
            Rule::Duplicate => "the record is there already; this one is left out",
            Rule::RrsetTooLarge => {
                "the records of this name and type do not fit into a message together and are never answered; \
                 take some away"
            }
            Rule::SignatureOfNothing => "the RRSIG record covers no RRset of this name; it is left out",
            Rule::TargetAlias => "the record names an alias; let it name the host itself",
            Rule::TargetWithoutAddress => {
                "the host that the record names has no address in the zone; add one or mend the name"
            }
            Rule::GlueMissing => {
                "the server lies below the zone cut and cannot be found without its address; add it as glue"
            }
            Rule::SignatureMissing => {
                "the RRset has no RRSIG record though the zone has keys; sign the zone again"
            }
            Rule::SignatureKey => "no key of the zone can have made the RRSIG record; sign the zone again",
            Rule::SignatureExpired => "the RRSIG record is not valid now; sign the zone again",
            Rule::SignatureEndsSoon => "the RRSIG record is valid for a short time only; sign the zone again",
            Rule::KeyMismatch => {
                "the record is of no DNSKEY record of the zone; the parent would break the chain of trust"
            }
            Rule::DsWithoutCut => {
                "a DS record stands where there is no delegation; add NS records or remove it"
            }
            Rule::NsecChain => "the chain of NSEC or NSEC3 records is broken here; sign the zone again",
            Rule::NsecMixed => "NSEC and NSEC3 records do not fit each other; sign the zone again",
            Rule::NsecTtl => {
                "the TTL of NSEC and NSEC3 records is above that of negative answers; sign the zone again"
            }
            Rule::Nsec3Iterations => "NSEC3 iterations cost time and protect nothing; use 0",
            Rule::Nsec3TooManyIterations => "there are too many NSEC3 iterations; use 0",
            Rule::Nsec3Salt => "the salt of NSEC3 protects nothing; use none, written as a hyphen",
            Rule::Zonemd => "the ZONEMD record does not match the zone; compute it again",
            Rule::WildcardInside => {
                "an asterisk makes a wildcard only as the first label of a name; this one is an ordinary label"
            }
            Rule::WildcardType => "this type does nothing sensible at a wildcard; remove it",
            Rule::TooLarge => "the zone is too large",
        }
    }
}

/// A broken rule and where.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// The name whose records break it.
    pub owner: FoldedBuf,
    /// The type of the record that showed it.
    pub rtype: Rtype,
    /// What the caller handed in with that record ([`crate::builder::ZoneBuilder::add`]), such as its line.
    pub tag: Option<u32>,
    /// What the rule found in particular; empty when the rule says it all.
    pub detail: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.owner, self.rtype, self.rule.sentence())?;
        if self.detail.is_empty() { Ok(()) } else { write!(f, " ({})", self.detail) }
    }
}

/// Findings kept of each severity: a zone of duplicates does not fill the memory.
const MAX_KEPT: usize = 1000;

/// Findings in order, bounded.
#[derive(Clone, Debug, Default)]
pub(crate) struct FindingList {
    list: Vec<Finding>,
    n_errors: usize,
    n_warnings: usize,
}

impl FindingList {
    /// Keeps a finding, unless there are many of its severity.
    pub(crate) fn push(&mut self, finding: Finding) {
        let n = if finding.rule.is_error() { &mut self.n_errors } else { &mut self.n_warnings };
        *n += 1;
        if *n <= MAX_KEPT {
            self.list.push(finding);
        }
    }

    /// Puts the findings of `other` behind these.
    pub(crate) fn append(&mut self, other: FindingList) {
        other.list.into_iter().for_each(|finding| self.push(finding));
    }

    /// Whether the zone cannot be answered from.
    pub(crate) fn has_errors(&self) -> bool {
        self.n_errors > 0
    }

    /// The findings that were kept.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.list
    }
}
