//! Codes and their precedence, case by case, and the reference page made of the closed lists.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use semel_core::{Answer, Key, Part};
use semel_wallet::{Config, Dead, Expired, LateWin, Model, Work, code};

fn config() -> Config {
    Config::new([("EUR", 2), ("JPY", 0), ("BTC", 8)])
        .unwrap()
        .house("house")
        .unwrap()
}

/// A model with `bank`, `house`, `p1` (1000), `p2` and the yen account `j1`.
fn opened(config: Config) -> Model {
    let mut model = Model::new(config);
    for op in [
        r#"{"op":"open_account","id":"o1","account":"bank","asset":"EUR","limit":"none"}"#,
        r#"{"op":"open_account","id":"o2","account":"house","asset":"EUR","kind":"house"}"#,
        r#"{"op":"open_account","id":"o3","account":"p1","asset":"EUR"}"#,
        r#"{"op":"open_account","id":"o4","account":"p2","asset":"EUR"}"#,
        r#"{"op":"open_account","id":"o5","account":"j1","asset":"JPY"}"#,
        r#"{"op":"transfer","id":"f1","debit":"bank","credit":"p1","asset":"EUR","amount":1000}"#,
    ] {
        assert_eq!(say(&mut model, op), "applied");
    }
    model
}

fn answer(model: &mut Model, op: &str) -> Answer {
    let work = Work::parse(op.as_bytes(), model.config());
    model.apply(&work, false).unwrap()
}

/// `outcome`, `outcome code`, or `parked awaiting`.
fn say(model: &mut Model, op: &str) -> String {
    match answer(model, op) {
        Answer::NotYet { awaiting, .. } => format!("parked {}", awaiting.kind),
        other => other.code().map_or_else(
            || other.outcome().to_string(),
            |code| format!("{} {code}", other.outcome()),
        ),
    }
}

fn run(model: &mut Model, cases: &[(&str, &str)]) {
    for (op, said) in cases {
        assert_eq!(say(model, op), *said, "{op}");
    }
}

fn reply(answer: &Answer) -> &str {
    match answer {
        Answer::Refused {
            reply: Some(reply), ..
        }
        | Answer::Ignored {
            reply: Some(reply), ..
        } => std::str::from_utf8(reply).unwrap(),
        other => panic!("no reply in {other:?}"),
    }
}

fn field_of(op: &str) -> Option<String> {
    let work = Work::parse(op.as_bytes(), &config());
    let Err(Dead { code, field, .. }) = work.operation() else {
        panic!("{op} is not dead")
    };
    assert_eq!(code.as_str(), "malformed", "{op}");
    field.clone()
}

#[test]
fn malformed_names_the_field_as_it_is_nested() {
    for (op, field) in [
        (r#"{"id":"1"}"#, "op"),
        (r#"{"id":"1","op":5}"#, "op"),
        (
            r#"{"id":"1","op":"transfer","credit":"b","asset":"EUR","amount":1}"#,
            "debit",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"","credit":"b","asset":"EUR","amount":1}"#,
            "debit",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"a","credit":null,"asset":"EUR","amount":1}"#,
            "credit",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"a","credit":"b","asset":978,"amount":1}"#,
            "asset",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"a","credit":"b","asset":"EUR"}"#,
            "amount",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"a","credit":"b","asset":"EUR","amount":true}"#,
            "amount",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"a","credit":"b","asset":"EUR","amount":1,"value":"0.01"}"#,
            "value",
        ),
        (
            r#"{"id":"1","op":"transfer","debit":"a","credit":"b","asset":"EUR","amount":1,"at":"2026-01-01T00:00:00"}"#,
            "at",
        ),
        (r#"{"id":"1","op":"transfer_group","legs":[]}"#, "legs"),
        (
            r#"{"id":"1","op":"transfer_group","legs":[{"debit":"a","credit":"b","asset":"EUR"}]}"#,
            "legs/0/amount",
        ),
        (r#"{"id":"1","op":"transfer_group","legs":[7]}"#, "legs/0"),
        (
            r#"{"id":"1","op":"capture","hold":"h","final":"yes"}"#,
            "final",
        ),
        (
            r#"{"id":"1","op":"open_account","account":"a","asset":"EUR","kind":"gold"}"#,
            "kind",
        ),
        (
            r#"{"id":"1","op":"authorize","hold":"h","debit":"a","credit":"b","asset":"EUR","amount":1,"expires_at":"soon"}"#,
            "expires_at",
        ),
        (
            r#"{"id":"1","op":"win","round":"r","account":"a","asset":"EUR","amount":1,"bet":[1]}"#,
            "bet",
        ),
    ] {
        assert_eq!(field_of(op).as_deref(), Some(field), "{op}");
    }
    let long = format!(
        r#"{{"id":"1","op":"freeze","account":"{}"}}"#,
        "a".repeat(513)
    );
    assert_eq!(field_of(&long).as_deref(), Some("account"));
    let legs = vec![r#"{"debit":"a","credit":"b","asset":"EUR","amount":1}"#; 101].join(",");
    assert_eq!(
        field_of(&format!(
            r#"{{"id":"1","op":"transfer_group","legs":[{legs}]}}"#
        ))
        .as_deref(),
        Some("legs")
    );
}

#[test]
fn null_counts_as_absent_and_unknown_fields_are_ignored() {
    run(
        &mut opened(config()),
        &[
            (
                r#"{"id":"1","op":"transfer","debit":"p1","credit":"p2","asset":"EUR","amount":null,"value":"0.01","reason":null,"trace":{"a":1}}"#,
                "applied",
            ),
            (
                r#"{"id":"2","op":"authorize","hold":"h","debit":"p1","credit":"p2","asset":"EUR","amount":1,"expires_at":null}"#,
                "applied",
            ),
            (
                r#"{"id":"3","op":"capture","hold":"h","amount":null,"value":null,"final":null}"#,
                "applied",
            ),
        ],
    );
}

#[test]
fn what_the_message_alone_shows_comes_in_the_order_of_the_list() {
    let t = |rest: &str| format!(r#"{{"id":"1","op":"transfer",{rest}}}"#);
    let mut model = opened(config());
    for (rest, code) in [
        (
            r#""debit":"p1","credit":"p1","asset":"XAU","amount":"x""#,
            "asset_unknown",
        ),
        (
            r#""debit":"p1","credit":"p1","asset":"EUR","amount":"x""#,
            "amount_invalid",
        ),
        (
            r#""debit":"p1","credit":"p1","asset":"EUR","value":"-0.001""#,
            "precision_loss",
        ),
        (
            r#""debit":"p1","credit":"p1","asset":"EUR","amount":"-999999999999999999999999999999999999999999""#,
            "overflow",
        ),
        (
            r#""debit":"p1","credit":"p1","asset":"EUR","amount":"-1""#,
            "amount_not_positive",
        ),
        (
            r#""debit":"nobody","credit":"nobody","asset":"EUR","amount":"1""#,
            "self_transfer",
        ),
        (
            r#""debit":"j1","credit":"nobody","asset":"EUR","amount":"1""#,
            "account_not_found",
        ),
        (
            r#""debit":"j1","credit":"p1","asset":"EUR","amount":"1""#,
            "asset_mismatch",
        ),
    ] {
        assert_eq!(
            say(&mut model, &t(rest)),
            format!("refused {code}"),
            "{rest}"
        );
    }
}

#[test]
fn closed_comes_before_frozen_and_frozen_before_funds() {
    run(
        &mut opened(config()),
        &[
            (
                r#"{"op":"close_account","id":"1","account":"p1"}"#,
                "refused not_empty",
            ),
            (r#"{"op":"freeze","id":"2","account":"p1"}"#, "applied"),
            (
                r#"{"op":"freeze","id":"3","account":"p1"}"#,
                "ignored already_frozen",
            ),
            (
                r#"{"op":"transfer","id":"4","debit":"p1","credit":"p2","asset":"EUR","amount":9999}"#,
                "refused account_frozen",
            ),
            (
                r#"{"op":"close_account","id":"5","account":"p2"}"#,
                "applied",
            ),
            (
                r#"{"op":"close_account","id":"6","account":"p2"}"#,
                "ignored already_closed",
            ),
            (
                r#"{"op":"transfer","id":"7","debit":"p1","credit":"p2","asset":"EUR","amount":9999}"#,
                "refused account_closed",
            ),
            (
                r#"{"op":"freeze","id":"8","account":"p2"}"#,
                "refused account_closed",
            ),
            (
                r#"{"op":"open_account","id":"9","account":"p2","asset":"EUR"}"#,
                "refused account_exists",
            ),
            (
                r#"{"op":"open_account","id":"10","account":"p9","asset":"XAU"}"#,
                "refused asset_unknown",
            ),
        ],
    );
}

#[test]
fn balances_at_the_edge_of_128_bits_are_refused_beyond_it() {
    let most = i128::MAX;
    run(
        &mut opened(config()),
        &[
            (
                &format!(
                    r#"{{"op":"transfer","id":"1","debit":"bank","credit":"p2","asset":"EUR","amount":"{most}"}}"#
                ),
                "refused overflow",
            ),
            (
                &format!(
                    r#"{{"op":"transfer","id":"2","debit":"bank","credit":"p2","asset":"EUR","amount":"{}"}}"#,
                    most - 1000
                ),
                "applied",
            ),
            (
                r#"{"op":"transfer","id":"3","debit":"p1","credit":"p2","asset":"EUR","amount":"1000"}"#,
                "applied",
            ),
            (
                r#"{"op":"transfer","id":"4","debit":"house","credit":"p2","asset":"EUR","amount":"1"}"#,
                "refused overflow",
            ),
        ],
    );
}

#[test]
fn a_group_is_judged_leg_by_leg_and_its_refusal_names_the_leg() {
    let mut model = opened(config());
    let group = r#"{"op":"transfer_group","id":"g","legs":[
        {"debit":"p1","credit":"p2","asset":"EUR","amount":600},
        {"debit":"p1","credit":"house","asset":"EUR","amount":600},
        {"debit":"p1","credit":"p1","asset":"XAU","amount":"x"}]}"#;
    let refused = answer(&mut model, group);
    assert_eq!(
        reply(&refused),
        r#"{"outcome":"refused","code":"insufficient_funds","account":"p1","balance":"1000","available":"1000","version":1,"leg":1}"#
    );
    assert_eq!(model.account("p2").unwrap().posted, 0);
}

#[test]
fn refusals_tell_the_version_they_saw() {
    let mut model = opened(config());
    let refused = answer(
        &mut model,
        r#"{"op":"transfer","id":"1","debit":"p1","credit":"p2","asset":"EUR","amount":1001}"#,
    );
    assert_eq!(
        reply(&refused),
        r#"{"outcome":"refused","code":"insufficient_funds","account":"p1","balance":"1000","available":"1000","version":1}"#
    );
    let unknown = answer(
        &mut model,
        r#"{"op":"transfer","id":"2","debit":"nobody","credit":"p2","asset":"EUR","amount":1}"#,
    );
    assert_eq!(
        reply(&unknown),
        r#"{"outcome":"refused","code":"account_not_found","missing":"debit"}"#
    );
}

#[test]
fn an_account_that_is_not_there_is_named_and_the_player_is_not_blamed_for_a_house() {
    let config = |house: &str| {
        Config::new([("EUR", 2), ("JPY", 0)])
            .unwrap()
            .house_of("EUR", house)
    };
    let mut model = opened(config("hause").unwrap());
    let no = r#"{"outcome":"refused","code":"account_not_found","#;
    let p1 = r#""account":"p1","balance":"1000","available":"1000","version":1,"#;
    let j1 = r#""account":"j1","balance":"0","available":"0","version":0,"#;
    for (op, told) in [
        (
            r#""bet","round":"r","account":"p1","asset":"EUR","amount":1"#,
            format!(r#"{no}{p1}"missing":"house","house":"hause"}}"#),
        ),
        (
            r#""bet","round":"r","account":"j1","asset":"JPY","amount":1"#,
            format!(r#"{no}{j1}"missing":"house","house":null}}"#),
        ),
        (
            r#""bet","round":"r","account":"nobody","asset":"EUR","amount":1"#,
            format!(r#"{no}"missing":"debit"}}"#),
        ),
        (
            r#""transfer","debit":"p1","credit":"nobody","asset":"EUR","amount":1"#,
            format!(r#"{no}{p1}"missing":"credit"}}"#),
        ),
        (
            r#""freeze","account":"nobody""#,
            format!(r#"{no}"missing":"account"}}"#),
        ),
        (
            r#""transfer_group","legs":[{"debit":"p1","credit":"p2","asset":"EUR","amount":1},{"debit":"p1","credit":"nobody","asset":"EUR","amount":1}]"#,
            format!(r#"{no}{p1}"missing":"credit","leg":1}}"#),
        ),
    ] {
        let refused = answer(&mut model, &format!(r#"{{"op":{op},"id":"1"}}"#));
        assert_eq!(reply(&refused), told, "{op}");
    }
}

#[test]
fn holds_end_once_and_only_the_sweep_expires_them() {
    let authorize = |id: &str, hold: &str| {
        format!(
            r#"{{"op":"authorize","id":"{id}","hold":"{hold}","debit":"p1","credit":"p2","asset":"EUR","amount":100,"expires_at":"2000-01-01T00:00:00Z"}}"#
        )
    };
    let mut model = opened(config());
    run(
        &mut model,
        &[
            (r#"{"op":"capture","id":"e1","hold":"h1"}"#, "parked hold"),
            (&authorize("1", "h1"), "applied"),
            (&authorize("2", "h1"), "refused hold_exists"),
            (
                r#"{"op":"capture","id":"3","hold":"h1","amount":60,"final":false}"#,
                "applied",
            ),
            (
                r#"{"op":"capture","id":"4","hold":"h1","value":"0.405"}"#,
                "refused precision_loss",
            ),
            (
                r#"{"op":"capture","id":"5","hold":"h1","value":"0.41"}"#,
                "refused capture_exceeds_hold",
            ),
            (
                r#"{"op":"capture","id":"6","hold":"h1","amount":"-1"}"#,
                "refused amount_not_positive",
            ),
            (r#"{"op":"release","id":"7","hold":"h1"}"#, "applied"),
            (
                r#"{"op":"release","id":"8","hold":"h1"}"#,
                "ignored already_released",
            ),
            (&authorize("9", "h2"), "applied"),
            (&authorize("10", "h3"), "applied"),
            (r#"{"op":"capture","id":"11","hold":"h3"}"#, "applied"),
            (
                r#"{"op":"release","id":"12","hold":"h3"}"#,
                "refused hold_resolved",
            ),
        ],
    );
    let hold = |name| Key::derive(&[Part::Text(name)]).unwrap();
    let expire = Work::expire(&Expired::new(hold("h2"), "h2"));
    assert_eq!(
        expire.key(),
        Key::derive(&[Part::Uuid(hold("h2").into_bytes()), Part::Text("expire")]).unwrap()
    );
    assert_eq!(model.apply(&expire, false).unwrap(), Answer::applied());
    assert_eq!(
        model
            .apply(&Work::expire(&Expired::new(hold("h3"), "h3")), false)
            .unwrap()
            .code()
            .unwrap()
            .as_str(),
        "already_released"
    );
    run(
        &mut model,
        &[
            (
                r#"{"op":"capture","id":"13","hold":"h2"}"#,
                "refused hold_expired",
            ),
            (
                r#"{"op":"release","id":"14","hold":"h2"}"#,
                "refused hold_expired",
            ),
            (
                r#"{"op":"expire","id":"15","hold":"h2"}"#,
                "dead unknown_op",
            ),
        ],
    );
    let p1 = model.account("p1").unwrap();
    assert_eq!((p1.posted, p1.pending), (840, 0));
}

#[test]
fn what_was_given_back_in_part_is_not_reversed_as_a_whole() {
    run(
        &mut opened(config()),
        &[
            (
                r#"{"op":"reverse","id":"0","transfer":"t1"}"#,
                "parked transfer",
            ),
            (
                r#"{"op":"transfer","id":"t1","debit":"p1","credit":"p2","asset":"EUR","amount":100}"#,
                "applied",
            ),
            (
                r#"{"op":"refund","id":"1","capture":"t1","amount":40}"#,
                "applied",
            ),
            (
                r#"{"op":"reverse","id":"2","transfer":"t1"}"#,
                "refused not_reversible",
            ),
            (
                r#"{"op":"refund","id":"3","capture":"t1","amount":61}"#,
                "refused refund_exceeds_capture",
            ),
            (
                r#"{"op":"refund","id":"4","capture":"t1","value":"0.601"}"#,
                "refused precision_loss",
            ),
            (
                r#"{"op":"transfer","id":"t2","debit":"p1","credit":"p2","asset":"EUR","amount":100}"#,
                "applied",
            ),
            (r#"{"op":"reverse","id":"5","transfer":"t2"}"#, "applied"),
            (
                r#"{"op":"refund","id":"6","capture":"t2","amount":1}"#,
                "refused already_reversed",
            ),
            (
                r#"{"op":"reverse","id":"7","transfer":"5"}"#,
                "refused not_reversible",
            ),
            (
                r#"{"op":"refund","id":"8","capture":"o1","amount":1}"#,
                "refused transfer_not_found",
            ),
        ],
    );
}

#[test]
fn e116_a_rollback_after_settlement_is_refused_and_the_win_stands() {
    let mut model = opened(config());
    run(
        &mut model,
        &[
            (
                r#"{"op":"bet","id":"b2","round":"r","account":"p1","asset":"EUR","amount":500}"#,
                "applied",
            ),
            (
                r#"{"op":"win","id":"w2","round":"r","account":"p1","asset":"EUR","amount":900,"bet":"b2"}"#,
                "applied",
            ),
            (
                r#"{"op":"rollback","id":"k","bet":"b2"}"#,
                "refused bet_settled",
            ),
        ],
    );
    assert_eq!(model.account("p1").unwrap().posted, 1400);
}

#[test]
fn e111_a_late_event_never_takes_a_round_back() {
    run(
        &mut opened(config()),
        &[
            (
                r#"{"op":"bet","id":"b1","round":"r","account":"p1","asset":"EUR","amount":5}"#,
                "applied",
            ),
            (
                r#"{"op":"close_round","id":"1","round":"r","account":"p1"}"#,
                "applied",
            ),
            (
                r#"{"op":"close_round","id":"2","round":"r","account":"p1"}"#,
                "ignored already_closed",
            ),
            (
                r#"{"op":"cancel_round","id":"3","round":"r","account":"p1"}"#,
                "refused round_closed",
            ),
            (
                r#"{"op":"rollback","id":"4","bet":"b1"}"#,
                "refused bet_settled",
            ),
            (
                r#"{"op":"win","id":"5","round":"r","account":"p1","asset":"EUR","amount":1}"#,
                "dead late_win",
            ),
            (
                r#"{"op":"win","id":"6","round":"r","account":"p1","asset":"EUR","amount":"-1"}"#,
                "refused amount_not_positive",
            ),
        ],
    );
}

#[test]
fn a_cancelled_round_says_no_to_late_bets_by_what_it_found() {
    run(
        &mut opened(config()),
        &[
            (
                r#"{"op":"cancel_round","id":"1","round":"r1","account":"p1"}"#,
                "applied",
            ),
            (
                r#"{"op":"bet","id":"b1","round":"r1","account":"p1","asset":"EUR","amount":5}"#,
                "refused rolled_back_before",
            ),
            (
                r#"{"op":"cancel_round","id":"2","round":"r1","account":"p1"}"#,
                "ignored already_cancelled",
            ),
            (
                r#"{"op":"close_round","id":"3","round":"r1","account":"p1"}"#,
                "ignored already_cancelled",
            ),
            (
                r#"{"op":"bet","id":"b2","round":"r2","account":"p1","asset":"EUR","amount":5}"#,
                "applied",
            ),
            (
                r#"{"op":"cancel_round","id":"4","round":"r2","account":"p1"}"#,
                "applied",
            ),
            (
                r#"{"op":"bet","id":"b3","round":"r2","account":"p1","asset":"EUR","amount":5}"#,
                "refused round_closed",
            ),
            (
                r#"{"op":"win","id":"5","round":"r1","account":"p1","asset":"EUR","amount":5}"#,
                "dead late_win",
            ),
            (
                r#"{"op":"close_round","id":"6","round":"r3","account":"p1"}"#,
                "parked round",
            ),
        ],
    );
}

#[test]
fn a_cancel_that_one_of_two_houses_refuses_has_moved_nothing_and_tells_what_is_there() {
    let mut model = opened(config());
    run(
        &mut model,
        &[
            (
                r#"{"op":"open_account","id":"o6","account":"house-2","asset":"EUR","kind":"house","limit":"no_negative"}"#,
                "applied",
            ),
            (
                r#"{"op":"bet","id":"b1","round":"r","account":"p1","asset":"EUR","amount":5}"#,
                "applied",
            ),
        ],
    );
    let moved = config().house("house-2").unwrap();
    let bet = r#"{"op":"bet","id":"b2","round":"r","account":"p1","asset":"EUR","amount":7}"#;
    let bet = Work::parse(bet.as_bytes(), &moved);
    assert_eq!(model.apply(&bet, false).unwrap(), Answer::applied());
    let spent =
        r#"{"op":"transfer","id":"1","debit":"house-2","credit":"bank","asset":"EUR","amount":7}"#;
    assert_eq!(say(&mut model, spent), "applied");
    let refused = answer(
        &mut model,
        r#"{"op":"cancel_round","id":"2","round":"r","account":"p1"}"#,
    );
    assert_eq!(
        reply(&refused),
        r#"{"outcome":"refused","code":"insufficient_funds","account":"p1","balance":"988","available":"988","version":3}"#
    );
    assert_eq!(model.account("p1").unwrap().posted, 988);
}

#[test]
fn t19_a_nul_character_is_malformed_where_it_would_be_stored_and_nowhere_else() {
    for (op, field) in [
        (r#""op":"freeze","id":"\u0000","account":"p1""#, "id"),
        (
            r#""op":"open_account","id":"1","account":"a\u0000","asset":"EUR""#,
            "account",
        ),
        (
            r#""op":"transfer","id":"1","debit":"p1","credit":"p2","asset":"EUR","amount":1,"reason":"\u0000""#,
            "reason",
        ),
        (
            r#""op":"authorize","id":"1","hold":"\u0000","debit":"p1","credit":"p2","asset":"EUR","amount":1"#,
            "hold",
        ),
        (
            r#""op":"bet","id":"1","round":"\u0000","account":"p1","asset":"EUR","amount":1"#,
            "round",
        ),
        (
            r#""op":"bet","id":"1","round":"r","game":"\u0000","account":"p1","asset":"EUR","amount":1"#,
            "game",
        ),
    ] {
        assert_eq!(
            field_of(&format!("{{{op}}}")).as_deref(),
            Some(field),
            "{op}"
        );
    }
    run(
        &mut opened(config()),
        &[
            (
                r#"{"op":"freeze","id":"1","account":"p1","reason":"\u0000","round":"\u0000","trace":"\u0000"}"#,
                "applied",
            ),
            (r#"{"op":"dance","id":"\u0000"}"#, "dead unknown_op"),
            (
                r#"{"op":"freeze","id":"2","account":"\u0000"}"#,
                "refused account_not_found",
            ),
        ],
    );
}

#[test]
fn a_win_of_an_unknown_round_waits_once_its_accounts_are_seen() {
    let win = |account, asset| {
        format!(
            r#"{{"op":"win","id":"w","round":"none","account":"{account}","asset":"{asset}","amount":1}}"#
        )
    };
    let mut model = opened(config());
    for (account, asset, said) in [
        ("nobody", "EUR", "refused account_not_found"),
        ("j1", "EUR", "refused asset_mismatch"),
        ("p1", "EUR", "parked round"),
    ] {
        assert_eq!(say(&mut model, &win(account, asset)), said);
    }
}

#[test]
fn a_late_win_is_paid_where_the_policy_says_so() {
    let mut config = config();
    config.late_win = LateWin::Accept;
    run(
        &mut opened(config),
        &[
            (
                r#"{"op":"bet","id":"b1","round":"r","account":"p1","asset":"EUR","amount":5}"#,
                "applied",
            ),
            (
                r#"{"op":"close_round","id":"1","round":"r","account":"p1"}"#,
                "applied",
            ),
            (
                r#"{"op":"win","id":"2","round":"r","account":"p1","asset":"EUR","amount":7}"#,
                "applied",
            ),
            (
                r#"{"op":"win","id":"3","round":"r","account":"p1","asset":"EUR","amount":7,"bet":"b9"}"#,
                "refused bet_not_found",
            ),
        ],
    );
}

#[test]
fn an_unknown_account_waits_only_where_the_policy_says_so() {
    let mut config = config();
    config.park_for_account = true;
    let mut model = opened(config);
    let op = r#"{"op":"transfer","id":"1","debit":"p1","credit":"p7","asset":"EUR","amount":5}"#;
    assert_eq!(say(&mut model, op), "parked account");
    let work = Work::parse(op.as_bytes(), model.config());
    assert_eq!(
        model.apply(&work, true).unwrap().code().unwrap().as_str(),
        "account_not_found"
    );
    let opening = answer(
        &mut model,
        r#"{"op":"open_account","id":"2","account":"p7","asset":"EUR"}"#,
    );
    let p7 = Key::derive(&[Part::Text("p7")]).unwrap();
    assert_eq!(
        opening,
        Answer::Applied {
            reply: None,
            wakes: vec![p7]
        }
    );
}

#[test]
fn a_house_is_one_account_per_asset_and_of_that_asset() {
    let config = Config::new([("EUR", 2), ("JPY", 0)])
        .unwrap()
        .house_of("JPY", "house")
        .unwrap();
    run(
        &mut opened(config),
        &[
            (
                r#"{"op":"bet","id":"1","round":"r","account":"j1","asset":"JPY","amount":5}"#,
                "refused asset_mismatch",
            ),
            (
                r#"{"op":"bet","id":"2","round":"r","account":"p1","asset":"EUR","amount":5}"#,
                "refused account_not_found",
            ),
            (
                r#"{"op":"bet","id":"3","round":"r","account":"house","asset":"JPY","amount":5}"#,
                "refused self_transfer",
            ),
        ],
    );
}

#[test]
fn e121_times_are_instants_whatever_the_zone_says() {
    for at in [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00+01:00",
        "2026-10-25T03:30:00+02:00",
    ] {
        let op = format!(r#"{{"op":"freeze","id":"1","account":"p1","at":"{at}"}}"#);
        assert!(
            Work::parse(op.as_bytes(), &config()).operation().is_ok(),
            "{at}"
        );
    }
}

#[test]
fn e102_a_round_id_keeps_every_digit() {
    let mut model = opened(config());
    let bet = r#"{"op":"bet","id":"b1","round":"-9223372036854774281","account":"p1","asset":"EUR","value":0.1}"#;
    assert_eq!(say(&mut model, bet), "applied");
    let win = r#"{"op":"win","id":"w1","round":-9223372036854774281,"account":"p1","asset":"EUR","value":9999.99}"#;
    assert_eq!(say(&mut model, win), "applied");
    let round = model.rounds().next().unwrap();
    assert_eq!(
        (&*round.id, round.staked, round.paid),
        ("-9223372036854774281", 10, 999_999)
    );
}

#[test]
fn the_reference_page_is_made_of_the_closed_lists() {
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/wallet-codes.md"
    );
    if std::env::var_os("SEMEL_WRITE_REFERENCE").is_some() {
        std::fs::write(page, code::reference()).unwrap();
    }
    let stored = std::fs::read_to_string(page).expect("docs/reference/wallet-codes.md is there");
    assert_eq!(
        stored,
        code::reference(),
        "write it anew: SEMEL_WRITE_REFERENCE=1 cargo test -p semel-wallet --test codes"
    );
}
