//! Permissions: what a call asks, who waits, and the one answer that wins.

use super::*;

/// How long the random part of a permission's identifier is, in letters of five bits. Two that are alike fail a write; among a
/// million in one database there are with a probability of one in two thousand.
const RANDOM: usize = 10;

impl Actor {
    pub(super) async fn answer(&mut self, answer: permission::Answer, by: String, asked: Asked) {
        let Some(Asked { key, reply }) = self.first_time(asked).await else { return };
        let asked = self.state.turn.iter().flat_map(|turn| &turn.calls).filter_map(|call| call.permission.as_ref());
        let Some(asked) = asked.into_iter().find(|asked| asked.id == answer.permission) else {
            // Its turn is over; what was decided then is in the store, or on its way there.
            if let Err(error) = self.barrier().await {
                return respond(reply, Err(error.into()));
            }
            let error = self.daemon.already_answered(&answer.permission).await;
            return respond(reply, Err(error));
        };
        if let Some(given) = asked.answer.as_ref().filter(|_| !fault::bug("I9")) {
            let error = already_answered(given.decision, &given.by, given.at);
            // A crash could take back a decision that is not on disk yet, and another would win.
            let written = self.flush();
            tokio::spawn(async move {
                let written = written.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
                respond(reply, Err(written.map_or_else(RpcError::from, |()| error)));
            });
            return;
        }
        if answer.digest.as_ref().is_some_and(|digest| *digest != asked.digest) {
            let error = RpcError::new(Code::WrongDigest, format!("permission {} is for {}", asked.id, asked.digest))
                .hint("look at it again with permission/list");
            return respond(reply, Err(error));
        }
        fault::point("actor.answered");
        let grant = asked.grant.clone();
        if matches!(answer.decision, Decision::AllowSession | Decision::AllowAlways)
            && !self.state.grants.contains(&grant)
            && (self.state.grants.len() >= MAX_GRANTS || grant.len() > MAX_GRANT)
        {
            let limit = format!("a session has room for {MAX_GRANTS} allowed rules of {MAX_GRANT} bytes");
            return respond(reply, Err(RpcError::new(Code::TooMuch, limit).hint("allow it once")));
        }
        let outcome = self.remember(key, &());
        let committed = self.decide(&answer.permission, answer.decision, by, answer.reason, outcome);
        let session = self.id.clone();
        let (daemon, root, cwd) = (self.daemon.clone(), self.workspace.root.clone(), self.state.cwd.clone());
        tokio::spawn(async move {
            let result = committed.await.unwrap_or_else(|_| Err(StoreError("the store has ended".into())));
            if result.is_ok() && answer.decision == Decision::AllowAlways {
                // Whoever asks after the answer finds the rule in force.
                daemon.grant_always(&session, &root, grant_everywhere(&grant, &cwd)).await;
            }
            respond(reply, result.map_err(RpcError::from));
        });
        self.review();
        // Who answers wants the turn to go on; without its model it stays offered.
        if matches!(self.phase, Phase::Idle) && self.daemon.usable(&self.state.model).is_ok() {
            drop(self.take_up_offered(Vec::new()));
        }
    }

    /// Writes a decision down and wakes the call that waits for it.
    pub(super) fn decide(
        &mut self,
        permission: &PermissionId,
        decision: Decision,
        by: String,
        reason: Option<String>,
        outcome: Option<Fold>,
    ) -> oneshot::Receiver<Result<(), StoreError>> {
        let decided = Fold::Decided { permission: permission.0.clone(), decision, by: by.clone(), at: clock::now() };
        let resolved = EventBody::PermissionResolved {
            permission: permission.clone(),
            decision,
            by: by.clone(),
            reason: reason.clone(),
        };
        let asked = self.state.turn.iter().flat_map(|turn| &turn.calls).filter_map(|call| call.permission.as_ref());
        let shown = asked.into_iter().find(|asked| asked.id == *permission).map(|asked| asked.digest.clone());
        let shown = shown.unwrap_or_default();
        let (done, committed) = oneshot::channel();
        let draft = self.in_turn(resolved);
        self.append(vec![draft], std::iter::once(decided).chain(outcome).collect(), true, Some(done));
        if let Phase::Running(running) = &mut self.phase
            && let Some(permit) = running.waiting.remove(permission)
        {
            fault::point("actor.permitted");
            // What was shown, not what would run: the call compares the two.
            let verdict = permitted(decision, &shown, &by, reason.as_deref());
            // The call may have been cancelled meanwhile.
            let _gone = permit.reply.send(verdict);
        }
        committed
    }

    /// Looks at the permissions that wait again: mode or rules have changed.
    pub(super) fn review(&mut self) {
        let Phase::Running(running) = &self.phase else { return };
        let again: Vec<(PermissionId, Verdict)> =
            running.waiting.iter().map(|(id, permit)| (id.clone(), self.verdict(permit))).collect();
        for (id, verdict) in again {
            match verdict {
                Verdict::Allow { by } => drop(self.decide(&id, Decision::AllowOnce, by, None, None)),
                Verdict::Deny { reason } => {
                    drop(self.decide(&id, Decision::RejectOnce, "the rules".to_owned(), Some(reason), None));
                }
                Verdict::Ask { .. } => {}
            }
        }
    }

    fn verdict(&self, permit: &Permit) -> Verdict {
        self.daemon.decide(&self.state, &permit.info(), &permit.sight, &self.workspace)
    }

    pub(super) fn permit(&mut self, permit: Permit) {
        let asked = self.state.turn.iter().flat_map(|turn| &turn.calls).find(|call| call.id == permit.call_id);
        let earlier = asked.and_then(|call| call.permission.clone());
        let verdict = match earlier {
            // Asked before the daemon was restarted; the digest is the one that was shown.
            Some(asked) => match asked.answer {
                Some(_) if elsewhere(&asked.grant, &permit) => Permitted::No(ELSEWHERE.to_owned()),
                Some(given) => permitted(given.decision, &asked.digest, &given.by, given.reason.as_deref()),
                None if elsewhere(&asked.grant, &permit) => {
                    self.wait_for(asked.id.clone(), permit);
                    let (by, reason) = ("the daemon".to_owned(), Some(ELSEWHERE.to_owned()));
                    return drop(self.decide(&asked.id, Decision::RejectOnce, by, reason, None));
                }
                None => {
                    self.daemon.asked.remember(&asked.id, &self.id);
                    self.wait_for(asked.id, permit);
                    // Mode and rules may have changed since it was asked.
                    return self.review();
                }
            },
            None => match self.verdict(&permit) {
                Verdict::Allow { .. } => Permitted::ForNow(permit.digest.clone()),
                Verdict::Deny { reason } => Permitted::No(reason),
                Verdict::Ask { rule } => return self.ask(permit, rule),
            },
        };
        // The call may have been cancelled meanwhile.
        let _gone = permit.reply.send(verdict);
    }

    pub(super) fn ask(&mut self, mut permit: Permit, rule: Option<String>) {
        if let Access::Read(path) | Access::Write(path) = &permit.access {
            // What is shown is the file that the call reaches, whatever its name is.
            if let Some(real) = permit.sight.reach().filter(|real| real != path) {
                permit.action = format!("{} (which is {})", permit.action, real.display());
            }
        }
        let id = PermissionId(format!("q{}", clock::random_word(RANDOM)));
        let grant = crate::permission::grant_for(&permit.info(), &permit.sight);
        let pending = Pending {
            permission: id.clone(),
            session: self.id.clone(),
            call: permit.call_id.clone(),
            tool: permit.tool.clone(),
            action: permit.action.clone(),
            input: Value::clone(&permit.input),
            cwd: self.state.cwd.clone(),
            digest: permit.digest.clone(),
            grant: grant.clone(),
            at: clock::now(),
        };
        let requested = EventBody::PermissionRequested {
            permission: id.clone(),
            call_id: permit.call_id.clone(),
            tool: permit.tool.clone(),
            action: permit.action.clone(),
            input: Value::clone(&permit.input),
            cwd: self.state.cwd.clone(),
            digest: permit.digest.clone(),
            rule,
            grant,
            options: vec![Decision::AllowOnce, Decision::AllowSession, Decision::AllowAlways, Decision::RejectOnce],
        };
        tracing::info!(target: "permission", session = %self.id, permission = %id, action = %permit.action, "asked");
        let draft = self.in_turn(requested);
        self.append(vec![draft], vec![Fold::Asked(pending)], true, None);
        self.daemon.asked.remember(&id, &self.id);
        self.wait_for(id, permit);
    }

    pub(super) fn wait_for(&mut self, id: PermissionId, permit: Permit) {
        if let Phase::Running(running) = &mut self.phase {
            running.waiting.insert(id, permit);
        }
    }
}

pub(super) fn permitted(decision: Decision, digest: &str, by: &str, reason: Option<&str>) -> Permitted {
    if decision.allows() {
        return Permitted::Yes(digest.to_owned());
    }
    Permitted::No(match reason {
        Some(reason) => format!("denied by {by}: {reason}"),
        None => format!("denied by {by}"),
    })
}

/// Why a call does not run that was asked about before the daemon was restarted.
const ELSEWHERE: &str = "the path leads to another file than when it was asked about";

/// Whether the call would not reach the file any more that was shown when it was asked about.
fn elsewhere(grant: &str, permit: &Permit) -> bool {
    permit.sight.reach().is_some() && crate::permission::grant_for(&permit.info(), &permit.sight) != grant
}

/// The error for whoever comes second.
pub fn already_answered(decision: Decision, by: &str, at: u64) -> RpcError {
    let given = permission::AlreadyAnswered { decision, by: by.to_owned(), at };
    RpcError { data: serde_json::to_value(given).ok(), ..RpcError::new(Code::AlreadyAnswered, "already answered") }
}
