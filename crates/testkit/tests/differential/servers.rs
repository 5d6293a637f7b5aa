//! The four servers with the same zones.

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;

use tempfile::TempDir;
use weir_testkit::client;
use weir_testkit::message::{Answer, Name, Query};
use weir_testkit::questions::Zone;
use weir_testkit::rival::{Kind, Rival};
use weir_testkit::weir::Weir;

use crate::tally::{Asked, Tally};

/// Weir and its rivals, all of them ready.
pub(crate) struct Servers {
    weir: Weir,
    rivals: Vec<Rival>,
    _folder: TempDir,
}

impl Servers {
    /// Starts all four with these zones.
    pub(crate) fn start(zones: &[(Name, PathBuf)]) -> Servers {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        for (origin, file) in zones {
            let name = if origin.0.is_empty() { "root.zone".to_owned() } else { format!("{origin}zone") };
            fs::copy(file, folder.path().join(name)).expect("the zone can be copied");
        }
        let rivals = thread::scope(|scope| {
            let threads = Kind::ALL.map(|kind| scope.spawn(move || Rival::serve_all(kind, zones)));
            threads.map(|thread| thread.join().expect("the rival starts"))
        });
        let weir = Weir::serve(folder.path(), &["--workers", "1"]);
        for (origin, _) in zones {
            let deadline = std::time::Instant::now() + weir_testkit::process::PATIENCE;
            let answers = client::answers_for(weir.address, origin, deadline);
            assert!(answers, "weir does not answer for {origin}:\n{}", weir.process.log());
        }
        Servers { weir, rivals: rivals.into(), _folder: folder }
    }

    /// What a zone holds, by a rival's word: neither the text nor its reader is Weir's.
    pub(crate) fn zone(&self, origin: &Name) -> Zone {
        Zone::new(origin.clone(), client::transfer(self.rivals[0].address, origin))
    }

    /// Asks all servers all questions over UDP; over TCP what any of them cut, and one in `tcp_share` besides.
    pub(crate) fn examine(&self, asked: &[Asked<'_>], tcp_share: usize) -> Tally {
        let mut tally = Tally::default();
        let over_udp = self.ask_all(asked, client::ask_udp);
        tally.judge(asked, &over_udp, room_over_udp);

        let cut = |i: usize| over_udp.iter().any(|answers| answers[i].is_truncated());
        let again: Vec<Asked<'_>> =
            (0..asked.len()).filter(|i| cut(*i) || i % tcp_share == 0).map(|i| asked[i].clone()).collect();
        let over_tcp = self.ask_all(&again, client::ask_tcp);
        assert!(over_tcp.iter().flatten().all(|a| !a.is_truncated()), "an answer is cut over TCP");
        tally.judge(&again, &over_tcp, |_| 65_535);
        tally
    }

    /// All servers at once, each from a thread of its own; Weir's answers come first.
    fn ask_all(&self, asked: &[Asked<'_>], ask: fn(SocketAddr, &[Query]) -> Vec<Answer>) -> Vec<Vec<Answer>> {
        let queries: Vec<Query> = asked.iter().map(|(_, query)| query.clone()).collect();
        let rivals = self.rivals.iter().map(|rival| rival.address);
        thread::scope(|scope| {
            let addresses = std::iter::once(self.weir.address).chain(rivals);
            let queries = &queries;
            let threads: Vec<_> = addresses.map(|server| scope.spawn(move || ask(server, queries))).collect();
            threads.into_iter().map(|t| t.join().expect("every server answers")).collect()
        })
    }

    /// Ends Weir in order; the rivals go with their values.
    pub(crate) fn stop(self) {
        self.weir.stop();
    }
}

/// The octets that an answer over UDP may have: what the client says (RFC 6891, section 6.2.5), or 512, and no more than
/// the 1,232 that all four servers keep to.
fn room_over_udp(query: &Query) -> usize {
    usize::from(query.edns.unwrap_or(512).clamp(512, 1232))
}
