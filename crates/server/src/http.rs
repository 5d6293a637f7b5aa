//! HTTP for operators: /metrics, /healthz, /readyz, and a live page at /.
//!
//! The port may be open to more than operators (the image publishes it), so connections are few, short, and closed for
//! newer ones: whoever opens many and says nothing keeps no probe from its answer, and takes no file from DNS.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};

use crate::counters::{Counters, Readiness};
use crate::metrics;
use crate::print::count;

/// The page at /: it reads /metrics once a second and shows a row a worker.
const LIVE_PAGE: &str = include_str!("http/live.html");

struct Shared {
    registry: Registry,
    counters: Arc<Counters>,
}

/// Bounds of HTTP connections.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most connections at once; the oldest is closed for a new one.
    max_connections: usize,
    /// How long a client may take for a request, the wait for its first octet counted.
    request_timeout: Duration,
    /// How long a connection may be used, and a client take to read what it asked for.
    connection_timeout: Duration,
}

impl Default for Limits {
    /// A few scrapers, probes and browsers; a quarter of the files that are set aside for what is not DNS.
    fn default() -> Limits {
        Limits {
            max_connections: 64,
            request_timeout: Duration::from_secs(10),
            connection_timeout: Duration::from_secs(600),
        }
    }
}

/// Pause after an accept that failed for want of files or memory, so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Answers HTTP requests on `listener` until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, counters: Arc<Counters>, limits: Limits) {
    let routes = routes(counters);
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.is_finished());
        if open.len() >= limits.max_connections.max(1) {
            open.pop_front().inspect(AbortHandle::abort);
        }
        open.push_back(tokio::spawn(converse(stream, routes.clone(), limits)).abort_handle());
    }
}

/// Runs a connection to its end.
async fn converse(stream: TcpStream, routes: Router, limits: Limits) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request_timeout)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    // How it ends, by the client or by the clock, concerns the client alone.
    let _ = timeout(limits.connection_timeout, connection).await;
}

fn routes(counters: Arc<Counters>) -> Router {
    let registry = metrics::registry(Arc::clone(&counters));
    Router::new()
        .route("/", get(|| async { Html(LIVE_PAGE) }))
        .route("/metrics", get(scrape))
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(readiness))
        .with_state(Arc::new(Shared { registry, counters }))
}

async fn scrape(State(shared): State<Arc<Shared>>) -> Response {
    match metrics::render(&shared.registry) {
        Ok(text) => ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

async fn readiness(State(shared): State<Arc<Shared>>) -> (StatusCode, String) {
    let zones = &shared.counters.zones;
    match shared.counters.readiness() {
        Readiness::Ready => (StatusCode::OK, "ready\n".to_owned()),
        Readiness::Loading => {
            let (n_left, n_done) = (zones.loading.value(), zones.ready.value() + zones.broken.value());
            let told = format!("loading: {n_done} of {} done\n", count(n_done + n_left, "zone"));
            (StatusCode::SERVICE_UNAVAILABLE, told)
        }
        Readiness::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping\n".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{SocketAddr, TcpStream};

    /// Fails a test that would hang.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn start(limits: Limits) -> (tokio::runtime::Runtime, SocketAddr) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, Arc::new(Counters::new(Vec::new(), 1)), limits));
        (runtime, address)
    }

    fn connect(address: SocketAddr) -> TcpStream {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn is_healthy(address: SocketAddr) -> bool {
        let mut stream = connect(address);
        stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.starts_with("HTTP/1.1 200") && answer.ends_with("alive\n")
    }

    /// Whether the server closes a connection without an answer; waits for it.
    fn is_closed(mut stream: TcpStream) -> bool {
        match stream.read(&mut [0; 1]) {
            Ok(n_octets) => n_octets == 0,
            Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }

    #[test]
    fn connections_that_say_nothing_make_room_for_those_that_do() {
        let hours = Duration::from_secs(7_200);
        let limits = Limits { max_connections: 4, request_timeout: hours, connection_timeout: hours };
        let (_runtime, address) = start(limits);
        let silent: Vec<TcpStream> = (0..20).map(|_| connect(address)).collect();
        assert!(is_healthy(address));
        // The answer came on the 21st connection: at most three of the silent ones are left beside it.
        assert!(silent.into_iter().take(17).all(is_closed));
    }

    #[test]
    fn a_request_that_does_not_come_in_time_ends_the_connection() {
        let short = Duration::from_millis(20);
        let (_runtime, address) = start(Limits { request_timeout: short, ..Limits::default() });
        let mut half = connect(address);
        half.write_all(b"GET /healthz HTT").unwrap();
        assert!(is_closed(half) && is_closed(connect(address)));
    }

    #[test]
    fn a_connection_ends_after_its_time_whatever_it_does() {
        let short = Duration::from_millis(50);
        let (_runtime, address) = start(Limits { connection_timeout: short, ..Limits::default() });
        let mut busy = connect(address);
        let mut answer = [0; 512];
        let mut ask = || {
            busy.write_all(b"GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n")?;
            busy.read(&mut answer)
        };
        while ask().is_ok_and(|n_octets| n_octets > 0) {}
    }
}
