//! Resolving the provider and its key; the turn waits visibly for a missing one, and until a person has confirmed the provider.

use std::collections::BTreeSet;
use std::pin::pin;
use std::time::Duration;

use linger_protocol::event::{EventBody, Level, NoticeCode};

use super::{Turn, TurnEnded, rejected};
use crate::provider::catalogue::{KeySource, ResolveError, Resolved, Secrets};
use crate::provider::key_source::Lack;
use crate::provider::{Failure, FailureClass, Provider};

/// How long a key's source may take before clients see that the turn waits.
const SOON: Duration = Duration::from_secs(2);

/// Why no provider can be asked.
pub(super) enum Unresolved {
    Failed(Failure),
    /// The session's model changed; decide about the request again.
    OtherModel,
}

impl From<Failure> for Unresolved {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Turn {
    /// The provider with its key; waits visibly for a missing key, or for another model.
    pub(super) async fn resolve(&mut self) -> Result<Result<(Box<Resolved>, Provider), Unresolved>, TurnEnded> {
        let mut said = BTreeSet::new();
        let mut waits_for = NoticeCode::KeyMissing;
        loop {
            let mut changed = self.services.providers.changed.subscribe();
            let catalogue = match self.services.providers.catalogue() {
                Ok(catalogue) => catalogue,
                Err(error) => return Ok(Err(rejected(error.to_string()).into())),
            };
            let waited_for = std::mem::replace(&mut waits_for, NoticeCode::KeyMissing);
            let lack = match catalogue.resolve(&self.model) {
                Ok(resolved) => match self.key(&resolved, &mut said).await? {
                    None => return Ok(Err(Unresolved::OtherModel)),
                    Some(Ok(key)) => {
                        let resolved = resolved.limited(self.only.as_deref());
                        if !said.is_empty() {
                            let what = match waited_for {
                                NoticeCode::Unconfirmed => "the configuration is confirmed",
                                _ => "the key is there",
                            };
                            let text = format!("{what}; the turn resumes");
                            self.emit.notice(Level::Info, NoticeCode::KeyFound, text)?;
                        }
                        let provider = self.services.providers.open(&resolved, key);
                        return Ok(Ok((Box::new(resolved), provider)));
                    }
                    Some(Err(Lack::Failed(why))) => {
                        let message = format!("the key of {}: {why}", resolved.provider);
                        return Ok(Err(Failure { class: FailureClass::Auth, message, retry_after: None }.into()));
                    }
                    // The catalogue now names another source.
                    Some(Err(Lack::Gone)) => continue,
                    Some(Err(Lack::Waits(why))) => {
                        format!("the key of provider {}: {why}; `linger key list` tries again", resolved.provider)
                    }
                },
                Err(ResolveError::KeyMissing { provider, variable }) => {
                    let also = if catalogue.is_unconfirmed(&provider) {
                        "; a change of its configuration waits too: `linger config confirm` shows it"
                    } else {
                        ""
                    };
                    format!(
                        "the key of provider {provider}: connect a client that has {variable} set, or `linger key set {provider}`{also}"
                    )
                }
                Err(ResolveError::FieldMissing { provider, field, variable }) => {
                    format!("`{field}` of provider {provider}: connect a client that has {variable} set")
                }
                Err(ResolveError::Unconfirmed { provider }) => {
                    waits_for = NoticeCode::Unconfirmed;
                    format!(
                        "your confirmation of the provider {provider}: `linger config confirm` shows what waits, and asks"
                    )
                }
                Err(error) => return Ok(Err(rejected(error.to_string()).into())),
            };
            if self.is_another(!said.is_empty()).await? {
                return Ok(Err(Unresolved::OtherModel));
            }
            self.say_waiting(waits_for, &lack, &mut said)?;
            if changed.changed().await.is_err() {
                return Err(TurnEnded);
            }
        }
    }

    /// Whether the session's model changed.
    pub(super) async fn is_another(&mut self, waiting: bool) -> Result<bool, TurnEnded> {
        let (model, setup) = self.emit.model().await?;
        if model == self.model {
            self.setup = setup;
            return Ok(false);
        }
        if waiting {
            let text = format!("the turn continues with {model}");
            self.emit.notice(Level::Info, NoticeCode::KeyFound, text)?;
        }
        Ok(true)
    }

    /// The key of a provider; `None` if the session's model changed in the meantime. A slow source is named to clients, because it may
    /// wait for a user.
    async fn key(
        &mut self,
        resolved: &Resolved,
        said: &mut BTreeSet<String>,
    ) -> Result<Option<Result<Secrets, Lack>>, TurnEnded> {
        let providers = self.services.providers.clone();
        // A separate receiver, so that `resolve` sees the change too.
        let mut changed = providers.changed.subscribe();
        let mut key = pin!(providers.key_sources.obtain_all(resolved));
        let mut soon = pin!(tokio::time::sleep(SOON));
        let slow = resolved.sources().find(|source| matches!(source, KeySource::Command(_) | KeySource::Keychain(_)));
        let mut told = false;
        loop {
            tokio::select! {
                biased;
                key = &mut key => return Ok(if slow.is_some() && self.is_another(!said.is_empty()).await? { None } else { Some(key) }),
                change = changed.changed() => {
                    change.map_err(|_| TurnEnded)?;
                    if self.is_another(!said.is_empty()).await? {
                        return Ok(None);
                    }
                }
                () = &mut soon, if !told => {
                    told = true;
                    let source = match slow {
                        Some(KeySource::Command(command)) => format!("from `{command}`"),
                        _ => "from the keychain".to_owned(),
                    };
                    // The source is working on it, so nobody has to bring the key.
                    let text = format!("waiting for the key of provider {}, {source}", resolved.provider);
                    if said.insert(text.clone()) {
                        self.emit.notice(Level::Info, NoticeCode::KeyPending, text)?;
                    }
                }
            }
        }
    }

    /// Emits a notice of what the turn waits for; each text once.
    fn say_waiting(&self, code: NoticeCode, what: &str, said: &mut BTreeSet<String>) -> Result<(), TurnEnded> {
        if !said.insert(what.to_owned()) {
            return Ok(());
        }
        let text = format!("waiting for {what}");
        let notice = EventBody::notice(Level::Warning, code, text);
        self.emit.send(vec![notice], true, None)
    }
}
