//! Segments to a zone: the apex and small zones in one go, the parts of large zones on several threads.

use super::Division;
use super::links;
use super::order;
use super::pending::{Blocks, Pending};
use super::segment::{Frame, Kept, Level, Segment, Writer};
use super::soa_numbers;
use crate::denial::Denial;
use crate::finding::{Finding, Rule};
use crate::index::HashIndex;
use crate::tree::Zone;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError, mpsc};
use weir_wire::rtype::Rtype;

/// Builds a zone of the apex's records and all others.
///
/// # Errors
/// All findings, when one of them makes answering impossible.
pub(super) fn assemble(
    frame: Frame<'_>,
    apex: &Blocks,
    others: Blocks,
    division: Division,
) -> Result<(Zone, Vec<Finding>), Vec<Finding>> {
    let mut writer = Writer::new(frame);
    let level = writer.push_apex(apex);
    if others.n_octets() < division.parts_from {
        writer.push_all(&others);
        return finish(writer, 1);
    }
    let n_threads = division.n_threads;
    let parts = order::parts(others, division);
    match level {
        Some(level) if n_threads > 1 => write_in_parallel(&mut writer, level, parts, n_threads),
        // Each part is given back before the next is written.
        _ => parts.into_iter().for_each(|part| writer.push_all(&part)),
    }
    finish(writer, n_threads)
}

/// Writes each part to a segment of its own, on `n_threads` threads, and puts the segments together in order.
fn write_in_parallel(writer: &mut Writer<'_>, apex: Level, parts: Vec<Blocks>, n_threads: usize) {
    let frame = writer.frame();
    let parts = Mutex::new(parts.into_iter().enumerate());
    let spare: Mutex<Vec<Segment>> = Mutex::new(Vec::new());
    let (sender, receiver) = mpsc::sync_channel(n_threads);
    let work = |sender: mpsc::SyncSender<(usize, Segment)>| {
        loop {
            let Some((number, part)) = lock(&parts).next() else { return };
            let segment = lock(&spare).pop().unwrap_or_default();
            let mut below = Writer::below(frame, apex, segment);
            below.push_all(&part);
            drop(part);
            if sender.send((number, below.into_segment())).is_err() {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        let start = |sender| scope.spawn(|| work(sender));
        let threads: Vec<_> = (0..n_threads).map(|_| start(sender.clone())).collect();
        drop(sender);
        let mut early = BTreeMap::new();
        let mut next = 0;
        for (number, segment) in receiver {
            early.insert(number, segment);
            while let Some(mut segment) = early.remove(&next) {
                writer.append(&mut segment);
                lock(&spare).push(segment);
                next += 1;
            }
        }
        // The scope alone waits for the work only; callers may count on the threads being gone.
        for thread in threads {
            if let Err(panic) = thread.join() {
                std::panic::resume_unwind(panic);
            }
        }
    });
}

/// A panic of another thread ends the program or the load; what the lock holds is whole either way.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Indexes the nodes and fills in what needs the index.
fn finish(mut writer: Writer<'_>, n_threads: usize) -> Result<(Zone, Vec<Finding>), Vec<Finding>> {
    let frame = writer.frame();
    let soa = writer.take_soa();
    let numbers = soa.as_ref().and_then(|(soa, _)| soa_numbers(&soa.rdata));
    let negative_soa_at =
        soa.map_or(0, |(soa, signatures)| write_negative_soa(&mut writer, &soa, &signatures));
    let segment = writer.into_segment();
    let Segment { mut arena, mut order, hashes, n_records, max_depth, proofs, mut findings, .. } = segment;
    if segment.is_full {
        let owner = frame.origin.name().fold();
        findings.push(Finding {
            rule: Rule::TooLarge,
            owner,
            rtype: Rtype::SOA,
            tag: None,
            detail: String::new(),
        });
    }
    // Growing left room behind; the pages there were never touched.
    arena.shrink_to_fit();
    order.shrink_to_fit();
    let mut index = HashIndex::with_capacity(hashes.len());
    for &(hash, position) in &hashes {
        index.insert(hash, position);
    }
    drop(hashes);
    let mut zone = Zone {
        origin: frame.origin.name().fold(),
        class: frame.class,
        seed: frame.seed,
        arena,
        index,
        order,
        max_depth,
        negative_soa_at,
        serial: numbers.as_ref().map_or(0, |soa| soa.serial),
        expire: numbers.as_ref().map_or(0, |soa| soa.expire),
        n_records,
        denial: Denial::Unsigned,
        proofs,
    };
    links::resolve(&mut zone, n_threads);
    zone.denial = Denial::of(&zone);
    let has_errors = findings.has_errors();
    let findings = findings.into_vec();
    if has_errors { Err(findings) } else { Ok((zone, findings)) }
}

/// Writes the SOA RRset once more with the TTL that negative answers carry (RFC 2308 section 3).
fn write_negative_soa(writer: &mut Writer<'_>, soa: &Kept, signatures: &[Kept]) -> usize {
    let ttl = soa_numbers(&soa.rdata).map_or(0, |numbers| numbers.minimum).min(soa.ttl);
    let signatures: Vec<Pending<'_>> = signatures
        .iter()
        .map(|kept| Pending { rtype: Rtype::RRSIG, ttl: ttl.min(kept.ttl), tag: 0, rdata: &kept.rdata })
        .collect();
    writer.append_negative_soa(ttl, &soa.rdata, &signatures)
}
