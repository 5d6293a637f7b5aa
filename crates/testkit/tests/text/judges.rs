//! Other readers of zone text: each makes octets of a zone of [`ORIGIN`](crate::ORIGIN).

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{ORIGIN, Octets};

/// Writes the zone to a file, runs a command on it, and yields what it wrote: to standard output, or to the file that
/// `result` names. The files are left in `target/tmp/text` for whoever looks into a difference.
fn run(zone: &str, command: &mut Command, result: Option<&str>) -> Vec<u8> {
    let program = command.get_program().to_owned();
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("text").join(program);
    fs::create_dir_all(&folder).expect("the folder of tests can be written to");
    fs::write(folder.join("zone"), zone).expect("the folder of tests can be written to");
    let output = command.current_dir(&folder).output().expect("bind9-utils and ldnsutils are installed");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stdout));
    match result {
        Some(file) => fs::read(folder.join(file)).expect("it was written"),
        None => output.stdout,
    }
}

/// BIND's reader, by its raw format: a head of 24 octets, then an RRset after the other.
pub(crate) fn named_compilezone(zone: &str) -> Octets {
    let mut command = Command::new("named-compilezone");
    command.args(["-F", "raw", "-i", "none", "-k", "ignore", "-n", "ignore", "-m", "ignore", "-r", "ignore"]);
    command.args(["-M", "ignore", "-S", "ignore", "-W", "ignore", "-o", "raw", ORIGIN, "zone"]);
    let raw = run(zone, &mut command, Some("raw"));
    let mut octets = Octets::new();
    let mut rest = &raw[24..];
    while !rest.is_empty() {
        let (len, _) = u32_of(rest);
        let (mut rrset, after) = rest.split_at(usize::try_from(len).expect("64 bits"));
        rest = after;
        // Its length, class, type, what it covers, TTL, number of records; then the owner.
        let rtype = u16::from_be_bytes([rrset[6], rrset[7]]);
        rrset = &rrset[18..];
        let owner = name_text(taken(&mut rrset));
        let rdata = taken(&mut rrset).to_vec();
        octets.entry((owner, rtype)).or_insert(rdata);
    }
    octets
}

fn u32_of(octets: &[u8]) -> (u32, &[u8]) {
    let (number, rest) = octets.split_first_chunk().expect("four octets are left");
    (u32::from_be_bytes(*number), rest)
}

/// What a length in two octets leads.
fn taken<'o>(octets: &mut &'o [u8]) -> &'o [u8] {
    let (len, rest) = octets.split_first_chunk().expect("two octets are left");
    let (taken, rest) = rest.split_at(usize::from(u16::from_be_bytes(*len)));
    *octets = rest;
    taken
}

/// The owners of the corpus hold letters, digits and hyphens alone.
fn name_text(mut wire: &[u8]) -> String {
    let mut text = String::new();
    while let [len @ 1..=63, rest @ ..] = wire {
        let (label, after) = rest.split_at(usize::from(*len));
        text.push_str(&String::from_utf8_lossy(label));
        text.push('.');
        wire = after;
    }
    text
}

/// The reader of ldns, which writes every type but one in the form of RFC 3597.
pub(crate) fn ldns_read_zone(zone: &str) -> Octets {
    let mut command = Command::new("ldns-read-zone");
    command.args(["-U", "WKS", "zone"]);
    let text = run(zone, &mut command, None);
    let text = String::from_utf8(text).expect("generic records are ASCII");
    text.lines().filter(|line| !line.is_empty() && !line.starts_with([';', '$'])).map(generic).collect()
}

/// `OWNER TTL CLASS TYPE \\# LENGTH HEX`.
fn generic(line: &str) -> ((String, u16), Vec<u8>) {
    let mut fields = line.split_whitespace();
    let mut next = || fields.next().unwrap_or_else(|| panic!("{line}"));
    let (owner, _, _, rtype, _, _) = (next(), next(), next(), next(), next(), next());
    let digits: String = fields.collect();
    let octet = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or_else(|_| panic!("{line}"));
    let rdata = (0..digits.len()).step_by(2).map(octet).collect();
    let known = || crate::TYPES.iter().find(|row| row.0 == rtype).map(|row| row.1);
    let number = rtype.strip_prefix("TYPE").and_then(|number| number.parse().ok()).or_else(known);
    ((owner.to_owned(), number.unwrap_or_else(|| panic!("{line}"))), rdata)
}
