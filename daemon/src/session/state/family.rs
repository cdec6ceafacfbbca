//! A family of a session's state: everyone reads it, only the fold changes it, and it is stored in a row of its own.
//!
//! A changed family has no checksum. So only changed ones are written with an append, and a change cannot be missed: the only way to
//! a mutable value marks it.

use std::ops::Deref;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// A part of the state that changes, and is stored, by itself.
#[derive(Clone, Debug, Default)]
pub struct Family<T> {
    value: T,
    /// The checksum of the stored row, 0 without one; absent while the value may differ from it.
    sum: Option<u32>,
}

impl<T> Deref for Family<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T: PartialEq> PartialEq for Family<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T> From<T> for Family<T> {
    fn from(value: T) -> Self {
        Self { value, sum: None }
    }
}

impl<T> Family<T> {
    /// The value alone.
    pub fn into_value(self) -> T {
        self.value
    }

    /// The value, to make a state up.
    #[cfg(test)]
    pub fn forge(&mut self) -> &mut T {
        self.edit()
    }

    /// The value, to change it; it is written with the next append.
    pub(super) fn edit(&mut self) -> &mut T {
        self.sum = None;
        &mut self.value
    }
}

impl<T: Clone + PartialEq> Family<T> {
    /// Changes the value; it is written with the next append if it differs then. For small values and rare events.
    pub(super) fn update(&mut self, change: impl FnOnce(&mut T)) {
        let before = self.value.clone();
        change(&mut self.value);
        if self.value != before {
            self.sum = None;
        }
    }
}

/// A value that a family can have.
pub trait FamilyValue: Serialize + DeserializeOwned + Default + PartialEq {}

impl<T: Serialize + DeserializeOwned + Default + PartialEq> FamilyValue for T {}

impl<T: FamilyValue> Family<T> {
    /// Loads the value from the text of its row; the default one has no row. `None` if the row is malformed.
    pub(super) fn from_row(row: Option<&str>) -> Option<Self> {
        let Some(row) = row else { return Some(Self { value: T::default(), sum: Some(0) }) };
        Some(Self { value: serde_json::from_str(row).ok()?, sum: Some(crc32fast::hash(row.as_bytes())) })
    }

    /// The text of its row if it was changed, or in any case with `all`; and the checksum. Fails if it cannot be encoded.
    pub(super) fn take_row(&mut self, all: bool) -> serde_json::Result<(Option<FamilyText>, u32)> {
        if let Some(sum) = self.sum.filter(|_| !all) {
            return Ok((None, sum));
        }
        let is_default = self.value == T::default();
        let text = (!is_default).then(|| serde_json::to_string(&self.value)).transpose()?;
        let sum = text.as_ref().map_or(0, |text| crc32fast::hash(text.as_bytes()));
        self.sum = Some(sum);
        Ok((Some(text), sum))
    }
}

/// The text of a family's row; `None` deletes the row.
pub(super) type FamilyText = Option<String>;
