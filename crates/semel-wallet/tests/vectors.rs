//! The published vectors against the model, under the law, delivered once and many times, in every cut.

#![allow(clippy::unwrap_used, reason = "a test may stop at the first surprise")]

mod support;

use semel_wallet::vectors::{Vector, vectors};
use support::{Consumer, InModel, Said};

fn consumer(vector: &Vector) -> Consumer<InModel> {
    Consumer::new(vector.config.clone(), InModel::new(vector.config.clone()))
}

/// Balances, the end of parked messages and the named field.
fn assert_end(vector: &Vector, consumer: &Consumer<InModel>, how: &str) {
    let name = &vector.name;
    for (account, balance) in &vector.balances {
        let found = consumer
            .book
            .model
            .account(account)
            .unwrap_or_else(|| panic!("{name}: {account} is not open"));
        assert_eq!(
            found.posted, *balance,
            "{name}: balance of {account}, {how}"
        );
    }
    for (id, end) in &vector.after_idle {
        assert_eq!(
            consumer.stands(id).as_ref(),
            Some(end),
            "{name}: end of {id}, {how}"
        );
    }
    if let Some(field) = &vector.reused_field {
        let clash = consumer
            .letters
            .iter()
            .find(|letter| letter.code.as_str() == "key_reused");
        assert_eq!(
            clash.and_then(|letter| letter.field.clone()).as_ref(),
            Some(field),
            "{name}: {how}"
        );
    }
}

#[test]
fn every_vector_ends_as_published_message_by_message() {
    for vector in vectors() {
        let mut consumer = consumer(&vector);
        let said: Vec<Said> = vector
            .ops
            .iter()
            .flat_map(|op| consumer.deliver(&[op]))
            .collect();
        assert_eq!(said, vector.expect, "{}", vector.name);
        assert_end(&vector, &consumer, "one by one");
    }
}

#[test]
fn every_vector_ends_as_published_however_it_is_cut_into_two_batches() {
    for vector in vectors() {
        for at in 0..=vector.ops.len() {
            let mut consumer = consumer(&vector);
            let mut said = consumer.deliver(&vector.ops[..at]);
            said.extend(consumer.deliver(&vector.ops[at..]));
            assert_eq!(said, vector.expect, "{} cut at {at}", vector.name);
            assert_end(&vector, &consumer, &format!("cut at {at}"));
        }
    }
}

#[test]
fn copies_change_nothing_one_to_five_of_each() {
    for vector in vectors() {
        for copies in 1..=5 {
            let mut consumer = consumer(&vector);
            let mut firsts = Vec::new();
            for op in &vector.ops {
                let said = consumer.deliver(&vec![op; copies]);
                assert_eq!(said.len(), copies);
                for copy in &said[1..] {
                    let expected = match said[0].0.as_str() {
                        "dead" | "parked" => said[0].clone(),
                        _ => ("duplicate".to_owned(), None),
                    };
                    assert_eq!(copy, &expected, "{} {op:?}", vector.name);
                }
                firsts.push(said[0].clone());
            }
            assert_eq!(
                firsts, vector.expect,
                "{} with {copies} copies",
                vector.name
            );
            assert_end(&vector, &consumer, &format!("{copies} copies"));
        }
    }
}

#[test]
fn a_second_reading_of_everything_changes_nothing() {
    for vector in vectors() {
        let mut consumer = consumer(&vector);
        consumer.deliver(&vector.ops);
        let entries = consumer.book.model.entries().len();
        let again = consumer.deliver(&vector.ops);
        for (first, second) in vector.expect.iter().zip(&again) {
            let held = !matches!(first.0.as_str(), "dead");
            let expected = if held {
                &("duplicate".to_owned(), None)
            } else {
                first
            };
            assert_eq!(second, expected, "{}", vector.name);
        }
        assert_eq!(
            consumer.book.model.entries().len(),
            entries,
            "{}",
            vector.name
        );
    }
}
