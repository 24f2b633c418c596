//! The documented grants are enough: one role runs the wallet without owning a table, another one only asks.

use semel_wallet::workload::{Shape, generate};

use crate::place::{Backend, Place, postgres_url};

const RUN: [&str; 2] = [
    include_str!("../../../semel-postgres/grants.sql"),
    include_str!("../../../semel-wallet/grants.sql"),
];
const READ: [&str; 1] = [include_str!("../../grants-read.sql")];

/// A role of the server's, gone with it.
struct Role<'p> {
    place: &'p Place,
    name: String,
}

impl<'p> Role<'p> {
    fn new(place: &'p Place, kind: &str, grants: &[&str]) -> Self {
        let schema = place.schema().unwrap();
        let name = format!("{schema}_{kind}");
        place.sql(&format!("CREATE ROLE {name} LOGIN PASSWORD 'semel'"));
        let role = Self { place, name };
        for grant in grants {
            let grant = grant.replace(":\"schema\"", schema);
            place.sql(&grant.replace(":\"role\"", &role.name));
        }
        role
    }

    /// From here on the program is this role, and owns nothing.
    fn take_over(&self, owners_config: &str) {
        let url = postgres_url();
        let (_, server) = url.split_once('@').unwrap();
        let own = format!("postgres://{}:semel@{server}\"\nmigrate = false", self.name);
        let config = owners_config.replacen(&format!("{url}\""), &own, 1);
        assert_ne!(config, owners_config);
        self.place.write("semel.toml", config);
    }
}

impl Drop for Role<'_> {
    fn drop(&mut self) {
        let name = &self.name;
        self.place
            .sql(&format!("DROP OWNED BY {name}; DROP ROLE {name}"));
    }
}

#[test]
fn the_documented_grants_are_enough_to_run_the_wallet_and_to_ask_it() {
    let place = Place::new(Backend::Postgres);
    place.config(
        "[sources.ops]\ntype = \"file\"\npaths = [\"ops.jsonl\"]\n\
         [sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n\
         [consumers.wallet]\nsources = [\"ops\", \"inbox\"]\nhandler = \"wallet\"\n\
         [consumers.wallet.wallet]\nassets = { EUR = 2, JPY = 0, BTC = 8 }\n\
         house = { EUR = \"house-eur\", JPY = \"house-jpy\", BTC = \"house-btc\" }\n",
    );
    let owners = place.read("semel.toml");
    place.semel(&["migrate"]).ok();
    let day = generate(Shape {
        lines: 3_000,
        players: 40,
        ..Shape::default()
    });
    place.write(
        "ops.jsonl",
        [&day.setup[..], &day.files[0], &[vec![]]]
            .concat()
            .join(&b'\n'),
    );
    place.write(
        "more.jsonl",
        [&day.setup[..20], &[vec![]]].concat().join(&b'\n'),
    );

    let run = Role::new(&place, "run", &RUN);
    run.take_over(&owners);
    place.semel(&["publish", "inbox", "more.jsonl"]).ok();
    let (_, summary) = place.drained(&[]);
    assert!(
        summary["outcomes"]["applied"].as_u64() > Some(1_000),
        "{summary}"
    );
    place.semel(&["rewind", "ops", "--to", "1", "--yes"]).ok();
    let (_, again) = place.drained(&[]);
    assert_eq!(again["outcomes"]["applied"], 0, "{again}");
    drop(run);

    let read = Role::new(&place, "read", &READ);
    read.take_over(&owners);
    for asked in [
        &["show", "fund-p0"][..],
        &["balance", "house-eur"],
        &["statement", "house-eur"],
        &["dead", "list"],
        &["parked", "list"],
        &["audit"],
        &["doctor"],
        &["check", "--connect"],
    ] {
        place.semel(asked).ok();
    }
    let ran = place.semel(&["run", "--until-idle"]);
    assert_eq!(ran.code, 3, "who only asks cannot run: {ran:?}");
}
