//! The zones of the repository: examples, a root zone, and corners where name servers have differed.

use weir_testkit::message::Name;
use weir_testkit::questions::{self, Depth};
use weir_testkit::weir;

use crate::servers::Servers;
use crate::tally::Tally;

const ZONES: [(&str, &str, Depth); 8] = [
    ("example.com", "example.com.zone", Depth::Exhaustive),
    ("2.0.192.in-addr.arpa", "2.0.192.in-addr.arpa.zone", Depth::Exhaustive),
    ("8.b.d.0.1.0.0.2.ip6.arpa", "8.b.d.0.1.0.0.2.ip6.arpa.zone", Depth::Sampled(8)),
    ("example.net", "example.net.zone", Depth::Exhaustive),
    ("example.net", "corpus/nsec3.txt", Depth::Exhaustive),
    ("corners.test", "corpus/corners.txt", Depth::Exhaustive),
    ("corners.test", "corpus/corners-signed.txt", Depth::Exhaustive),
    (".", "corpus/root.txt", Depth::Sampled(1)),
];

/// Serves each zone by itself, as some have the same name.
pub(crate) fn examine() -> impl Iterator<Item = (String, Tally)> {
    ZONES.into_iter().map(|(origin, file, depth)| {
        let name = Name::from_text(origin);
        let servers = Servers::start(&[(name.clone(), weir::workspace().join("zones").join(file))]);
        let zone = servers.zone(&name);
        let queries = questions::questions(&zone, depth, 20_261_130);
        let asked: Vec<_> = queries.into_iter().map(|query| (&zone, query)).collect();
        let tally = servers.examine(&asked, 8);
        servers.stop();
        (file.to_owned(), tally)
    })
}
