//! Every type from text to octets and back: `zones/golden/every-type.master` beside `every-type.txt`.
//!
//! The octets were compared with what named-compilezone and ldns-read-zone make of the same zone, where these know
//! the type. `WEIR_WRITE_GOLDEN=1` writes `every-type.txt` anew; look at the difference before you keep it.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use weir_wire::name::{Name, NameBuf};
use weir_wire::rdata::encoding::Hex;
use weir_wire::rdata::{self, Field};
use weir_wire::rtype::Rtype;
use weir_zone::text::{Options, Record, Source, read};

struct Golden {
    owner: NameBuf,
    rtype: Rtype,
    rdata: Vec<u8>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zones/golden")
}

fn records_of(source: Source<'_>, origin: &str) -> Vec<Golden> {
    let origin = NameBuf::from_text(origin.as_bytes(), None).unwrap();
    let mut records = Vec::new();
    let mut sink = |record: Record<'_>| {
        let owner = record.owner.to_buf();
        records.push(Golden { owner, rtype: record.rtype, rdata: record.rdata.to_vec() });
    };
    let reading = read(source, origin.name(), &mut sink, &Options::default());
    let findings: Vec<String> = reading.findings.into_list().iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{findings:#?}");
    records
}

fn golden() -> Vec<Golden> {
    records_of(Source::Path(&folder().join("every-type.master")), "example.")
}

fn shown(record: &Golden) -> String {
    let Golden { owner, rtype, rdata } = record;
    let mut text = format!("{owner} {rtype}\n");
    for line in rdata.chunks(40) {
        writeln!(text, "    {}", Hex(line)).unwrap();
    }
    writeln!(text, "    {}", rdata::display(*rtype, rdata)).unwrap();
    text
}

#[test]
fn every_record_has_the_octets_and_the_text_that_are_written_down() {
    let path = folder().join("every-type.txt");
    let now: String = golden().iter().map(shown).collect();
    if std::env::var_os("WEIR_WRITE_GOLDEN").is_some() {
        std::fs::write(&path, &now).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    for (now, written) in now.lines().zip(written.lines()) {
        assert_eq!(now, written);
    }
    assert_eq!(now.lines().count(), written.lines().count());
}

#[test]
fn every_record_prints_to_text_that_reads_to_the_same_octets() {
    for record in golden() {
        let text =
            format!("{} 60 {} {}\n", record.owner, record.rtype, rdata::display(record.rtype, &record.rdata));
        let again = records_of(Source::Octets("again", text.as_bytes()), "example.");
        assert_eq!(again.len(), 1, "{text}");
        assert_eq!(again[0].rdata, record.rdata, "{text}");
        assert_eq!(again[0].owner.name(), record.owner.name(), "{text}");
    }
}

#[test]
fn every_record_in_generic_form_has_the_same_octets() {
    for record in golden() {
        let (number, len) = (record.rtype.0, record.rdata.len());
        let text = format!("{} 60 CLASS1 TYPE{number} \\# {len} {}\n", record.owner, Hex(&record.rdata));
        let again = records_of(Source::Octets("again", text.as_bytes()), "example.");
        assert_eq!(again[0].rtype, record.rtype);
        assert_eq!(again[0].rdata, record.rdata, "{text}");
    }
}

#[test]
fn the_octets_of_every_record_are_right_and_become_wrong_when_they_are_cut() {
    for record in golden() {
        assert_eq!(rdata::check(record.rtype, &record.rdata), Ok(()), "{} {}", record.owner, record.rtype);
        if ends_at_a_fixed_place(record.rtype) {
            let cut = &record.rdata[..record.rdata.len() - 1];
            assert!(rdata::check(record.rtype, cut).is_err(), "{} {}", record.owner, record.rtype);
            let longer = [&record.rdata[..], &[0]].concat();
            assert!(rdata::check(record.rtype, &longer).is_err(), "{} {}", record.owner, record.rtype);
        }
    }
}

/// Whether the last field's end follows from its own octets, so that one octet more or less is always wrong.
fn ends_at_a_fixed_place(rtype: Rtype) -> bool {
    matches!(
        rdata::fields(rtype).last(),
        Some(
            Field::Name(_)
                | Field::U8
                | Field::U16
                | Field::U32
                | Field::Period
                | Field::Ipv4
                | Field::Ipv6
                | Field::Salt
                | Field::Loc
                | Field::Locator64
                | Field::Eui48
                | Field::Eui64
        )
    )
}

#[test]
fn every_type_with_a_row_has_a_golden_record() {
    let seen: Vec<Rtype> = golden().iter().map(|record| record.rtype).collect();
    let missing: Vec<Rtype> = (0..=u16::MAX)
        .map(Rtype)
        .filter(|rtype| rdata::fields(*rtype) != [Field::Opaque] && !seen.contains(rtype))
        .collect();
    assert_eq!(missing, []);
}

#[test]
fn names_and_canonical_form_lie_within_every_record() {
    for record in golden() {
        let mut folded = Vec::new();
        rdata::canonical(record.rtype, &record.rdata, &mut folded);
        assert!(folded.eq_ignore_ascii_case(&record.rdata));
        for span in rdata::names(record.rtype, &record.rdata) {
            assert!(Name::from_octets(&record.rdata[span.offset..span.offset + span.len]).is_ok());
        }
    }
}
