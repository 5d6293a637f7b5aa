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
    /// An RRSIG record that covers no RRset; it is left out.
    SignatureOfNothing,
    /// The zone is larger than its positions can tell.
    TooLarge,
}

impl Rule {
    /// Whether the zone cannot be answered from because of it.
    pub fn is_error(self) -> bool {
        match self {
            Rule::SoaMissing
            | Rule::SoaMultiple
            | Rule::SoaNotAtApex
            | Rule::NsMissing
            | Rule::CnameWithOtherData
            | Rule::CnameMultiple
            | Rule::DnameMultiple
            | Rule::TooLarge => true,
            Rule::BelowDname | Rule::TtlsDiffer | Rule::Duplicate | Rule::SignatureOfNothing => false,
        }
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
            Rule::SignatureOfNothing => "signature-of-nothing",
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
            Rule::SignatureOfNothing => "the RRSIG record covers no RRset of this name; it is left out",
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
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.owner, self.rtype, self.rule.sentence())
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
