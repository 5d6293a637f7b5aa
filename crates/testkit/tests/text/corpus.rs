//! Zone text of every type, its fields at random: names, numbers, strings with escapes, digits with white space between.

use std::fmt::Write as _;
use std::net::Ipv6Addr;

use weir_testkit::random::Random;

/// A type: its mnemonic, its number, who beside Weir reads its presentation form (`b` is BIND 9.18, `l` is ldns 1.8, which
/// takes NSAP-PTR for a string).
pub(crate) type Row = (&'static str, u16, &'static str);

/// Every type that Weir reads a presentation form of.
#[rustfmt::skip]
pub(crate) const TYPES: &[Row] = &[
    ("A", 1, "bl"), ("NS", 2, "bl"), ("MD", 3, "l"), ("MF", 4, "l"), ("CNAME", 5, "bl"), ("SOA", 6, "bl"),
    ("MB", 7, "bl"), ("MG", 8, "bl"), ("MR", 9, "bl"), ("NULL", 10, "bl"), ("PTR", 12, "bl"), ("HINFO", 13, "bl"),
    ("MINFO", 14, "bl"), ("MX", 15, "bl"), ("TXT", 16, "bl"), ("RP", 17, "bl"), ("AFSDB", 18, "bl"), ("X25", 19, "bl"),
    ("ISDN", 20, "bl"), ("RT", 21, "bl"), ("NSAP", 22, "bl"), ("NSAP-PTR", 23, "b"), ("SIG", 24, "bl"),
    ("KEY", 25, "bl"), ("PX", 26, "bl"), ("GPOS", 27, "bl"), ("AAAA", 28, "bl"), ("LOC", 29, "bl"), ("NXT", 30, "b"),
    ("EID", 31, "bl"), ("NIMLOC", 32, "bl"), ("SRV", 33, "bl"), ("ATMA", 34, "b"), ("NAPTR", 35, "bl"), ("KX", 36, "bl"),
    ("CERT", 37, "bl"), ("DNAME", 39, "bl"), ("APL", 42, "bl"), ("DS", 43, "bl"), ("SSHFP", 44, "bl"),
    ("IPSECKEY", 45, "b"), ("RRSIG", 46, "bl"), ("NSEC", 47, "bl"), ("DNSKEY", 48, "bl"), ("DHCID", 49, "bl"),
    ("NSEC3", 50, "bl"), ("NSEC3PARAM", 51, "bl"), ("TLSA", 52, "bl"), ("SMIMEA", 53, "bl"), ("HIP", 55, "bl"),
    ("NINFO", 56, "b"), ("RKEY", 57, "b"), ("TALINK", 58, "bl"), ("CDS", 59, "bl"), ("CDNSKEY", 60, "bl"),
    ("OPENPGPKEY", 61, "bl"), ("CSYNC", 62, "bl"), ("ZONEMD", 63, "bl"), ("SVCB", 64, "bl"), ("HTTPS", 65, "bl"),
    ("DSYNC", 66, ""), ("HHIT", 67, ""), ("BRID", 68, ""), ("SPF", 99, "bl"), ("NID", 104, "bl"), ("L32", 105, "bl"),
    ("L64", 106, "bl"), ("LP", 107, "bl"), ("EUI48", 108, "bl"), ("EUI64", 109, "bl"), ("URI", 256, "bl"),
    ("CAA", 257, "bl"), ("AVC", 258, "b"), ("DOA", 259, "b"), ("AMTRELAY", 260, "b"), ("RESINFO", 261, "b"),
    ("WALLET", 262, "b"), ("CLA", 263, ""), ("IPN", 264, ""), ("TA", 32768, "b"), ("DLV", 32769, "bl"),
    ("TYPE65400", 65400, "bl"),
];

/// A record's data in presentation form.
pub(crate) fn data(rtype: &str, random: &mut Random) -> String {
    Maker(random).data(rtype)
}

struct Maker<'r>(&'r mut Random);

impl Maker<'_> {
    fn data(&mut self, rtype: &str) -> String {
        match rtype {
            "A" => self.ipv4(),
            "AAAA" => self.ipv6(),
            "NS" | "MD" | "MF" | "CNAME" | "MB" | "MG" | "MR" | "PTR" | "NSAP-PTR" | "DNAME" => self.name(),
            "MINFO" | "RP" | "TALINK" => self.join(&["name", "name"]),
            "HINFO" => self.join(&["string", "string"]),
            "MX" | "AFSDB" | "RT" | "KX" | "LP" => self.join(&["u16", "name"]),
            "TXT" | "SPF" | "AVC" | "NINFO" | "RESINFO" | "WALLET" | "CLA" => self.strings(),
            "PX" => self.join(&["u16", "name", "name"]),
            "SRV" => self.join(&["u16", "u16", "u16", "name"]),
            "KEY" => format!("{} {} 13 {}", self.number(256), self.number(256), self.base64(44)),
            "RKEY" => format!("0 {} 13 {}", self.number(256), self.base64(44)),
            "DNSKEY" | "CDNSKEY" => {
                format!("{} 3 {} {}", self.pick(&["256", "257"]), self.pick(&["13", "8"]), self.base64(64))
            }
            "DS" | "CDS" | "TA" | "DLV" => self.digest(),
            "SIG" => self.signature(&["20380119031407 20260101000000"]),
            "RRSIG" => self.signature(&["20380119031407 20260101000000", "4000000000 1700000000"]),
            "DHCID" | "OPENPGPKEY" | "HHIT" | "BRID" => self.base64(35),
            "TLSA" | "SMIMEA" => format!("{} {} 1 {}", self.number(4), self.number(2), self.hex(32)),
            "SSHFP" => format!("{} 2 {}", 1 + self.number(4), self.hex(32)),
            "NSEC" => format!("{} {}", self.name(), self.types()),
            "CSYNC" => format!("{} {} {}", self.u32(), self.number(4), self.types()),
            "NSEC3PARAM" => format!("1 {} {} {}", self.number(2), self.number(100), self.salt()),
            "NSEC3" => self.nsec3(),
            "ZONEMD" => {
                let (number, len) = self.pick(&[(1, 48), (2, 64)]);
                format!("{} 1 {number} {}", self.u32(), self.hex(len))
            }
            "SVCB" | "HTTPS" => self.service(),
            "NID" | "L64" => format!(
                "{} {:04x}:{:x}:{:04x}:{:x}",
                self.u16(),
                self.u16(),
                self.u16(),
                self.u16(),
                self.u16()
            ),
            "L32" => format!("{} {}", self.u16(), self.ipv4()),
            "EUI48" => self.parted(6),
            "EUI64" => self.parted(8),
            "URI" => format!("{} {} \"x{}", self.u16(), self.u16(), &self.string(400)[1..]),
            "CAA" => {
                format!("{} {} {}", self.number(256), self.pick(&["issue", "iodef", "x9"]), self.string(300))
            }
            "AMTRELAY" => format!("{} {} {}", self.number(256), self.number(2), self.relay()),
            "IPSECKEY" => self.gateway(),
            "IPN" => self.0.next_u64().to_string(),
            "DSYNC" => format!(
                "{} {} {} {}",
                self.pick(&["CDS", "CSYNC"]),
                self.pick(&["NOTIFY", "7"]),
                self.u16(),
                self.name()
            ),
            _ => self.older(rtype),
        }
    }

    /// Types that hardly anybody uses.
    fn older(&mut self, rtype: &str) -> String {
        match rtype {
            "X25" => self.digits(12),
            "ISDN" => format!("{}{}", self.digits(15), self.pick(&["", " \"004\""])),
            "NSAP" => format!("0x{}", self.hex(20).replace(' ', ".")),
            "GPOS" => format!("-{}.{} {}.5 10.0", self.number(90), self.number(100), self.number(180)),
            "LOC" => self.location(),
            "NXT" => format!("{} A MX SIG NXT", self.name()),
            "EID" | "NIMLOC" => self.hex(6),
            "ATMA" => format!("+{}", self.digits(12)),
            "NAPTR" => {
                let head = format!("{} {} \"s\" \"http+I2L\" ", self.u16(), self.u16());
                head + &format!("{} {}", self.pick(&["\"\"", r#""!^(.*)$!\\1!i""#]), self.name())
            }
            "CERT" => format!(
                "{} {} {} {}",
                self.pick(&["PKIX", "PGP", "65534"]),
                self.u16(),
                self.number(256),
                self.base64(30)
            ),
            "APL" => format!("1:{}/32 !2:{}/128 1:10.0.0.0/8", self.ipv4(), self.ipv6()),
            "HIP" => {
                let (tag, key) = (self.hex(16).replace(' ', ""), self.base64(40).replace(' ', ""));
                format!("2 {tag} {key} {} {}", self.name(), self.name())
            }
            "DOA" => format!(
                "{} {} {} {} {}",
                self.u32(),
                self.u32(),
                self.number(256),
                self.string(255),
                self.base64(40)
            ),
            _ => {
                let n_octets = self.number(300);
                format!("\\# {n_octets} {}", self.hex(n_octets))
            }
        }
    }

    fn join(&mut self, fields: &[&str]) -> String {
        let texts: Vec<String> = fields
            .iter()
            .map(|field| match *field {
                "name" => self.name(),
                "string" => self.string(255),
                _ => self.u16().to_string(),
            })
            .collect();
        texts.join(self.pick(&[" ", "\t", "   "]))
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        *self.0.pick(items)
    }

    fn number(&mut self, end: usize) -> usize {
        self.0.below(end)
    }

    fn u16(&mut self) -> usize {
        self.number(65_536)
    }

    fn u32(&mut self) -> usize {
        self.number(1 << 32)
    }

    /// Absolute or relative, the root or the origin, labels of any octets; letters in lower case, as their case is
    /// nobody's business.
    fn name(&mut self) -> String {
        match self.number(8) {
            0 => ".".to_owned(),
            1 => "@".to_owned(),
            2 => "host".to_owned(),
            3 => r"\000\255.a\.b.\@".to_owned(),
            4 => format!("{}.example.", "l".repeat(63)),
            5 => format!("{}test.", "a.".repeat(120)),
            _ => format!("h{}.example.", self.u16()),
        }
    }

    fn ipv4(&mut self) -> String {
        format!("{}.{}.{}.{}", 1 + self.number(254), self.number(256), self.number(256), 1 + self.number(254))
    }

    fn ipv6(&mut self) -> String {
        let mut groups = [0u16; 8];
        for group in &mut groups {
            *group = if self.0.one_in(2) { 0 } else { u16::try_from(self.u16()).expect("it is below 65536") };
        }
        groups[7] |= 1;
        let address = Ipv6Addr::from(groups);
        if self.0.one_in(2) {
            address.to_string()
        } else {
            groups.map(|group| format!("{group:04X}")).join(":")
        }
    }

    /// Hexadecimal digits of either case with spaces between.
    fn hex(&mut self, n_octets: usize) -> String {
        let mut text = String::new();
        for at in 0..n_octets {
            let octet = self.0.octet();
            let _ = if octet < 128 { write!(text, "{octet:02x}") } else { write!(text, "{octet:02X}") };
            if at % 16 == 15 && at + 1 < n_octets {
                text.push(' ');
            }
        }
        text
    }

    fn base64(&mut self, n_octets: usize) -> String {
        const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let octets: Vec<u8> = (0..n_octets).map(|_| self.0.octet()).collect();
        let mut text = String::new();
        for (number, group) in octets.chunks(3).enumerate() {
            let bits = group.iter().fold(0u32, |bits, octet| bits << 8 | u32::from(*octet))
                << (8 * (3 - group.len()));
            for digit in 0..4 {
                let index = usize::try_from(bits >> (18 - 6 * digit) & 63).expect("it is below 64");
                text.push(if digit > group.len() { '=' } else { char::from(DIGITS[index]) });
            }
            if number % 8 == 7 && octets.len() > 3 * (number + 1) {
                text.push(' ');
            }
        }
        text
    }

    fn digits(&mut self, n_digits: usize) -> String {
        (0..n_digits).map(|_| char::from(b"0123456789"[self.0.below(10)])).collect()
    }

    /// A quoted string of up to so many octets: letters, escapes of both kinds, what has a meaning elsewhere.
    fn string(&mut self, most: usize) -> String {
        let n_octets = self.pick(&[0, 1, 20, most]);
        let mut text = String::from("\"");
        for _ in 0..n_octets {
            match self.number(6) {
                0 => text.push_str(self.pick(&["\\\"", "\\\\", ";", "(", ")", "@", "$", " "])),
                1 => {
                    let octet = self.0.octet();
                    let _ = write!(text, "\\{octet:03}");
                }
                _ => text.push(self.pick(&['a', 'B', '0', '-', '.', '=', ','])),
            }
        }
        text + "\""
    }

    fn strings(&mut self) -> String {
        let texts: Vec<String> = (0..=self.number(3)).map(|_| self.string(255)).collect();
        let plain = if self.0.one_in(2) { " plain-word" } else { "" };
        texts.join(" ") + plain
    }

    fn types(&mut self) -> String {
        let known = ["A", "NS", "MX", "TXT", "AAAA", "RRSIG", "NSEC", "CAA", "TYPE1234", "TYPE65280"];
        let mut types: Vec<&str> = known.into_iter().filter(|_| self.0.one_in(2)).collect();
        types.push("SRV");
        types.join(" ")
    }

    fn digest(&mut self) -> String {
        let (number, len) = self.pick(&[(1, 20), (2, 32), (4, 48)]);
        format!("{} {} {number} {}", self.u16(), self.pick(&["8", "13"]), self.hex(len))
    }

    fn signature(&mut self, times: &[&str]) -> String {
        let times = self.pick(times);
        format!("A 13 2 {} {times} {} example. {}", self.number(86_400), self.u16(), self.base64(64))
    }

    fn salt(&mut self) -> String {
        let n_octets = self.number(16);
        if n_octets == 0 { "-".to_owned() } else { self.hex(n_octets).replace(' ', "") }
    }

    fn nsec3(&mut self) -> String {
        let hash: String =
            (0..32).map(|_| char::from(b"0123456789abcdefghijklmnopqrstuv"[self.0.below(32)])).collect();
        format!("1 {} {} {} {hash} {}", self.number(2), self.number(100), self.salt(), self.types())
    }

    fn service(&mut self) -> String {
        let mut text = format!("{} {}", 1 + self.number(1000), self.name());
        for parameter in [
            "alpn=h2,h3",
            "no-default-alpn",
            "port=8443",
            "ipv4hint=192.0.2.1,192.0.2.2",
            "ech=AEj+DQBEAQAg",
            "ipv6hint=2001:db8::1",
        ] {
            let needs_alpn = parameter == "no-default-alpn" && !text.contains("alpn=");
            if self.0.one_in(2) && !needs_alpn {
                let _ = write!(text, " {parameter}");
            }
        }
        if self.0.one_in(2) {
            let _ = write!(text, " key{}=\"a\\\\b\\044\\255\"", 1000 + self.number(60_000));
        }
        text
    }

    fn parted(&mut self, n_octets: usize) -> String {
        let octets: Vec<String> = (0..n_octets).map(|_| format!("{:02x}", self.0.octet())).collect();
        octets.join("-")
    }

    fn relay(&mut self) -> String {
        match self.number(4) {
            0 => "0 .".to_owned(),
            1 => format!("1 {}", self.ipv4()),
            2 => format!("2 {}", self.ipv6()),
            _ => "3 relay.example.".to_owned(),
        }
    }

    fn gateway(&mut self) -> String {
        let relay = self.relay();
        let (kind, gateway) = relay.split_once(' ').expect("there are two");
        format!("{} {kind} 2 {gateway} {}", self.number(256), self.base64(30))
    }

    fn location(&mut self) -> String {
        let angle = |maker: &mut Self, degrees: usize, letters: [&str; 2]| {
            let seconds = format!("{}.{:03}", maker.number(60), maker.number(1000));
            format!("{} {} {seconds} {}", maker.number(degrees), maker.number(60), maker.pick(&letters))
        };
        let (latitude, longitude) = (angle(self, 90, ["N", "S"]), angle(self, 180, ["E", "W"]));
        let altitude = format!("{}{}.{:02}m", self.pick(&["", "-"]), self.number(9000), self.number(100));
        let sizes = self.pick(&["", " 1m", " 20m 300m", " 1m 10000m 90000m"]);
        format!("{latitude} {longitude} {altitude}{sizes}")
    }
}
