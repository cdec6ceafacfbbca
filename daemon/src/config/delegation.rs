//! `[delegate]`: how far and how much sessions may delegate.

use serde::Deserialize;

/// How deep children may have children: with 2, those of a child of a session that a user started work, and have none.
const DEPTH: u32 = 2;

/// How many children of a session work at once: as many calls as run at once.
const AT_ONCE: u32 = 8;

/// How many children a turn may start: a model in circles should not fill the list.
const PER_TURN: u32 = 32;

/// The largest of each.
const MAX: Delegation = Delegation { depth: 8, at_once: 8, per_turn: 1000 };

/// The limits of delegating.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, expecting = "a table")]
pub struct Delegation {
    /// How far a child may be from a session that a user started; with 0 none delegates.
    pub depth: u32,
    /// How many children of a session work at once.
    pub at_once: u32,
    /// How many children a turn may start.
    pub per_turn: u32,
}

impl Default for Delegation {
    fn default() -> Self {
        Self { depth: DEPTH, at_once: AT_ONCE, per_turn: PER_TURN }
    }
}

impl Delegation {
    /// The key that is out of its bounds, and what is wrong with it.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        if self.depth > MAX.depth {
            return Err(("depth", format!("must be from 0 to {}", MAX.depth)));
        }
        if !(1..=MAX.at_once).contains(&self.at_once) {
            return Err(("at_once", format!("must be from 1 to {}", MAX.at_once)));
        }
        if !(1..=MAX.per_turn).contains(&self.per_turn) {
            return Err(("per_turn", format!("must be from 1 to {}", MAX.per_turn)));
        }
        Ok(())
    }
}
