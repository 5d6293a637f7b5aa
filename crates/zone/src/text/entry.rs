//! One entry: a record or a directive.

use super::Record;
use super::fields::{FieldReader, rtype_of, shown};
use super::name::push_name;
use super::number::period;
use super::reader::{Entry, Reader};
use super::scanner::{Form, Scanner, Stop, Token};
use crate::diagnostic::Location;
use weir_wire::name::{Name, NameBuf};
use weir_wire::rtype::{Class, Rtype};

/// The highest TTL (RFC 2181 section 8).
const MAX_TTL: u64 = (1 << 31) - 1;

/// What stands between the owner and the data of a record.
struct Head {
    ttl: Option<u32>,
    rtype: Rtype,
}

impl Reader<'_> {
    /// Reads the entry at which `scanner` stands.
    ///
    /// What carries over to later entries changes when the entry has ended well. Only the owner is kept at once, so
    /// that the records below a bad one keep their owner; reading the entry again gives the same.
    pub(super) fn entry(&mut self, scanner: &mut Scanner<'_>) -> Result<Entry, Stop> {
        let owner_left_out = scanner.starts_blank();
        let Some(first) = scanner.token()? else {
            return Ok(if scanner.has_file_ended() { Entry::End } else { Entry::Done });
        };
        if first.text.first() == Some(&b'$') && first.form == Form::Plain && !owner_left_out {
            return self.directive(scanner, first);
        }
        let (line, column) = scanner.place();
        let at = self.made_at.unwrap_or(Location { file: self.file, line, column });
        let head_token = if owner_left_out {
            if self.state.owner.is_empty() {
                let message = "the first record must name its owner: start the line with it";
                return Err(scanner.wrong("owner", message));
            }
            Some(first)
        } else {
            self.owner(scanner, first)?;
            scanner.token()?
        };
        let head = self.head(scanner, head_token)?;
        self.data(scanner, head.rtype)?;
        let ttl = self.ttl(scanner, &head, at)?;
        self.state.last_ttl = Some(ttl);
        self.hand_over(head.rtype, ttl, at);
        Ok(Entry::Done)
    }

    /// Reads the owner, and finds out whether it lies in the zone.
    fn owner(&mut self, scanner: &Scanner<'_>, token: Token<'_>) -> Result<(), Stop> {
        if token.form == Form::Quoted {
            return Err(scanner.wrong("owner", "a record starts with its owner, without quotes"));
        }
        self.new_owner.clear();
        push_name(token, scanner, self.state.origin.name(), &mut self.new_owner)
            .map_err(|error| scanner.wrong("name", error.to_string()))?;
        std::mem::swap(&mut self.new_owner, &mut self.state.owner);
        let is_absolute = token.text.last() == Some(&b'.');
        self.state.owner_in_zone = if !is_absolute && self.state.origin_in_zone {
            true
        } else {
            let owner = Name::from_octets(&self.state.owner).unwrap_or(Name::ROOT);
            owner.is_at_or_below(self.zone.name())
        };
        Ok(())
    }

    /// Reads TTL and class, in either order or left out, and the type.
    fn head(&self, scanner: &mut Scanner<'_>, first: Option<Token<'_>>) -> Result<Head, Stop> {
        let mut ttl = None;
        let mut class = None;
        let mut next = first;
        loop {
            let Some(token) = next else {
                return Err(scanner.wrong("type", "the record's type is missing"));
            };
            if token.form != Form::Plain {
                return Err(scanner.wrong("type", format!("expected a record type, found {}", shown(token))));
            }
            if ttl.is_none() && token.text.first().is_some_and(u8::is_ascii_digit) {
                ttl = Some(ttl_of(scanner, token)?);
            } else if let Some(rtype) = usual_rtype(token.text) {
                return Ok(Head { ttl, rtype });
            } else if class.is_none() && token.text.eq_ignore_ascii_case(b"IN") {
                class = Some(self.same_class(scanner, Class::IN)?);
            } else if let Some(rtype) = rtype_of(token.text) {
                if rtype.is_meta() {
                    let message = format!("{rtype} records exist in messages only, not in zones");
                    return Err(scanner.wrong("type", message));
                }
                return Ok(Head { ttl, rtype });
            } else if let Some(found) = class_of(token.text).filter(|_| class.is_none()) {
                class = Some(self.same_class(scanner, found)?);
            } else {
                return Err(scanner.wrong("type", unknown_type(token)));
            }
            next = scanner.token()?;
        }
    }

    fn same_class(&self, scanner: &Scanner<'_>, class: Class) -> Result<Class, Stop> {
        if class == self.options.class {
            return Ok(class);
        }
        Err(scanner.wrong("class", format!("class {class} in a zone of class {}", self.options.class)))
    }

    fn data(&mut self, scanner: &mut Scanner<'_>, rtype: Rtype) -> Result<(), Stop> {
        let mut fields = FieldReader {
            scanner,
            origin: self.state.origin.name(),
            scratch: &mut self.scratch,
            out: &mut self.rdata,
        };
        fields.rdata(rtype)
    }

    /// The record's own TTL, or `$TTL`'s, or that of the record before, or for the SOA record its last field.
    fn ttl(&mut self, scanner: &Scanner<'_>, head: &Head, at: Location) -> Result<u32, Stop> {
        if let Some(ttl) = head.ttl.or(self.state.default_ttl) {
            return Ok(ttl);
        }
        if let Some(ttl) = self.state.last_ttl {
            if !self.state.warned_of_last_ttl {
                self.state.warned_of_last_ttl = true;
                let message = "no TTL and no $TTL: this record takes the TTL of the record before it; put a $TTL line at the top";
                self.warn(at, "ttl-missing", message.to_owned());
            }
            return Ok(ttl);
        }
        match self.rdata.last_chunk::<4>() {
            Some(minimum) if head.rtype == Rtype::SOA => {
                let ttl = u32::from_be_bytes(*minimum).min(i32::MAX.unsigned_abs());
                self.state.default_ttl = Some(ttl);
                let message = format!(
                    "no TTL and no $TTL: the SOA record's last field, {ttl}, is used for it and what follows; put a $TTL line at the top"
                );
                self.warn(at, "ttl-missing", message);
                Ok(ttl)
            }
            _ => Err(scanner.wrong(
                "ttl-missing",
                "the record has no TTL and there is no $TTL: put a $TTL line at the top",
            )),
        }
    }

    fn hand_over(&mut self, rtype: Rtype, ttl: u32, at: Location) {
        let owner = Name::from_octets(&self.state.owner).unwrap_or(Name::ROOT);
        if !self.state.owner_in_zone {
            let message = format!("{owner} is not in the zone {}: the record is left out", self.zone);
            return self.warn(at, "out-of-zone", message);
        }
        let record = Record { owner, class: self.options.class, ttl, rtype, rdata: &self.rdata, at };
        if let Err(refusal) = self.sink.record(record) {
            self.error(at, refusal.rule, refusal.message);
        }
    }

    fn directive(&mut self, scanner: &mut Scanner<'_>, name: Token<'_>) -> Result<Entry, Stop> {
        if self.made_at.is_some() {
            return Err(scanner.wrong("generate", "$GENERATE makes records, not directives"));
        }
        match name.text.to_ascii_uppercase().as_slice() {
            b"$ORIGIN" => self.origin_directive(scanner),
            b"$TTL" => {
                let Some(token) = scanner.token()? else {
                    return Err(scanner.wrong("ttl", "$TTL needs a number of seconds or a period such as 1h"));
                };
                let ttl = ttl_of(scanner, token)?;
                ends(scanner)?;
                self.state.default_ttl = Some(ttl);
                Ok(Entry::Done)
            }
            b"$INCLUDE" => self.include_directive(scanner),
            b"$GENERATE" => self.generate_directive(scanner),
            _ => {
                let message = format!(
                    "unknown directive {}: there are $ORIGIN, $TTL, $INCLUDE and $GENERATE",
                    shown(name)
                );
                Err(scanner.wrong("directive", message))
            }
        }
    }

    fn origin_directive(&mut self, scanner: &mut Scanner<'_>) -> Result<Entry, Stop> {
        let token = scanner.token()?;
        let origin = self.name_of(scanner, token, "$ORIGIN needs a name")?;
        ends(scanner)?;
        self.set_origin(origin);
        Ok(Entry::Done)
    }

    pub(super) fn set_origin(&mut self, origin: NameBuf) {
        self.state.origin = origin;
        self.state.origin_in_zone = origin.name().is_at_or_below(self.zone.name());
    }

    /// A name in a directive.
    pub(super) fn name_of(
        &self,
        scanner: &Scanner<'_>,
        token: Option<Token<'_>>,
        what: &str,
    ) -> Result<NameBuf, Stop> {
        let Some(token) = token else { return Err(scanner.wrong("directive", what)) };
        NameBuf::from_text(token.text, Some(self.state.origin.name()))
            .map_err(|error| scanner.wrong("name", error.to_string()))
    }
}

/// Nothing may follow in the entry.
pub(super) fn ends(scanner: &mut Scanner<'_>) -> Result<(), Stop> {
    match scanner.token()? {
        None => Ok(()),
        Some(token) => {
            Err(scanner.wrong("directive", format!("nothing may follow here, found {}", shown(token))))
        }
    }
}

fn ttl_of(scanner: &Scanner<'_>, token: Token<'_>) -> Result<u32, Stop> {
    let seconds = period(token.text).filter(|_| token.form == Form::Plain);
    let Some(seconds) = seconds else {
        let message = format!("{} is not a TTL: write seconds, or a period such as 1h30m", shown(token));
        return Err(scanner.wrong("ttl", message));
    };
    u32::try_from(seconds).ok().filter(|ttl| u64::from(*ttl) <= MAX_TTL).ok_or_else(|| {
        scanner.wrong(
            "ttl-range",
            format!("a TTL of {seconds} is above {MAX_TTL}, the highest there is (RFC 2181)"),
        )
    })
}

fn class_of(text: &[u8]) -> Option<Class> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn unknown_type(token: Token<'_>) -> String {
    if token.text.first().is_some_and(u8::is_ascii_digit) {
        return format!("expected a record type, found {}", shown(token));
    }
    format!("{} is no record type: one without a name is written as TYPE and its number", shown(token))
}

/// The types that most records have, without a search.
#[inline]
fn usual_rtype(text: &[u8]) -> Option<Rtype> {
    Some(match text {
        b"A" | b"a" => Rtype::A,
        b"NS" | b"ns" => Rtype::NS,
        b"AAAA" | b"aaaa" => Rtype::AAAA,
        b"DS" | b"ds" => Rtype::DS,
        b"MX" | b"mx" => Rtype::MX,
        b"TXT" | b"txt" => Rtype::TXT,
        b"CNAME" | b"cname" => Rtype::CNAME,
        b"PTR" | b"ptr" => Rtype::PTR,
        b"RRSIG" => Rtype::RRSIG,
        b"NSEC" => Rtype::NSEC,
        b"NSEC3" => Rtype::NSEC3,
        _ => return None,
    })
}
