//! Public reports turned into inputs, by their number: what an operator sees of them.

use serde_json::{Value, json};

use crate::place::{Backend, OPENING, Place, on_both};

on_both!(
    e008_two_withdrawals_at_once_from_one_account_see_each_other,
    e069_a_snapshot_in_mid_stream_is_a_thousand_duplicates,
    e079_letters_of_a_year_ago_stay,
    e100_long_numbers_keep_their_digits_everywhere,
    e119_e121_the_local_time_zone_decides_nothing,
    e125_lists_show_no_payload,
    e131_two_operators_who_send_the_mended_letters_at_once_apply_each_once,
    t89_a_dead_letter_tells_reason_attempts_place_and_times,
);

const ACCOUNTS: u32 = 20;

fn e008_two_withdrawals_at_once_from_one_account_see_each_other(place: Place) {
    let account = |kind: &str, n: u32| format!("{kind}{n}");
    let mut setup = vec![OPENING[0].to_owned()];
    let mut race = Vec::new();
    for n in 0..ACCOUNTS {
        for (kind, limit) in [("forced", "none"), ("strict", "no_negative")] {
            let name = account(kind, n);
            let transfer = |id: &str, debit: &str, credit: &str, amount: u32| {
                format!(
                    r#"{{"op":"transfer","id":"{id}-{name}","debit":"{debit}","credit":"{credit}","asset":"EUR","amount":{amount},"lane":"{id}"}}"#
                )
            };
            setup.push(format!(
                r#"{{"op":"open_account","id":"open-{name}","account":"{name}","asset":"EUR","limit":"{limit}"}}"#
            ));
            setup.push(transfer("fund", "bank", &name, 100));
            race.push(transfer("T1", &name, "bank", 50));
            race.push(transfer("T2", &name, "bank", 100));
        }
    }
    place.wallet("");
    place.write_lines("ops.jsonl", setup.iter());
    place.drained(&[]);
    place.wallet("lanes = 2\nlane = \"/lane\"\nbatch_count_max = 1");
    place.write_lines("ops.jsonl", setup.iter().chain(&race));
    let (lines, _) = place.drained(&[]);
    let refused: Vec<&Value> = lines
        .iter()
        .filter(|line| line["outcome"] == "refused")
        .collect();
    assert_eq!(
        refused.len(),
        ACCOUNTS as usize,
        "one of each strict account's two"
    );
    for line in refused {
        let id = line["id"].as_str().unwrap();
        assert!(
            id.contains("-strict") && line["code"] == "insufficient_funds",
            "{line}"
        );
    }
    let posted = |name: String| place.json(&["balance", &name]).ok().object()["posted"].clone();
    assert_eq!(
        posted(account("forced", 7)),
        "-50",
        "never 0: no withdrawal is overwritten"
    );
    let strict = posted(account("strict", 7));
    assert!(strict == "0" || strict == "50", "{strict}");
    assert_eq!(place.json(&["audit"]).ok().object()["ok"], true);
}

fn e069_a_snapshot_in_mid_stream_is_a_thousand_duplicates(place: Place) {
    let row = |change: &str, n: u32| {
        format!(
            r#"{{"op":"transfer","id":"row-{n}","debit":"bank","credit":"p1","asset":"EUR","amount":1,"change":"{change}"}}"#
        )
    };
    place.wallet("");
    let created = (0..1_000).map(|n| row("c", n));
    let read = (0..1_000).map(|n| row("r", n));
    let opening = OPENING.iter().map(|line| (*line).to_owned());
    place.write_lines("ops.jsonl", opening.chain(created).chain(read));
    let (_, summary) = place.drained(&[]);
    let outcomes = &summary["outcomes"];
    assert_eq!(
        (&outcomes["applied"], &outcomes["duplicate"]),
        (&json!(1_005), &json!(1_000))
    );
    assert_eq!(
        place.json(&["balance", "p1"]).ok().object()["posted"],
        "2000"
    );
}

fn e100_long_numbers_keep_their_digits_everywhere(place: Place) {
    place.wallet("");
    place.write_lines(
        "ops.jsonl",
        [
            r#"{"op":"open_account","id":73314510714175488,"account":73314510714175489,"asset":"EUR"}"#,
            r#"{"op":"nobody knows","id":73314510714175491,"reference":73314510714175493}"#,
        ],
    );
    let (lines, _) = place.drained(&[]);
    assert_eq!(lines[0]["id"], "73314510714175488");
    let shown = place.json(&["show", "73314510714175488"]).ok();
    assert_eq!(shown.object()["id"], "73314510714175488");
    let balance = place.json(&["balance", "73314510714175489"]).ok();
    assert_eq!(balance.object()["account"], "73314510714175489");
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert_eq!(letters[0]["id"], "73314510714175491");
    let payload = letters[0]["letter"].as_str().unwrap();
    let shown = place.semel(&["dead", "show", payload]).ok();
    assert!(shown.out.contains("73314510714175493"), "{}", shown.out);
}

fn t89_a_dead_letter_tells_reason_attempts_place_and_times(place: Place) {
    place.wallet("");
    place.write_lines(
        "ops.jsonl",
        OPENING
            .iter()
            .copied()
            .chain([r#"{"op":"nobody knows","id":"odd"}"#]),
    );
    let letter = |more: &[&str]| {
        place.drained(more);
        place.json(&["dead", "list"]).ok().object()
    };
    let first = letter(&[]);
    let seen = [
        "code",
        "attempts",
        "count",
        "source",
        "partition",
        "position",
    ]
    .map(|name| &first[name]);
    assert_eq!(
        seen,
        [
            &json!("unknown_op"),
            &json!(1),
            &json!(1),
            &json!("ops"),
            &json!("ops.jsonl"),
            &json!(6)
        ]
    );
    assert!(
        first["detail"].as_str().unwrap().contains("nobody knows"),
        "{first}"
    );
    let at = |letter: &Value, name: &str| letter[name].as_str().unwrap().to_owned();
    assert_eq!(at(&first, "first_at"), at(&first, "at"));
    let again = letter(&["--from-start"]);
    assert_eq!(
        (&again["count"], &again["attempts"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(at(&again, "first_at"), at(&first, "first_at"));
    assert!(at(&again, "at") > at(&first, "at"), "{again}");
}

#[test]
fn e077_a_storm_of_copies_takes_no_room_that_grows() {
    let place = Place::new(Backend::Sqlite);
    place.wallet("");
    let pay = |n: u32| {
        format!(
            r#"{{"op":"transfer","id":"pay-{n}","debit":"bank","credit":"p1","asset":"EUR","amount":1}}"#
        )
    };
    let opening = OPENING.iter().map(|line| (*line).to_owned());
    place.write_lines("ops.jsonl", opening.chain((0..500).map(pay)));
    let size = |runs: u32| {
        for _ in 0..runs {
            place.drained(&["--from-start"]);
        }
        std::fs::metadata(place.path().join("semel.db"))
            .unwrap()
            .len()
    };
    // The second run writes the one row for each key that was seen again; the third makes its count a byte long.
    let seen_again = size(3);
    assert_eq!(size(5), seen_again);
}

fn e079_letters_of_a_year_ago_stay(place: Place) {
    place.wallet("");
    place.write_lines("ops.jsonl", OPENING.into_iter().chain(["not json", "{}"]));
    place.drained(&[]);
    let year_ago = match place.schema() {
        Some(_) => "now() - interval '1 year'",
        None => "at - 31536000000000",
    };
    place.sql(&format!(
        "UPDATE semel_dead SET at = {year_ago}, first_at = {year_ago}"
    ));
    place.write_lines(
        "ops.jsonl",
        OPENING.into_iter().chain(["not json", "{}", OPENING[0]]),
    );
    place.drained(&[]);
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert_eq!(letters.len(), 2, "{letters:?}");
}

fn e119_e121_the_local_time_zone_decides_nothing(place: Place) {
    place.wallet("");
    let now = jiff::Timestamp::now();
    let at = |minutes: i64| (now + jiff::SignedDuration::from_mins(minutes)).to_string();
    let authorize = |zone: u32, minutes: i64| {
        format!(
            r#"{{"op":"authorize","id":"a{zone}{minutes}","hold":"h{zone}{minutes}","debit":"p1","credit":"p2","asset":"EUR","amount":1,"expires_at":"{}"}}"#,
            at(minutes)
        )
    };
    // The same wall-clock time twice, in the night in which it comes twice.
    let pay = |id: &str, offset: &str| {
        format!(
            r#"{{"op":"transfer","id":"{id}","debit":"p1","credit":"p2","asset":"EUR","amount":1,"at":"2026-10-25T03:30:00{offset}"}}"#
        )
    };
    let mut lines: Vec<String> = OPENING.map(str::to_owned).into();
    lines.extend([pay("summer", "+03:00"), pay("winter", "+02:00")]);
    for (number, zone) in ["Asia/Tokyo", "America/Los_Angeles", "Europe/Kyiv"]
        .into_iter()
        .enumerate()
    {
        let number = u32::try_from(number).unwrap();
        lines.extend([authorize(number, -30), authorize(number, 30)]);
        place.write_lines("ops.jsonl", &lines);
        let mut run = place.command(&["run", "--until-idle", "--json"]);
        let ended = run.env("TZ", zone).env("PGTZ", zone).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
        let player = place.json(&["balance", "p1"]).ok().object();
        // Only the hold that is over was freed.
        let held = (number + 1).to_string();
        assert_eq!(
            (&player["posted"], &player["pending"]),
            (&json!("998"), &json!(held)),
            "{zone}"
        );
    }
}

fn e125_lists_show_no_payload(place: Place) {
    place.wallet("");
    let secret = "4929123456781234";
    let win = format!(
        r#"{{"op":"win","id":"w","round":"r","account":"p1","asset":"EUR","amount":1,"pan":"{secret}"}}"#
    );
    let bad = format!(r#"{{"op":"dance","id":"d","email":"{secret}"}}"#);
    place.write_lines("ops.jsonl", OPENING.iter().copied().chain([&*win, &*bad]));
    let ran = place.semel(&["run", "--until-idle"]).ok();
    assert!(
        !ran.out.contains(secret) && !ran.err.contains(secret),
        "{ran:?}"
    );
    for command in [
        &["dead", "list"][..],
        &["parked", "list"],
        &["show", "d"],
        &["show", "w"],
    ] {
        let said = place.semel(command).ok();
        assert!(
            !said.out.contains(secret) && !said.err.contains(secret),
            "{said:?}"
        );
    }
    let letter = place.json(&["dead", "list"]).ok().object();
    let letter = letter["letter"].as_str().unwrap();
    assert!(
        place
            .semel(&["dead", "show", letter])
            .ok()
            .out
            .contains(secret)
    );
}

fn e131_two_operators_who_send_the_mended_letters_at_once_apply_each_once(place: Place) {
    place.config(
        "[sources.inbox]\ntype = \"queue\"\nname = \"inbox\"\n\
         [consumers.wallet]\nsources = [\"inbox\"]\nhandler = \"wallet\"\n[consumers.wallet.wallet]\nassets = { EUR = 2 }\n",
    );
    let pay = |n: u32, op: &str| {
        format!(
            r#"{{"op":"{op}","id":"pay-{n}","debit":"bank","credit":"p1","asset":"EUR","amount":1}}"#
        )
    };
    let opening = OPENING.iter().map(|line| (*line).to_owned());
    place.write_lines(
        "bad.jsonl",
        opening.chain((0..50).map(|n| pay(n, "transfre"))),
    );
    place.semel(&["publish", "inbox", "bad.jsonl"]).ok();
    assert_eq!(place.drained(&[]).1["outcomes"]["dead"], 50);
    place.write_lines("mended.jsonl", (0..50).map(|n| pay(n, "transfer")));
    let operators: Vec<_> = (0..2)
        .map(|_| {
            place
                .command(&["publish", "inbox", "mended.jsonl"])
                .spawn()
                .unwrap()
        })
        .collect();
    for mut operator in operators {
        assert!(operator.wait().unwrap().success());
    }
    let (_, summary) = place.drained(&[]);
    assert_eq!(
        summary["outcomes"],
        json!({ "applied": 50, "ignored": 0, "refused": 0, "duplicate": 50, "parked": 0, "dead": 0 })
    );
    assert_eq!(
        place.json(&["balance", "p1"]).ok().object()["posted"],
        "1050"
    );
    let letters = place.json(&["dead", "list"]).ok().lines();
    assert!(
        letters.iter().all(|letter| letter["count"] == 1),
        "{letters:?}"
    );
}
