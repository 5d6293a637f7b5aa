//! HTTP for operators: /metrics, /healthz, /readyz, and a live page at /.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;

use crate::counters::Counters;
use crate::metrics;

/// The page at /: it reads /metrics once a second and shows a row a worker.
const LIVE_PAGE: &str = include_str!("http/live.html");

struct Shared {
    registry: Registry,
    counters: Arc<Counters>,
}

/// Answers HTTP requests on `listener` until the runtime ends.
pub(crate) async fn serve(listener: tokio::net::TcpListener, counters: Arc<Counters>) -> std::io::Result<()> {
    axum::serve(listener, routes(counters)).await
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

async fn readiness(State(shared): State<Arc<Shared>>) -> (StatusCode, &'static str) {
    if shared.counters.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "zones are not loaded yet, or the server is stopping\n")
    }
}
