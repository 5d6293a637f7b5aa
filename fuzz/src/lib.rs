//! What the fuzz targets do with their input: library functions, one line each in `fuzz_targets/`.

#![forbid(unsafe_code)]

pub mod frame;

use weir_wire::name::{FoldedBuf, HashSeed};
use weir_zone::canonical;
use weir_zone::load::{LoadOptions, load};
use weir_zone::text::Source;

/// Loads any octets as a zone; one that loads prints, and what it prints loads again to the same.
///
/// # Panics
/// When something is wrong with the loader: that is what fuzzing looks for.
pub fn zone_text(octets: &[u8]) {
    let Some(printed) = printed(octets) else { return };
    let again = self::printed(&printed).expect("what was printed loads");
    assert!(again == printed, "{}\n{}", printed.escape_ascii(), again.escape_ascii());
}

fn printed(octets: &[u8]) -> Option<Vec<u8>> {
    let origin = FoldedBuf::from_text("example.").ok()?;
    let mut options = LoadOptions::default();
    options.text.includes = false;
    options.text.max_generated = 0;
    let loaded = load(Source::Octets("input", octets), origin.folded(), HashSeed::fixed(), &options).ok()?;
    let mut out = Vec::new();
    canonical::print(&loaded.zone, &mut out).ok()?;
    Some(out)
}
