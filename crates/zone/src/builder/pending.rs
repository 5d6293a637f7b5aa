//! Records that wait to be sorted: runs of one owner, packed into blocks.
//!
//! A run is the octets that follow in it (4), the octets of its owner in front of the origin (1), those octets in
//! lower case, and its records. A record is its TTL (4), tag (4), type (2), length of RDATA (2) and RDATA. Numbers are
//! little-endian. No run reaches over the end of its block: a long one is cut in two.
//!
//! invariant: blocks are given back one by one while the zone grows, so that records and zone are not in memory
//! together.

use weir_wire::rtype::Rtype;

/// Octets of a block. The longest record is a quarter of it.
pub(super) const BLOCK_LEN: usize = 256 << 10;
/// Octets in front of a run's owner.
const RUN_HEAD_LEN: usize = 5;
/// Octets in front of a record's RDATA.
const RECORD_HEAD_LEN: usize = 12;

/// Blocks of runs in the order that they were added.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    blocks: Vec<Vec<u8>>,
    /// Where in the last block the run starts that the next record may join.
    run_at: Option<usize>,
    n_octets: usize,
}

/// A record that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending<'p> {
    pub(super) rtype: Rtype,
    pub(super) ttl: u32,
    pub(super) tag: u32,
    pub(super) rdata: &'p [u8],
}

impl Blocks {
    /// Adds a record; `prefix` is its owner in front of the origin, in any case.
    pub(super) fn push(&mut self, prefix: &[u8], record: Pending<'_>) -> Option<()> {
        let record_len = RECORD_HEAD_LEN + record.rdata.len();
        let rdata_len = u16::try_from(record.rdata.len()).ok()?;
        let has_run = self.run_at.is_some_and(|at| self.is_owner(at, prefix));
        let needed = record_len + if has_run { 0 } else { RUN_HEAD_LEN + prefix.len() };
        let is_full = self.blocks.last().is_none_or(|block| block.len() + needed > BLOCK_LEN);
        if is_full {
            // The first block grows with the zone: most zones are small.
            self.blocks.push(Vec::with_capacity(if self.blocks.is_empty() { 0 } else { BLOCK_LEN }));
        }
        if is_full || !has_run {
            self.open_run(prefix)?;
        }
        let block = self.blocks.last_mut()?;
        block.extend_from_slice(&record.ttl.to_le_bytes());
        block.extend_from_slice(&record.tag.to_le_bytes());
        block.extend_from_slice(&record.rtype.0.to_le_bytes());
        block.extend_from_slice(&rdata_len.to_le_bytes());
        block.extend_from_slice(record.rdata);
        let at = self.run_at?;
        let run_len = u32::try_from(block.len() - at - 4).ok()?;
        block.get_mut(at..at + 4)?.copy_from_slice(&run_len.to_le_bytes());
        self.n_octets += needed;
        Some(())
    }

    fn is_owner(&self, at: usize, prefix: &[u8]) -> bool {
        let run = self.blocks.last().and_then(|block| Run::parse(block.get(at..)?));
        run.is_some_and(|(run, _)| run.prefix.eq_ignore_ascii_case(prefix))
    }

    fn open_run(&mut self, prefix: &[u8]) -> Option<()> {
        let prefix_len = u8::try_from(prefix.len()).ok()?;
        let block = self.blocks.last_mut()?;
        self.run_at = Some(block.len());
        block.extend_from_slice(&[0, 0, 0, 0, prefix_len]);
        let start = block.len();
        block.extend_from_slice(prefix);
        block.get_mut(start..)?.make_ascii_lowercase();
        Some(())
    }

    /// Copies a run to the end; `block_len` is how large blocks are made.
    pub(super) fn push_run(&mut self, run: Run<'_>, block_len: usize) {
        let is_full = self.blocks.last().is_none_or(|block| block.len() + run.octets.len() > block_len);
        if is_full {
            self.blocks.push(Vec::with_capacity(block_len.max(run.octets.len())));
        }
        if let Some(block) = self.blocks.last_mut() {
            block.extend_from_slice(run.octets);
        }
        self.run_at = None;
        self.n_octets += run.octets.len();
    }

    /// Octets of all runs.
    pub(super) fn n_octets(&self) -> usize {
        self.n_octets
    }

    pub(super) fn is_empty(&self) -> bool {
        self.n_octets == 0
    }

    /// The blocks one by one.
    pub(super) fn blocks(&self) -> &[Vec<u8>] {
        &self.blocks
    }

    pub(super) fn into_blocks(self) -> Vec<Vec<u8>> {
        self.blocks
    }

    /// Puts the blocks of `other` behind these.
    pub(super) fn append(&mut self, other: Blocks) {
        self.blocks.extend(other.blocks);
        self.n_octets += other.n_octets;
        self.run_at = None;
    }

    /// The run at a position that [`runs`] gave for a block.
    pub(super) fn run(&self, block: u32, at: u32) -> Option<Run<'_>> {
        let block = self.blocks.get(usize::try_from(block).ok()?)?;
        Some(Run::parse(block.get(usize::try_from(at).ok()?..)?)?.0)
    }
}

/// Records with one owner that were added one after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run<'p> {
    /// The owner in front of the origin, in lower case.
    pub(super) prefix: &'p [u8],
    records: &'p [u8],
    octets: &'p [u8],
}

impl<'p> Run<'p> {
    /// Reads the run at the start of `octets`; yields what follows it as well.
    fn parse(octets: &'p [u8]) -> Option<(Run<'p>, &'p [u8])> {
        let (&[l0, l1, l2, l3, prefix_len], _) = octets.split_first_chunk::<RUN_HEAD_LEN>()?;
        let len = 4 + usize::try_from(u32::from_le_bytes([l0, l1, l2, l3])).ok()?;
        // A run that is being opened has no length yet.
        let len = len.max(RUN_HEAD_LEN + usize::from(prefix_len));
        let (run, rest) = octets.split_at_checked(len)?;
        let (prefix, records) = run.get(RUN_HEAD_LEN..)?.split_at_checked(usize::from(prefix_len))?;
        Some((Run { prefix, records, octets: run }, rest))
    }

    /// The records in the order that they were added.
    pub(super) fn records(self) -> impl Iterator<Item = Pending<'p>> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let (head, after) = rest.split_first_chunk::<RECORD_HEAD_LEN>()?;
            let [t0, t1, t2, t3, g0, g1, g2, g3, y0, y1, n0, n1] = *head;
            let (rdata, after) = after.split_at_checked(usize::from(u16::from_le_bytes([n0, n1])))?;
            rest = after;
            Some(Pending {
                rtype: Rtype(u16::from_le_bytes([y0, y1])),
                ttl: u32::from_le_bytes([t0, t1, t2, t3]),
                tag: u32::from_le_bytes([g0, g1, g2, g3]),
                rdata,
            })
        })
    }
}

/// The runs of a block, each with its position in it.
pub(super) fn runs(block: &[u8]) -> impl Iterator<Item = (u32, Run<'_>)> {
    let mut rest = block;
    std::iter::from_fn(move || {
        let at = u32::try_from(block.len() - rest.len()).ok()?;
        let (run, after) = Run::parse(rest)?;
        rest = after;
        Some((at, run))
    })
}
