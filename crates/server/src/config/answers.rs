//! What answers hold: sections `[answers]`, `[edns]` and `[cookies]`, and the policy that they make with the rest.

use std::fs::File;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer, de};
use tracing::warn;
use weir_authority::{CookieKeys, CookieSecret, Policy};

use super::read::read_text;
use super::values::{Example, from_text};
use super::{Config, Mistake};

/// Most octets of a server's identity: what answers keep room for.
const MAX_NSID_OCTETS: usize = 128;
/// Most octets of a text about the server: one string of a TXT record (RFC 1035 section 3.3).
const MAX_TEXT_OCTETS: usize = 255;
/// Most octets of a file of secrets: two lines of 32 digits, and room for notes.
const MAX_SECRETS_FILE_OCTETS: u64 = 4096;

/// Section `[answers]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Answers {
    /// Whether positive answers go without the zone's NS records.
    pub(crate) minimal: bool,
    /// What ANY gets over UDP.
    pub(crate) any_over_udp: AnyOverUdp,
    /// Whether the records of an RRset start with another one in each answer.
    pub(crate) rotate: bool,
    /// Whether an alias is followed into another zone of this server.
    pub(crate) follow_across_zones: bool,
}

impl Default for Answers {
    fn default() -> Answers {
        Answers {
            minimal: true,
            any_over_udp: AnyOverUdp::Minimal,
            rotate: false,
            follow_across_zones: false,
        }
    }
}

/// What a query of type ANY gets over UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum AnyOverUdp {
    /// One RRset (RFC 8482 section 4.1).
    Minimal,
    /// All that there are, as over TCP.
    All,
}

/// Section `[edns]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Edns {
    /// Most octets of an answer over UDP and IPv4, and what is advertised to clients there.
    #[serde(deserialize_with = "payload_octets")]
    pub(crate) udp_payload_v4: u16,
    /// The same for IPv6.
    #[serde(deserialize_with = "payload_octets")]
    pub(crate) udp_payload_v6: u16,
    /// The identity of this server (RFC 5001).
    pub(crate) nsid: Option<Nsid>,
}

impl Default for Edns {
    fn default() -> Edns {
        // Fits an IPv6 path of 1,280 octets without fragments (DNS flag day 2020, RFC 9715 section 3.1).
        Edns { udp_payload_v4: 1232, udp_payload_v6: 1232, nsid: None }
    }
}

/// Section `[cookies]` (RFC 7873, RFC 9018).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Cookies {
    /// Whether clients' cookies are answered.
    pub(crate) enabled: bool,
    /// The secrets shared by the servers of one name: the first makes cookies, all of them check.
    #[serde(deserialize_with = "at_most_two")]
    pub(crate) secrets: Vec<Secret>,
    /// A file with the secrets, one a line.
    pub(crate) secrets_file: Option<PathBuf>,
    /// Whether UDP queries with a client cookie alone are sent back for a server cookie.
    pub(crate) required: bool,
}

impl Default for Cookies {
    fn default() -> Cookies {
        Cookies { enabled: true, secrets: Vec::new(), secrets_file: None, required: false }
    }
}

impl Cookies {
    /// Takes the secrets of [`Cookies::secrets_file`], when one is named, in place of those in the configuration.
    ///
    /// A file that is closed to the user that root became keeps the secrets that were read from it before.
    pub(super) fn read_secrets(&mut self, running: Option<&Cookies>) -> Result<(), Mistake> {
        let Some(path) = &self.secrets_file else { return Ok(()) };
        let mistake = |line: Option<usize>, message: String| Mistake {
            path: path.clone(),
            place: line.map(|line| (line, 1)),
            message,
        };
        let text = match (read_text(path, MAX_SECRETS_FILE_OCTETS), running) {
            (Ok(text), _) => text,
            (Err(error), Some(running))
                if error.kind() == ErrorKind::PermissionDenied
                    && running.secrets_file == self.secrets_file =>
            {
                warn!("{}: {error}; the cookie secrets that were read at the start stay", path.display());
                self.secrets.clone_from(&running.secrets);
                return Ok(());
            }
            (Err(error), _) => return Err(mistake(None, format!("cannot be read: {error}"))),
        };
        let lines = (1..).zip(text.lines().map(str::trim));
        let secrets = lines
            .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
            .map(|(number, line)| line.parse().map_err(|error| mistake(Some(number), error)));
        self.secrets = secrets.collect::<Result<_, _>>()?;
        match self.secrets.len() {
            1 | 2 => Ok(()),
            n => Err(mistake(None, format!("holds {n} secrets; write one, or two while they are exchanged"))),
        }
    }

    fn keys(&self) -> Option<CookieKeys> {
        self.enabled.then(|| CookieKeys {
            current: self.secrets.first().map_or_else(secret_of_this_process, |secret| secret.0),
            previous: self.secrets.get(1).map(|secret| secret.0),
            required: self.required,
        })
    }
}

/// One secret: 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Secret(CookieSecret);

/// Secrets are not for logs.
impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl FromStr for Secret {
    type Err = String;

    fn from_str(text: &str) -> Result<Secret, String> {
        // The text itself is left out of the message: it may be a secret all the same.
        let wrong =
            || "a cookie secret has 32 hexadecimal digits; `openssl rand -hex 16` makes one".to_owned();
        let octets = octets_of_hex(text).ok_or_else(wrong)?;
        octets.try_into().map(Secret).map_err(|_| wrong())
    }
}

impl Example for Secret {
    const EXAMPLE: &'static str = "00112233445566778899aabbccddeeff";
}

impl<'de> Deserialize<'de> for Secret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// The identity of a server: text, or octets as `0x` and hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nsid(pub(crate) Box<[u8]>);

impl FromStr for Nsid {
    type Err = String;

    fn from_str(text: &str) -> Result<Nsid, String> {
        let octets = match text.strip_prefix("0x") {
            Some(digits) => octets_of_hex(digits).ok_or_else(|| {
                format!("`{text}` is not an identity; write pairs of hexadecimal digits after 0x")
            })?,
            None => text.as_bytes().to_vec(),
        };
        match octets.len() {
            1..=MAX_NSID_OCTETS => Ok(Nsid(octets.into())),
            n => Err(format!("an identity has 1 to {MAX_NSID_OCTETS} octets, this one has {n}")),
        }
    }
}

impl Example for Nsid {
    const EXAMPLE: &'static str = "ams-1";
}

impl<'de> Deserialize<'de> for Nsid {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

/// What the server tells about itself, at most a string of a TXT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerText(pub(crate) Box<str>);

impl FromStr for ServerText {
    type Err = String;

    fn from_str(text: &str) -> Result<ServerText, String> {
        match text.len() {
            0..=MAX_TEXT_OCTETS => Ok(ServerText(text.into())),
            n => Err(format!("the text has {n} octets; {MAX_TEXT_OCTETS} fit into an answer")),
        }
    }
}

impl Example for ServerText {
    const EXAMPLE: &'static str = "ns1.example.com";
}

impl<'de> Deserialize<'de> for ServerText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        from_text(deserializer)
    }
}

impl Config {
    /// What answers depend on.
    pub(crate) fn policy(&self) -> Policy {
        let Config { server, edns, answers, cookies, tcp, .. } = self;
        let text = |text: &Option<ServerText>| text.as_ref().map(|text| text.0.clone());
        Policy {
            udp_payload_v4: edns.udp_payload_v4,
            udp_payload_v6: edns.udp_payload_v6,
            minimal_any: answers.any_over_udp == AnyOverUdp::Minimal,
            minimal_responses: answers.minimal,
            rotate: answers.rotate,
            follow_across_zones: answers.follow_across_zones,
            nsid: edns.nsid.as_ref().map(|nsid| nsid.0.clone()),
            version: text(&server.version),
            hostname: text(&server.hostname),
            cookies: cookies.keys(),
            // RFC 7828 section 3.1: units of 100 ms; what does not fit is told as the most there is.
            tcp_keepalive: u16::try_from(tcp.idle_timeout.0.as_millis() / 100).unwrap_or(u16::MAX),
        }
    }
}

/// The secret of a server that shares none: made once a start, the same for all of its threads.
fn secret_of_this_process() -> CookieSecret {
    static SECRET: OnceLock<CookieSecret> = OnceLock::new();
    *SECRET.get_or_init(|| {
        let mut secret = CookieSecret::default();
        let read = File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut secret));
        if read.is_err() {
            // An empty root without /dev: the seed of hash tables comes from the kernel as well.
            let word = || RandomState::new().build_hasher().finish();
            let (one, two) = (word(), word());
            secret = (u128::from(one) << 64 | u128::from(two)).to_be_bytes();
        }
        secret
    })
}

fn octets_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok())).collect();
    let digits = digits?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

/// Reads secrets: the one in use, and another while they are exchanged.
fn at_most_two<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Secret>, D::Error> {
    let secrets = Vec::<Secret>::deserialize(deserializer)?;
    match secrets.len() {
        0..=2 => Ok(secrets),
        n => Err(de::Error::custom(format!("{n} secrets; write one, or two while they are exchanged"))),
    }
}

/// Reads a UDP payload size: 512 is what every client takes (RFC 1035 section 2.3.4), 4096 the most in use.
fn payload_octets<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u16, D::Error> {
    match u16::deserialize(deserializer) {
        Ok(octets @ 512..=4096) => Ok(octets),
        _ => Err(de::Error::custom("write a number of octets from 512 to 4096")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn config(text: &str) -> Result<Config, Vec<String>> {
        let as_text = |mistakes: Vec<Mistake>| mistakes.iter().map(ToString::to_string).collect::<Vec<_>>();
        let mut config = super::super::read::parse(Path::new("weir.toml"), text).map_err(as_text)?;
        config.cookies.read_secrets(None).map_err(|mistake| as_text(vec![mistake]))?;
        Ok(config)
    }

    #[test]
    fn every_setting_of_answers_arrives_in_the_policy() {
        let text = "[server]\nversion = \"weir\"\nhostname = \"a.example\"\n\
                    [edns]\nudp_payload_v4 = 1400\nudp_payload_v6 = 512\nnsid = \"0x00ff\"\n\
                    [answers]\nminimal = false\nany_over_udp = \"all\"\nrotate = true\nfollow_across_zones = true\n\
                    [cookies]\nsecrets = [\"e5e973e5a6b2a43f48e7dc849e37bfcf\", \"445536bcd2513298075a5d379663c962\"]\n\
                    required = true\n[tcp]\nidle_timeout = \"2500ms\"\n";
        let policy = config(text).expect("the text is right").policy();
        assert_eq!((policy.udp_payload_v4, policy.udp_payload_v6), (1400, 512));
        assert_eq!(policy.nsid.as_deref(), Some(&[0, 0xff][..]));
        assert_eq!(
            (policy.version.as_deref(), policy.hostname.as_deref()),
            (Some("weir"), Some("a.example"))
        );
        assert!(
            !policy.minimal_responses && !policy.minimal_any && policy.rotate && policy.follow_across_zones
        );
        assert_eq!(policy.tcp_keepalive, 25);
        let keys = policy.cookies.expect("cookies are on");
        assert_eq!((keys.current[0], keys.previous.map(|secret| secret[0])), (0xe5, Some(0x44)));
        assert!(keys.required);
    }

    #[test]
    fn a_server_tells_nothing_about_itself_and_answers_cookies_unless_told_otherwise() {
        let policy = Config::default().policy();
        assert_eq!((policy.version, policy.hostname, policy.nsid), (None, None, None));
        let (one, two) = (Config::default().policy().cookies, Config::default().policy().cookies);
        let (one, two) = (one.expect("on by default"), two.expect("on by default"));
        assert_eq!(one.current, two.current, "all threads have one secret");
        assert_ne!(one.current, CookieSecret::default());
        assert!(!one.required);
        assert!(config("[cookies]\nenabled = false\n").expect("right").policy().cookies.is_none());
    }

    #[test]
    fn secrets_may_come_from_a_file() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("secrets");
        let text = format!("[cookies]\nsecrets_file = \"{}\"\n", file.display());
        let write = |text: &str| std::fs::write(&file, text).expect("written");
        write("# since May\ne5e973e5a6b2a43f48e7dc849e37bfcf\n\n445536bcd2513298075a5d379663c962\n");
        let keys = config(&text).expect("right").policy().cookies.expect("on");
        assert_eq!((keys.current[0], keys.previous.map(|secret| secret[0])), (0xe5, Some(0x44)));
        write("e5e973e5a6b2a43f48e7dc849e37bfcf\nnot hex\n");
        let wrong = config(&text).expect_err("wrong");
        assert!(wrong[0].contains("secrets:2:1: a cookie secret has 32"), "{wrong:?}");
        write("");
        assert!(config(&text).expect_err("wrong")[0].contains("holds 0 secrets"));
        std::fs::remove_file(&file).expect("removed");
        assert!(config(&text).expect_err("wrong")[0].contains("cannot be read"));
    }

    #[test]
    fn what_does_not_fit_is_refused_where_it_is_written() {
        let long = "x".repeat(256);
        for (text, says) in [
            (format!("[server]\nversion = \"{long}\""), "256 octets"),
            (format!("[edns]\nnsid = \"{long}\""), "1 to 128 octets"),
            ("[edns]\nnsid = \"0x123\"".to_owned(), "pairs of hexadecimal digits"),
            ("[edns]\nudp_payload_v6 = 511".to_owned(), "from 512 to 4096"),
            ("[cookies]\nsecrets = [\"abc\"]".to_owned(), "32 hexadecimal digits"),
            (
                format!("[cookies]\nsecrets = [{0}, {0}, {0}]", format_args!("\"{}\"", "a".repeat(32))),
                "3 secrets",
            ),
            ("[answers]\nany_over_udp = \"some\"".to_owned(), "minimal, all"),
        ] {
            let found = config(&text).expect_err("the text is wrong");
            assert!(found[0].starts_with("weir.toml:2:") && found[0].contains(says), "{found:?}");
        }
    }
}
