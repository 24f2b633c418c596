use super::*;

fn read(payload: &str) -> Json<'_> {
    Json::parse(payload.as_bytes()).unwrap()
}

fn bind(policy: &Policy, payload: &str) -> (Fingerprint, FieldSums) {
    policy.bind(payload.as_bytes(), Some(&read(payload)))
}

fn pointers(texts: &[&str]) -> Pointers {
    texts
        .iter()
        .map(|text| Pointer::parse(text).unwrap())
        .collect()
}

/// The field by which `copy` differs from what was `first`.
fn differing(first: &str, copy: &str) -> Option<String> {
    let (_, sums) = bind(&Policy::All, first);
    Policy::All.differing(&FieldSums::from_bytes(sums.as_bytes()), &read(copy))
}

fn group(amounts: &[u32]) -> String {
    let legs: Vec<String> = amounts
        .iter()
        .map(|amount| format!(r#"{{"amount":{amount},"credit":"b","debit":"a"}}"#))
        .collect();
    format!(r#"{{"legs":[{}],"op":"transfer_group"}}"#, legs.join(","))
}

#[test]
fn order_and_white_space_make_no_clash_and_another_number_does() {
    let (first, _) = bind(&Policy::All, r#"{"a":1,"b":2}"#);
    assert_eq!(bind(&Policy::All, "{ \"b\":2,\n\"a\":1 }").0, first);
    // The stated rule: numbers are their source text.
    assert_ne!(bind(&Policy::All, r#"{"a":1.0,"b":2}"#).0, first);
}

#[test]
fn t72_ten_thousand_small_credits_have_ten_thousand_fingerprints() {
    let credit = |i: u32| format!(r#"{{"account":"A{:02}","amount":{}}}"#, i % 100, i / 100);
    let all: std::collections::BTreeSet<Fingerprint> = (0..10_000)
        .map(|i| bind(&Policy::All, &credit(i)).0)
        .collect();
    assert_eq!(all.len(), 10_000);
}

#[test]
fn the_changed_field_is_named() {
    assert_eq!(
        differing(r#"{"a":1,"b":2,"c":3}"#, r#"{"a":1,"b":5,"c":3}"#).as_deref(),
        Some("b")
    );
    assert_eq!(
        differing(r#"{"a":1}"#, r#"{"a":"1"}"#).as_deref(),
        Some("a")
    );
    assert_eq!(
        differing(r#"{"a":{"x":[1,{"y":2}]}}"#, r#"{"a":{"x":[1,{"y":3}]}}"#).as_deref(),
        Some("a/x/1/y")
    );
    assert_eq!(
        differing(r#"{"a":1}"#, r#"{"a":1,"b":2}"#).as_deref(),
        Some("b")
    );
    assert_eq!(
        differing(r#"{"a":[]}"#, r#"{"a":{}}"#).as_deref(),
        Some("a")
    );
}

#[test]
fn a_field_that_is_gone_names_nothing() {
    assert_eq!(differing(r#"{"a":1,"b":2}"#, r#"{"a":1}"#), None);
    assert_eq!(differing(r#"{"a":1}"#, r#"{"a":1}"#), None);
}

#[test]
fn values_that_changed_places_are_both_told() {
    assert_eq!(
        differing(
            r#"{"credit":"b","debit":"a"}"#,
            r#"{"credit":"a","debit":"b"}"#
        )
        .as_deref(),
        Some("credit")
    );
}

#[test]
fn a_leg_is_named_while_there_is_room_and_its_field_beyond() {
    let few = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
    let mut changed = few;
    changed[7] = 0;
    assert_eq!(bind(&Policy::All, &group(&few)).1.as_bytes().len(), 62);
    assert_eq!(
        differing(&group(&few), &group(&changed)).as_deref(),
        Some("legs/7/amount")
    );

    let many = [1; 12];
    let mut changed = many;
    changed[7] = 0;
    assert_eq!(bind(&Policy::All, &group(&many)).1.as_bytes().len(), 4);
    assert_eq!(
        differing(&group(&many), &group(&changed)).as_deref(),
        Some("legs")
    );
    // Sums of other levels: the row has top-level fields, the copy is small enough for leaves, and back.
    assert_eq!(
        differing(&group(&many), &group(&few)).as_deref(),
        Some("legs")
    );
    assert_eq!(
        differing(&group(&few), &group(&many)).as_deref(),
        Some("legs")
    );
}

#[test]
fn of_too_many_fields_the_first_are_kept() {
    let wide = |changed: usize| {
        let field = |i: usize| format!(r#""f{i:02}":{}"#, if i == changed { 1 } else { 0 });
        format!("{{{}}}", (0..40).map(field).collect::<Vec<_>>().join(","))
    };
    assert_eq!(
        bind(&Policy::All, &wide(99)).1.as_bytes().len(),
        2 * FIELD_SUMS_MAX
    );
    assert_eq!(differing(&wide(99), &wide(31)).as_deref(), Some("f31"));
    assert_eq!(differing(&wide(99), &wide(32)), None);
}

#[test]
fn excluded_values_make_no_clash() {
    let policy = Policy::Except(pointers(&["/trace_id", "/legs/1/sent_at"]));
    let body = |trace: u32, sent: u32, amount: u32| {
        format!(
            r#"{{"trace_id":{trace},"legs":[{{"sent_at":1}},{{"sent_at":{sent},"amount":{amount}}}]}}"#
        )
    };
    let (first, sums) = bind(&policy, &body(1, 2, 3));
    assert_eq!(bind(&policy, &body(8, 9, 3)), (first, sums));
    assert_ne!(bind(&policy, &body(1, 2, 4)).0, first);
    assert_eq!(
        policy.differing(&sums, &read(&body(8, 9, 4))).as_deref(),
        Some("legs/1/amount")
    );
}

#[test]
fn only_listed_values_are_bound() {
    let policy = Policy::Fields(pointers(&["/legs/0/amount", "/id"]));
    let body = |id: &str, amount: u32, note: u32| {
        format!(r#"{{"id":"{id}","legs":[{{"amount":{amount}}}],"note":{note}}}"#)
    };
    let (first, sums) = bind(&policy, &body("a", 1, 1));
    assert_eq!(bind(&policy, &body("a", 1, 2)), (first, sums));
    assert_eq!(
        policy.differing(&sums, &read(&body("a", 2, 1))).as_deref(),
        Some("legs/0/amount")
    );
    assert_eq!(
        policy.differing(&sums, &read(&body("b", 1, 1))).as_deref(),
        Some("id")
    );
}

#[test]
fn a_changed_policy_is_another_scheme() {
    let list = |texts: &[&str]| Policy::Except(pointers(texts)).scheme();
    assert_eq!(list(&["/a", "/b"]), list(&["/b", "/a", "/b"]));
    let schemes = [
        Policy::All.scheme(),
        Policy::None.scheme(),
        list(&["/a"]),
        list(&["/a", "/b"]),
        list(&["/a/b"]),
        Policy::Fields(pointers(&["/a"])).scheme(),
        Scheme::handlers_own(16),
    ];
    let different: std::collections::BTreeSet<Scheme> = schemes.into_iter().collect();
    assert_eq!(different.len(), schemes.len());
    assert!(schemes.iter().all(|scheme| scheme.0 >= 0));
}

#[test]
fn nothing_is_bound_under_the_policy_none() {
    assert_eq!(
        bind(&Policy::None, r#"{"a":1}"#),
        (Fingerprint::NONE, FieldSums::default())
    );
    assert_eq!(
        Policy::None.bind(b"x", None),
        (Fingerprint::NONE, FieldSums::default())
    );
}

#[test]
fn content_beyond_the_buffer_has_the_fingerprint_of_its_canonical_form() {
    for length in [0, 505, 506, 507, 510, 511, 512, 513, 1_024, 5_000] {
        let payload = format!(r#"{{"a":1,"text":"{}","z":[1,2,3]}}"#, "x".repeat(length));
        let form = crate::json::canonical(&read(&payload));
        assert_eq!(
            bind(&Policy::All, &payload).0,
            Fingerprint::of_bytes(&form),
            "{length}"
        );
    }
}

#[test]
fn normalised_content_is_bound_like_the_json_it_stands_for() {
    let key = crate::key::Key::from_bytes([0xAB; 16]);
    let limits = [i128::MIN, -1, 0, 7, i128::MAX];
    for integer in limits {
        let content = Content::new()
            .field("z", Canon::Null)
            .field("key", Canon::Key(key))
            .field("amount", Canon::Integer(integer))
            .field("final", Canon::Bool(true))
            .field("source", Canon::Number("1e3"))
            .field("text", Canon::Text("a\"\n"))
            .field("bytes", Canon::Bytes(&[0, 255]))
            .field(
                "legs",
                Canon::List(vec![
                    Content::new().field("b", Canon::Bool(false)),
                    Content::new(),
                ]),
            )
            .field_if("absent", None)
            .field("json", Canon::Json(&Json::Number("5")));
        let same = format!(
            r#"{{"amount":{integer},"bytes":"00ff","final":true,"json":5,"key":"{key}","legs":[{{"b":false}},{{}}],"source":1e3,"text":"a\"\n","z":null}}"#
        );
        assert_eq!(content.finish(), bind(&Policy::All, &same));
    }
}

#[test]
fn normalised_content_names_its_differing_field() {
    let leg = |amount| {
        Content::new()
            .field("amount", Canon::Integer(amount))
            .field("asset", Canon::Text("EUR"))
    };
    let content = |amount| {
        Content::new()
            .field("op", Canon::Text("transfer_group"))
            .field("legs", Canon::List(vec![leg(1), leg(amount)]))
    };
    let (_, sums) = content(2).finish();
    assert_eq!(
        content(3).differing(&sums).as_deref(),
        Some("legs/1/amount")
    );
    assert_eq!(content(2).differing(&sums), None);
}

#[test]
#[should_panic(expected = "a field of normalised content is given once")]
fn a_field_given_twice_is_a_bug() {
    let _ = Content::new()
        .field("b", Canon::Null)
        .field("a", Canon::Null)
        .field("a", Canon::Null);
}

#[test]
fn stored_sums_are_read_back_and_too_many_are_cut() {
    let (_, sums) = bind(&Policy::All, r#"{"a":1,"b":2}"#);
    assert_eq!(FieldSums::from_bytes(sums.as_bytes()), sums);
    assert_eq!(FieldSums::from_bytes(&[1; 999]).as_bytes(), [1; 64]);
    assert_eq!(FieldSums::from_bytes(&[1; 3]).as_bytes(), [1; 2]);
    assert_eq!(
        format!("{:?}", FieldSums::from_bytes(&[0xAB, 1])),
        "FieldSums(ab01)"
    );
}
