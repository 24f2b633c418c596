//! The tables' migrations, forward-only, one list per dialect. A ledger runs them beside its own: give
//! `Extension { name: PART, migrations }` to its `open`.

/// The part of `semel_schema` that tracks these migrations.
pub const PART: &str = "wallet";

/// For PostgreSQL.
pub const POSTGRES: &[(&str, &str)] = &[
    (
        "0001_wallet.sql",
        include_str!("../migrations/postgres/0001_wallet.sql"),
    ),
    (
        "0002_asset.sql",
        include_str!("../migrations/postgres/0002_asset.sql"),
    ),
];

/// For SQLite.
pub const SQLITE: &[(&str, &str)] = &[
    (
        "0001_wallet.sql",
        include_str!("../migrations/sqlite/0001_wallet.sql"),
    ),
    (
        "0002_asset.sql",
        include_str!("../migrations/sqlite/0002_asset.sql"),
    ),
];

#[cfg(test)]
mod tests {
    use super::{POSTGRES, SQLITE};
    use crate::row::TABLES;

    fn whole(migrations: &[(&str, &str)]) -> String {
        migrations.iter().map(|(_, sql)| *sql).collect()
    }

    #[test]
    fn the_migrations_make_the_schema() {
        assert_eq!(
            whole(POSTGRES),
            include_str!("../migrations/postgres/schema.sql")
        );
        assert_eq!(
            whole(SQLITE),
            include_str!("../migrations/sqlite/schema.sql")
        );
    }

    #[test]
    fn every_column_of_the_tables_is_in_both_schemas() {
        for schema in [whole(POSTGRES), whole(SQLITE)] {
            for table in TABLES {
                let start = format!("CREATE TABLE {} (", table.name);
                let definition = schema
                    .split(&start)
                    .nth(1)
                    .and_then(|rest| rest.split(";\n").next())
                    .unwrap();
                for column in table.columns {
                    let line = format!("\n    {} ", column.name);
                    assert!(definition.contains(&line), "{}.{}", table.name, column.name);
                }
            }
        }
    }
}
