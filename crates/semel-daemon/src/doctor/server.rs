//! PostgreSQL's server: are its commits as durable as they look, and has it room for every lane?

use semel_core::rows::Query;

use super::warning;
use crate::check::{Code, Finding};
use crate::config::{Loaded, Pooler, Source};
use crate::exit::Failure;
use crate::inspect::{Statements, rows};

/// What the server says of itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Server {
    /// As a session of this user begins with it.
    synchronous_commit: String,
    standby_names: String,
    fsync: bool,
    /// Standbys that are connected.
    standbys: i64,
    /// Connections that it allows this user, and how many clients use now.
    room: i64,
    used: i64,
}

/// Sessions beside the lanes: enrolment and positions, sweeps, the resolving of an unknown commit, an operator.
const BESIDE: i64 = 4;

/// Sessions of a queue: reading, settling, publishing.
const QUEUE: i64 = 3;

pub(super) async fn findings(
    loaded: &Loaded,
    ledger: &impl Query,
    running: bool,
) -> Result<Vec<Finding>, Failure> {
    let sql = Statements::of(crate::dialect::Dialect::Postgres).server;
    let server = rows(ledger, sql, &[], |mut cells| {
        Some(Server {
            synchronous_commit: cells.text()?,
            standby_names: cells.text()?,
            fsync: cells.text()? == "on",
            standbys: cells.int()?,
            room: cells.int()?,
            used: cells.int()?,
        })
    })
    .await?;
    let Some(server) = server.into_iter().next() else {
        return Ok(Vec::new());
    };
    let mut findings = durability(&server)
        .into_iter()
        .map(|(error, message)| {
            let finding = loaded.finding(Code::NotDurable, &["ledger", "url"], message);
            if error { finding } else { warning(finding) }
        })
        .collect::<Vec<_>>();
    // Behind a pooler the lanes share a few sessions, and a client waits its turn.
    let room = match loaded.config.ledger.pooler {
        Pooler::None => room(&server, needed(loaded), running),
        Pooler::Transaction => None,
    };
    if let Some((error, message)) = room {
        let finding = loaded.finding(Code::FewConnections, &["ledger", "url"], message);
        findings.push(if error { finding } else { warning(finding) });
    }
    Ok(findings)
}

/// Connections that a run of this config opens.
fn needed(loaded: &Loaded) -> i64 {
    let lanes = loaded.config.consumers.values();
    let lanes: i64 = lanes.map(|consumer| i64::from(consumer.lanes)).sum();
    let queues = loaded.config.sources.values();
    // A queue elsewhere is counted too: too much room harms nobody.
    let queues = queues.filter(|source| matches!(source, Source::Queue(_)));
    lanes + BESIDE + QUEUE * i64::try_from(queues.count()).unwrap_or(0)
}

/// What may be lost although it was confirmed: is it an error, and why.
fn durability(server: &Server) -> Vec<(bool, String)> {
    let mut found = Vec::new();
    if !server.fsync {
        found.push((true, "`fsync` is off: a power cut loses commits that were confirmed and acked, or the whole database. Set it on".to_owned()));
    }
    let waits = matches!(
        server.synchronous_commit.as_str(),
        "on" | "remote_apply" | "remote_write"
    );
    match (server.standby_names.is_empty(), waits) {
        (false, true) => found.push((false, format!(
            "commits wait for a standby (`synchronous_standby_names = {}`). A COMMIT whose wait is cancelled, or whose session is asked to end, \
             looks durable and is not on the standby yet (T34): Semel cancels none, so let nobody else use pg_cancel_backend or \
             pg_terminate_backend on its sessions, and after a failover run `semel doctor` first",
            server.standby_names
        ))),
        (false, false) => found.push((false, format!(
            "`synchronous_standby_names` is set, but sessions of this user begin with `synchronous_commit = {}`, which waits for no standby: a \
             failover loses commits that were acked. Set it to `on` for this user and database",
            server.synchronous_commit
        ))),
        (true, _) if server.standbys > 0 => found.push((false, format!(
            "{} standbys follow asynchronously: a failover to one loses the commits that it has not got, though their messages were acked. Set \
             `synchronous_standby_names`, or run `semel doctor` after each failover",
            server.standbys
        ))),
        (true, _) if server.synchronous_commit == "off" => found.push((false, "sessions of this user begin with `synchronous_commit = off`. Semel's own raise it; what others \
             write into the same tables can be lost by a crash".to_owned())),
        (true, _) => {}
    }
    found
}

fn room(server: &Server, needed: i64, running: bool) -> Option<(bool, String)> {
    let Server { room, used, .. } = server;
    if needed > *room {
        return Some((
            true,
            format!(
                "this config needs up to {needed} connections, and the server allows {room} for this user (`max_connections` less the reserved \
             ones, or the role's limit): lanes would wait for ever. Lower `lanes` (two to four are enough), or raise the limit"
            ),
        ));
    }
    let free = room - used;
    // Of a running one, its own are among the used.
    (!running && needed > free).then(|| {
        (false, format!(
            "this config needs up to {needed} connections, and {free} of {room} are free now: it may have to wait for some"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> Server {
        Server {
            synchronous_commit: "on".to_owned(),
            fsync: true,
            room: 97,
            used: 10,
            ..Server::default()
        }
    }

    fn levels(server: &Server) -> Vec<bool> {
        durability(server)
            .into_iter()
            .map(|(error, _)| error)
            .collect()
    }

    #[test]
    fn t34_commits_that_wait_for_a_standby_and_those_that_do_not_are_told() {
        assert!(levels(&server()).is_empty());
        let standby = Server {
            standby_names: "s1".to_owned(),
            ..server()
        };
        assert_eq!(levels(&standby), [false]);
        assert!(durability(&standby)[0].1.contains("(T34)"));
        let local = Server {
            synchronous_commit: "local".to_owned(),
            ..standby
        };
        assert!(durability(&local)[0].1.contains("waits for no standby"));
        let asynchronous = Server {
            standbys: 1,
            ..server()
        };
        assert!(durability(&asynchronous)[0].1.contains("asynchronously"));
        let no_fsync = Server {
            fsync: false,
            ..server()
        };
        assert_eq!(levels(&no_fsync), [true]);
    }

    #[test]
    fn a_config_that_needs_more_connections_than_there_are_is_an_error() {
        assert_eq!(room(&server(), 87, false), None);
        assert_eq!(
            room(&server(), 88, false).map(|(error, _)| error),
            Some(false)
        );
        assert_eq!(room(&server(), 88, true), None);
        assert_eq!(
            room(&server(), 98, true).map(|(error, _)| error),
            Some(true)
        );
    }
}
