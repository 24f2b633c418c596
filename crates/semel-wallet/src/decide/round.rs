//! Rounds: bets and wins of one player, and what takes them back, in whatever order they arrive.
//!
//! A counter-operation before its original leaves a tombstone in the original's own row (TRAPS T35): a
//! rollback writes the bet's row as `void`, a cancel the round's. The late original finds it and moves
//! nothing.

use bytes::Bytes;
use semel_core::Key;

use super::{Case, Frozen, Stop, Wakes};
use crate::books::{Books, Change};
use crate::code::{Awaited, Death, Reason, Refusal};
use crate::config::LateWin;
use crate::op::{Leg, Move, Named, Verb, round_key};
use crate::row::{Bet, BetStatus, CHAIN_MAX, Round, RoundStatus, listed};

impl<B: Books + ?Sized> Case<'_, B> {
    pub(super) fn bet(
        &mut self,
        round: &Named,
        leg: &Leg,
        game: Option<&str>,
    ) -> Result<Wakes, Stop> {
        let player = leg.subject;
        let money = leg
            .money
            .as_ref()
            .map_err(|code| self.refused(*code, Some(player)))?;
        self.check(money, Frozen::Stops, player)?;
        let key = round_key(round.key, player);
        let known = self.books.round(key);
        match known.map(|row| row.status) {
            None | Some(RoundStatus::Open) => {}
            Some(RoundStatus::Completed | RoundStatus::Cancelled) => {
                return Err(self.refused(Refusal::RoundClosed, Some(player)));
            }
            Some(RoundStatus::Void) => {
                return Err(self.refused(Refusal::RolledBackBefore, Some(player)));
            }
        }
        match self.books.bet(self.key) {
            None => {}
            Some(row) if row.status == BetStatus::Void => {
                return Err(self.refused(Refusal::RolledBackBefore, Some(player)));
            }
            Some(_) => {
                let why = format!(
                    "the bet {} is there although its key is fresh: is this wallet shared by two consumers?",
                    self.key
                );
                return Err(Stop::Broken(why));
            }
        }
        let mut row = known
            .cloned()
            .unwrap_or_else(|| opened(key, round, player, game));
        let staked = row.staked.checked_add(money.amount);
        row.staked = staked.ok_or_else(|| self.refused(Refusal::Overflow, Some(player)))?;
        let wakes = if known.is_none() {
            vec![key]
        } else {
            Vec::new()
        };
        self.place(money, row, game);
        Ok(wakes)
    }

    fn place(&mut self, money: &Move, mut round: Round, game: Option<&str>) {
        let posted = self.post(self.key, money, 0);
        let mut bet = Bet {
            round: Some(round.key),
            account: Some(money.debit),
            house: Some(money.credit),
            amount: money.amount,
            ..void(self.key)
        };
        bet.status = BetStatus::Open;
        bet.ended_by = None;
        round.list(&mut bet);
        let row = self
            .row(Verb::Bet)
            .moved(money)
            .refers_to(round.key)
            .noted(game)
            .replied(Some(posted.debit));
        self.books.put_bet(bet);
        self.books.put_round(round);
        self.books.put_operation(row);
    }

    pub(super) fn win(&mut self, round: Key, leg: &Leg, bet: Option<Key>) -> Result<Wakes, Stop> {
        let player = leg.subject;
        let no = |code| self.refused(code, Some(player));
        let money = leg.money.as_ref().map_err(|code| no(*code))?;
        let key = round_key(round, player);
        let known = self.books.round(key);
        if let Some(row) = known
            && row.status != RoundStatus::Open
            && self.config.late_win == LateWin::Dead
        {
            let detail = format!(
                "the player's round {:?} is {}; pay by hand, or set `late_win`",
                row.id,
                row.status.as_str()
            );
            return Err(Self::dead(Death::LateWin, &detail, "round"));
        }
        let parties = self.parties(money, player)?;
        parties.may_take_part(money, Frozen::Pays).map_err(no)?;
        // Before the funds: the awaited bet may bring them.
        let absent = || self.absent(Awaited::Round, key, Refusal::RoundNotFound, Some(player));
        let mut row = known.ok_or_else(absent)?.clone();
        parties.have_funds(money).map_err(no)?;
        let won = bet.map(|bet| self.winning(bet, key, player)).transpose()?;
        let paid = row.paid.checked_add(money.amount);
        row.paid = paid.ok_or_else(|| no(Refusal::Overflow))?;
        let after = if money.amount == 0 {
            self.books.add(player, Change::default())
        } else {
            self.post(self.key, money, 0).credit
        };
        if let Some(won) = won.filter(|won| won.status == BetStatus::Open) {
            self.books.put_bet(Bet {
                status: BetStatus::Won,
                ended_by: Some(self.key),
                ..won
            });
        }
        self.books.put_round(row);
        let mut row = self
            .row(Verb::Win)
            .moved(money)
            .refers_to(key)
            .replied(Some(after));
        row.bet = bet;
        self.books.put_operation(row);
        Ok(Vec::new())
    }

    /// The bet that a win names: of this round, and not void.
    fn winning(&self, bet: Key, round: Key, player: Key) -> Result<Bet, Stop> {
        let alive = |row: &&Bet| {
            row.round == Some(round) && matches!(row.status, BetStatus::Open | BetStatus::Won)
        };
        let found = self.books.bet(bet).filter(alive).cloned();
        found.ok_or_else(|| self.refused(Refusal::BetNotFound, Some(player)))
    }

    pub(super) fn rollback(&mut self, bet: Key) -> Result<Wakes, Stop> {
        let Some(row) = self.books.bet(bet).cloned() else {
            self.books.put_bet(Bet {
                ended_by: Some(self.key),
                ..void(bet)
            });
            let row = self.row(Verb::Rollback).refers_to(bet).tombstone();
            self.books.put_operation(row);
            return Ok(Vec::new());
        };
        match row.status {
            BetStatus::Void | BetStatus::RolledBack => {
                return Err(self.ignored(Reason::AlreadyRolledBack, row.account));
            }
            BetStatus::Won => return Err(self.refused(Refusal::BetSettled, row.account)),
            BetStatus::Open => {}
        }
        let (Some(round), Some(player), Some(house)) = (row.round, row.account, row.house) else {
            return Err(Stop::Broken(format!(
                "the open bet {bet} names no round: run `semel audit`"
            )));
        };
        let Some(round) = self.books.round(round).cloned() else {
            return Err(Stop::Broken(format!(
                "the round of bet {bet} is missing: run `semel audit`"
            )));
        };
        if round.status != RoundStatus::Open {
            return Err(self.refused(Refusal::BetSettled, Some(player)));
        }
        let money = self.stake_back(house, player, row.amount)?;
        let posted = self.post(self.key, &money, 0);
        self.books.put_round(Round {
            staked: round.staked - row.amount,
            ..round
        });
        self.books.put_bet(Bet {
            status: BetStatus::RolledBack,
            ended_by: Some(self.key),
            ..row
        });
        let row = self
            .row(Verb::Rollback)
            .moved(&money)
            .refers_to(bet)
            .replied(Some(posted.credit));
        self.books.put_operation(row);
        Ok(Vec::new())
    }

    /// The checked way back of stakes.
    fn stake_back(&self, house: Key, player: Key, amount: i128) -> Result<Move, Stop> {
        let asset = self.account(player, Some(player))?.asset.clone();
        let money = Move {
            debit: house,
            credit: player,
            asset,
            amount,
        };
        self.check(&money, Frozen::Pays, player)?;
        Ok(money)
    }

    pub(super) fn close_round(&mut self, round: Key, player: Key) -> Result<Wakes, Stop> {
        let key = round_key(round, player);
        let absent = || self.absent(Awaited::Round, key, Refusal::RoundNotFound, Some(player));
        let row = self.books.round(key).ok_or_else(absent)?;
        match row.status {
            RoundStatus::Open => {}
            RoundStatus::Completed => return Err(self.ignored(Reason::AlreadyClosed, Some(player))),
            RoundStatus::Cancelled | RoundStatus::Void => {
                return Err(self.ignored(Reason::AlreadyCancelled, Some(player)));
            }
        }
        let row = Round {
            status: RoundStatus::Completed,
            ended_by: Some(self.key),
            ..row.clone()
        };
        self.books.put_round(row);
        let row = self
            .row(Verb::CloseRound)
            .refers_to(key)
            .replied(self.snapshot(player));
        self.books.put_operation(row);
        Ok(Vec::new())
    }

    pub(super) fn cancel_round(&mut self, round: &Named, player: Key) -> Result<Wakes, Stop> {
        let key = round_key(round.key, player);
        let Some(row) = self.books.round(key).cloned() else {
            let row = opened(key, round, player, None);
            self.books.put_round(Round {
                status: RoundStatus::Void,
                ended_by: Some(self.key),
                ..row
            });
            let row = self
                .row(Verb::CancelRound)
                .refers_to(key)
                .replied(self.snapshot(player))
                .tombstone();
            self.books.put_operation(row);
            return Ok(vec![key]);
        };
        match row.status {
            RoundStatus::Open => {}
            RoundStatus::Completed => return Err(self.refused(Refusal::RoundClosed, Some(player))),
            RoundStatus::Cancelled | RoundStatus::Void => {
                return Err(self.ignored(Reason::AlreadyCancelled, Some(player)));
            }
        }
        self.cancel(row, player)?;
        Ok(Vec::new())
    }

    /// Returns every open stake of the round, in one movement for each house account.
    fn cancel(&mut self, round: Round, player: Key) -> Result<(), Stop> {
        let open = self.open_bets(&round)?;
        let mut stakes: Vec<(Key, i128)> = Vec::new();
        for bet in &open {
            let Some(house) = bet.house else { continue };
            match stakes.iter_mut().find(|(known, _)| *known == house) {
                Some((_, sum)) => *sum += bet.amount,
                None => stakes.push((house, bet.amount)),
            }
        }
        let moves = self.stakes_back(stakes, player)?;
        let mut note = self
            .row(Verb::CancelRound)
            .refers_to(round.key)
            .replied(self.snapshot(player));
        let mut returned = 0;
        for money in moves {
            let posted = self.post(self.key, &money, 0);
            returned += money.amount;
            note = note
                .moved(&Move {
                    amount: returned,
                    ..money
                })
                .replied(Some(posted.credit));
        }
        for bet in open {
            self.books.put_bet(Bet {
                status: BetStatus::RolledBack,
                ended_by: Some(self.key),
                ..bet
            });
        }
        let staked = round.staked - returned;
        self.books.put_round(Round {
            status: RoundStatus::Cancelled,
            ended_by: Some(self.key),
            staked,
            ..round
        });
        self.books.put_operation(note);
        Ok(())
    }

    /// The checked ways back from every house, before any is posted: the reply of a refusal tells the player as it was.
    fn stakes_back(&self, stakes: Vec<(Key, i128)>, player: Key) -> Result<Vec<Move>, Stop> {
        let back = stakes
            .into_iter()
            .map(|(house, stake)| self.stake_back(house, player, stake));
        let moves: Vec<Move> = back.collect::<Result<_, _>>()?;
        // Each was checked on the balance as it is now; together they could leave its range.
        let after = self.books.account(player).map_or(Some(0), |account| {
            moves
                .iter()
                .try_fold(account.posted, |sum, money| sum.checked_add(money.amount))
        });
        match after {
            Some(_) => Ok(moves),
            None => Err(self.refused(Refusal::Overflow, Some(player))),
        }
    }

    fn open_bets(&self, round: &Round) -> Result<Vec<Bet>, Stop> {
        let links = self.links(round)?;
        let mut open: Vec<Bet> = Vec::new();
        let mut take = |key| {
            open.extend(
                self.books
                    .bet(key)
                    .filter(|bet| bet.status == BetStatus::Open)
                    .cloned(),
            )
        };
        listed(&round.recent).for_each(&mut take);
        for link in links {
            take(link.key);
            listed(&link.earlier).for_each(&mut take);
        }
        Ok(open)
    }

    /// The bets of a round that list others. Their chain was written by hand if it does not end.
    fn links(&self, round: &Round) -> Result<Vec<&Bet>, Stop> {
        let mut links = Vec::new();
        let mut chain = round.chain;
        while let Some(key) = chain {
            let link = self.books.bet(key).filter(|_| links.len() < CHAIN_MAX);
            let Some(link) = link else {
                return Err(Stop::Broken(format!(
                    "the lists of bets of round `{}` do not end: bet {key} is not there, or the lists are a circle",
                    round.id
                )));
            };
            links.push(link);
            chain = link.chain;
        }
        Ok(links)
    }
}

/// A bet that can never be placed.
fn void(key: Key) -> Bet {
    Bet {
        key,
        round: None,
        account: None,
        house: None,
        amount: 0,
        earlier: Bytes::new(),
        chain: None,
        status: BetStatus::Void,
        ended_by: None,
    }
}

/// A player's new round.
fn opened(key: Key, round: &Named, player: Key, game: Option<&str>) -> Round {
    Round {
        key,
        id: round.id.clone(),
        round: round.key,
        account: player,
        game: game.map(Box::from),
        status: RoundStatus::Open,
        staked: 0,
        paid: 0,
        recent: Bytes::new(),
        chain: None,
        ended_by: None,
    }
}
