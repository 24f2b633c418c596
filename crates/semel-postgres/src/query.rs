//! Read-only queries of operators' commands, each on a session of its own that cannot write.

use futures_util::TryStreamExt;
use semel_core::Fault;
use semel_core::rows::{Query, Register, Value};

use crate::fault::fault;
use crate::ledger::PostgresLedger;
use crate::session::{self, Purpose, Span};
use crate::value::{Scalar, read_row};

impl Query for PostgresLedger {
    async fn query(
        &self,
        sql: &'static str,
        args: &[Value],
        each: &mut (dyn FnMut(&[Value]) -> bool + Send),
    ) -> Result<(), Fault> {
        let mut connection = session::open(&self.shared.options, Purpose::Read).await?;
        connection.begin(Span::Each).await.map_err(fault)?;
        let mut query = sqlx::query(sql).persistent(false);
        for arg in args {
            query = query.bind(Scalar(arg));
        }
        let mut values = Vec::new();
        {
            let mut rows = query.fetch(&mut connection);
            while let Some(row) = rows.try_next().await.map_err(fault)? {
                values.clear();
                read_row(&row, &mut values)?;
                if !each(&values) {
                    // The rest is not read: the session goes, and the server stops sending.
                    return Ok(());
                }
            }
        }
        connection.commit(Span::Each).await.map_err(fault)?;
        connection.close().await;
        Ok(())
    }
}

impl Register for PostgresLedger {
    async fn register(&self, sql: &'static str, args: &[Value]) -> Result<(), Fault> {
        self.shared
            .at_desk("recording a fact", Span::Each, async |connection| {
                let mut query = sqlx::query(sql).persistent(false);
                for arg in args {
                    query = query.bind(Scalar(arg));
                }
                query.execute(connection).await.map_err(fault).map(drop)
            })
            .await
    }
}
