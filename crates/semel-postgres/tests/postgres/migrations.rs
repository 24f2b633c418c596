//! The schema: migrations and `schema.sql` are equal, two processes may start at once, a newer schema stops an
//! older program, and the runtime's rights are as small as documented.

use semel_core::{Class, Ledger, Unit};
use semel_postgres::{Extension, Options, PostgresLedger};
use sqlx::PgConnection;

use crate::world::{World, committed, enrolment, key, run, texts, url};

const SHAPE: &str = "
    SELECT format('%s.%s %s %s default=%s identity=%s', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
                  CASE WHEN a.attnotnull THEN 'not null' ELSE 'null' END,
                  pg_get_expr(d.adbin, d.adrelid), a.attidentity)
    FROM pg_class c
    JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
    WHERE c.relnamespace = quote_ident(current_schema())::regnamespace AND c.relkind = 'r'
    UNION ALL
    SELECT format('%s %s', conrelid::regclass, pg_get_constraintdef(oid))
    FROM pg_constraint
    WHERE connamespace = quote_ident(current_schema())::regnamespace
    UNION ALL
    SELECT replace(indexdef, quote_ident(schemaname) || '.', '')
    FROM pg_indexes
    WHERE schemaname = current_schema()
    UNION ALL
    SELECT format('%s %s %s', relname, relkind, reloptions)
    FROM pg_class
    WHERE relnamespace = quote_ident(current_schema())::regnamespace
    ORDER BY 1";

async fn shape(connection: &mut PgConnection) -> Vec<String> {
    texts(connection, SHAPE).await
}

#[tokio::test]
async fn the_migrations_make_exactly_schema_sql() {
    let migrated = World::new().await;
    let mut psql = migrated.psql().await;
    let by_migrations = shape(&mut psql).await;
    run(
        &mut psql,
        "CREATE SCHEMA IF NOT EXISTS semel_shape; DROP SCHEMA semel_shape CASCADE",
    )
    .await;
    run(
        &mut psql,
        "BEGIN; CREATE SCHEMA semel_shape; SET LOCAL search_path = semel_shape",
    )
    .await;
    run(&mut psql, include_str!("../../schema.sql")).await;
    let by_schema = shape(&mut psql).await;
    run(&mut psql, "ROLLBACK").await;
    assert!(by_schema.len() > 100, "{by_schema:#?}");
    assert_eq!(by_migrations, by_schema);
}

static WALLET: Extension = Extension {
    name: "wallet",
    migrations: &[
        ("0001_a.sql", "CREATE TABLE a ()"),
        ("0002_b.sql", "CREATE TABLE b ()"),
    ],
};

#[tokio::test]
async fn two_processes_that_migrate_at_once_both_succeed() {
    let world = World::with(|o| o.extensions = vec![WALLET]).await;
    for _ in 0..5 {
        run(
            &mut world.psql().await,
            &format!("DROP SCHEMA \"{}\" CASCADE", world.options.schema),
        )
        .await;
        let opened = futures_util::future::join_all(
            (0..4).map(|_| PostgresLedger::open(world.options.clone())),
        )
        .await;
        assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    }
    let parts = "SELECT part || ' ' || version || ' ' || name FROM semel_schema ORDER BY 1";
    assert_eq!(
        texts(&mut world.psql().await, parts).await,
        ["semel 1 0001_ledger", "wallet 1 0001_a", "wallet 2 0002_b"]
    );
}

#[tokio::test]
async fn a_dry_run_tells_what_is_pending_and_changes_nothing() {
    let world = World::new().await;
    let more = world
        .again(|o| (o.extensions, o.migrate) = (vec![], true))
        .await;
    assert!(more.migrate(true).await.unwrap().applied.is_empty());
    let mut options = world.options.clone();
    (options.extensions, options.migrate) = (vec![WALLET], false);
    let fault = PostgresLedger::open(options).await.unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(
        fault.detail().contains("wallet/0001_a, wallet/0002_b"),
        "{fault}"
    );
    let more = world.again(|o| o.extensions = vec![WALLET]).await;
    let done = more.migrate(false).await.unwrap();
    assert_eq!((done.from, done.to, done.applied.len()), (1, 1, 0));
}

#[tokio::test]
async fn a_schema_that_is_newer_than_the_program_stops_it() {
    let world = World::new().await;
    let newer = "INSERT INTO semel_schema (part, version, name, min_binary) VALUES ('semel', 2, '0002_x.sql', 1)";
    run(&mut world.psql().await, newer).await;
    world.again(|_| {}).await;
    run(
        &mut world.psql().await,
        "UPDATE semel_schema SET min_binary = 2 WHERE version = 2",
    )
    .await;
    let fault = PostgresLedger::open(world.options.clone())
        .await
        .unwrap_err();
    assert_eq!(fault.class, Class::Stop);
    assert!(fault.detail().contains("run a newer program"), "{fault}");
}

#[tokio::test]
async fn a_refused_connection_names_the_place_and_never_the_password() {
    let port = url()
        .rsplit_once(':')
        .and_then(|(_, rest)| rest.split_once('/'))
        .unwrap()
        .0
        .to_owned();
    for (url, class, part) in [
        (
            format!("postgres://semel:hunter2@127.0.0.1:{port}/nowhere"),
            Class::Down,
            "`nowhere`",
        ),
        (
            format!("postgres://semel:hunter2@127.0.0.1:{port}/semel"),
            Class::Down,
            "`semel`",
        ),
        (
            "postgres://semel:hunter2@127.0.0.1:1/semel".to_owned(),
            Class::Down,
            "127.0.0.1:1",
        ),
        (
            "postgres://semel:hunter2@[bad/semel".to_owned(),
            Class::Stop,
            "postgres://USER",
        ),
        (
            "mysql://semel:hunter2@127.0.0.1/semel".to_owned(),
            Class::Stop,
            "postgres://USER",
        ),
    ] {
        let options = Options::new(&url);
        assert!(!format!("{options:?}").contains("hunter2"));
        let fault = PostgresLedger::open(options).await.unwrap_err();
        assert_eq!(fault.class, class, "{url}: {fault}");
        assert!(fault.detail().contains(part), "{url}: {fault}");
        assert!(
            !format!("{fault} {fault:?}").contains("hunter2"),
            "{url}: {fault}"
        );
    }
}

#[tokio::test]
async fn another_owner_of_a_name_is_refused_and_changed_rules_must_be_accepted() {
    let world = World::new().await;
    let mut other = enrolment();
    other.handler = "elsewhere".to_owned();
    assert_eq!(
        world.ledger.enroll(&other).await.unwrap_err().class,
        Class::Stop
    );
    let mut changed = enrolment();
    changed.rules = semel_core::Fingerprint::of_bytes(b"other rules");
    assert_eq!(
        world.ledger.enroll(&changed).await.unwrap_err().class,
        Class::Stop
    );
    changed.accept_key_change = true;
    assert_eq!(
        world.ledger.enroll(&changed).await.unwrap().consumer,
        world.consumer
    );
    changed.accept_key_change = false;
    world.ledger.enroll(&changed).await.unwrap();
    assert_eq!(
        world.ledger.enroll(&enrolment()).await.unwrap_err().class,
        Class::Stop
    );
}

#[tokio::test]
async fn sources_keep_their_numbers_whatever_their_order() {
    let world = World::new().await;
    let mut again = enrolment();
    again.sources = ["new", "other", "main"].map(str::to_owned).to_vec();
    let enrolled = world.ledger.enroll(&again).await.unwrap();
    assert_eq!(
        enrolled.sources.iter().map(|s| s.0).collect::<Vec<_>>(),
        [3, 2, 1]
    );
    assert!(enrolled.now_ms > 1_700_000_000_000);
    let many = futures_util::future::join_all((0..8).map(|_| async {
        let ledger = world.again(|_| {}).await;
        let mut one = enrolment();
        one.consumer = "fresh".to_owned();
        ledger.enroll(&one).await
    }))
    .await;
    let ids: Vec<_> = many.into_iter().map(|enrolled| enrolled.unwrap()).collect();
    assert!(
        ids.iter()
            .all(|e| e.consumer == ids[0].consumer && e.sources == ids[0].sources)
    );
}

#[tokio::test]
async fn the_documented_grants_are_enough_for_a_consumer() {
    let world = World::new().await;
    let mut psql = world.psql().await;
    let role = format!("semel_run_{:08x}", rand::random::<u32>());
    run(
        &mut psql,
        &format!("CREATE ROLE {role} LOGIN PASSWORD 'semel'"),
    )
    .await;
    let grants = include_str!("../../grants.sql")
        .replace(":\"schema\"", &format!("\"{}\"", world.options.schema))
        .replace(":\"role\"", &role);
    run(&mut psql, &grants).await;
    let (_, place) = world.options.url.split_once('@').unwrap();
    let mut options = world.options.clone();
    options.url = format!("postgres://{role}:semel@{place}");
    let ledger = PostgresLedger::open(options.clone()).await.unwrap();
    let mut other = enrolment();
    other.consumer = "least".to_owned();
    let consumer = ledger.enroll(&other).await.unwrap().consumer;
    let lane = semel_core::ledger::LaneId {
        consumer,
        ..world.lane_id(0)
    };
    let mut unit = ledger
        .begin(ledger.connect(lane).await.unwrap())
        .await
        .unwrap();
    unit.claim(&world.claims(&[key(1)])).await.unwrap();
    unit.attempt(&[key(1)]).await.unwrap();
    let record = semel_core::ledger::Record {
        sightings: vec![world.sighting(key(1))],
        unclaims: vec![key(1)],
        settled_attempts: vec![key(1)],
        ..Default::default()
    };
    unit.write(&record).await.unwrap();
    let (proof, lane) = committed(unit.commit().await);
    ledger.resolve(proof.fence()).await.unwrap();
    ledger.leave(lane).await.unwrap();
    semel_postgres::PostgresQueue::open(options, "q", Default::default())
        .await
        .unwrap();
    drop(ledger);
    run(
        &mut psql,
        &format!("DROP OWNED BY {role}; DROP ROLE {role}"),
    )
    .await;
}
