//! The wallet as the config asks for it, and its commands for people.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use semel::staged::{self, StagedHandler};
use semel_core::fingerprint::Policy;
use semel_core::rows::{Query, Register};
use semel_core::{Fault, Key, Pointer};
use semel_sqlite::Extension;
use semel_wallet::{
    Balance, Check, LegView, Line, OperationView, Reader, RoundView, Sweep, Wallet,
};
use serde::Serialize;

use crate::config::{self, Consumer, DuplicateReply, House, LateWin, Whole};
use crate::dialect::Dialect;
use crate::exit::{Exit, Failure};
use crate::out::{self, Style, Table};
use crate::{check, cli};

/// The wallet's tables, which live beside the ledger's.
pub(crate) fn tables(dialect: Dialect) -> Vec<Extension> {
    let migrations = match dialect {
        Dialect::Sqlite => semel_wallet::migrations::SQLITE,
        Dialect::Postgres => semel_wallet::migrations::POSTGRES,
    };
    vec![Extension {
        name: semel_wallet::migrations::PART,
        migrations,
    }]
}

/// The wallet's name for a dialect.
pub(crate) fn dialect(dialect: Dialect) -> semel_wallet::Dialect {
    match dialect {
        Dialect::Sqlite => semel_wallet::Dialect::Sqlite,
        Dialect::Postgres => semel_wallet::Dialect::Postgres,
    }
}

/// The handler of a consumer.
///
/// # Errors
///
/// Its settings are missing or cannot be right; `check` says so with the line.
pub(crate) fn handler(name: &str, consumer: &Consumer) -> Result<StagedHandler<Wallet>, Failure> {
    wallet(name, consumer).map(staged::handler)
}

/// What frees expired holds of a consumer.
///
/// # Errors
///
/// As [`handler`].
pub(crate) fn sweep<Q>(
    name: &str,
    consumer: &Consumer,
    query: Arc<Q>,
    kind: Dialect,
) -> Result<Sweep<Q>, Failure> {
    Ok(Sweep::new(
        Arc::new(wallet(name, consumer)?),
        query,
        dialect(kind),
    ))
}

/// The handler of a consumer that is about to run: its assets' scales are recorded, and compared with what was.
///
/// # Errors
///
/// As [`handler`]; an asset has another scale than its stored amounts; the ledger cannot be reached.
pub(crate) async fn registered(
    name: &str,
    consumer: &Consumer,
    ledger: &impl Register,
    kind: Dialect,
) -> Result<StagedHandler<Wallet>, Failure> {
    let wallet = wallet(name, consumer)?;
    let recorded = semel_wallet::register_scales(wallet.config(), ledger, dialect(kind))
        .await
        .map_err(|fault| Failure::fault(&format!("consumer `{name}`"), &fault))?;
    Ok(staged::handler(wallet.knowing(recorded)))
}

fn wallet(name: &str, consumer: &Consumer) -> Result<Wallet, Failure> {
    let Some(settings) = &consumer.wallet else {
        return Err(Failure::usage(format!(
            "`consumers.{name}` has no table [consumers.{name}.wallet]"
        )));
    };
    let rule = check::key_rule(consumer).map_err(|error| Failure::usage(error.to_string()))?;
    let wallet =
        Wallet::new(wallet_config(settings).map_err(|error| Failure::usage(error.to_string()))?)
            .keyed_by(rule);
    Ok(match &consumer.fingerprint {
        None => wallet,
        Some(fingerprint) => wallet.compared_by(policy(fingerprint)?),
    })
}

fn wallet_config(
    settings: &config::Wallet,
) -> Result<semel_wallet::Config, semel_wallet::BadConfig> {
    let assets = settings.assets.iter().map(|(code, scale)| (code, scale.0));
    let mut wallet = semel_wallet::Config::new(assets)?;
    match &settings.house {
        House::One(account) => wallet = wallet.house(account)?,
        House::Each(houses) => {
            for (asset, account) in houses {
                wallet = wallet.house_of(asset, account)?;
            }
        }
    }
    wallet.park_for_ms = settings.park_for_ms;
    wallet.park_for_account = settings.park_for_account;
    wallet.late_win = match settings.late_win {
        LateWin::Dead => semel_wallet::LateWin::Dead,
        LateWin::Accept => semel_wallet::LateWin::Accept,
    };
    wallet.duplicate_reply = match settings.duplicate_reply {
        DuplicateReply::Original => semel_wallet::DuplicateReply::Original,
        DuplicateReply::Current => semel_wallet::DuplicateReply::Current,
    };
    Ok(wallet)
}

/// The house accounts of a config that were not opened.
///
/// # Errors
///
/// The config has no such wallet, or the tables cannot be read.
pub(crate) async fn absent_houses(
    reader: &Reader<'_, impl Query>,
    settings: &config::Wallet,
) -> Result<BTreeSet<String>, Failure> {
    let wallet = wallet_config(settings).map_err(|error| Failure::usage(error.to_string()))?;
    let houses = wallet.assets().filter_map(|asset| asset.house.as_ref());
    let mut absent: BTreeSet<String> = houses.map(|(_, name)| name.to_string()).collect();
    for house in absent.clone() {
        let opened = reader.balance(&house).await;
        if opened.map_err(|fault| unreadable(&fault))?.is_some() {
            absent.remove(&house);
        }
    }
    Ok(absent)
}

fn policy(fingerprint: &config::Fingerprint) -> Result<Policy, Failure> {
    let pointers = |texts: &[String]| {
        texts
            .iter()
            .map(|text| Pointer::parse(text))
            .collect::<Result<_, _>>()
    };
    let policy = match fingerprint {
        config::Fingerprint::Whole(Whole::All) => Ok(Policy::All),
        config::Fingerprint::Whole(Whole::None) => Ok(Policy::None),
        config::Fingerprint::Except(except) => pointers(&except.except).map(Policy::Except),
        config::Fingerprint::Fields(fields) => pointers(&fields.fields).map(Policy::Fields),
    };
    policy.map_err(|error| Failure::usage(error.to_string()))
}

/// Which reply a copy of an applied operation is given, by consumer. The wallet's consumers derive it from their rows.
pub(crate) fn replies(loaded: &config::Loaded) -> BTreeMap<String, DuplicateReply> {
    let wallets = loaded
        .config
        .consumers
        .iter()
        .filter_map(|(name, consumer)| Some((name, consumer.wallet.as_ref()?)));
    wallets
        .map(|(name, wallet)| (name.clone(), wallet.duplicate_reply))
        .collect()
}

/// The reply of an applied operation, as its policy has it.
///
/// # Errors
///
/// The tables cannot be read.
pub(crate) async fn reply(
    ledger: &impl Query,
    kind: Dialect,
    policy: DuplicateReply,
    key: Key,
) -> Result<Option<Bytes>, Failure> {
    let reader = Reader::new(ledger, dialect(kind));
    let reply = match policy {
        DuplicateReply::Original => reader.reply(key).await,
        DuplicateReply::Current => reader.current_reply(key).await,
    };
    reply.map_err(|fault| unreadable(&fault))
}

/// What an applied operation did.
///
/// # Errors
///
/// The tables cannot be read.
pub(crate) async fn told(
    ledger: &impl Query,
    kind: Dialect,
    key: Key,
) -> Result<Option<OperationView>, Failure> {
    let told = Reader::new(ledger, dialect(kind)).told(key).await;
    told.map_err(|fault| unreadable(&fault))
}

/// A line for each movement of an operation, or one for an operation that moved nothing.
pub(crate) fn told_words(told: &OperationView) -> Vec<String> {
    let OperationView {
        op, account, legs, ..
    } = told;
    let nobody = || "nobody".to_owned();
    if legs.is_empty() {
        return vec![match account {
            Some(account) => format!("{op}, account {account}"),
            None => op.clone(),
        }];
    }
    let words = |leg: &LegView| {
        let LegView {
            debit,
            credit,
            amount,
            asset,
        } = leg;
        let asset = asset.as_deref().unwrap_or_default();
        let debit = debit.clone().unwrap_or_else(nobody);
        match credit {
            Some(credit) => {
                format!("{op}, {amount} {asset} in minor units from {debit} to {credit}")
            }
            None => format!("{op}, {amount} {asset} in minor units of {debit}"),
        }
    };
    legs.iter().map(words).collect()
}

fn unreadable(fault: &Fault) -> Failure {
    Failure::fault("the wallet's tables cannot be read", fault)
}

/// `semel balance`.
///
/// # Errors
///
/// The account was not opened, or the tables cannot be read.
pub(crate) async fn balance(
    reader: &Reader<'_, impl Query>,
    args: &cli::Balance,
    style: Style,
) -> Result<Exit, Failure> {
    let balance = reader
        .balance(&args.account)
        .await
        .map_err(|fault| unreadable(&fault))?;
    let balance = balance.ok_or_else(|| no_account(&args.account))?;
    match style {
        Style::Json => out::json(&balance)?,
        Style::Words => out::line(&balance_words(&balance))?,
    }
    Ok(Exit::Done)
}

fn no_account(account: &str) -> Failure {
    Failure::no(format!("there is no account `{account}`"))
}

fn balance_words(balance: &Balance) -> String {
    let Balance {
        account,
        asset,
        kind,
        status,
        posted,
        pending,
        available,
        version,
    } = balance;
    let account = out::value(account);
    format!(
        "{account}: {posted} {asset} in minor units, {pending} held, {available} available ({kind}, {status}, {version} entries)"
    )
}

/// `semel statement`.
///
/// # Errors
///
/// The account was not opened, or the tables cannot be read.
pub(crate) async fn statement(
    reader: &Reader<'_, impl Query>,
    args: &cli::Statement,
    style: Style,
) -> Result<Exit, Failure> {
    let us = |time: Option<jiff::Timestamp>| time.map(|time| time.as_microsecond());
    let mut printed = Ok(());
    let mut table = Table::new(&[
        "at",
        "op",
        "id",
        "transfer",
        "direction",
        "amount",
        "balance after",
        "version",
    ]);
    let mut each = |line: Line| {
        printed = match style {
            Style::Json => out::json(&line),
            Style::Words => table.add(line_cells(&line)),
        };
        printed.is_ok()
    };
    let opened = reader
        .statement(&args.account, us(args.from), us(args.to), &mut each)
        .await;
    if !opened.map_err(|fault| unreadable(&fault))? {
        return Err(no_account(&args.account));
    }
    printed?;
    table.print()?;
    Ok(Exit::Done)
}

fn line_cells(line: &Line) -> Vec<String> {
    let direction = match line.direction {
        semel_wallet::Direction::Debit => "debit",
        semel_wallet::Direction::Credit => "credit",
    };
    let (amount, after) = (line.amount.to_string(), line.balance_after.to_string());
    vec![
        line.at.clone(),
        line.op.clone(),
        line.id.clone(),
        line.transfer.to_string(),
        direction.to_owned(),
        amount,
        after,
        line.version.to_string(),
    ]
}

/// `semel round`.
///
/// # Errors
///
/// Nobody knows the round, or the tables cannot be read.
pub(crate) async fn round(
    reader: &Reader<'_, impl Query>,
    args: &cli::Round,
    style: Style,
) -> Result<Exit, Failure> {
    let rounds = reader
        .rounds(&args.round, args.account.as_deref())
        .await
        .map_err(|fault| unreadable(&fault))?;
    if rounds.is_empty() {
        let of = args
            .account
            .as_ref()
            .map_or(String::new(), |account| format!(" of `{account}`"));
        return Err(Failure::no(format!(
            "there is no round `{}`{of}",
            args.round
        )));
    }
    for round in &rounds {
        match style {
            Style::Json => out::json(round)?,
            Style::Words => out::text(&round_words(round))?,
        }
    }
    Ok(Exit::Done)
}

fn round_words(view: &RoundView) -> String {
    let RoundView {
        round,
        account,
        game,
        status,
        bets,
        wins,
        staked,
        paid,
    } = view;
    let game = game
        .as_ref()
        .map_or(String::new(), |game| format!(", game {}", out::value(game)));
    let (round, account) = (out::value(round), out::value(account));
    let mut words = format!("{round} of {account}: {status}, staked {staked}, paid {paid}{game}\n");
    for bet in bets {
        words.push_str(&format!(
            "  bet {}: {}, {}\n",
            out::value(&bet.id),
            bet.amount,
            bet.status
        ));
    }
    for win in wins {
        let of = win
            .bet
            .as_ref()
            .map_or(String::new(), |bet| format!(", of bet {}", out::value(bet)));
        let id = out::value(&win.id);
        words.push_str(&format!("  win {id}: {}{of}\n", win.amount));
    }
    words
}

/// What `audit --json` prints.
#[derive(Debug, Serialize)]
struct Audit {
    ok: bool,
    checks: Vec<Check>,
}

/// `semel audit`.
///
/// # Errors
///
/// The tables cannot be read. A violation is no failure of the command: the exit code tells it.
pub(crate) async fn audit(reader: &Reader<'_, impl Query>, style: Style) -> Result<Exit, Failure> {
    let checks = reader.audit().await.map_err(|fault| unreadable(&fault))?;
    let audit = Audit {
        ok: checks.iter().all(|check| check.ok),
        checks,
    };
    match style {
        Style::Json => out::json(&audit)?,
        Style::Words => audit
            .checks
            .iter()
            .try_for_each(|check| out::text(&check_words(check)))?,
    }
    Ok(if audit.ok { Exit::Done } else { Exit::No })
}

fn check_words(check: &Check) -> String {
    if check.ok {
        return format!("ok        {} ({} checked)\n", check.name, check.checked);
    }
    let examples = check
        .examples
        .iter()
        .map(|example| format!("            {}\n", out::value(example)));
    format!(
        "VIOLATED  {}: {} of {}\n{}",
        check.name,
        check.violations,
        check.checked,
        examples.collect::<String>()
    )
}
