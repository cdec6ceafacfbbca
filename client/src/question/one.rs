//! One question: how it is shown, and which key or word means which answer.

use linger_protocol::event::{Event, EventBody, FileChange, PermissionRequested};
use linger_protocol::id::{QuestionId, SessionId};
use linger_protocol::permission::Decision;
use linger_protocol::question::{
    Action, AlreadyAnswered, Answer, Blocks, PendingQuestion, Position, Question as AskedQuestion, QuestionKind,
    QuestionOption, Subject,
};
use serde_json::Value;

use super::form::{fields, is_fields, only_text};
use super::shown::{LINES, heading, indent, lines, parts, short_grant};
use crate::difference::Differences;
use crate::environment::short_path;
use crate::error::Failure;
use crate::idempotency::key;
use crate::render::decision_text;
use crate::render::style::Style;
use crate::terminal::{clean_exact, clean_exact_line, clean_line};

/// The keys of a choice's options; those beyond are answered by name.
pub(super) const NUMBERS: &str = "123456789";

/// A question that can be answered here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Question {
    pub(crate) id: QuestionId,
    pub(super) body: Body,
    /// Whether a call or the turn waits for the answer.
    pub(super) holds_up: bool,
    pub(super) digest: String,
    /// Whether to show all of it.
    pub(super) whole: bool,
    /// Whether an answer was sent from here and is not confirmed yet.
    pub(super) answered: bool,
    /// Whether an answer can be written here, as a line.
    pub(super) writes: bool,
    /// The rule that asked, if one did.
    pub(super) rule: Option<String>,
    /// Whether it is the check of the turn, which no model asked for.
    pub(super) is_check: bool,
    /// The changes of files that it is about, until they were looked at.
    pub(super) changes: Vec<FileChange>,
    /// The compared changes; empty unless all could be compared.
    pub(super) differences: Differences,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Body {
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
    /// It would allow what was not shown: first `v`.
    NotYet,
    /// The keys are to be explained.
    Help,
    /// All edits of the session are to run without asking: mode `edit`.
    Edits,
    /// The answer is to be written: a line for `Questions::write`.
    Write,
    /// The reason why it is denied is to be written: a line for `Questions::deny`.
    Reason,
    /// The rule that always allows it is to be written, in the place of this one: a line for `Questions::always`.
    Rule(String),
    /// All of the same answer of the model are to be shown, whole: then `y` allows them.
    Rest,
    /// The first question has this answer.
    Answer(Answer),
    /// All that were shown have these answers.
    Answers(Vec<Answer>),
}

impl Question {
    /// The question that an event asks, if it is of a kind that can be shown.
    pub(crate) fn of_event(event: &Event) -> Option<Self> {
        // Whose it is does not matter to the one who reads its events.
        let question = Self::of_pending(&PendingQuestion::of_event(&SessionId::default(), event)?)?;
        let EventBody::PermissionRequested(PermissionRequested { rule, changes, .. }) = &event.body else {
            return Some(question);
        };
        Some(Self { rule: rule.clone(), changes: changes.clone(), ..question })
    }

    /// The question of a row of `question/list`, if it is of a kind that can be shown.
    pub(crate) fn of_pending(row: &PendingQuestion) -> Option<Self> {
        let AskedQuestion { kind, blocks, text, options, schema, permission, digest, .. } = &row.asked;
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
                let place =
                    action.position.as_ref().map(|it| format!("{} of {}: ", it.number, it.of)).unwrap_or_default();
                let who = if self.is_check { "this turn's check".to_owned() } else { tool };
                let mut out =
                    format!("{mark} {place}{who} wants to run in {}{}\n", clean_line(&cwd), clean_exact_line(&asked));
                if let Some(why) = &action.why {
                    out.push_str(&format!("  asks because {}\n", clean_exact_line(why)));
                }
                self.parts(action).iter().for_each(|part| indent(&mut out, part, most));
                out.push_str(&self.differences.text(style, &action.cwd, most));
                out
            }
            Body::Form(text, schema) => {
                let mut out = heading(&mark, text);
                for field in fields(schema) {
                    out.push_str(&format!("    {}\n", clean_line(&field)));
                }
                out
            }
            Body::Choice(text, options) => {
                let mut out = heading(&mark, text);
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

    /// All of it, without colour: its action with every argument.
    pub(crate) fn whole_text(&self) -> String {
        let style = Style { color: false, unicode: true };
        let whole = Self { whole: true, ..self.clone() };
        whole.text(&style).trim_end().trim_start_matches("? ").to_owned()
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
    /// lines of linger it begins in the first column, where nothing stands that others wrote. `has_rest`: other questions of the same
    /// answer of the model are open.
    pub(super) fn keys(&self, style: &Style, prompt: bool, has_rest: bool) -> String {
        let key = |key: &str| style.bold(key);
        let enter = if prompt { ", then Enter" } else { "" };
        match &self.body {
            Body::Permission(_) if self.is_cut() => {
                let [v, n, r, t] = ["v", "n", "r", "t"].map(key);
                let reason = if self.writes { format!("  {r} no, and why") } else { String::new() };
                let all = if has_rest { format!("  {t} show all this answer asks") } else { String::new() };
                format!("{v} show the rest before allowing{all}  {n} no{reason}{enter}\n")
            }
            Body::Permission(action) => {
                let grant =
                    if action.grant.is_empty() { String::new() } else { format!(" {}", short_grant(action, style)) };
                let [y, s, a, e, n, r, help, t] = ["y", "s", "a", "e", "n", "r", "?", "t"].map(key);
                let rest = if has_rest { format!("  {t} the rest of this answer") } else { String::new() };
                let edits = if self.is_edit() && self.writes { format!("  {e} all edits") } else { String::new() };
                let more = if self.writes { format!("  {r} no, and why  {help} help") } else { String::new() };
                format!("{y} once{rest}  {s} this session  {a} always{grant}{edits}  {n} no{more}{enter}\n")
            }
            Body::Choice(_, options) if options.len() > NUMBERS.len() => {
                format!("press a number to answer{enter}; the others: {}\n", self.elsewhere())
            }
            Body::Choice(..) => format!("press a number to answer{enter}\n"),
            Body::Form(_, schema) if self.writes && only_text(schema).is_some() => {
                format!("{} type an answer  {} decline{enter}\n", key("w"), key("n"))
            }
            Body::Form(..) if self.writes => {
                format!("{} type the fields as {{…}}  {} decline{enter}\n", key("w"), key("n"))
            }
            Body::Form(..) => format!("{} decline{enter}; {}\n", key("n"), self.elsewhere()),
        }
    }

    /// The reply to a key that would allow something that was not shown.
    pub(crate) fn not_yet(style: &Style) -> String {
        style.dim("press v to see the rest first") + "\n"
    }

    /// The keys that mean something. Those that allow it do so while a part is not shown, too: they say what is missing, and never
    /// become a prompt.
    pub(super) fn answers(&self) -> &'static str {
        match &self.body {
            Body::Permission(action) => {
                let [alone, of_several] = match (self.writes, self.is_cut()) {
                    (true, true) => ["yYsSaAeEvVnNxXrR?", "yYsSaAeEvVnNxXrR?tT"],
                    (true, false) if self.is_edit() => ["yYsSaAeEnNxXrRvV?", "yYsSaAeEnNxXrRvV?tT"],
                    (true, false) => ["yYsSaAnNxXrRvV?", "yYsSaAnNxXrRvV?tT"],
                    (false, true) => ["yYsSaAvVnN", "yYsSaAvVnNtT"],
                    (false, false) => ["yYsSaAnN", "yYsSaAnNtT"],
                };
                if action.position.is_some() { of_several } else { alone }
            }
            Body::Choice(_, options) => NUMBERS.get(..options.len()).unwrap_or(NUMBERS),
            Body::Form(..) if self.writes => "wWnN",
            Body::Form(..) => "nN",
        }
    }

    /// Its place among those of the same answer of the model, if there are several.
    pub(super) fn position(&self) -> Option<&Position> {
        match &self.body {
            Body::Permission(action) => action.position.as_ref(),
            Body::Choice(..) | Body::Form(..) => None,
        }
    }

    /// The help for the keys of a permission.
    pub(super) fn help(&self) -> String {
        let grant = match &self.body {
            Body::Permission(action) if !action.grant.is_empty() => clean_exact_line(&action.grant),
            _ => "this call".to_owned(),
        };
        let mut lines = vec![
            "y  run it this once".to_owned(),
            format!("s  run it, and anything that matches {grant} in this session"),
            format!("a  run it, and add the rule {grant} to the configuration"),
            "A  the same, but edit the rule first".to_owned(),
        ];
        if self.position().is_some() {
            lines.push("t  show all that this answer of the model still asks; then y allows it, this once".to_owned());
        }
        if self.is_edit() {
            lines.push("e  switch to mode edit: file changes in the workspace run without asking".to_owned());
        }
        lines.push("n  do not run it; r also asks for a reason, which the model reads".to_owned());
        let is_line =
            matches!(&self.body, Body::Permission(action) if action.grants.len() > 1 && action.tool == "bash");
        let denied = if is_line { "exactly this line".into() } else { grant };
        lines.push(format!("x  do not run it, and add a rule that denies {denied} from now on"));
        lines.push("v  show all of it; Esc stops the turn; Shift-Tab changes the mode".to_owned());
        lines.join("\n")
    }

    /// Whether a call or the turn waits for the answer.
    pub(crate) fn holds_up(&self) -> bool {
        self.holds_up
    }

    /// The rules that `always` would write, if it is a permission.
    pub(super) fn grant(&self) -> String {
        match &self.body {
            Body::Permission(action) => action.grant.clone(),
            Body::Choice(..) | Body::Form(..) => String::new(),
        }
    }

    /// Whether it is about a file change by a built-in tool.
    pub(super) fn is_edit(&self) -> bool {
        matches!(&self.body, Body::Permission(action) if matches!(action.tool.as_str(), "edit" | "write" | "apply_patch"))
    }

    /// The action and its arguments, without the texts that the difference shows.
    pub(super) fn parts(&self, action: &Action) -> Vec<String> {
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
    pub(super) fn option(&self, key: char) -> Option<&str> {
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
                value.map(Some).map_err(|error| Failure::usage(format!("the fields are not valid JSON: {error}")))
            }
        }
    }

    /// The answer to exactly what was shown.
    pub(crate) fn answer(&self, answer: String, reason: Option<String>) -> Result<Answer, Failure> {
        let (question, digest) = (self.id.clone(), Some(self.digest.clone()));
        Ok(Answer { question, answer, value: None, reason, digest, rules: Vec::new(), key: Some(key()?) })
    }
}

/// The words of `linger answer` for a permission.
const WORDS: [(&str, Decision); 5] = [
    ("allow", Decision::AllowOnce),
    ("session", Decision::AllowSession),
    ("always", Decision::AllowAlways),
    ("deny", Decision::RejectOnce),
    ("never", Decision::RejectAlways),
];

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

/// The message for a question that cannot be shown here.
pub(crate) fn unknown_kind(row: &PendingQuestion) -> String {
    format!("this version of linger cannot show question {}: {}", row.question, clean_line(&row.asked.text))
}

/// An answer in words.
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
        Some(AlreadyAnswered { answer: None, by, .. }) => format!("no longer open: {}", clean_line(&by)),
        None => "already answered".to_owned(),
    }
}
