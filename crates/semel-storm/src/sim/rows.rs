//! Users' tables on the simulated ledger.

use semel_core::Fault;
use semel_core::rows::{Change, Delta, Lock, Rows, Table, Value};

use super::store::{Place, Row};
use super::unit::SimUnit;

impl SimUnit {
    async fn read_rows(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        lock: Lock,
    ) -> Result<Vec<Value>, Fault> {
        let mut values = Vec::with_capacity(ids.len() * table.width());
        for id in ids {
            let place = Place::User(table.name, id.clone());
            let row = match lock {
                Lock::None => self.tx.see(&place),
                Lock::Update => self.tx.lock_row(&place).await?,
            };
            if let Some(Row::User(row)) = row {
                values.extend(row);
            }
        }
        Ok(values)
    }

    async fn insert_rows(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> Result<usize, Fault> {
        let append_only = self.tx.store.state().append_only.contains(&table.name);
        let mut inserted = 0;
        for row in values.chunks_exact(table.width()) {
            self.check(table, row)?;
            let place = if append_only {
                self.next_line(table)
            } else {
                Place::User(table.name, row[0].clone())
            };
            if self
                .tx
                .insert(place, Row::User(row.to_vec()))
                .await?
                .is_none()
            {
                inserted += 1;
            }
        }
        Ok(inserted)
    }

    fn next_line(&self, table: &'static Table) -> Place {
        let mut state = self.tx.store.state();
        state.lines += 1;
        Place::Appended(table.name, state.lines)
    }

    async fn update_rows(
        &mut self,
        table: &'static Table,
        values: &[Value],
    ) -> Result<usize, Fault> {
        let mut found = 0;
        for row in values.chunks_exact(table.width()) {
            self.check(table, row)?;
            let place = Place::User(table.name, row[0].clone());
            let Some(Row::User(mut there)) = self.tx.lock_row(&place).await? else {
                continue;
            };
            for ((old, new), column) in there.iter_mut().zip(row).zip(table.columns) {
                match column.change {
                    Change::Fixed => {}
                    Change::Set | Change::Counter => old.clone_from(new),
                }
            }
            self.tx.set(place, Some(Row::User(there)));
            found += 1;
        }
        Ok(found)
    }

    async fn add_rows(
        &mut self,
        table: &'static Table,
        deltas: &[Delta],
    ) -> Result<Vec<Value>, Fault> {
        let mut values = Vec::with_capacity(deltas.len() * table.counted());
        for delta in deltas {
            let place = Place::User(table.name, delta.seen[0].clone());
            let Some(Row::User(mut row)) = self.tx.lock_row(&place).await? else {
                continue;
            };
            if !unchanged(table, &row, &delta.seen) {
                continue;
            }
            for (at, add) in table.counters().zip(&delta.add) {
                raise(&mut row[at], *add)?;
            }
            self.check(table, &row)?;
            values.push(row[0].clone());
            values.extend(table.counters().map(|at| row[at].clone()));
            self.tx.set(place, Some(Row::User(row)));
        }
        Ok(values)
    }

    fn check(&self, table: &'static Table, row: &[Value]) -> Result<(), Fault> {
        let state = self.tx.store.state();
        for (name, check) in &state.checks {
            if *name == table.name {
                check(row).map_err(|why| Fault::poison(format!("CHECK of `{name}`: {why}")))?;
            }
        }
        Ok(())
    }
}

/// Whether the `Set` columns still are what was read: `seen` is the identity and those, in column order.
fn unchanged(table: &'static Table, row: &[Value], seen: &[Value]) -> bool {
    let set = row
        .iter()
        .zip(table.columns)
        .skip(1)
        .filter(|(_, column)| column.change == Change::Set);
    set.map(|(value, _)| value).eq(seen[1..].iter())
}

fn raise(value: &mut Value, add: i128) -> Result<(), Fault> {
    let out_of_range = || Fault::poison("a counter leaves its range");
    match value {
        Value::Amount(amount) => *amount = amount.checked_add(add).ok_or_else(out_of_range)?,
        Value::Int(int) => {
            let sum = i128::from(*int).checked_add(add).ok_or_else(out_of_range)?;
            *int = i64::try_from(sum).map_err(|_| out_of_range())?;
        }
        Value::Null | Value::Text(_) | Value::Bytes(_) | Value::Key(_) | Value::Time(_) => {
            return Err(Fault::poison("a counter is neither Int nor Amount"));
        }
    }
    Ok(())
}

impl Rows for SimUnit {
    async fn read(
        &mut self,
        table: &'static Table,
        ids: &[Value],
        lock: Lock,
    ) -> Result<Vec<Value>, Fault> {
        self.tx.enter().await?;
        let rows = self.read_rows(table, ids, lock).await;
        self.tx.leave(rows)
    }

    async fn insert(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        self.tx.enter().await?;
        let inserted = self.insert_rows(table, values).await;
        self.tx.leave(inserted)
    }

    async fn update(&mut self, table: &'static Table, values: &[Value]) -> Result<usize, Fault> {
        self.tx.enter().await?;
        let found = self.update_rows(table, values).await;
        self.tx.leave(found)
    }

    async fn add(&mut self, table: &'static Table, deltas: &[Delta]) -> Result<Vec<Value>, Fault> {
        self.tx.enter().await?;
        let rows = self.add_rows(table, deltas).await;
        self.tx.leave(rows)
    }
}
