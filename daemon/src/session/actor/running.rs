//! The running turn, as its actor sees it: its task, its messages, and its calls that wait for the actor.

use super::*;

/// A turn whose task runs, as its actor holds it.
pub(super) struct RunningTurn {
    task: JoinHandle<()>,
    messages: mpsc::UnboundedReceiver<Box<TurnMessage>>,
    /// Ends its wait for a provider that cannot answer.
    nudge: Arc<Notify>,
    /// Calls that wait for a decision.
    waiting: HashMap<QuestionId, PermissionRequest>,
    /// Calls that make a child which is not recorded yet.
    delegating: HashSet<CallId>,
    /// The boundary that a question holds back.
    held: Option<(Option<TurnEnding>, oneshot::Sender<NextStep>)>,
}

impl RunningTurn {
    /// A turn that nothing waits for yet.
    pub(super) fn new(
        task: JoinHandle<()>,
        messages: mpsc::UnboundedReceiver<Box<TurnMessage>>,
        nudge: Arc<Notify>,
    ) -> Self {
        Self { task, messages, nudge, waiting: HashMap::new(), delegating: HashSet::new(), held: None }
    }

    /// The next message of the turn; `None` once its task has ended.
    pub(super) async fn next(&mut self) -> Option<Box<TurnMessage>> {
        self.messages.recv().await
    }

    /// A message that has arrived already.
    pub(super) fn try_next(&mut self) -> Option<Box<TurnMessage>> {
        self.messages.try_recv().ok()
    }

    /// Stops the task, and gives it to be awaited.
    pub(super) fn abort(self) -> JoinHandle<()> {
        self.task.abort();
        self.task
    }

    /// Ends its wait for a provider that cannot answer.
    pub(super) fn nudge(&self) {
        self.nudge.notify_one();
    }

    /// A call waits for the decision on this question.
    pub(super) fn wait_for(&mut self, question: QuestionId, request: PermissionRequest) {
        self.waiting.insert(question, request);
    }

    /// The call that waits for this decision.
    pub(super) fn request(&self, question: &QuestionId) -> Option<&PermissionRequest> {
        self.waiting.get(question)
    }

    /// Takes the call that waits for this decision.
    pub(super) fn take_request(&mut self, question: &QuestionId) -> Option<PermissionRequest> {
        self.waiting.remove(question)
    }

    /// The calls that wait for a decision.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&QuestionId, &PermissionRequest)> {
        self.waiting.iter()
    }

    /// Directories were added: the targets of waiting calls may lie in them.
    pub(super) fn set_added(&mut self, workspace: &Workspace) {
        for request in self.waiting.values_mut() {
            request.resolved.set_added(&workspace.added);
        }
    }

    /// Holds back the boundary of a step.
    pub(super) fn hold(&mut self, ending: Option<TurnEnding>, reply: oneshot::Sender<NextStep>) {
        self.held = Some((ending, reply));
    }

    /// Takes the boundary that was held back.
    pub(super) fn take_held(&mut self) -> Option<(Option<TurnEnding>, oneshot::Sender<NextStep>)> {
        self.held.take()
    }

    /// A call makes a child.
    pub(super) fn begin_delegating(&mut self, call: CallId) {
        self.delegating.insert(call);
    }

    /// The child of a call is recorded.
    pub(super) fn end_delegating(&mut self, call: &CallId) {
        self.delegating.remove(call);
    }

    /// The number of calls that make a child which is not recorded yet.
    pub(super) fn delegating(&self) -> usize {
        self.delegating.len()
    }
}

impl Actor {
    /// The running turn, if one runs.
    pub(super) fn running(&self) -> Option<&RunningTurn> {
        if let Phase::Running(running) = &self.phase { Some(running) } else { None }
    }

    /// The same, to change it.
    pub(super) fn running_mut(&mut self) -> Option<&mut RunningTurn> {
        if let Phase::Running(running) = &mut self.phase { Some(running) } else { None }
    }
}
