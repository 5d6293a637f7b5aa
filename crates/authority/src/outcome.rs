//! What a name and a type meet in a zone: the algorithm of RFC 1034 section 4.3.2 as amended by RFC 4592, RFC 6672
//! and RFC 4035, as one pure function.

use weir_wire::name::QueryName;
use weir_wire::rtype::Rtype;
use weir_zone::{Lookup, Node, Rrset, Zone};

/// The one of the algorithm's endings that applies.
#[derive(Clone, Copy, Debug)]
pub enum Outcome<'z> {
    /// The RRset asked for: at the name itself, or synthesized from a wildcard (RFC 4592 section 3.3).
    Rrset {
        /// The RRset.
        rrset: Rrset<'z>,
        /// Where it was found.
        source: Source<'z>,
    },
    /// All RRsets of the name, for a query of type ANY.
    Any {
        /// Where they were found.
        source: Source<'z>,
    },
    /// All signatures of the name, for a query of type RRSIG.
    Signatures {
        /// Where they were found.
        source: Source<'z>,
    },
    /// A CNAME record in place of what was asked for: go on at its target (RFC 1034 section 3.6.2).
    Alias {
        /// The CNAME RRset.
        cname: Rrset<'z>,
        /// Where it was found.
        source: Source<'z>,
    },
    /// The name lies below a DNAME record: go on at the substituted name (RFC 6672 section 3.2).
    Substitution {
        /// The DNAME record's node.
        node: Node<'z>,
        /// The DNAME RRset.
        dname: Rrset<'z>,
    },
    /// The name lies at or below a zone cut: others are authoritative (RFC 1034 section 4.3.2 step 3b).
    Referral {
        /// The zone cut's node.
        cut: Node<'z>,
        /// Its NS RRset.
        ns: Rrset<'z>,
    },
    /// The name exists, the type does not (RFC 2308 section 2.2).
    NoData {
        /// Where the type was missed.
        source: Source<'z>,
    },
    /// The name does not exist (RFC 2308 section 2.1).
    NameError {
        /// Its longest existing ancestor.
        closest_encloser: Node<'z>,
        /// Labels of the name in front of the closest encloser.
        skip: usize,
    },
}

/// The node that an answer comes from.
#[derive(Clone, Copy, Debug)]
pub enum Source<'z> {
    /// The name's own node.
    Name(Node<'z>),
    /// The wildcard that the name was synthesized from, and the name's closest encloser.
    Wildcard {
        /// The wildcard's node.
        wildcard: Node<'z>,
        /// The wildcard's parent: the longest existing ancestor of the name.
        closest_encloser: Node<'z>,
        /// Labels of the name in front of the closest encloser.
        skip: usize,
    },
}

impl<'z> Source<'z> {
    /// The node whose RRsets answer.
    pub fn node(&self) -> Node<'z> {
        match self {
            Source::Name(node) | Source::Wildcard { wildcard: node, .. } => *node,
        }
    }
}

/// Tells what a query of type `qtype` for `name`, which was looked up, meets.
#[inline]
pub(crate) fn classify<'z>(
    zone: &'z Zone,
    name: &QueryName,
    lookup: Lookup<'z>,
    qtype: Rtype,
) -> Outcome<'z> {
    let source = match lookup {
        Lookup::Exact(node) => match node.covering() {
            // RFC 4035 section 3.1.4.1: DS records lie on the parent's side of the cut.
            Some(covering) if !(covering.is(&node) && qtype == Rtype::DS) => return covered(covering),
            _ => Source::Name(node),
        },
        Lookup::Missing { closest_encloser, skip } => match missing(zone, name, closest_encloser, skip) {
            Ok(source) => source,
            Err(outcome) => return outcome,
        },
    };
    at_node(source, qtype)
}

/// The name does not exist: the wildcard that stands in for it, or what it meets without.
#[expect(clippy::result_large_err, reason = "no error: one of two outcomes, and a box would allocate")]
fn missing<'z>(
    zone: &'z Zone,
    name: &QueryName,
    closest_encloser: Node<'z>,
    skip: usize,
) -> Result<Source<'z>, Outcome<'z>> {
    match closest_encloser.covering() {
        Some(covering) => Err(covered(covering)),
        // RFC 6672 section 3.2: a DNAME redirects the names below its owner, not the owner.
        None if closest_encloser.has_dname() => Err(covered(closest_encloser)),
        None => match zone.wildcard_below(closest_encloser, name.suffix_hash(skip)) {
            Some(wildcard) => Ok(Source::Wildcard { wildcard, closest_encloser, skip }),
            None => Err(Outcome::NameError { closest_encloser, skip }),
        },
    }
}

/// The name is below a zone cut or a DNAME, or is itself a cut.
fn covered(covering: Node<'_>) -> Outcome<'_> {
    if covering.is_delegation()
        && let Some(ns) = covering.rrset(Rtype::NS)
    {
        return Outcome::Referral { cut: covering, ns };
    }
    match covering.rrset(Rtype::DNAME) {
        Some(dname) => Outcome::Substitution { node: covering, dname },
        // A covering node has one of the two by construction.
        None => Outcome::NoData { source: Source::Name(covering) },
    }
}

/// The name exists, or a wildcard stands in for it.
#[inline]
fn at_node(source: Source<'_>, qtype: Rtype) -> Outcome<'_> {
    let node = source.node();
    match qtype {
        Rtype::ANY if !node.is_empty_non_terminal() => Outcome::Any { source },
        Rtype::RRSIG if node.rrsets().any(|rrset| rrset.signatures.n_records > 0) => {
            Outcome::Signatures { source }
        }
        _ => match node.rrset(qtype) {
            Some(rrset) => Outcome::Rrset { rrset, source },
            None if node.has_cname() => match node.rrset(Rtype::CNAME) {
                Some(cname) => Outcome::Alias { cname, source },
                None => Outcome::NoData { source },
            },
            None => Outcome::NoData { source },
        },
    }
}
