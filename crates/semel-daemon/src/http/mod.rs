//! The daemon's own port: is it alive, is it ready, and its numbers. It answers questions and changes nothing.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::task::JoinSet;

use crate::config::Http;
use crate::exit::{Exit, Failure};
use crate::out;

mod board;
mod meters;
mod pulse;

pub(crate) use board::{Board, Part};
pub(crate) use meters::{Gauges, Meters};
pub(crate) use pulse::{Backlog, Lag, PATIENCE, Pulse, Store};

/// What the port tells of.
#[derive(Clone)]
pub(crate) struct Told {
    pub(crate) board: Arc<Board>,
    pub(crate) gauges: Gauges,
}

/// An open port, and the tasks that look at what it tells of. All end with it.
pub(crate) struct Port {
    told: Told,
    tasks: JoinSet<()>,
}

impl Port {
    /// Listens. From here on `/healthz` is green and `/readyz` is red.
    ///
    /// # Errors
    ///
    /// The address cannot be had.
    pub(crate) async fn open(http: &Http) -> Result<Self, Failure> {
        let address = http.address().map_err(Failure::usage)?;
        let away = |error: std::io::Error| {
            let hint = if error.kind() == std::io::ErrorKind::AddrInUse {
                "; another instance or program listens there: give each its own `listen`"
            } else {
                ""
            };
            let message = format!("http.listen: `{address}` cannot be listened at: {error}{hint}");
            Failure::new(Exit::Away, message)
        };
        let listener = tokio::net::TcpListener::bind(address).await.map_err(away)?;
        let bound: SocketAddr = listener.local_addr().map_err(away)?;
        let told = Told {
            board: Arc::default(),
            gauges: Gauges::new(),
        };
        let mut tasks = JoinSet::new();
        let routes = routes(told.clone());
        tasks.spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                tracing::warn!(%error, "the port for health checks and metrics is closed");
            }
        });
        let gauges = told.gauges.clone();
        tasks.spawn(async move { gauges.upkeep().await });
        out::say(&format!("health checks and metrics at http://{bound}"));
        Ok(Self { told, tasks })
    }

    pub(crate) fn board(&self) -> &Arc<Board> {
        &self.told.board
    }

    /// The numbers of one consumer. From here on it has to be there.
    pub(crate) fn meters(&self, consumer: &str, sources: &[String]) -> Meters {
        self.told.board.expect(&Part::Units(consumer.to_owned()));
        self.told.gauges.meters(consumer, sources)
    }

    /// Looks at a source, again and again.
    pub(crate) fn watch_source(&mut self, consumer: &str, source: &str, pulse: Arc<dyn Pulse>) {
        let (told, consumer, source) = (self.told.clone(), consumer.to_owned(), source.to_owned());
        self.told
            .board
            .expect(&Part::Source(consumer.clone(), source.clone()));
        self.tasks
            .spawn(pulse::of_source(told, consumer, source, pulse));
    }

    /// Looks at the ledger's database, again and again.
    pub(crate) fn watch_store(&mut self, store: impl Store) {
        self.told.board.expect(&Part::Store);
        self.tasks.spawn(pulse::of_store(self.told.clone(), store));
    }
}

fn routes(told: Told) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "alive\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(metrics))
        .with_state(told)
}

async fn ready(State(told): State<Told>) -> impl IntoResponse {
    let report = told.board.report();
    let status = if report.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    // A report is made of texts, times and truths, which are all JSON.
    let body = serde_json::to_string(&report).unwrap_or_default();
    (status, [(header::CONTENT_TYPE, "application/json")], body)
}

async fn metrics(State(told): State<Told>) -> impl IntoResponse {
    let text = told.gauges.render(&told.board.report());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text)
}
