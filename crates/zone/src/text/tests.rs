//! The reader as a whole: what carries over, where errors are shown, and that the window does not matter.

use super::*;
use proptest::prelude::*;
use std::io;
use weir_wire::name::NameBuf;
use weir_wire::rdata;

/// Records as lines, and findings as lines.
fn read_text(text: &[u8]) -> (Vec<String>, Vec<String>) {
    read_source(Source::Octets("zone", text), BLOCK_LEN)
}

fn read_source(source: Source<'_>, block_len: usize) -> (Vec<String>, Vec<String>) {
    let origin = NameBuf::from_text(b"example.", None).unwrap();
    let mut records = Vec::new();
    let mut sink = |record: Record<'_>| {
        let rdata = rdata::display(record.rtype, record.rdata);
        records.push(format!("{} {} {} {rdata}", record.owner, record.ttl, record.rtype));
    };
    let options = Options { max_generated: 1000, ..Options::default() };
    let reading = read_in_blocks(source, origin.name(), &mut sink, &options, block_len);
    (records, reading.findings.into_list().iter().map(ToString::to_string).collect())
}

/// The records of a text that has nothing wrong.
fn records(text: &str) -> Vec<String> {
    let (records, findings) = read_text(text.as_bytes());
    assert_eq!(findings, [""; 0], "{text}");
    records
}

/// The findings of a text.
fn findings(text: &str) -> Vec<String> {
    read_text(text.as_bytes()).1
}

#[test]
fn ttl_and_class_come_in_either_order_or_not_at_all() {
    let text = "$TTL 9\na 1 IN A 192.0.2.1\na IN 2 A 192.0.2.1\na 3 A 192.0.2.1\na in A 192.0.2.1\na CLASS1 1m TYPE1 192.0.2.1\n";
    let ttls: Vec<String> =
        records(text).iter().map(|line| line.split(' ').nth(1).unwrap().to_owned()).collect();
    assert_eq!(ttls, ["1", "2", "3", "9", "60"]);
}

#[test]
fn a_blank_owner_repeats_the_last_one() {
    let text = "$TTL 1\na A 192.0.2.1\n\tA 192.0.2.2\n ( A\n192.0.2.3 )\n\n ; comment\n  TXT x\n";
    let lines = records(text);
    assert_eq!(lines.len(), 4);
    assert!(lines.iter().all(|line| line.starts_with("a.example. 1 ")), "{lines:?}");
    assert!(findings("  A 192.0.2.1\n")[0].starts_with("zone:1:3: the first record must name its owner"));
}

#[test]
fn origin_completes_names_from_where_it_stands() {
    let text = "$TTL 1\na CNAME b\n$ORIGIN sub\na CNAME b\n@ CNAME @\n$ORIGIN example.\na CNAME .\n";
    assert_eq!(
        records(text),
        [
            "a.example. 1 CNAME b.example.",
            "a.sub.example. 1 CNAME b.sub.example.",
            "sub.example. 1 CNAME sub.example.",
            "a.example. 1 CNAME .",
        ]
    );
}

#[test]
fn a_missing_ttl_is_that_of_the_directive_the_record_before_or_the_soa() {
    let (lines, found) = read_text(b"@ SOA a b 1 2 3 4 5\n@ NS a\n");
    assert_eq!(lines, ["example. 5 SOA a.example. b.example. 1 2 3 4 5", "example. 5 NS a.example."]);
    assert!(
        found[0].starts_with("zone:1:1: warning: no TTL and no $TTL: the SOA record's last field, 5"),
        "{found:?}"
    );
    assert_eq!(found.len(), 1);
    let (lines, found) = read_text(b"a 7 A 192.0.2.1\na A 192.0.2.2\na A 192.0.2.3\n");
    assert_eq!(lines[2], "a.example. 7 A 192.0.2.3");
    assert_eq!(found.len(), 1, "one warning for all: {found:?}");
    let (lines, found) = read_text(b"a A 192.0.2.1\n");
    assert!(lines.is_empty());
    assert!(found[0].starts_with("zone:1:14: the record has no TTL"), "{found:?}");
    let (lines, _) = read_text(b"a 7 A 192.0.2.1\n$TTL 8\na A 192.0.2.2\n");
    assert_eq!(lines[1], "a.example. 8 A 192.0.2.2");
}

#[test]
fn line_ends_of_windows_a_byte_order_mark_and_a_missing_last_line_end_are_fine() {
    let text = b"\xef\xbb\xbf$TTL 1\r\na A 192.0.2.1\r\n TXT \"x\"\r\n\r\nb MX ( 1 \r\n m )\r\nc A 192.0.2.3";
    let (lines, found) = read_text(text);
    assert_eq!(found, [""; 0]);
    assert_eq!(
        lines,
        [
            "a.example. 1 A 192.0.2.1",
            "a.example. 1 TXT \"x\"",
            "b.example. 1 MX 1 m.example.",
            "c.example. 1 A 192.0.2.3"
        ]
    );
}

#[test]
fn escapes_make_any_octet_part_of_a_name() {
    let text = "$TTL 1\na\\.b\\032c\\; A 192.0.2.1\n\\@ A 192.0.2.1\n\\$TTL A 192.0.2.1\n\\097 A 192.0.2.1\n";
    let owners: Vec<String> =
        records(text).iter().map(|line| line.split(" 1 A").next().unwrap().to_owned()).collect();
    assert_eq!(owners, [r"a\.b\032c\;.example.", r"\@.example.", r"\$TTL.example.", "a.example."]);
}

#[test]
fn octets_above_127_are_taken_as_they_are() {
    let (lines, found) = read_text(b"\xe4 1 TXT \xff \"\xc3\xa4\"\n");
    assert_eq!(found, [""; 0]);
    assert_eq!(lines, [r#"\228.example. 1 TXT "\255" "\195\164""#]);
}

#[test]
fn a_text_is_one_string_of_any_length() {
    let long = "x".repeat(1000);
    assert_eq!(records(&format!("a 1 CAA 0 issue \"{long}\"\na 1 URI 1 1 \"{long}\"\n")).len(), 2);
    assert!(findings("a 1 CAA 0 issue \"a\" \"b\"\n")[0].starts_with("zone:1:21: "));
    assert!(findings("a 1 URI 1 1 \"a\" \"b\"\n")[0].starts_with("zone:1:17: "));
}

#[test]
fn values_that_servers_read_differently_are_read_as_the_manual_says() {
    let rrsig = |end: &str| format!("RRSIG A 13 2 3600 {end} 20250101000000 1 example. AAAA");
    for (text, printed) in [
        (
            "SVCB 1 . no-default-alpn= alpn=h2 key65280=",
            Some("SVCB 1 . alpn=\"h2\" no-default-alpn key65280"),
        ),
        ("SVCB 1 . port=5\\051 ipv4hint=192.0.2.\\049", Some("SVCB 1 . port=53 ipv4hint=192.0.2.1")),
        ("SVCB 1 . key65535=a", None),
        ("SVCB 1 . dohpath=/q", None),
        ("LOC 1 2 3. N 4 E 1m", None),
        ("LOC 1 2 3 n 4 e 1m", Some("LOC 1 2 3.000 N 4 0 0.000 E 1.00m 1.00m 10000.00m 10.00m")),
        ("LOC 90 N 180 W 0", Some("LOC 90 0 0.000 N 180 0 0.000 W 0.00m 1.00m 10000.00m 10.00m")),
        ("LOC 90 0 0.001 N 0 E 0", None),
        ("LOC 0 N 180 0 0.001 E 0", None),
        (&rrsig("21060207062815"), Some(&rrsig("21060207062815"))),
        (&rrsig("21060207062816"), None),
        ("NSEC b", Some("NSEC b.example.")),
        ("CAA 0 \"issue\" a", Some("CAA 0 issue \"a\"")),
        ("URI 1 1 a:b", Some("URI 1 1 \"a:b\"")),
    ] {
        let (lines, found) = read_text(format!("a 1 {text}\n").as_bytes());
        let expected: Vec<String> = printed.iter().map(|data| format!("a.example. 1 {data}")).collect();
        assert_eq!(lines, expected, "{text}");
        assert_eq!(found.is_empty(), printed.is_some(), "{text}: {found:?}");
    }
}

#[test]
fn strings_of_0_and_255_octets_fit_and_one_of_256_does_not() {
    let longest = "x".repeat(255);
    let line = format!("a 1 TXT \"\" {longest} \"{longest}\"\n");
    assert_eq!(records(&line).len(), 1);
    let found = findings(&format!("a 1 TXT y{longest}\n"));
    assert_eq!(found, ["zone:1:9: 256 octets are more than the 255 of one string: split it"]);
}

#[test]
fn a_record_of_65535_octets_fits_and_a_longer_one_does_not() {
    let strings = |n: usize, rest: usize| {
        format!("a 1 TXT {}{}\n", format!("{} ", "x".repeat(255)).repeat(n), "y".repeat(rest))
    };
    assert_eq!(records(&strings(255, 254)).len(), 1);
    assert!(findings(&strings(255, 255))[0].contains("longer than 65535 octets"));
}

#[test]
fn types_and_classes_by_number_are_the_same_as_by_name() {
    assert_eq!(records("a 1 CLASS1 TYPE15 10 mx\n"), records("a 1 IN MX 10 mx\n"));
    assert_eq!(records("a 1 TYPE15 \\# 5 000a 0161 00\n"), ["a.example. 1 MX 10 a."]);
    assert_eq!(records("a 1 TYPE65280 \\# 0\n"), ["a.example. 1 TYPE65280 \\# 0"]);
    assert!(findings("a 1 MX \\# 4 000a0161\n")[0].contains("no data of type MX"));
    assert!(findings("a 1 A \\# 5 c0000201\n")[0].contains("says 5 octets and 4 follow"));
    assert!(findings("a 1 TYPE65280 abc\n")[0].contains("\\# LENGTH"));
}

#[test]
fn records_of_other_classes_and_of_messages_are_errors() {
    assert_eq!(findings("a 1 CH A 192.0.2.1\n"), ["zone:1:5: class CH in a zone of class IN"]);
    assert!(findings("a 1 ANY x\n")[0].starts_with("zone:1:5: ANY records exist in messages only"));
    assert!(findings("a 1 OPT \\# 0\n")[0].contains("messages only"));
    assert_eq!(
        findings("a 1 BOGUS x\n"),
        ["zone:1:5: \"BOGUS\" is no record type: one without a name is written as TYPE and its number"]
    );
    assert_eq!(findings("a 2147483648 A 192.0.2.1\n").len(), 1);
    assert_eq!(records("a 2147483647 A 192.0.2.1\n").len(), 1);
}

#[test]
fn records_out_of_the_zone_are_left_out_with_a_warning() {
    let (lines, found) =
        read_text(b"$TTL 1\nb.test. A 192.0.2.1\n$ORIGIN test.\na A 192.0.2.1\na.example. A 192.0.2.2\n");
    assert_eq!(lines, ["a.example. 1 A 192.0.2.2"]);
    assert_eq!(found.len(), 2);
    assert_eq!(found[0], "zone:2:1: warning: b.test. is not in the zone example.: the record is left out");
}

#[test]
fn each_error_is_shown_where_it_is_and_reading_goes_on() {
    let text = "$TTL 1\n\
        a A 192.0.2.256\n\
        good1 A 192.0.2.1\n\
        a..b A 192.0.2.1\n\
        a MX ten mx\n\
        a MX ( 70000\n   mx )\n\
        good2 A 192.0.2.1\n\
        a A\n\
        a A 192.0.2.1 extra\n\
        a TXT \"open\n\
        a A 192.0.2.1 )\n\
        a TXT \\256\n\
        $FOO bar\n\
        good3 A 192.0.2.1\n";
    let (lines, found) = read_text(text.as_bytes());
    let places: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap()).collect();
    assert_eq!(
        places,
        [
            "zone:2:5",
            "zone:4:1",
            "zone:5:6",
            "zone:6:8",
            "zone:9:4",
            "zone:10:15",
            "zone:11:7",
            "zone:12:15",
            "zone:13:7",
            "zone:14:1"
        ]
    );
    assert_eq!(found[0], "zone:2:5: expected an IPv4 address such as 192.0.2.1, found \"192.0.2.256\"");
    assert_eq!(lines.len(), 3, "{lines:?}");
}

#[test]
fn an_open_parenthesis_is_named_and_does_not_hide_the_rest() {
    let text = "$TTL 1\n@ SOA a b ( 1 2 3 4 5\n  NS a\n  NS b\nb A 192.0.2.1\nc A 192.0.2.x\n";
    let (lines, found) = read_text(text.as_bytes());
    assert!(
        found[0].starts_with("zone:3:3: SOA has no further field here (the parenthesis opened on line 2"),
        "{found:?}"
    );
    assert!(found[1].starts_with("zone:6:5: "), "{found:?}");
    assert_eq!(lines, ["b.example. 1 A 192.0.2.1"]);
    assert_eq!(findings("a 1 TXT ( b\n"), ["zone:1:9: the parenthesis that opens here is never closed"]);
}

#[test]
fn errors_stop_at_their_limit() {
    let found = findings(&"a 1 A x\n".repeat(1000));
    assert_eq!(found.len(), 21);
    assert!(found[20].ends_with("too many errors, giving up after 20"), "{}", found[20]);
}

#[test]
fn generate_makes_runs_of_records() {
    let lines = records(
        "$TTL 1\n$GENERATE 1-3 host$ A 192.0.2.${10}\n$GENERATE 0-4/2 $ IN 5 CNAME ( ${0,2,x} ) ; c\n",
    );
    assert_eq!(lines.len(), 6);
    assert_eq!(lines[2], "host3.example. 1 A 192.0.2.13");
    assert_eq!(lines[5], "4.example. 5 CNAME 04.example.");
    assert!(
        findings("$GENERATE 1-1001 a$ 1 A 192.0.2.1\n")[0].starts_with("zone:1:11: 1001 records are more")
    );
    assert_eq!(findings("$TTL 1\n$GENERATE 254-300 a A 192.0.2.$\n").len(), 1);
    assert!(findings("$TTL 1\n$GENERATE 1-2 $$TTL 3\n")[0].contains("not directives"));
}

#[test]
fn an_octet_of_value_zero_ends_the_reading() {
    let (lines, found) = read_text(b"$TTL 1\na A 192.0.2.1\n\0\0\0\na A 192.0.2.2\n");
    assert_eq!(lines.len(), 1);
    assert_eq!(found, ["zone:3:1: an octet of value zero: this is not a text file"]);
}

#[test]
fn zeros_without_end_are_given_up_at_once() {
    let source = Source::Reader("zeros", Box::new(io::repeat(0)));
    let (_, found) = read_source(source, BLOCK_LEN);
    assert_eq!(found, ["zeros:1:1: an octet of value zero: this is not a text file"]);
}

#[test]
fn letters_without_end_are_given_up_at_the_limit_of_an_entry() {
    for octet in [b'a', b' ', b'(', b';', b'"'] {
        let source = Source::Reader("endless", Box::new(io::repeat(octet)));
        let (_, found) = read_source(source, BLOCK_LEN);
        assert!(
            found.last().unwrap().starts_with("endless:1:1: the entry that starts here has over 16 MiB"),
            "{found:?}"
        );
    }
}

#[test]
fn lines_of_a_megabyte_are_read() {
    let long_comment = format!("$TTL 1\na A 192.0.2.1 ;{}\nb A 192.0.2.2\n", "c".repeat(1 << 20));
    let long_blank = format!("$TTL 1\na A {} 192.0.2.1\nb A 192.0.2.2\n", " ".repeat(1 << 20));
    let long_hex = format!("$TTL 1\na TYPE65280 \\# 60000 {}\nb A 192.0.2.2\n", "0 ".repeat(120_000));
    for text in [long_comment, long_blank, long_hex] {
        assert_eq!(records(&text).len(), 2);
        let source = Source::Reader("zone", Box::new(text.as_bytes()));
        assert_eq!(read_source(source, 1000).0.len(), 2);
    }
}

#[test]
fn tokens_are_counted_across_windows() {
    let line = "a.example. 3600 IN TXT \"two words\" ( b ) ; c\n";
    let n_lines = 2 * BLOCK_LEN / line.len() + 1;
    assert_eq!(count_tokens(line.repeat(n_lines).as_bytes()), 6 * n_lines as u64);
    assert_eq!(count_tokens(b""), 0);
    assert_eq!(count_tokens(b"a b c"), 3);
}

#[test]
fn a_failing_read_is_an_error_line() {
    struct Failing;
    impl Read for Failing {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is gone"))
        }
    }
    let (_, found) = read_source(Source::Reader("zone", Box::new(Failing)), BLOCK_LEN);
    assert_eq!(found, ["zone: reading failed: the disk is gone"]);
}

#[test]
fn includes_are_relative_to_their_file_and_restore_origin_and_owner() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    std::fs::create_dir(folder.path().join("sub")).unwrap();
    write(
        "main",
        "$TTL 1\na A 192.0.2.1\n$INCLUDE sub/one in\n  TXT after\nb A 192.0.2.2\n$INCLUDE \"sub/two\"\nc A 192.0.2.4\n$INCLUDE sub/three\n",
    );
    write("sub/one", "x A 192.0.2.9\n$ORIGIN deep\n$INCLUDE two\n");
    write("sub/two", "$TTL 2\ny A 192.0.2.3\n");
    write("sub/three", "  TXT first\n");
    let (lines, found) = read_source(Source::Path(&folder.path().join("main")), BLOCK_LEN);
    assert_eq!(found, [""; 0]);
    assert_eq!(
        lines,
        [
            "a.example. 1 A 192.0.2.1",
            "x.in.example. 1 A 192.0.2.9",
            "y.deep.in.example. 2 A 192.0.2.3",
            "a.example. 2 TXT \"after\"",
            "b.example. 2 A 192.0.2.2",
            "y.example. 2 A 192.0.2.3",
            "c.example. 2 A 192.0.2.4",
            "c.example. 2 TXT \"first\"",
        ]
    );
}

#[test]
fn files_that_include_each_other_in_a_circle_are_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("one"), "$INCLUDE two\n").unwrap();
    std::fs::write(folder.path().join("two"), "\n  $INCLUDE x\n$INCLUDE one\n$INCLUDE missing\n$INCLUDE .\n")
        .unwrap();
    let (_, found) = read_source(Source::Path(&folder.path().join("one")), BLOCK_LEN);
    assert_eq!(found.len(), 4, "{found:?}");
    assert!(found[1].contains("two:3:1: files include each other in a circle: "), "{found:?}");
    assert!(found[1].ends_with("/one"), "{found:?}");
    assert!(found[2].contains("two:4:1: cannot include "), "{found:?}");
    assert!(found[3].contains("folder"), "{found:?}");
}

#[test]
fn includes_nest_twenty_deep_and_no_deeper() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..30 {
        std::fs::write(folder.path().join(n.to_string()), format!("$INCLUDE {}\n", n + 1)).unwrap();
    }
    std::fs::write(folder.path().join("20"), "a 1 A 192.0.2.1\n").unwrap();
    let (lines, found) = read_source(Source::Path(&folder.path().join("0")), BLOCK_LEN);
    assert_eq!((lines.len(), found.len()), (1, 0), "{found:?}");
    std::fs::write(folder.path().join("20"), "$INCLUDE 21\n").unwrap();
    let (_, found) = read_source(Source::Path(&folder.path().join("0")), BLOCK_LEN);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("more than 20 deep"), "{found:?}");
}

#[test]
fn a_file_that_grows_while_it_is_read_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("growing");
    std::fs::write(&path, "a 1 A 192.0.2.1\n").unwrap();
    let origin = NameBuf::from_text(b"example.", None).unwrap();
    let mut sink = |_: Record<'_>| {
        let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
        io::Write::write_all(&mut file, b"; more\n").unwrap();
    };
    let reading = read(Source::Path(&path), origin.name(), &mut sink, &Options::default());
    let found = reading.findings.into_list();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].message.contains("changed while it was read"), "{found:?}");
}

/// Pieces that zone files are made of, whole and broken.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "(\\$TTL 5\n|a|b\\.example\\.|@|\\$ORIGIN c\n|\\$GENERATE 1-3 g\\$ A 192\\.0\\.2\\.\\$\n)",
        "( IN| 60| A 192\\.0\\.2\\.1| MX 10 m| TXT \"a b\" c| NS n\n|\n|\r\n)",
        "( \\(|\\) |\"|\\\\|\\\\065|;x|;y\"\n|\t| {1,40})",
        "a 60 IN (A 192\\.0\\.2\\.1|TXT \"x;y\" z|AAAA 2001:db8::1|SOA a b \\(1 2\n 3 4 ;c\n 5\\))\n",
        "[ -~]{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn the_size_of_the_window_changes_neither_records_nor_findings(
        pieces in proptest::collection::vec(piece(), 0..30),
        block_len in 1usize..80,
        n_at_once in 1usize..9,
    ) {
        let text = format!("$TTL 1\nz A 192.0.2.9\n{}", pieces.concat());
        let expected = read_text(text.as_bytes());
        let drip = Drip { rest: text.as_bytes(), n_at_once };
        let found = read_source(Source::Reader("zone", Box::new(drip)), block_len);
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn any_octets_are_read_to_the_end(octets in proptest::collection::vec(any::<u8>(), 0..300)) {
        let (_, found) = read_text(&octets);
        prop_assert!(found.len() <= 121);
    }
}

/// A reader that hands out a few octets at a time.
struct Drip<'a> {
    rest: &'a [u8],
    n_at_once: usize,
}

impl Read for Drip<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n_octets = self.n_at_once.min(buffer.len());
        self.rest.read(&mut buffer[..n_octets])
    }
}
