//! Writing the answer: one step for each name of an alias chain, the last of which ends it.

use crate::hashes::Hashes;
use crate::options::About;
use crate::outcome::{Outcome, Source, classify};
use crate::prefetch;
use crate::proof::{Denied, Proofs};
use crate::ranks::RankSet;
use crate::receive::{error_answer, opt_reply};
use crate::zone_set::Found;
use crate::{Answered, Context, Plan, Policy, Scratch, Transport, ZoneSet, ZoneState};
use weir_wire::answer::{Answer, Full, MadeRecord, Placed, Section, Subject};
use weir_wire::header::{Flags, Rcode};
use weir_wire::name::{HashSeed, MAX_NAME_LEN, Name, NameBuf, NameHash, QueryName};
use weir_wire::query::Query;
use weir_wire::rtype::{Class, Rtype};
use weir_zone::{Node, Rrset, Zone};

/// Longest chain of aliases that is followed: longer ones are cut there, and a resolver may go on by itself.
pub(crate) const MAX_ALIASES: usize = 16;
/// Most zones that a chain goes on in, beside its first. Each is a lookup more; chains of more are no use to anyone.
const MAX_ZONES: usize = 4;
/// Most records of an RRset that are searched for hosts whose addresses go along. Each is compared with the ones
/// before it; twice as many addresses of either family fill half of the largest message.
const MAX_ADDITIONAL_HOSTS: usize = 512;

/// Writes the answer that was planned to `out`; `None` when `out` has no room for a header and the question.
#[inline]
pub fn build(
    plan: &Plan<'_>,
    query: &Query<'_>,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Option<Answered> {
    match plan {
        &Plan::Error(rcode, error) => error_answer(query, rcode, error, context, scratch, out),
        Plan::Identity(text) => identity(query, text, context, scratch, out),
        &Plan::Zone { zones, zone, origin_skip, ref outcome } => {
            let Scratch { seed, name, target, wanted, options, memory } = scratch;
            let opt = opt_reply(query, wanted, context, about(zone, outcome), options);
            let first = Denied { name, origin_skip };
            let answer = Answer::begin(out, query, context.limit(query), opt)?;
            memory.begin(name.suffix_hash(0));
            let mut page = Page {
                answer,
                zones,
                passed: [None; MAX_ZONES],
                n_passed: 0,
                zone,
                query,
                question: first,
                policy: context.policy,
                dnssec_ok: query.dnssec_ok(),
                minimal_any: context.policy.minimal_any && context.transport == Transport::Udp,
                name: Subject::in_question(query.name_len, 0),
                apex: Subject::in_question(query.name_len, name.suffix_start(origin_skip)),
                memory,
                // Class ANY is answered without AA, and a key holds no class.
                cacheable: query.qclass == Class::IN,
            };
            let written = page.write(outcome, first, *seed, target);
            Some(page.finish(written))
        }
    }
}

/// Whether records of a type lead to a service (RFC 9460): the next name may have records of the same type.
#[inline]
fn is_service(rtype: Rtype) -> bool {
    matches!(rtype, Rtype::SVCB | Rtype::HTTPS)
}

/// What the options of an answer from a zone depend on.
pub(crate) fn about<'z>(zone: &'z Zone, outcome: &Outcome<'_>) -> About<'z> {
    About { error: None, zone: Some(zone), is_referral: matches!(outcome, Outcome::Referral { .. }) }
}

/// RFC 4892: a text about the server, as one string of at most 255 octets.
#[cold]
fn identity(
    query: &Query<'_>,
    text: &str,
    context: &Context<'_>,
    scratch: &mut Scratch,
    out: &mut [u8],
) -> Option<Answered> {
    let opt = opt_reply(query, &scratch.wanted, context, About::default(), &mut scratch.options);
    let mut answer = Answer::begin(out, query, context.limit(query), opt)?;
    answer.set_flag(Flags::AA);
    let text = text.as_bytes().get(..text.len().min(255))?;
    let mut rdata = [0; 256];
    let (len, string) = rdata.split_first_mut()?;
    *len = u8::try_from(text.len()).ok()?;
    string.get_mut(..text.len())?.copy_from_slice(text);
    let rdata = rdata.get(..=text.len())?;
    let made = MadeRecord { rtype: Rtype::TXT, class: Class::CH, ttl: 0, rdata, ends_in: None };
    if answer.push_made(Section::Answer, Subject::in_question(query.name_len, 0), made).is_err() {
        answer.set_flag(Flags::TC);
    }
    Some(Answered { len: answer.finish(), rcode: Rcode::NOERROR, cacheable: false })
}

/// The names that a chain of aliases went through, by hash, so that a loop is left at its first name.
pub(crate) struct Chain {
    hashes: [NameHash; MAX_ALIASES],
    len: usize,
}

impl Chain {
    /// An empty chain.
    pub(crate) fn new() -> Chain {
        Chain { hashes: [NameHash(0); MAX_ALIASES], len: 0 }
    }

    /// Forgets all names and takes the first.
    fn start(&mut self, first: NameHash) {
        let [space, ..] = &mut self.hashes;
        *space = first;
        self.len = 1;
    }

    /// Takes the next name; false when the chain should end before it.
    fn go_to(&mut self, hash: NameHash) -> bool {
        let is_new = !self.hashes.get(..self.len).unwrap_or(&[]).contains(&hash);
        match self.hashes.get_mut(self.len) {
            Some(space) if is_new => {
                *space = hash;
                self.len += 1;
                true
            }
            _ => false,
        }
    }
}

/// What an answer's steps have to remember of one another, made once and cleared for each answer.
pub(crate) struct Memory {
    chain: Chain,
    pub(crate) hashes: Hashes,
    pub(crate) proofs: Proofs,
    /// The DNAME records placed so far: a chain may go through one of them again and again.
    dnames: RankSet,
}

impl Memory {
    /// Nothing to remember yet.
    pub(crate) fn new() -> Memory {
        Memory {
            chain: Chain::new(),
            hashes: Hashes::with_capacity(prefetch::N_TOGETHER),
            proofs: Proofs::default(),
            dnames: RankSet::default(),
        }
    }

    /// Forgets by forgetting how much there is: zeroing would cost more than many an answer's lookup.
    fn begin(&mut self, first: NameHash) {
        self.chain.start(first);
        self.proofs.clear();
        self.dnames.clear();
    }
}

/// The answer under construction and what all its steps need.
pub(crate) struct Page<'z, 'b, 'q> {
    pub(crate) answer: Answer<'b>,
    zones: &'z ZoneSet,
    /// The zones that an alias led out of, with where their origins stand in the message.
    passed: [Option<(&'z Zone, Subject)>; MAX_ZONES],
    n_passed: u32,
    pub(crate) zone: &'z Zone,
    query: &'q Query<'q>,
    /// The question's name, and where the first zone's origin stands in it.
    pub(crate) question: Denied<'q>,
    policy: &'q Policy,
    dnssec_ok: bool,
    minimal_any: bool,
    /// Where the name in hand stands in the message: the question's, later an alias's target.
    name: Subject,
    /// Where the zone's origin stands in the message.
    pub(crate) apex: Subject,
    pub(crate) memory: &'q mut Memory,
    cacheable: bool,
}

impl<'z> Page<'z, '_, '_> {
    /// Writes the first outcome and, as long as it is an alias, what its target meets.
    fn write(
        &mut self,
        first: &Outcome<'z>,
        first_name: Denied<'_>,
        seed: HashSeed,
        target: &mut QueryName,
    ) -> Result<(), Full> {
        // RFC 1035 section 4.1.1: AA speaks of the first owner name of the answer, wherever a chain leads.
        // RFC 1035 section 6.2: an answer in class ANY cannot speak for the classes that are not held.
        if !matches!(first, Outcome::Referral { .. }) && self.query.qclass != Class::ANY {
            self.answer.set_flag(Flags::AA);
        }
        let mut next;
        let (mut outcome, mut name) = (first, first_name);
        while let Some(subject) = self.step(outcome, name)? {
            let mut copy = [0; MAX_NAME_LEN];
            target.set(self.answer.name_at(subject, &mut copy), seed);
            if !self.enter_zone_of(target, subject) || !self.memory.chain.go_to(target.suffix_hash(0)) {
                break;
            }
            self.name = subject;
            let origin_skip = target.n_labels() - self.zone.origin().name().n_labels();
            let lookup = self.zone.find(target, origin_skip);
            next = classify(self.zone, target, lookup, self.query.qtype);
            outcome = &next;
            name = Denied { name: target, origin_skip };
        }
        // Whatever the last step was, the proofs of the wildcards on the way belong to the authority section.
        if self.dnssec_ok { self.push_proofs() } else { Ok(()) }
    }

    /// Whether the chain goes on at `target`, which stands at `subject`: in the same zone, or where the operator
    /// wants that, in another one of the set. Resolvers discard what lies outside the zone and ask for it
    /// themselves.
    fn enter_zone_of(&mut self, target: &QueryName, subject: Subject) -> bool {
        if !self.policy.follow_across_zones {
            return target.folded().is_at_or_below(self.zone.origin());
        }
        let Some(Found { state: ZoneState::Ready(zone), .. }) = self.zones.find(target, 0) else {
            return false;
        };
        if std::ptr::eq(self.zone, &**zone) {
            return true;
        }
        let Some(space) = usize::try_from(self.n_passed).ok().and_then(|at| self.passed.get_mut(at)) else {
            return false;
        };
        *space = Some((self.zone, self.apex));
        self.n_passed += 1;
        self.zone = zone;
        self.apex = self.answer.suffix(subject, zone.origin().octets().len());
        true
    }

    /// The number of the zone in hand, in the order that the answer goes through zones.
    pub(crate) fn zone_number(&self) -> u32 {
        self.n_passed
    }

    /// A zone that the answer went through, and where its origin stands.
    pub(crate) fn zone_numbered(&self, number: u32) -> (&'z Zone, Subject) {
        let passed = usize::try_from(number).ok().and_then(|at| self.passed.get(at).copied().flatten());
        passed.filter(|_| number < self.n_passed).unwrap_or((self.zone, self.apex))
    }

    /// Writes one outcome; yields where the next name stands when the chain goes on.
    #[inline]
    fn step(&mut self, outcome: &Outcome<'z>, name: Denied<'_>) -> Result<Option<Subject>, Full> {
        match outcome {
            // The chain went through this very record on its way here.
            Outcome::Rrset { rrset, source }
                if rrset.rtype == Rtype::DNAME && !self.memory.dnames.add(self.n_passed, &source.node()) =>
            {
                Ok(None)
            }
            Outcome::Rrset { rrset, source } => {
                let placed = self.push_answer(rrset)?;
                if self.dnssec_ok {
                    self.note_expansion(source, name);
                    self.push_proofs()?;
                }
                let servers = self.push_servers(source, rrset.rtype);
                // Glue is no answer, but the apex's servers may well be known by nothing else.
                let with_glue = rrset.rtype == Rtype::NS;
                self.push_addresses(rrset, placed, |node| with_glue || node.covering().is_none());
                if is_service(rrset.rtype) {
                    self.push_own_addresses(rrset, source.node());
                }
                if let Some((ns, placed)) = servers {
                    self.push_addresses(&ns, placed, |_| true);
                }
                Ok(None)
            }
            Outcome::Any { source } => {
                self.note_expansion(source, name);
                self.any(source).map(|()| None)
            }
            Outcome::Signatures { source } => {
                self.note_expansion(source, name);
                self.signatures(source).map(|()| None)
            }
            Outcome::Alias { cname, source } => {
                self.note_expansion(source, name);
                self.alias(cname).map(Some)
            }
            Outcome::Substitution { node, dname } => self.substitution(*node, dname),
            Outcome::Referral { cut, ns } => self.referral(*cut, ns, name).map(|()| None),
            Outcome::NoData { source } => {
                self.negative()?;
                if self.dnssec_ok {
                    self.prove_no_data(name, *source);
                }
                Ok(None)
            }
            Outcome::NameError { closest_encloser, skip } => {
                // RFC 6604 section 3: the code is that of the last name of a chain.
                self.answer.set_rcode(Rcode::NXDOMAIN);
                self.negative()?;
                if self.dnssec_ok {
                    self.prove_name_error(name, *closest_encloser, *skip);
                }
                Ok(None)
            }
        }
    }

    /// Places an RRset with its signatures where they are wanted: both or none.
    #[inline]
    fn push(&mut self, section: Section, rrset: &Rrset<'z>, owner: Subject) -> Result<Placed, Full> {
        let mark = self.answer.mark();
        let placed = self.answer.push(section, rrset.records, owner)?;
        if self.dnssec_ok && rrset.signatures.n_records > 0 {
            self.answer.push(section, rrset.signatures, owner).inspect_err(|_| self.answer.rewind(mark))?;
        }
        Ok(placed)
    }

    /// Places the RRset that was asked for.
    #[inline]
    fn push_answer(&mut self, rrset: &Rrset<'z>) -> Result<Placed, Full> {
        let n_records = usize::from(rrset.records.n_records);
        if !self.policy.rotate || n_records < 2 {
            return self.push(Section::Answer, rrset, self.name);
        }
        // Queries' ids are as good as a counter, and no state.
        self.cacheable = false;
        let first = usize::from(self.query.id()) % n_records;
        let mark = self.answer.mark();
        let placed = self.answer.push_rotated(Section::Answer, rrset.records, self.name, first)?;
        if self.dnssec_ok && rrset.signatures.n_records > 0 {
            let signatures = self.answer.push(Section::Answer, rrset.signatures, self.name);
            signatures.inspect_err(|_| self.answer.rewind(mark))?;
        }
        Ok(placed)
    }

    /// The zone's servers in the authority section of a positive answer, where the operator wants full answers.
    fn push_servers(&mut self, source: &Source<'z>, rtype: Rtype) -> Option<(Rrset<'z>, Placed)> {
        let apex = self.zone.apex();
        let is_answer = rtype == Rtype::NS && source.node().is(&apex);
        if self.policy.minimal_responses || is_answer {
            return None;
        }
        let ns = apex.rrset(Rtype::NS)?;
        match self.push(Section::Authority, &ns, self.apex) {
            Ok(placed) => Some((ns, placed)),
            Err(Full) => {
                self.cacheable = false;
                None
            }
        }
    }

    /// RFC 8482 section 4.1 over UDP: one RRset of the name, whole. Otherwise all of them.
    fn any(&mut self, source: &Source<'z>) -> Result<(), Full> {
        self.cacheable = false;
        let n_wanted = if self.minimal_any { 1 } else { usize::MAX };
        for rrset in source.node().rrsets().take(n_wanted) {
            self.push(Section::Answer, &rrset, self.name)?;
        }
        Ok(())
    }

    fn signatures(&mut self, source: &Source<'z>) -> Result<(), Full> {
        for rrset in source.node().rrsets().filter(|rrset| rrset.signatures.n_records > 0) {
            // Those of a DNAME that led here came with it.
            if rrset.rtype == Rtype::DNAME
                && self.dnssec_ok
                && !self.memory.dnames.add(self.n_passed, &source.node())
            {
                continue;
            }
            self.answer.push(Section::Answer, rrset.signatures, self.name)?;
        }
        Ok(())
    }

    fn alias(&mut self, cname: &Rrset<'z>) -> Result<Subject, Full> {
        let placed = self.push(Section::Answer, cname, self.name)?;
        Ok(self.answer.rdata_name(placed.rdata_at))
    }

    /// Collects the proof that a wildcard was the right source, where proofs are wanted.
    #[inline]
    fn note_expansion(&mut self, source: &Source<'z>, name: Denied<'_>) {
        if let &Source::Wildcard { skip, .. } = source
            && self.dnssec_ok
        {
            self.prove_expansion(name, skip);
        }
    }

    /// RFC 6672 section 3.2: the DNAME, the CNAME made from it, and on to the substituted name.
    fn substitution(&mut self, node: Node<'z>, dname: &Rrset<'z>) -> Result<Option<Subject>, Full> {
        // The made CNAME carries labels of the question in the question's case.
        self.cacheable = false;
        let owner = self.answer.suffix(self.name, node.owner_len());
        let mut placed = None;
        if self.memory.dnames.add(self.n_passed, &node) {
            placed = Some(self.push(Section::Answer, dname, owner)?);
        }
        let Some(record) = dname.records.iter().next() else { return Ok(None) };
        let mut copy = [0; MAX_NAME_LEN];
        let name = self.answer.name_at(self.name, &mut copy);
        let prefix_len = name.octets().len().saturating_sub(node.owner_len());
        let prefix = name.octets().get(..prefix_len).unwrap_or(&[]);
        let substituted = Name::from_octets(record.rdata).and_then(|target| NameBuf::join(prefix, target));
        let Ok(substituted) = substituted else {
            // RFC 6672 section 2.2: the substituted name would be too long.
            self.answer.set_rcode(Rcode::YXDOMAIN);
            return Ok(None);
        };
        // The DNAME's target stands right before it, unless the chain comes through the record again.
        let target = placed.map(|placed| self.answer.rdata_name(placed.rdata_at));
        let rdata = if target.is_some() { prefix } else { substituted.name().octets() };
        let class = self.zone.class();
        let made = MadeRecord { rtype: Rtype::CNAME, class, ttl: record.ttl, rdata, ends_in: target };
        let target_at = self.answer.push_made(Section::Answer, self.name, made)?;
        // The made CNAME is itself what such a query asks for.
        let is_answered = matches!(self.query.qtype, Rtype::CNAME | Rtype::ANY);
        Ok((!is_answered).then(|| self.answer.rdata_name(target_at)))
    }

    /// RFC 1034 section 4.3.2 step 3b: the cut's name servers, and their addresses where only this zone has them.
    fn referral(&mut self, cut: Node<'z>, ns: &Rrset<'z>, name: Denied<'_>) -> Result<(), Full> {
        let cut_name = self.answer.suffix(self.name, cut.owner_len());
        let placed = self.push(Section::Authority, ns, cut_name)?;
        match cut.rrset(Rtype::DS) {
            Some(ds) if self.dnssec_ok => self.push(Section::Authority, &ds, cut_name).map(|_| ())?,
            None if self.dnssec_ok => self.prove_unsigned_cut(name, cut),
            _ => {}
        }
        if self.dnssec_ok {
            self.push_proofs()?;
        }
        let is_in_domain = |node: &Node<'_>| node.covering().is_some_and(|covering| covering.is(&cut));
        // RFC 9471 section 3: a referral without all of its in-domain glue is truncated; sibling glue may be left out.
        let all_fit = self.push_addresses(ns, placed, is_in_domain);
        if !all_fit {
            return Err(Full);
        }
        self.push_addresses(ns, placed, |node| !is_in_domain(node));
        Ok(())
    }

    /// The SOA that tells how long the denial may be kept (RFC 2308 section 3).
    #[inline]
    fn negative(&mut self) -> Result<(), Full> {
        match self.zone.negative_soa() {
            Some(soa) => self.push(Section::Authority, &soa, self.apex).map(|_| ()),
            // A zone is not built without one.
            None => Ok(()),
        }
    }

    /// Adds the addresses of the hosts that an RRset names, of those whose node is `wanted`, and of targets of SVCB
    /// and HTTPS their records of that type (RFC 9460 section 4.1); yields whether all fit.
    #[inline]
    fn push_addresses(
        &mut self,
        rrset: &Rrset<'z>,
        placed: Placed,
        wanted: impl Fn(&Node<'z>) -> bool,
    ) -> bool {
        let mut all_fit = true;
        let leads_to_service = is_service(rrset.rtype);
        for (n, link) in rrset.links().enumerate() {
            let node = link.node(self.zone);
            let is_repeated = rrset.links().take(n).any(|earlier| earlier.is_same_host(&link));
            if is_repeated || !wanted(&node) {
                continue;
            }
            let at = usize::try_from(link.name_at).ok().and_then(|at| placed.position(at));
            let Some(at) = at.filter(|_| n < MAX_ADDITIONAL_HOSTS) else {
                all_fit = false;
                break;
            };
            let host = self.answer.name_in_rdata(at, node.owner_len());
            if leads_to_service
                && let Some(next) = node.rrset(rrset.rtype).filter(|next| !next.is_same(rrset))
            {
                all_fit &= self.push(Section::Additional, &next, host).is_ok();
            }
            all_fit &= self.push_addresses_of(node, host);
        }
        self.cacheable &= all_fit;
        all_fit
    }

    /// RFC 9460 section 2.5.2: a service whose target is the root is at the owner of its record.
    fn push_own_addresses(&mut self, rrset: &Rrset<'z>, owner: Node<'z>) {
        let is_here = |rdata: &[u8]| matches!(rdata, [p1, p0, 0, ..] if [*p1, *p0] != [0, 0]);
        let is_named = rrset.links().any(|link| link.node(self.zone).is(&owner));
        if !is_named && rrset.records.iter().any(|record| is_here(record.rdata)) {
            self.cacheable &= self.push_addresses_of(owner, self.name);
        }
    }

    /// Adds the addresses of a host whose name stands at `host`; yields whether all fit.
    #[inline]
    fn push_addresses_of(&mut self, node: Node<'z>, host: Subject) -> bool {
        let mut all_fit = true;
        for addresses in [Rtype::A, Rtype::AAAA].into_iter().filter_map(|rtype| node.rrset(rtype)) {
            all_fit &= self.push(Section::Additional, &addresses, host).is_ok();
        }
        all_fit
    }

    fn finish(mut self, written: Result<(), Full>) -> Answered {
        if written.is_err() {
            // RFC 2181 section 9: something that had to be there did not fit.
            self.answer.set_flag(Flags::TC);
            self.cacheable = false;
        }
        let rcode = self.answer.rcode();
        Answered { len: self.answer.finish(), rcode, cacheable: self.cacheable }
    }
}
