//! The counters as OpenMetrics text, read at the moment of the scrape.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use crate::counters::{AnswerCounters, Counters, WorkerCounters};

/// The media type of [`render`]'s text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of `counters`.
pub(crate) fn registry(counters: Arc<Counters>) -> Registry {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Scrape(counters)));
    registry
}

/// The text of a scrape.
pub(crate) fn render(registry: &Registry) -> Result<String, fmt::Error> {
    let mut text = String::with_capacity(8 << 10);
    prometheus_client::encoding::text::encode(&mut text, registry)?;
    Ok(text)
}

#[derive(Debug)]
struct Scrape(Arc<Counters>);

/// One label and its value.
type Label = (&'static str, String);

/// Writes families of samples one after the other.
struct Families<'e>(DescriptorEncoder<'e>);

impl Families<'_> {
    /// A family of counters; the text adds `_total` to its name.
    fn counters<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = (L, u64)>,
    ) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// A counter without labels.
    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        ConstCounter::new(value).encode(family)
    }

    /// A gauge without labels.
    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX)).encode(family)
    }

    /// A gauge of 1 whose label says something.
    fn statement(&mut self, name: &str, help: &str, label: Label) -> fmt::Result {
        let mut family = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        ConstGauge::new(1i64).encode(family.encode_family(&[label])?)
    }
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let counters = &*self.0;
        let mut families = Families(encoder);
        families.statement(
            "weir_build_info",
            "The version that runs, as a label",
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        )?;
        encode_answers(&mut families, counters)?;
        encode_losses(&mut families, counters)?;
        encode_cache(&mut families, counters)?;
        encode_workers(&mut families, counters)?;
        encode_fanout(&mut families, counters)?;
        encode_tcp(&mut families, counters)?;
        encode_zones(&mut families, counters)?;
        families.counter(
            "weir_log_lines_dropped",
            "Log lines that could not be written in time",
            crate::log::n_lines_dropped(),
        )
    }
}

/// The answer counters of every thread.
fn all_answers(counters: &Counters) -> impl Iterator<Item = &AnswerCounters> {
    let udp = counters.workers.iter().map(|worker| &worker.answers);
    udp.chain(counters.tcp_answers.iter().map(|answers| &**answers))
}

fn sum(of: impl Iterator<Item = u64>) -> u64 {
    of.fold(0, u64::wrapping_add)
}

fn encode_answers(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let udp = sum(counters.workers.iter().map(|worker| worker.answers.queries.value()));
    let tcp = sum(counters.tcp_answers.iter().map(|answers| answers.queries.value()));
    families.counters(
        "weir_queries",
        "Messages received",
        [([("transport", "udp")], udp), ([("transport", "tcp")], tcp)],
    )?;
    let mut by_rcode = BTreeMap::new();
    for (rcode, n_answers) in all_answers(counters).flat_map(AnswerCounters::by_rcode) {
        *by_rcode.entry(rcode).or_insert(0) += n_answers;
    }
    families.counters(
        "weir_answers",
        "Answers by response code",
        by_rcode.into_iter().map(|(rcode, n)| ([("rcode", rcode)], n)),
    )
}

fn encode_losses(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let of_workers =
        |field: fn(&WorkerCounters) -> u64| sum(counters.workers.iter().map(|worker| field(worker)));
    let silenced = sum(all_answers(counters).map(|answers| answers.silenced.value()));
    let no_room = sum(all_answers(counters).map(|answers| answers.no_room.value()));
    families.counter(
        "weir_overlong_queries",
        "Datagrams over 2,048 octets, which are answered with FORMERR",
        of_workers(|worker| worker.cut.value()),
    )?;
    families.counters(
        "weir_dropped",
        "Messages and answers thrown away by the server, by reason",
        [
            ([("reason", "not_a_query")], silenced),
            ([("reason", "source_port_zero")], of_workers(|worker| worker.port_zero.value())),
            ([("reason", "no_room")], no_room),
            ([("reason", "send_buffer_full")], of_workers(|worker| worker.send_dropped.value())),
            ([("reason", "send_refused")], of_workers(|worker| worker.send_failed.value())),
        ],
    )?;
    let drops = counters.workers.iter().enumerate().flat_map(|(number, worker)| {
        worker.kernel_drops.iter().map(move |(address, drops)| {
            ([("address", address.to_string()), ("worker", number.to_string())], drops.value())
        })
    });
    families.counters(
        "weir_kernel_drops",
        "Datagrams that the kernel dropped because a listener's queue was full",
        drops,
    )
}

fn encode_cache(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let total = |field: fn(&AnswerCounters) -> u64| sum(all_answers(counters).map(field));
    families.counter("weir_cache_hits", "Answers from the cache", total(|a| a.cache_hits.value()))?;
    families.counter(
        "weir_cache_misses",
        "Answers looked for in the cache and not found",
        total(|a| a.cache_misses.value()),
    )?;
    families.counter(
        "weir_cache_evictions",
        "Answers that left the cache to make room",
        total(|a| a.cache_evictions.value()),
    )?;
    families.gauge("weir_cache_entries", "Answers in the cache", total(|a| a.cache_entries.value()))?;
    families.gauge("weir_cache_octets", "Size of the cache in octets", total(|a| a.cache_octets.value()))
}

fn encode_workers(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let samples = |field: fn(&WorkerCounters) -> u64| {
        counters.workers.iter().enumerate().map(move |(number, worker)| {
            ([("worker", number.to_string()), ("cpu", worker.cpu.to_string())], field(worker))
        })
    };
    families.counters(
        "weir_worker_queries",
        "Datagrams received, by worker",
        samples(|worker| worker.answers.queries.value()),
    )?;
    families.counters(
        "weir_worker_joined_answers",
        "Answers that left in one message with others to the same client port, by worker",
        samples(|worker| worker.joined.value()),
    )?;
    families.counters(
        "weir_worker_batches",
        "Batches received, by worker",
        samples(|worker| worker.batches.value()),
    )
}

fn encode_fanout(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let fanout = &counters.fanout;
    families.gauge(
        "weir_fanout_available",
        "1 when packet rings can answer in place of sockets",
        fanout.available.value(),
    )?;
    families.gauge("weir_fanout_engaged", "1 while packet rings answer", fanout.engaged.value())?;
    families.counter(
        "weir_fanout_engagements",
        "How often packet rings took over from sockets",
        fanout.engagements.value(),
    )?;
    families.counters(
        "weir_fanout_rollover",
        "Frames that met a full ring: all that another took, those of huge flows among them, those that none took",
        [
            ([("kind", "all")], fanout.rolled_over.value()),
            ([("kind", "huge")], fanout.rolled_over_huge.value()),
            ([("kind", "failed")], fanout.rollover_failed.value()),
        ],
    )?;
    families.counter("weir_fanout_drops", "Frames lost to a full ring", fanout.dropped.value())?;
    let of_workers =
        |field: fn(&WorkerCounters) -> u64| sum(counters.workers.iter().map(|worker| field(worker)));
    families.counter(
        "weir_fanout_queries",
        "Queries that came by packet rings",
        of_workers(|worker| worker.ring_queries.value()),
    )?;
    families.counters(
        "weir_fanout_refused",
        "Frames from rings that got no answer, by reason",
        [
            ([("reason", "malformed")], of_workers(|worker| worker.frames_malformed.value())),
            ([("reason", "checksum")], of_workers(|worker| worker.frames_checksum.value())),
            ([("reason", "source")], of_workers(|worker| worker.frames_source.value())),
        ],
    )
}

fn encode_tcp(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let tcp = &counters.tcp;
    families.gauge("weir_tcp_connections_open", "TCP connections that are open now", tcp.open.value())?;
    families.counter("weir_tcp_connections_accepted", "TCP connections accepted", tcp.accepted.value())?;
    families.counters(
        "weir_tcp_connections_closed",
        "TCP connections closed, by reason",
        [
            ([("reason", "done")], tcp.closed.value()),
            ([("reason", "idle")], tcp.timed_out.value()),
            ([("reason", "cap")], tcp.evicted.value()),
            ([("reason", "memory")], tcp.out_of_memory.value()),
            ([("reason", "failed")], tcp.failed.value()),
        ],
    )?;
    families.counter(
        "weir_tcp_accept_errors",
        "TCP connections that could not be accepted",
        tcp.accept_errors.value(),
    )
}

fn encode_zones(families: &mut Families<'_>, counters: &Counters) -> fmt::Result {
    let zones = &counters.zones;
    families.gauge("weir_zones_loaded", "Zones that are served", zones.ready.value())?;
    families.gauge(
        "weir_zones_broken",
        "Zones that could not be loaded and answer SERVFAIL",
        zones.broken.value(),
    )?;
    families.gauge(
        "weir_zones_loading",
        "Zones that are not loaded yet and answer SERVFAIL",
        zones.loading.value(),
    )?;
    families.gauge(
        "weir_zones_generation",
        "Number of the zone set that is served",
        zones.generation.value(),
    )?;
    families.counters(
        "weir_reloads",
        "Reloads by result",
        [([("result", "ok")], zones.reloads.value()), ([("result", "error")], zones.failed_reloads.value())],
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::header::Rcode;

    #[test]
    fn a_scrape_sums_up_what_all_threads_counted() {
        let address = "127.0.0.1:53".parse().unwrap();
        let workers = (0..2).map(|cpu| WorkerCounters::new(cpu, std::iter::once(address))).collect();
        let counters = Arc::new(Counters::new(workers, 1));
        counters.workers[0].answers.queries.add(2);
        counters.workers[1].answers.queries.add(3);
        counters.workers[1].kernel_drops[0].1.add(7);
        counters.tcp_answers[0].queries.add(1);
        counters.tcp_answers[0].answered(Rcode::NXDOMAIN);
        counters.workers[0].answers.answered(Rcode::NXDOMAIN);
        let text = render(&registry(counters)).unwrap();
        for line in [
            "weir_queries_total{transport=\"udp\"} 5",
            "weir_queries_total{transport=\"tcp\"} 1",
            "weir_answers_total{rcode=\"NXDOMAIN\"} 2",
            "weir_kernel_drops_total{address=\"127.0.0.1:53\",worker=\"1\"} 7",
            "weir_worker_queries_total{worker=\"1\",cpu=\"1\"} 3",
            "weir_zones_loaded 0",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }
}
