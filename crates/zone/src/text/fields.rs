//! RDATA from presentation form, field by field as the table of [`weir_wire::rdata`] lists them.

use super::name::push_name;
use super::number::{decimal, ipv4, ipv6, period};
use super::scanner::{Form, Scanner, Stop, Token};
use super::{bitmap, composite, location, strings, svcb};
use weir_wire::name::Name;
use weir_wire::rdata::encoding::{Base64Decoder, HexDecoder, NotEncoded, decode_base32hex};
use weir_wire::rdata::{self, Field, Timestamp};
use weir_wire::rtype::Rtype;

/// Buffers that records use one after the other.
#[derive(Default)]
pub(super) struct Scratch {
    pub(super) types: Vec<u16>,
    pub(super) octets: Vec<u8>,
    pub(super) params: Vec<svcb::Param>,
}

/// What a field is read from and written to.
pub(super) struct FieldReader<'r, 't> {
    pub(super) scanner: &'r mut Scanner<'t>,
    pub(super) origin: Name<'r>,
    pub(super) scratch: &'r mut Scratch,
    pub(super) out: &'r mut Vec<u8>,
}

impl<'t> FieldReader<'_, 't> {
    /// Reads the RDATA of `rtype` and the end of the entry.
    pub(super) fn rdata(&mut self, rtype: Rtype) -> Result<(), Stop> {
        self.out.clear();
        let fields = rdata::fields(rtype);
        let mut token = self.scanner.token()?;
        if let Some(Token { text: b"\\#", form: Form::Escaped }) = token {
            return self.generic(rtype);
        }
        if fields.contains(&Field::Opaque) {
            let message =
                format!("{rtype} has no form of its own here: write \\# LENGTH HEXADECIMAL (RFC 3597)");
            return Err(self.scanner.wrong("rdata", message));
        }
        for &field in fields {
            token = self.field(field, token)?;
        }
        if token.is_some() {
            return Err(self.scanner.wrong("rdata", format!("{rtype} has no further field here")));
        }
        self.check(rtype)
    }

    /// What the forms of the fields do not guarantee: the length, and rules between fields.
    fn check(&self, rtype: Rtype) -> Result<(), Stop> {
        if self.out.len() > usize::from(u16::MAX) {
            return Err(self.scanner.wrong("rdata", "the record's data is longer than 65535 octets"));
        }
        match rtype {
            Rtype::A | Rtype::AAAA | Rtype::NS | Rtype::MX | Rtype::CNAME | Rtype::PTR | Rtype::SOA => Ok(()),
            _ => {
                rdata::check(rtype, self.out).map_err(|error| self.scanner.wrong("rdata", error.to_string()))
            }
        }
    }

    /// RFC 3597 section 5: a length and that many octets in hexadecimal.
    fn generic(&mut self, rtype: Rtype) -> Result<(), Stop> {
        let length = self.scanner.token()?;
        let length = self.number(length, u64::from(u16::MAX))?;
        self.hex_to_end(None)?;
        let n_octets = u64::try_from(self.out.len()).unwrap_or(u64::MAX);
        if n_octets != length {
            let message = format!("\\# says {length} octets and {n_octets} follow");
            return Err(self.scanner.wrong("rdata", message));
        }
        rdata::check(rtype, self.out)
            .map_err(|error| self.scanner.wrong("rdata", format!("this is no data of type {rtype}: {error}")))
    }

    /// Reads one field that starts with `token`; yields the token that follows it.
    #[inline]
    fn field(&mut self, field: Field, token: Option<Token<'t>>) -> Result<Option<Token<'t>>, Stop> {
        match field {
            Field::Name(_) => self.name(token)?,
            Field::U8 => self.push_number::<1>(token)?,
            Field::U16 => self.push_number::<2>(token)?,
            Field::U32 => self.push_number::<4>(token)?,
            Field::U64 => self.push_number::<8>(token)?,
            Field::Ipv4 => {
                let address = self.parsed(token, ipv4, "an IPv4 address such as 192.0.2.1")?;
                self.out.extend_from_slice(&address);
            }
            Field::Ipv6 => {
                let address = self.parsed(token, ipv6, "an IPv6 address such as 2001:db8::1")?;
                self.out.extend_from_slice(&address);
            }
            _ => return self.rare_field(field, token),
        }
        self.scanner.token()
    }

    fn rare_field(&mut self, field: Field, token: Option<Token<'t>>) -> Result<Option<Token<'t>>, Stop> {
        match field {
            Field::Period => self.period(token)?,
            Field::Timestamp => self.timestamp(token)?,
            Field::RecordType => self.record_type(token)?,
            Field::Algorithm => self.named_number::<1>(token, ALGORITHMS)?,
            Field::CertType => self.named_number::<2>(token, CERT_TYPES)?,
            Field::DsyncScheme => self.named_number::<1>(token, &[("NOTIFY", 1)])?,
            Field::String => strings::string(self, token)?,
            Field::OptionalString if token.is_none() => return Ok(None),
            Field::OptionalString => strings::string(self, token)?,
            Field::Tag => strings::string(self, token)?,
            Field::Text => strings::text(self, token)?,
            Field::Salt => self.salt(token)?,
            Field::NextHash => self.next_hash(token)?,
            Field::IpsecGateway => composite::ipsec_gateway(self, token)?,
            Field::AmtRelay => composite::amt_relay(self, token)?,
            Field::Locator64 => composite::locator64(self, token)?,
            Field::Eui48 => composite::eui(self, token, 6)?,
            Field::Eui64 => composite::eui(self, token, 8)?,
            Field::Nsap => composite::nsap(self, token)?,
            Field::Atma => composite::atma(self, token)?,
            _ => return self.last_field(field, token).map(|()| None),
        }
        self.scanner.token()
    }

    /// Fields that take all tokens to the end of the entry.
    fn last_field(&mut self, field: Field, token: Option<Token<'t>>) -> Result<(), Stop> {
        match field {
            Field::Strings => strings::strings(self, token),
            Field::Hex => {
                self.required(token, "hexadecimal digits")?;
                self.hex_to_end(token)
            }
            Field::Base64 => {
                self.required(token, "base64")?;
                self.base64_to_end(token)
            }
            Field::OptionalBase64 => self.base64_to_end(token),
            Field::Base64OrDash => match self.required(token, "base64 or -")? {
                Token { text: b"-", form: Form::Plain } => {
                    let after = self.scanner.token()?;
                    self.nothing_follows(after)
                }
                _ => self.base64_to_end(token),
            },
            Field::TypeBitmap => bitmap::windows(self, token),
            Field::NxtBitmap => bitmap::nxt(self, token),
            Field::SvcParams => svcb::params(self, token),
            Field::Apl => composite::apl(self, token),
            Field::Hip => composite::hip(self, token),
            Field::Loc => location::location(self, token),
            _ => Err(self.scanner.wrong("rdata", "this type has no presentation form")),
        }
    }

    /// The token, or an error that says what should have been there.
    #[inline]
    pub(super) fn required(&self, token: Option<Token<'t>>, what: &str) -> Result<Token<'t>, Stop> {
        token.ok_or_else(|| {
            self.scanner.wrong("rdata", format!("the record ends too early: {what} is missing"))
        })
    }

    pub(super) fn nothing_follows(&self, token: Option<Token<'t>>) -> Result<(), Stop> {
        if token.is_some() { Err(self.scanner.wrong("rdata", "nothing may follow here")) } else { Ok(()) }
    }

    /// A token that `parse` understands; quotes are for text only.
    #[inline]
    pub(super) fn parsed<T>(
        &self,
        token: Option<Token<'t>>,
        parse: impl FnOnce(&[u8]) -> Option<T>,
        what: &str,
    ) -> Result<T, Stop> {
        let token = self.required(token, what)?;
        let parsed = if token.form == Form::Quoted { None } else { parse(token.text) };
        parsed.ok_or_else(|| self.expected(what, token))
    }

    #[cold]
    pub(super) fn expected(&self, what: &str, token: Token<'_>) -> Stop {
        self.scanner.wrong("rdata", format!("expected {what}, found {}", shown(token)))
    }

    #[inline]
    pub(super) fn name(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let token = self.required(token, "a name")?;
        if token.form == Form::Quoted {
            return Err(self.expected("a name without quotes", token));
        }
        push_name(token, self.scanner, self.origin, self.out)
            .map_err(|error| self.scanner.wrong("name", error.to_string()))
    }

    /// A decimal number of at most `max`.
    #[inline]
    pub(super) fn number(&self, token: Option<Token<'t>>, max: u64) -> Result<u64, Stop> {
        let value = self.parsed(token, decimal, "a number")?;
        if value > max {
            return Err(self
                .scanner
                .wrong("number", format!("{value} is above {max}, the most that fits here")));
        }
        Ok(value)
    }

    /// A decimal number in `N` octets.
    #[inline]
    pub(super) fn push_number<const N: usize>(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let value = self.number(token, u64::MAX >> (64 - 8 * N))?;
        self.push_low_octets::<N>(value);
        Ok(())
    }

    #[inline]
    pub(super) fn push_low_octets<const N: usize>(&mut self, value: u64) {
        self.out.extend_from_slice(value.to_be_bytes().last_chunk::<N>().unwrap_or(&[0; N]));
    }

    fn period(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let seconds = self.parsed(token, period, "seconds, or a period such as 1h30m")?;
        if seconds > u64::from(u32::MAX) {
            return Err(self.scanner.wrong("number", format!("{seconds} seconds are more than fits here")));
        }
        self.push_low_octets::<4>(seconds);
        Ok(())
    }

    /// `YYYYMMDDHHmmSS`, or seconds since 1970 when there are at most ten digits (RFC 4034 section 3.2).
    fn timestamp(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let seconds = self.parsed(
            token,
            |text| match text.len() {
                14 => Timestamp::from_calendar(text).map(|timestamp| timestamp.0),
                _ => decimal(text).and_then(|seconds| u32::try_from(seconds).ok()),
            },
            "a time as YYYYMMDDHHmmSS, 1970 to 2106, or as seconds",
        )?;
        self.out.extend_from_slice(&seconds.to_be_bytes());
        Ok(())
    }

    fn record_type(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let rtype = self.parsed(token, rtype_of, "a record type")?;
        self.out.extend_from_slice(&rtype.0.to_be_bytes());
        Ok(())
    }

    fn named_number<const N: usize>(
        &mut self,
        token: Option<Token<'t>>,
        names: &[(&str, u16)],
    ) -> Result<(), Stop> {
        let text = token.map_or(&b""[..], |token| token.text);
        let named = names.iter().find(|(name, _)| name.as_bytes().eq_ignore_ascii_case(text));
        match named {
            Some((_, number)) => {
                self.push_low_octets::<N>(u64::from(*number));
                Ok(())
            }
            None => self.push_number::<N>(token),
        }
    }

    /// A length octet and octets in hexadecimal, `-` for none.
    fn salt(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let token = self.required(token, "a salt in hexadecimal, or -")?;
        let length_at = self.out.len();
        self.out.push(0);
        if token.text != b"-" {
            let mut decoder = HexDecoder::default();
            let decoded = decoder.push(token.text, self.out).and_then(|()| decoder.finish());
            decoded.map_err(|_| self.expected("a salt in hexadecimal, or -", token))?;
        }
        self.end_string(length_at)
    }

    fn next_hash(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let token = self.required(token, "a hash in base32hex")?;
        let length_at = self.out.len();
        self.out.push(0);
        decode_base32hex(token.text, self.out).map_err(|_| self.expected("a hash in base32hex", token))?;
        self.end_string(length_at)
    }

    /// Writes the length of what was appended since the length octet at `length_at`.
    pub(super) fn end_string(&mut self, length_at: usize) -> Result<(), Stop> {
        let len = self.out.len() - length_at - 1;
        let len = u8::try_from(len).map_err(|_| {
            self.scanner
                .wrong("string", format!("{len} octets are more than the 255 of one string: split it"))
        })?;
        if let Some(length_octet) = self.out.get_mut(length_at) {
            *length_octet = len;
        }
        Ok(())
    }

    pub(super) fn hex_to_end(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let mut decoder = HexDecoder::default();
        self.decode_to_end(token, "hexadecimal digits", |text, out| decoder.push(text, out))?;
        decoder.finish().map_err(|_| self.scanner.wrong("rdata", "the number of hexadecimal digits is odd"))
    }

    fn base64_to_end(&mut self, token: Option<Token<'t>>) -> Result<(), Stop> {
        let mut decoder = Base64Decoder::default();
        self.decode_to_end(token, "base64", |text, out| decoder.push(text, out))?;
        decoder.finish().map_err(|_| self.scanner.wrong("rdata", "the base64 text is cut off or not padded"))
    }

    fn decode_to_end(
        &mut self,
        first: Option<Token<'t>>,
        what: &str,
        mut decode: impl FnMut(&[u8], &mut Vec<u8>) -> Result<(), NotEncoded>,
    ) -> Result<(), Stop> {
        let mut next = match first {
            Some(token) => Some(token),
            None => self.scanner.token()?,
        };
        while let Some(token) = next {
            if token.form != Form::Plain || decode(token.text, self.out).is_err() {
                return Err(self.expected(what, token));
            }
            next = self.scanner.token()?;
        }
        Ok(())
    }
}

/// A type's number from its mnemonic or generic form.
pub(super) fn rtype_of(text: &[u8]) -> Option<Rtype> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// The token as it can stand in a message: cut short, without control octets.
pub(super) fn shown(token: Token<'_>) -> String {
    let start: String = String::from_utf8_lossy(token.text.get(..40).unwrap_or(token.text))
        .chars()
        .map(|shown| if shown.is_control() { '?' } else { shown })
        .collect();
    let dots = if token.text.len() > 40 { "..." } else { "" };
    format!("\"{start}{dots}\"")
}

/// RFC 4034 appendix A.1 and IANA "DNS Security Algorithm Numbers".
const ALGORITHMS: &[(&str, u16)] = &[
    ("RSAMD5", 1),
    ("DH", 2),
    ("DSA", 3),
    ("ECC", 4),
    ("RSASHA1", 5),
    ("DSA-NSEC3-SHA1", 6),
    ("NSEC3DSA", 6),
    ("RSASHA1-NSEC3-SHA1", 7),
    ("NSEC3RSASHA1", 7),
    ("RSASHA256", 8),
    ("RSASHA512", 10),
    ("ECC-GOST", 12),
    ("ECCGOST", 12),
    ("ECDSAP256SHA256", 13),
    ("ECDSAP384SHA384", 14),
    ("ED25519", 15),
    ("ED448", 16),
    ("INDIRECT", 252),
    ("PRIVATEDNS", 253),
    ("PRIVATEOID", 254),
];

/// RFC 4398 section 2.1.
const CERT_TYPES: &[(&str, u16)] = &[
    ("PKIX", 1),
    ("SPKI", 2),
    ("PGP", 3),
    ("IPKIX", 4),
    ("ISPKI", 5),
    ("IPGP", 6),
    ("ACPKIX", 7),
    ("IACPKIX", 8),
    ("URI", 253),
    ("OID", 254),
];
