//! A file as a window that moves over it, so that memory does not grow with the file.

use std::io::{self, Read};

/// Octets that are read at once: enough to make a system call cheap, few enough to stay in a core's cache.
pub(super) const BLOCK_LEN: usize = 256 << 10;
/// Most octets of one entry, its comments included. RDATA of 65,535 octets in `\DDD` escapes takes 256 KiB.
pub(super) const MAX_ENTRY_LEN: usize = 16 << 20;

/// The octets of a file from the entry that is being read on.
pub(super) enum Input<'s> {
    /// All of them are in memory.
    Octets(&'s [u8]),
    /// They are read as they are needed.
    Blocks(Blocks<'s>),
}

/// A window of a reader.
pub(super) struct Blocks<'s> {
    reader: Box<dyn Read + 's>,
    buffer: Vec<u8>,
    len: usize,
    is_last: bool,
}

/// Why the window cannot grow.
pub(super) enum RefillError {
    /// Reading failed.
    Io(io::Error),
    /// The entry has over [`MAX_ENTRY_LEN`] octets.
    EntryTooLong,
}

impl<'s> Input<'s> {
    /// A window that is `block_len` octets long at first.
    pub(super) fn blocks(reader: Box<dyn Read + 's>, block_len: usize) -> Input<'s> {
        Input::Blocks(Blocks { reader, buffer: vec![0; block_len.max(1)], len: 0, is_last: false })
    }

    /// The window, and whether it runs to the end of the file.
    pub(super) fn window(&self) -> (&[u8], bool) {
        match self {
            Input::Octets(octets) => (octets, true),
            Input::Blocks(blocks) => (blocks.buffer.get(..blocks.len).unwrap_or(&[]), blocks.is_last),
        }
    }

    /// Drops `n_done` octets from the front of the window and reads on behind it.
    ///
    /// A window of which nothing is done doubles.
    pub(super) fn refill(&mut self, n_done: usize) -> Result<(), RefillError> {
        match self {
            Input::Octets(octets) => *octets = octets.get(n_done..).unwrap_or(&[]),
            Input::Blocks(blocks) => blocks.refill(n_done)?,
        }
        Ok(())
    }
}

impl Blocks<'_> {
    fn refill(&mut self, n_done: usize) -> Result<(), RefillError> {
        self.buffer.copy_within(n_done..self.len, 0);
        self.len -= n_done;
        if self.len > self.buffer.len() / 2 {
            if self.buffer.len() >= MAX_ENTRY_LEN {
                return Err(RefillError::EntryTooLong);
            }
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        while let Some(space) = self.buffer.get_mut(self.len..).filter(|space| !space.is_empty()) {
            match self.reader.read(space) {
                Ok(0) => {
                    self.is_last = true;
                    break;
                }
                Ok(n_read) => self.len += n_read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(RefillError::Io(error)),
            }
        }
        Ok(())
    }
}
