//! Questions: what is shown, which key means which answer, which questions are open.
//!
//! Only what was shown can be allowed: of a long permission the beginning and the end are shown, and the keys that allow it do
//! nothing until `v` has shown the rest. Deliberately absent: kinds that a terminal cannot show, which are left to other clients.

use linger_protocol::event::{Event, EventBody, FileChange};
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::permission::Decision;
use linger_protocol::question::{
    Action, AlreadyAnswered, Answer, Blocks, PendingQuestion, Question as Asked, QuestionKind, QuestionOption, Subject,
};
use serde_json::Value;

use crate::connect::Client;
use crate::difference::Differences;
use crate::environment::short_path;
use crate::error::Failure;
use crate::idempotency::key;
use crate::render::decision_text;
use crate::render::style::Style;
use crate::terminal::{clean_exact, clean_exact_line, clean_line};

/// Lines of one argument that are shown unasked: its beginning, and its end.
const LINES: [usize; 2] = [30, 10];

/// Characters of a line; what is longer is several, so that none runs off the top of the screen.
const LINE: usize = 160;

/// Characters of a rule's pattern that are shown where the action stands above it.
const MAX_GRANT: usize = 40;

/// The keys of a choice's options; those beyond are answered by name.
const NUMBERS: &str = "123456789";

/// A question that can be answered here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    /// The question.
    pub(crate) id: QuestionId,
    body: Body,
    /// Whether a call or the turn waits for the answer.
    holds_up: bool,
    digest: String,
    /// Whether to show all of it.
    whole: bool,
    /// Whether an answer was sent from here and is not confirmed yet.
    answered: bool,
    /// Whether an answer can be written here, as a line.
    writes: bool,
    /// The rule that asked, if one did.
    rule: Option<String>,
    /// Whether it is the check of the turn, which no model asked for.
    is_check: bool,
    /// The changes of files that it is about, until they were looked at.
    changes: Vec<FileChange>,
    /// What the changes do; none unless all could be looked at.
    differences: Differences,
}

#[derive(Clone, Debug, PartialEq)]
enum Body {
    Permission(Action),
    Choice(String, Vec<QuestionOption>),
    /// The fields of a JSON Schema.
    Form(String, Value),
}

/// The effect of a key.
#[derive(Debug, PartialEq)]
pub(crate) enum Press {
    /// It means nothing now.
    Nothing,
    /// The question is to be shown again, whole.
    Show,
    /// The keys are to be explained.
    Help,
    /// All edits of the session are to run without asking: mode `edit`.
    Edits,
    /// The answer is to be written: a line for [`Questions::write`].
    Write,
    /// The reason why it is denied is to be written: a line for [`Questions::deny`].
    Reason,
    /// The rule that always allows it is to be written, in the place of this one: a line for [`Questions::always`].
    Rule(String),
    /// The first question has this answer.
    Answer(Answer),
}

impl Question {
    /// The question that an event asks, if it is of a kind that can be shown.
    pub(crate) fn of_event(event: &Event) -> Option<Self> {
        // Whose it is does not matter to the one who reads its events.
        let question = Self::of_pending(&PendingQuestion::of_event(&SessionId::default(), event)?)?;
        let EventBody::PermissionRequested { rule, changes, .. } = &event.body else { return Some(question) };
        Some(Self { rule: rule.clone(), changes: changes.clone(), ..question })
    }

    /// The question of a row of `question/list`, if it is of a kind that can be shown.
    pub(crate) fn of_pending(row: &PendingQuestion) -> Option<Self> {
        let Asked { kind, blocks, text, options, schema, permission, digest, .. } = &row.asked;
        let body = match (kind, permission) {
            (QuestionKind::Permission, Some(action)) => Body::Permission(action.clone()),
            (QuestionKind::Choice, _) => Body::Choice(text.clone(), options.clone()),
            (QuestionKind::Form, _) => Body::Form(text.clone(), schema.clone().unwrap_or_default()),
            _ => return None,
        };
        let (id, holds_up, digest) = (row.question.clone(), *blocks != Blocks::Nothing, digest.clone());
        let (rule, changes, differences) = (None, Vec::new(), Differences::default());
        let is_check = row.asked.about == Some(Subject::Check);
        Some(Self {
            id,
            body,
            holds_up,
            digest,
            whole: false,
            answered: false,
            writes: false,
            rule,
            is_check,
            changes,
            differences,
        })
    }

    /// The question, for people: all of it, or what of it is shown unasked.
    pub(crate) fn text(&self, style: &Style) -> String {
        let most = if self.whole { [usize::MAX, 0] } else { LINES };
        let mark = style.yellow("?");
        match &self.body {
            Body::Permission(action) => {
                let (tool, cwd) = (style.bold(&clean_line(&action.tool)), short_path(&action.cwd));
                let asked = self.rule.as_deref().map(|rule| format!(" (the rule {rule} asks)")).unwrap_or_default();
                let who = if self.is_check { "the check of this turn".to_owned() } else { tool };
                let mut out =
                    format!("{mark} {who} wants to run in {}{}\n", clean_line(&cwd), clean_exact_line(&asked));
                self.parts(action).iter().for_each(|part| indent(&mut out, part, most));
                out.push_str(&self.differences.text(style, &action.cwd, most));
                out
            }
            Body::Form(text, schema) => {
                let mut out = headed(&mark, text);
                for field in fields(schema) {
                    out.push_str(&format!("    {}\n", clean_line(&field)));
                }
                out
            }
            Body::Choice(text, options) => {
                let mut out = headed(&mark, text);
                let numbers = NUMBERS.chars().map(String::from).chain(std::iter::repeat("-".to_owned()));
                for (number, option) in numbers.zip(options) {
                    let (label, name) = (clean_line(&option.label), clean_line(&option.name));
                    let name = if label == name { String::new() } else { style.dim(&format!(" ({name})")) };
                    out.push_str(&format!("    {} {label}{name}\n", style.bold(&number)));
                }
                out
            }
        }
    }

    /// Whether something of it is not shown.
    pub(crate) fn is_cut(&self) -> bool {
        let is_long = |part: &String| lines(&clean_exact(part)).len() > LINES.iter().sum();
        match &self.body {
            Body::Permission(action) => {
                let long = self.differences.len() > LINES.iter().sum();
                !self.whole && (long || self.parts(action).iter().any(is_long))
            }
            Body::Choice(..) | Body::Form(..) => false,
        }
    }

    /// The line that says which keys there are: alone, or as a line of their own where one is being typed. As all
    /// lines of linger it begins in the first column, where nothing stands that others wrote.
    pub(crate) fn keys(&self, style: &Style, prompt: bool) -> String {
        let key = |key: &str| style.bold(key);
        let enter = if prompt { ", then Enter" } else { "" };
        match &self.body {
            Body::Permission(_) if self.is_cut() => {
                let [v, n, r] = ["v", "n", "r"].map(key);
                let reason = if self.writes { format!("  {r} no, and why") } else { String::new() };
                format!("{v} show all of it before you can allow it  {n} no{reason}{enter}\n")
            }
            Body::Permission(action) => {
                let grant =
                    if action.grant.is_empty() { String::new() } else { format!(" {}", short_grant(action, style)) };
                let [y, s, a, e, n, r, help] = ["y", "s", "a", "e", "n", "r", "?"].map(key);
                let edits = if self.is_edit() && self.writes { format!("  {e} all edits") } else { String::new() };
                let more = if self.writes { format!("  {r} no, and why  {help} help") } else { String::new() };
                format!("{y} once  {s} in this session  {a} always{grant}{edits}  {n} no{more}{enter}\n")
            }
            Body::Choice(_, options) if options.len() > NUMBERS.len() => {
                format!("a number answers{enter}; the others: {}\n", self.elsewhere())
            }
            Body::Choice(..) => format!("a number answers{enter}\n"),
            Body::Form(_, schema) if self.writes && only_text(schema).is_some() => {
                format!("{} write an answer  {} declines{enter}\n", key("w"), key("n"))
            }
            Body::Form(..) if self.writes => {
                format!("{} write the fields as {{…}}  {} declines{enter}\n", key("w"), key("n"))
            }
            Body::Form(..) => format!("{} declines{enter}; {}\n", key("n"), self.elsewhere()),
        }
    }

    /// What is said when something was typed that is no answer.
    pub(crate) fn unanswered(&self, style: &Style) -> String {
        let dropped = style.dim("not an answer, ignored: press one of these keys alone; Ctrl-C cancels the turn");
        format!("{dropped}\n{}", self.keys(style, false))
    }

    /// The keys that mean something: those that answer, or show the rest and deny.
    pub(crate) fn answers(&self) -> &'static str {
        match &self.body {
            Body::Permission(_) if self.is_cut() && self.writes => "vVnNxXrR?",
            Body::Permission(_) if self.is_cut() => "vVnN",
            Body::Permission(_) if self.is_edit() && self.writes => "yYsSaAeEnNxXrRvV?",
            Body::Permission(_) if self.writes => "yYsSaAnNxXrRvV?",
            Body::Permission(_) => "yYsSaAnN",
            Body::Choice(_, options) => NUMBERS.get(..options.len()).unwrap_or(NUMBERS),
            Body::Form(..) if self.writes => "wWnN",
            Body::Form(..) => "nN",
        }
    }

    /// What the keys of a permission do.
    pub(crate) fn help(&self) -> String {
        let grant = match &self.body {
            Body::Permission(action) if !action.grant.is_empty() => clean_exact_line(&action.grant),
            _ => "this call".to_owned(),
        };
        let mut lines = vec![
            "y  runs it, this once".to_owned(),
            format!("s  runs it, and whatever fits {grant} in this session"),
            format!("a  runs it, and writes the rule {grant} into the configuration"),
            "A  the same with a rule that you edit first".to_owned(),
        ];
        if self.is_edit() {
            lines.push("e  mode edit: changes of files in the workspace run without asking".to_owned());
        }
        lines.push("n  does not run it; r asks you why, and the model reads that".to_owned());
        lines.push(format!("x  does not run it, and writes a rule that refuses {grant} from now on"));
        lines.push("v  shows all of it; Esc stops the turn; Shift-Tab changes the mode".to_owned());
        lines.join("\n")
    }

    /// Whether a call or the turn waits for the answer.
    pub(crate) fn holds_up(&self) -> bool {
        self.holds_up
    }

    /// The rules that `always` would write, if it is a permission.
    fn grant(&self) -> String {
        match &self.body {
            Body::Permission(action) => action.grant.clone(),
            Body::Choice(..) | Body::Form(..) => String::new(),
        }
    }

    /// Whether it is about a change of a file by a tool of ours.
    fn is_edit(&self) -> bool {
        matches!(&self.body, Body::Permission(action) if matches!(action.tool.as_str(), "edit" | "write" | "apply_patch"))
    }

    /// What would run, less the texts that the difference shows.
    fn parts(&self, action: &Action) -> Vec<String> {
        match action.input.as_object() {
            Some(input) if self.is_edit() && !self.differences.is_empty() => {
                let shown = |name: &str| ["old", "new", "edits", "content", "input", "patch"].contains(&name);
                let rest =
                    input.iter().filter(|(name, _)| !shown(name)).map(|(name, value)| (name.clone(), value.clone()));
                parts(&Action { input: Value::Object(rest.collect()), ..action.clone() })
            }
            _ => parts(action),
        }
    }

    /// The name of the option that a key stands for.
    fn option(&self, key: char) -> Option<&str> {
        match &self.body {
            Body::Permission(_) => decision(key).map(Decision::name),
            Body::Choice(_, options) => {
                let option = options.get(NUMBERS.find(key)?)?;
                Some(&option.name)
            }
            Body::Form(..) => matches!(key, 'n' | 'N').then_some("decline"),
        }
    }

    /// How to answer it from elsewhere.
    pub(crate) fn elsewhere(&self) -> String {
        let first = if self.is_cut() { "`linger inbox` shows all of it; " } else { "" };
        format!("{first}answer with `linger answer {} {}`", self.id, self.words().join("|"))
    }

    /// The words that `linger answer` takes for it.
    pub(crate) fn words(&self) -> Vec<String> {
        match &self.body {
            Body::Permission(_) => WORDS.map(|(word, _)| word.to_owned()).to_vec(),
            Body::Choice(_, options) => options.iter().map(|option| clean_line(&option.name).into_owned()).collect(),
            Body::Form(_, schema) => {
                let accepts = if only_text(schema).is_some() { "'TEXT'" } else { "'{…}'" };
                vec![accepts.to_owned(), "decline".to_owned()]
            }
        }
    }

    /// The name of the option that a word of `linger answer` stands for.
    pub(crate) fn named(&self, word: &str) -> Option<String> {
        let name = match &self.body {
            Body::Permission(_) => {
                let decision = WORDS.iter().find(|(it, _)| *it == word).map(|(_, decision)| *decision);
                decision.or_else(|| Decision::answer(word)).map(Decision::name)
            }
            Body::Choice(_, options) => options.iter().map(|option| option.name.as_str()).find(|name| *name == word),
            Body::Form(..) if word == "decline" => Some("decline"),
            Body::Form(_, schema) => Self::accepts(schema, word).then_some("accept"),
        };
        name.map(str::to_owned)
    }

    /// Whether a word accepts a form: its fields in JSON, or the text of its only field.
    fn accepts(schema: &Value, word: &str) -> bool {
        word.trim_start().starts_with('{') || only_text(schema).is_some()
    }

    /// The fields of a form that a word of `linger answer` or a line accepts; nothing for what is no form.
    pub(crate) fn fields(&self, word: &str) -> Result<Option<Value>, Failure> {
        let Body::Form(_, schema) = &self.body else { return Ok(None) };
        match only_text(schema) {
            // A text that is the whole of the fields in JSON is taken for them.
            Some(name) if !is_fields(word, name) => {
                Ok(Some(Value::Object([(name.to_owned(), Value::from(word))].into_iter().collect())))
            }
            _ => {
                let value = serde_json::from_str(word);
                value.map(Some).map_err(|error| Failure::usage(format!("the fields are not JSON: {error}")))
            }
        }
    }

    /// The answer to exactly what was shown.
    pub(crate) fn answer(&self, answer: String, reason: Option<String>) -> Result<Answer, Failure> {
        let (question, digest) = (self.id.clone(), Some(self.digest.clone()));
        Ok(Answer { question, answer, value: None, reason, digest, rules: Vec::new(), key: Some(key()?) })
    }
}

/// The text of a question: its first line behind the mark, the rest below.
fn headed(mark: &str, text: &str) -> String {
    let (first, rest) = text.split_once('\n').unwrap_or((text, ""));
    let mut out = format!("{mark} {}\n", clean_exact(first));
    if !rest.is_empty() {
        indent(&mut out, rest, [usize::MAX, 0]);
    }
    out
}

/// The name of a form's field, if it has one and that is any text.
fn only_text(schema: &Value) -> Option<&str> {
    let fields = schema.get("properties")?.as_object()?;
    let (name, field) = fields.iter().next().filter(|_| fields.len() == 1)?;
    let is_text = field.get("type")?.as_str() == Some("string") && field.get("enum").is_none();
    is_text.then_some(name)
}

/// Whether `word` is the fields of a form with this one, in JSON.
fn is_fields(word: &str, name: &str) -> bool {
    let fields = serde_json::from_str::<serde_json::Map<String, Value>>(word);
    fields.is_ok_and(|fields| fields.len() == 1 && fields.contains_key(name))
}

/// The fields of a form, a line each: name, kind, what it is.
fn fields(schema: &Value) -> Vec<String> {
    let required = |name: &String| {
        let list = schema.get("required").and_then(Value::as_array);
        list.is_some_and(|list| list.iter().any(|it| it.as_str() == Some(name)))
    };
    let line = |(name, field): (&String, &Value)| {
        let text =
            |key: &str| field.get(key).and_then(Value::as_str).map(|text| format!(" {text}")).unwrap_or_default();
        let choices = field.get("enum").map(|choices| format!(" {choices}")).unwrap_or_default();
        let optional = if required(name) { "" } else { " (optional)" };
        format!("{name}:{}{choices}{optional}{}", text("type"), text("description"))
    };
    schema.get("properties").and_then(Value::as_object).into_iter().flatten().map(line).collect()
}

/// The words of `linger answer` for a permission.
const WORDS: [(&str, Decision); 5] = [
    ("allow", Decision::AllowOnce),
    ("session", Decision::AllowSession),
    ("always", Decision::AllowAlways),
    ("deny", Decision::RejectOnce),
    ("never", Decision::RejectAlways),
];

/// What would run: the action, and each argument but the command or the path that it is.
fn parts(Action { tool, action, input, .. }: &Action) -> Vec<String> {
    let said = |name: &str, value: &str| {
        let path = action.strip_prefix(tool).and_then(|rest| rest.strip_prefix(' '));
        value == action || (["path", "url"].contains(&name) && path == Some(value))
    };
    let argument = |(name, value): (&String, &Value)| match value.as_str() {
        Some(text) if said(name, text) => None,
        // Empty text and spaces are visible in quotes only.
        Some(text) if !text.trim().is_empty() => Some(format!("{name}: {text}")),
        _ => Some(format!("{name}: {value}")),
    };
    let arguments = input.as_object().into_iter().flatten().filter_map(argument);
    std::iter::once(action.clone()).chain(arguments).collect()
}

/// The rule that `always` would write; of a long action that stands above it word for word only the beginning.
fn short_grant(Action { grant, action, .. }: &Action, style: &Style) -> String {
    let parts = grant.split_once('(').and_then(|(tool, rest)| Some((tool, rest.strip_suffix(')')?)));
    // A `*` at the end widens the rule and is never hidden.
    let repeats = |pattern: &str| action.contains(pattern) && !pattern.ends_with('*');
    match parts {
        Some((tool, pattern)) if pattern.chars().count() > MAX_GRANT && repeats(pattern) => {
            let start: String = pattern.chars().take(MAX_GRANT).collect();
            format!("{}({}{})", clean_line(tool), clean_exact_line(&start), style.ellipsis())
        }
        _ => clean_exact_line(grant),
    }
}

/// The rules of a line: several stand with `and` between them, as they are shown.
fn split_rules(line: &str) -> Vec<String> {
    let mut rules: Vec<String> = line.split(") and ").map(|rule| format!("{})", rule.trim())).collect();
    if let Some(last) = rules.last_mut() {
        last.pop();
    }
    rules
}

/// The decision that a key stands for.
fn decision(key: char) -> Option<Decision> {
    Some(match key {
        'y' | 'Y' => Decision::AllowOnce,
        's' | 'S' => Decision::AllowSession,
        'a' | 'A' => Decision::AllowAlways,
        'n' | 'N' => Decision::RejectOnce,
        'x' | 'X' => Decision::RejectAlways,
        _ => return None,
    })
}

/// What is said of a question that cannot be shown here.
pub(crate) fn unknown_kind(row: &PendingQuestion) -> String {
    format!("question {} is of a kind that this linger cannot show: {}", row.question, clean_line(&row.asked.text))
}

/// An answer as people say it.
pub(crate) fn answer_text(answer: &str) -> String {
    Decision::answer(answer)
        .map_or_else(|| clean_line(answer).into_owned(), |decision| decision_text(decision).to_owned())
}

/// Which answer came first, from the `data` of the error `already answered`.
pub(crate) fn too_late(data: Option<Value>) -> String {
    match data.and_then(|data| serde_json::from_value::<AlreadyAnswered>(data).ok()) {
        Some(AlreadyAnswered { answer: Some(answer), by, .. }) => {
            format!("already answered: {} by {}", answer_text(&answer), clean_line(&by))
        }
        Some(AlreadyAnswered { answer: None, by, .. }) => format!("no longer asked: {}", clean_line(&by)),
        None => "already answered".to_owned(),
    }
}

/// The questions of a session that are open, the oldest first.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    open: Vec<Question>,
    /// Whether an answer can be written here.
    writes: bool,
}

impl Questions {
    /// None yet, where an answer can be written.
    pub(crate) fn with_lines() -> Self {
        Self { open: Vec::new(), writes: true }
    }

    /// Keeps up with an event; whether the open question is another now.
    pub(crate) fn event(&mut self, event: &Event) -> bool {
        let before = self.first().map(|question| question.id.clone());
        let writes = self.writes;
        self.open.extend(Question::of_event(event).map(|question| Question { writes, ..question }));
        match &event.body {
            EventBody::PermissionResolved { permission: question, .. }
            | EventBody::QuestionResolved { question, .. } => self.remove(question),
            EventBody::TurnFinished { .. } => self.open.retain(|question| !question.holds_up),
            _ => {}
        }
        before.as_ref() != self.first().map(|question| &question.id)
    }

    /// The one to be asked.
    pub(crate) fn first(&self) -> Option<&Question> {
        self.open.iter().find(|question| !question.answered)
    }

    /// Whether a call or the turn waits for an answer.
    pub(crate) fn hold_up(&self) -> bool {
        self.open.iter().any(|question| question.holds_up && !question.answered)
    }

    /// Whether a key means something for the first question.
    pub(crate) fn has(&self, key: char) -> bool {
        self.first().is_some_and(|question| question.answers().contains(key))
    }

    /// What this key comes to for the first question; one that is answered makes room for the next.
    pub(crate) fn press(&mut self, key: char) -> Result<Press, Failure> {
        let means = self.has(key);
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|_| means) else { return Ok(Press::Nothing) };
        match key {
            'w' | 'W' => return Ok(Press::Write),
            '?' => return Ok(Press::Help),
            'e' | 'E' => return Ok(Press::Edits),
            'r' | 'R' => return Ok(Press::Reason),
            'A' if question.writes => return Ok(Press::Rule(question.grant())),
            _ => {}
        }
        let Some(name) = question.option(key).map(str::to_owned) else {
            question.whole = true;
            return Ok(Press::Show);
        };
        let answer = question.answer(name, None)?;
        question.answered = true;
        Ok(Press::Answer(answer))
    }

    /// The answer that was written to the first question, if that is still `id`.
    pub(crate) fn write(&mut self, id: &QuestionId, line: &str) -> Result<Option<Answer>, Failure> {
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|question| question.id == *id) else { return Ok(None) };
        let answer = Answer { value: question.fields(line)?, ..question.answer("accept".to_owned(), None)? };
        question.answered = true;
        Ok(Some(answer))
    }

    /// Denies the first question for a reason that was written, if that is still `id`.
    pub(crate) fn deny(&mut self, id: &QuestionId, reason: &str) -> Result<Option<Answer>, Failure> {
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|question| question.id == *id) else { return Ok(None) };
        let answer = question.answer(Decision::RejectOnce.name().to_owned(), Some(reason.to_owned()))?;
        question.answered = true;
        Ok(Some(answer))
    }

    /// Allows the first question always, by rules that were written, if that is still `id`.
    pub(crate) fn always(&mut self, id: &QuestionId, rules: &str) -> Result<Option<Answer>, Failure> {
        let first = self.open.iter_mut().find(|question| !question.answered);
        let Some(question) = first.filter(|question| question.id == *id) else { return Ok(None) };
        let answer = question.answer(Decision::AllowAlways.name().to_owned(), None)?;
        question.answered = true;
        Ok(Some(Answer { rules: split_rules(rules), ..answer }))
    }

    /// Fetches what the change of the first question would do. What cannot be fetched is not shown; then its arguments are.
    pub(crate) fn look(&mut self, client: &mut Client) {
        let Some(question) = self.open.iter_mut().find(|question| !question.answered) else { return };
        if !question.is_edit() {
            return;
        }
        question.differences = Differences::of(client, std::mem::take(&mut question.changes));
    }

    /// The daemon did not take an answer: the question is still to be asked.
    pub(crate) fn again(&mut self, id: &QuestionId) {
        let refused = self.open.iter_mut().filter(|question| question.id == *id);
        refused.for_each(|question| question.answered = false);
    }

    /// Takes a question off, once it is answered.
    pub(crate) fn remove(&mut self, id: &QuestionId) {
        self.open.retain(|question| question.id != *id);
    }
}

fn indent(out: &mut String, text: &str, [head, tail]: [usize; 2]) {
    let text = clean_exact(text);
    let lines = lines(&text);
    let left_out = lines.len().saturating_sub(head.saturating_add(tail));
    for (at, (goes_on, line)) in lines.iter().enumerate() {
        if left_out > 0 && at == head {
            let lines = if left_out == 1 { "line is" } else { "lines are" };
            out.push_str(&format!("    ({left_out} {lines} not shown)\n"));
        }
        if left_out == 0 || at < head || at >= lines.len() - tail {
            let before = if *goes_on { "  ~ " } else { "    " };
            out.push_str(&format!("{before}{line}\n"));
        }
    }
}

/// The lines of a text; one that is long is several, all but the first of which go on with it.
fn lines(text: &str) -> Vec<(bool, &str)> {
    let mut lines = Vec::new();
    for mut line in text.lines() {
        let mut goes_on = false;
        while let Some((end, _)) = line.char_indices().nth(LINE) {
            let (piece, rest) = line.split_at(end);
            lines.push((goes_on, piece));
            (goes_on, line) = (true, rest);
        }
        lines.push((goes_on, line));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_without_end_is_as_many_as_it_takes() {
        let line = "ä".repeat(LINE);
        assert_eq!(lines(&line), [(false, line.as_str())]);
        let long = format!("{line}{line}b\n\nc");
        assert_eq!(lines(&long), [(false, line.as_str()), (true, &line), (true, "b"), (false, ""), (false, "c")]);
        let mut out = String::new();
        indent(&mut out, &format!("{line}b"), LINES);
        assert_eq!(out, format!("    {line}\n  ~ b\n"));
    }

    fn question(body: Body) -> Question {
        Question {
            id: "q1".into(),
            body,
            holds_up: true,
            digest: String::new(),
            whole: false,
            answered: false,
            writes: false,
            rule: None,
            is_check: false,
            changes: Vec::new(),
            differences: Differences::default(),
        }
    }

    fn action(tool: &str, action: &str, input: Value, grant: &str) -> Action {
        let (tool, action, grant) = (tool.to_owned(), action.to_owned(), grant.to_owned());
        Action { permission: "q1".into(), tool, action, input, cwd: "/w".into(), grant, grants: Vec::new() }
    }

    #[test]
    fn a_long_rule_is_cut_only_where_it_repeats_the_action() {
        let style = Style { color: false, unicode: true };
        let long = format!("echo {}", "x".repeat(60));
        let keys = |of: &str, grant: String| {
            question(Body::Permission(action("bash", of, Value::Null, &grant))).keys(&style, false)
        };
        let cut = format!(" always bash(echo {}…)  ", "x".repeat(35));
        assert!(keys(&long, format!("bash({long})")).contains(&cut));
        assert!(keys(&format!("{long} *"), format!("bash({long} *)")).contains(&format!("bash({long} *)")));
        assert!(keys("cargo test", "bash(cargo test)".to_owned()).contains("bash(cargo test)"));
        assert!(keys("ls", "bash(l\u{200b}s\u{301})".to_owned()).contains(" always bash(l<200b>s<0301>)"));
    }

    #[test]
    fn a_choice_is_answered_by_number_here_and_by_name_elsewhere() {
        let style = Style { color: false, unicode: true };
        let options = |n: usize| (1..=n).map(|n| QuestionOption::new(&format!("n{n}"), &format!("take {n}"))).collect();
        let choice = |n| question(Body::Choice("which?\nthere are some\u{1b}[31m".to_owned(), options(n)));
        let two = choice(2);
        assert_eq!(two.text(&style), "? which?\n    there are some␛[31m\n    1 take 1 (n1)\n    2 take 2 (n2)\n");
        assert_eq!((two.keys(&style, true).as_str(), two.answers()), ("a number answers, then Enter\n", "12"));
        assert_eq!(two.elsewhere(), "answer with `linger answer q1 n1|n2`");
        assert_eq!((two.named("n2"), two.named("2"), two.named("allow")), (Some("n2".to_owned()), None, None));
        let mut open = Questions { open: vec![choice(10)], ..Questions::default() };
        assert_eq!(open.first().unwrap().answers(), NUMBERS);
        assert!(open.first().unwrap().text(&style).ends_with("    9 take 9 (n9)\n    - take 10 (n10)\n"));
        assert_eq!(open.press('y').unwrap(), Press::Nothing);
        assert!(open.hold_up());
        assert!(matches!(open.press('9').unwrap(), Press::Answer(Answer { answer, .. }) if answer == "n9"));
        assert!(open.first().is_none() && !open.hold_up());
    }

    #[test]
    fn a_form_is_declined_by_a_key_and_answered_elsewhere() {
        let style = Style { color: false, unicode: true };
        let schema = serde_json::json!({
            "properties": { "name": { "type": "string", "description": "yours" }, "size": { "enum": ["s", "m"] } },
            "required": ["name"],
        });
        let form = question(Body::Form("who?".to_owned(), schema));
        let text = "? who?\n    name: string yours\n    size: [\"s\",\"m\"] (optional)\n";
        assert_eq!(form.text(&style), text);
        let keys = "n declines; answer with `linger answer q1 '{…}'|decline`\n";
        assert_eq!((form.keys(&style, false).as_str(), form.answers()), (keys, "nN"));
        assert_eq!((form.named("{}").as_deref(), form.named("x")), (Some("accept"), None));
        let mut open = Questions { open: vec![form], ..Questions::default() };
        assert!(matches!(open.press('n').unwrap(), Press::Answer(Answer { answer, .. }) if answer == "decline"));
    }

    #[test]
    fn the_one_text_of_a_form_is_written_as_it_is() {
        let style = Style { color: false, unicode: true };
        let schema = serde_json::json!({ "properties": { "answer": { "type": "string" } } });
        let form = question(Body::Form("why?".to_owned(), schema));
        assert_eq!(form.elsewhere(), "answer with `linger answer q1 'TEXT'|decline`");
        assert_eq!((form.named("so"), form.named("decline")), (Some("accept".to_owned()), Some("decline".to_owned())));
        let value = |word: &str| form.fields(word).unwrap().unwrap();
        for (word, text) in [("so", "so"), ("{x}", "{x}"), (r#"{"answer": "a"}"#, "a"), (r#"{"b": 1}"#, r#"{"b": 1}"#)]
        {
            assert_eq!(value(word), serde_json::json!({ "answer": text }), "{word}");
        }
        let mut open = Questions { open: vec![Question { writes: true, ..form }], writes: true };
        let keys = open.first().unwrap().keys(&style, true);
        assert_eq!(keys, "w write an answer  n declines, then Enter\n");
        assert_eq!(open.press('w').unwrap(), Press::Write);
        assert_eq!(open.write(&"q2".into(), "so").unwrap(), None);
        let answer = open.write(&"q1".into(), "so").unwrap().unwrap();
        assert_eq!((answer.answer.as_str(), answer.value), ("accept", Some(serde_json::json!({ "answer": "so" }))));
        assert!(open.first().is_none());
    }

    #[test]
    fn nothing_is_allowed_that_was_not_shown() {
        let style = Style { color: false, unicode: true };
        let command = |lines: usize| (1..=lines).map(|n| format!("echo {n}")).collect::<Vec<_>>().join("\n");
        let asked = |of: String| Questions {
            open: vec![question(Body::Permission(action("bash", &of, Value::Null, "")))],
            ..Questions::default()
        };
        let mut short = asked(command(40));
        assert!(short.first().unwrap().text(&style).contains("echo 20\n"));
        assert!(matches!(short.press('y').unwrap(), Press::Answer(answer) if answer.answer == "allow_once"));
        let mut long = asked(command(41));
        let text = |questions: &Questions| questions.first().unwrap().text(&style);
        assert!(text(&long).contains("    echo 30\n    (1 line is not shown)\n    echo 32\n"), "{}", text(&long));
        for key in ['y', 's', 'a', 'x'] {
            assert_eq!(long.press(key).unwrap(), Press::Nothing);
        }
        assert!(long.first().unwrap().keys(&style, false).starts_with("v show all"));
        assert_eq!(long.press('v').unwrap(), Press::Show);
        assert!(text(&long).contains("    echo 31\n") && !text(&long).contains("not shown"));
        assert!(matches!(long.press('y').unwrap(), Press::Answer(_)) && long.first().is_none());
        long.again(&"q1".into());
        assert!(long.first().is_some_and(|question| !question.is_cut()), "a refused answer loses no question");
        let mut denied = asked(command(400));
        assert!(matches!(denied.press('n').unwrap(), Press::Answer(answer) if answer.answer == "reject_once"));
    }

    #[test]
    fn every_argument_is_shown_that_the_action_is_not() {
        let check = |tool: &str, of: &str, input: Value, expect: &[&str]| {
            assert_eq!(parts(&action(tool, of, input, "")), expect);
        };
        let write = |content: &str| serde_json::json!({"path": "x.sh", "content": content});
        check("write", "write x.sh", write(""), &["write x.sh", "content: \"\""]);
        check("write", "write x.sh", write(" \n"), &["write x.sh", "content: \" \\n\""]);
        check("write", "write x.sh", write("sh"), &["write x.sh", "content: sh"]);
        check("write", "write x.sh", write("x.sh"), &["write x.sh", "content: x.sh"]);
        let edit = serde_json::json!({"new": "", "old": "x", "path": "x.sh"});
        check("edit", "edit x.sh", edit, &["edit x.sh", "new: \"\"", "old: x"]);
        let bash = serde_json::json!({"command": "sleep 30", "timeout": 30});
        check("bash", "sleep 30", bash, &["sleep 30", "timeout: 30"]);
        let elsewhere = serde_json::json!({"content": "true", "path": "/w/x.sh"});
        check("write", "write x.sh", elsewhere, &["write x.sh", "content: true", "path: /w/x.sh"]);
    }

    #[test]
    fn a_question_hides_no_character() {
        let mut out = String::new();
        indent(&mut out, "ls\rX\r # \u{e0041}\u{200b}\u{ad}\u{3164}\u{202e}ä\ttab\nnext", LINES);
        assert_eq!(out, "    ls␍X␍ # <e0041><200b><00ad><3164><202e>ä\ttab\n    next\n");
    }
}
