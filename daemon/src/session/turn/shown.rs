//! What was shown of one attempt at an answer, and what it has cost so far. Pure.

use std::collections::BTreeMap;

use linger_protocol::id::MessageId;
use linger_protocol::message::{ContentBlock, Usage};

use crate::provider::models::Prices;
use crate::session::log::{Piece, PieceKind};
use crate::session::recovery;

/// What was shown of an attempt.
#[derive(Default)]
pub(super) struct Shown {
    /// The message that it may become.
    pub(super) id: MessageId,
    /// One piece a block.
    pub(super) pieces: BTreeMap<u32, Piece>,
    /// Something of an answer came, if only the beginning of a call, of which nothing is shown.
    pub(super) begun: bool,
    /// What its provider has counted.
    pub(super) usage: Option<Usage>,
    /// What that costs.
    pub(super) prices: Prices,
}

impl Shown {
    /// Adds a piece, and gives it as it stands in its block.
    pub(super) fn push(&mut self, block: u32, kind: PieceKind, text: String) -> Piece {
        let stream = self.id.0.clone();
        let whole =
            self.pieces.entry(block).or_insert_with(|| Piece { stream, block, offset: 0, kind, text: String::new() });
        let piece = Piece { stream: whole.stream.clone(), block, offset: whole.end(), kind, text };
        whole.text.push_str(&piece.text);
        piece
    }

    /// Takes what the provider has counted so far; gives it when that is news.
    pub(super) fn count(&mut self, usage: Usage) -> Option<Usage> {
        let usage = self.priced(usage);
        if usage == self.usage {
            return None;
        }
        self.usage = usage;
        usage
    }

    /// What was counted, with its cost; nothing if nothing was. A provider that says itself what it cost knows best.
    pub(super) fn priced(&self, usage: Usage) -> Option<Usage> {
        let cost_micros = usage.cost_micros.or_else(|| self.prices.cost(&usage));
        (!usage.is_uncounted()).then_some(Usage { cost_micros, ..usage })
    }

    /// The blocks so far.
    pub(super) fn blocks(&self) -> Vec<ContentBlock> {
        recovery::blocks(self.pieces.values())
    }
}
