//! The wallet's codes: closed lists in the order of their precedence, and the reference page made of them.
//!
//! A code is part of the contract with users. The order of the variants is the order in which codes are
//! looked for, as far as the rows they need are known (see [`PRECEDENCE`]).

use semel_core::Code;

/// One closed list of codes: the enum, its texts and its sentences are written once.
macro_rules! codes {
    ($(#[$about:meta])* $name:ident { $($variant:ident = $text:literal: $meaning:literal,)+ }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $(#[doc = $meaning] $variant,)+
        }

        impl $name {
            /// All of them, in order of precedence.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The text in JSON, tables and metrics.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),+ }
            }

            /// The code as the engine knows it.
            #[must_use]
            pub const fn code(self) -> Code {
                match self { $(Self::$variant => const { Code::new($text) }),+ }
            }

            /// When it is given.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self { $(Self::$variant => $meaning),+ }
            }
        }
    };
}

codes! {
    /// Why a message can never be handled: no key is held, the message is kept as a dead letter.
    Death {
        TooLarge = "too_large": "Larger than the consumer's limit; the first 64 KiB and the hash are kept.",
        Malformed = "malformed": "Not one JSON object, a name twice, or a field missing or ill-typed (named, as `legs/0/amount`).",
        NoKey = "no_key": "The `id` is missing, null, empty, over 512 bytes, or neither text nor number.",
        TooOld = "too_old": "Older than the horizon of a pruned ledger.",
        KeyReused = "key_reused": "The id was used before with other content; `field` names what differs. The `value` of a capture or refund counts as it is written (`5.0` is not `5.00`): its asset is only in the stored row.",
        UnknownOp = "unknown_op": "The wallet knows no such operation.",
        Poison = "poison": "The message breaks the handler, ends the process, or never succeeded within its attempts.",
        ParkedTooLong = "parked_too_long": "The time of a parked message was over, and its key could not be made any more: the key rules were changed while it waited.",
        LateWin = "late_win": "A win for a completed or cancelled round, while the policy is `late_win = \"dead\"`.",
    }
}

codes! {
    /// A definite business no: sticky, the same id gets the same answer for ever.
    Refusal {
        AssetUnknown = "asset_unknown": "The asset is not declared in the config.",
        AmountInvalid = "amount_invalid": "`amount` is no integer of minor units, or `value` no plain decimal.",
        PrecisionLoss = "precision_loss": "`value` is not exact in the asset's scale.",
        Overflow = "overflow": "The amount, or a balance after it, is beyond 128 bits.",
        AmountNotPositive = "amount_not_positive": "The amount is zero or negative (zero is fine for a win).",
        SelfTransfer = "self_transfer": "Debit and credit are one account.",
        AccountExists = "account_exists": "The account was opened before.",
        AccountNotFound = "account_not_found": "The account, or the house's account, was not opened.",
        AssetMismatch = "asset_mismatch": "The account holds another asset.",
        AccountClosed = "account_closed": "The account is closed.",
        AccountFrozen = "account_frozen": "The account is frozen: no debits by `transfer`, `authorize`, `bet`.",
        InsufficientFunds = "insufficient_funds": "The account may not go negative, and less than the amount is available.",
        NotEmpty = "not_empty": "Closing needs a balance of zero and no holds.",
        HoldExists = "hold_exists": "The hold was authorized before.",
        HoldNotFound = "hold_not_found": "No such hold came while the message was parked.",
        HoldExpired = "hold_expired": "The hold has expired and was released by the sweep.",
        HoldResolved = "hold_resolved": "The hold was captured finally or released; nothing remains.",
        CaptureExceedsHold = "capture_exceeds_hold": "More than what remains of the hold.",
        RefundExceedsCapture = "refund_exceeds_capture": "More than what was captured and not yet refunded.",
        TransferNotFound = "transfer_not_found": "No such transfer or capture came while the message was parked, or the id names another operation.",
        AlreadyReversed = "already_reversed": "The transfer was reversed before.",
        NotReversible = "not_reversible": "Not a plain transfer, or one that was refunded in part.",
        RoundNotFound = "round_not_found": "No such round of this account came while the message was parked.",
        BetNotFound = "bet_not_found": "The win names a bet that is not in this round, or was rolled back.",
        RoundClosed = "round_closed": "The round was closed, or cancelled when it had bets.",
        BetSettled = "bet_settled": "Rollback after a win named the bet or its round was completed.",
        RolledBackBefore = "rolled_back_before": "The bet arrived after its rollback, or after its round was cancelled.",
    }
}

codes! {
    /// The state says it is so already, by another operation.
    Reason {
        AlreadyFrozen = "already_frozen": "The account is frozen.",
        AlreadyUnfrozen = "already_unfrozen": "The account is not frozen.",
        AlreadyClosed = "already_closed": "The account or round is closed.",
        AlreadyCancelled = "already_cancelled": "The round is cancelled.",
        AlreadyRolledBack = "already_rolled_back": "The bet is void.",
        AlreadyReleased = "already_released": "The hold is released.",
    }
}

codes! {
    /// What a parked message waits for. After its deadline it is refused with the not-found code.
    Awaited {
        Account = "account": "An account that was not opened yet (only with `park_for_account = true`).",
        Hold = "hold": "A hold that was not authorized yet.",
        Transfer = "transfer": "A transfer or capture that was not applied yet.",
        Round = "round": "A round of this account without a bet yet.",
    }
}

/// How precedence works, in the words of the reference page.
pub const PRECEDENCE: &str = "\
The first that fits is the answer:

1. before the claim: `too_large`, `malformed` (not one JSON object, a name twice), `no_key`, `too_old`;
2. by the claim: a duplicate, `parked` while the first copy is, `key_reused`;
3. by the wallet, for fresh messages only: `unknown_op`, `malformed` (a field), then what the message alone
   shows, in the order of the lists below; then what stored rows show, as they are read: the row that the
   operation refers to (hold, transfer, capture, bet), then the accounts, each again in the order of the lists. A
   bet knows all its rows at once: accounts first, then its round, then itself. A win: a round that has ended
   (`late_win`), the accounts, an unknown round (`parked`), the funds, its bet.

The legs of a group are judged one after the other; the reply of a refusal names the `leg`.
";

/// The reference page of codes, `docs/reference/wallet-codes.md`.
#[must_use]
pub fn reference() -> String {
    let mut page = String::from(
        "# Codes of the wallet\n\nMade from the program's own lists; a test compares.\n\n",
    );
    page.push_str("## Precedence\n\n");
    page.push_str(PRECEDENCE);
    let mut table = |title: &str, rows: &mut dyn Iterator<Item = (&'static str, &'static str)>| {
        page.push_str(&format!("\n## {title}\n\n| code | when |\n|---|---|\n"));
        rows.for_each(|(code, meaning)| page.push_str(&format!("| `{code}` | {meaning} |\n")));
    };
    table(
        "dead",
        &mut Death::ALL.iter().map(|c| (c.as_str(), c.meaning())),
    );
    table(
        "refused",
        &mut Refusal::ALL.iter().map(|c| (c.as_str(), c.meaning())),
    );
    table(
        "ignored",
        &mut Reason::ALL.iter().map(|c| (c.as_str(), c.meaning())),
    );
    table(
        "parked: awaiting",
        &mut Awaited::ALL.iter().map(|c| (c.as_str(), c.meaning())),
    );
    page
}
