//! Dispatch of commands and of the turn's messages: one call an arm.

use super::*;
use linger_protocol::event::ToolStarted;

/// Why commands in the background ended that a user cancelled.
pub(super) const ENDED_BY_USER: &str = "ended by the user";

impl Actor {
    /// Boxed: otherwise each idle session would hold room for the largest command.
    pub(super) fn boxed_command(&mut self, command: Command) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        Box::pin(self.command(command))
    }

    async fn command(&mut self, command: Command) {
        let command = match command {
            Command::Cancel(background, asked) if matches!(self.phase, Phase::Failed(..)) => {
                self.cancel_prepared();
                if background {
                    self.background.kill_all(ENDED_BY_USER);
                }
                return self.cancel_later(asked).await;
            }
            command if self.id.is_daemon() && !command.is_for_daemon() => return command.refuse(self.not_for_daemon()),
            command => command,
        };
        if self.may_resync() && !matches!(command, Command::Attach(..) | Command::Pause(_)) {
            self.resync(true).await;
        }
        match command {
            Command::Attach(after, person, env, reply) => respond(reply, self.attach(after, person, &env).await),
            Command::Environment(reply) => respond(reply, Ok(self.environment())),
            Command::CallBasis(reply) => respond(reply, Ok(self.call_basis())),
            Command::Pause(done) => self.pause(done).await,
            Command::Remove(force, asked) => self.remove(force, asked).await,
            Command::Prune(before, force, reply) => self.prune(before, force, reply).await,
            command if matches!(self.phase, Phase::Failed(..)) => {
                command.refuse(self.unwritten());
            }
            command if self.state.settings.binned_at.is_some() && !command.is_for_binned() => {
                command.refuse(self.binned())
            }
            Command::Bin(asked) => self.bin(asked).await,
            Command::Retain(before, reply) => self.retain(before, reply).await,
            Command::Restore(key, reply) => self.take_out(key, reply).await,
            Command::Unqueue(prompt, key, by, reply) => self.unqueue(prompt, key, by, reply).await,
            Command::Prompt(request) => self.prompt(request).await,
            Command::Compact(compact, key, by, reply) => self.compact(compact, key, by, reply).await,
            Command::Cancel(background, asked) => self.cancel(background, asked).await,
            Command::Continue(None, by, asked) => self.resume(&by, asked).await,
            Command::Continue(Some(draft), by, asked) => self.send_draft(draft, &by, asked).await,
            Command::Configured => self.configured(),
            Command::GoBack(back, key, by, reply) => self.go_back(*back, key, by, reply).await,
            Command::Uncompact(taken, head, key, by, reply) => self.uncompact(taken, head, key, by, reply).await,
            Command::Diff(asked, reply) => self.diff(asked, reply),
            Command::TidyWorktree(reply) => self.tidy_worktree(reply),
            Command::CommitWorktree(reply) => self.commit_worktree(reply),
            Command::WorktreeIs(status, reply) => self.note_worktree(status, reply),
            Command::Merge(work, key, by, reply) => self.merge(*work, key, by, reply).await,
            Command::Uncertain(after, reply) => respond(reply, self.uncertain(after).await),
            Command::Undo(undo, key, by, reply) => self.undo(undo, key, by, reply).await,
            Command::Redo(redo, key, by, reply) => self.redo(redo, key, by, reply).await,
            Command::Set(set, may_add, asked) => self.set(set, may_add, asked).await,
            Command::Answer(answer, by, limit, asked) => self.answer(answer, by, limit, asked).await,
            Command::Ask(question, reply) => self.ask_question(*question, reply),
            Command::AskAbout(about, stale, asked, reply) => {
                self.ask_about(about, &stale, asked.map(|asked| *asked), reply)
            }
            Command::Confirmed(confirmed, reply) => self.config_confirmed(confirmed, reply),
            Command::Child(report, reply) => self.child_report(*report, reply),
            Command::FilesChanged(root, text) => {
                if root.is_none_or(|root| root == self.workspace.rules_root()) {
                    let draft = self.in_turn(notice(Level::Info, NoticeCode::Files, &text));
                    self.append(vec![draft], Vec::new(), false, None);
                }
            }
            Command::Warn(code, text) => {
                let draft = self.in_turn(notice(Level::Warning, code, &text));
                self.append(vec![draft], Vec::new(), false, None);
            }
            // The mailbox takes these apart.
            command @ (Command::Enter(_) | Command::Placed(..)) => {
                command.refuse(RpcError::new(Code::Internal, "a place within a place"));
            }
        }
    }

    /// The error of a command that the daemon's own log does not take.
    pub(super) fn not_for_daemon(&self) -> RpcError {
        RpcError::new(Code::UnknownSession, format!("there is no session '{}'", self.id))
            .hint("it is the daemon's own log; you can only attach to it")
    }

    /// The error of a command that a session in the bin does not take.
    pub(super) fn binned(&self) -> RpcError {
        RpcError::new(Code::Binned, format!("session {} is in the bin", self.id))
            .hint(format!("`linger restore {}` takes it out", self.id))
    }

    pub(super) fn turn_message(&mut self, message: TurnMessage) {
        match message {
            TurnMessage::Emit(drafts, sync, done) => {
                let turn = self.state.turn.as_ref().map(|turn| turn.id.clone());
                let withdrawn = |draft: &Draft| self.withdrawn_before(&draft.body).into_iter().map(Draft::new);
                let drafts = drafts.into_iter().flat_map(|draft| withdrawn(&draft).chain([draft]));
                let drafts: Vec<Draft> = drafts.map(|draft| Draft { turn: turn.clone(), ..draft }).collect();
                let has_limit =
                    |draft: &Draft| matches!(draft.body, EventBody::ToolStarted(ToolStarted { limit: Some(_), .. }));
                let is_limited = drafts.iter().any(has_limit);
                self.append(drafts, Vec::new(), sync, done);
                if is_limited {
                    // The skill may limit the calls that wait for an answer.
                    self.review();
                }
            }
            TurnMessage::Message(body, reply, done) => {
                let draft = self.in_turn(*body);
                let named = self.append(vec![draft], Vec::new(), false, done).pop().and_then(message_of);
                // A stopped turn does not wait for the reply.
                if let Some(named) = named {
                    let _gone = reply.send(named);
                }
            }
            TurnMessage::Interrupted(model, times, reply) => {
                // As above.
                let _gone = reply.send(self.interrupted(model, times));
            }
            TurnMessage::Pieces(fragments, done) => self.pieces(fragments, done),
            TurnMessage::Counted(usage) => self.recorded.set_usage(usage.map(|usage| *usage)),
            TurnMessage::AskPermissions(requests) => self.request_permissions(requests),
            TurnMessage::Ask(question, reply) => self.ask_question(*question, reply),
            TurnMessage::Boundary(ending, reply) => self.boundary_or_hold(ending.map(|ending| *ending), reply),
            TurnMessage::Check(reply) => self.check(reply),
            TurnMessage::Runs(reply) => self.runs(reply),
            TurnMessage::Unreadable(why) => self.offer(&why),
            TurnMessage::Read(past) => self.recorded.set_past(past.up_to(self.state.progress.head)),
            TurnMessage::FallBack(resolved, why) => self.fall_back(&resolved, &why),
            TurnMessage::Delegate(call, background, reply) => self.delegate(&call, background, reply),
            TurnMessage::Child(update, reply) => self.child_updated(*update, reply),
            TurnMessage::Model(reply) => {
                // A stopped turn does not wait for the reply.
                let _gone = reply.send((self.state.settings.model.clone(), self.state.prefix.setup.clone()));
            }
        }
    }
}
