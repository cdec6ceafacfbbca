//! The beginning of an interactive session.

use linger_protocol::id::Cursor;
use linger_protocol::place::private_directory;
use linger_protocol::session::Info;

use super::editor::{self, Workspace};
use super::outputs::Outputs;
use super::prompts::Prompts;
use super::state::{About, Asking, Repl, Turn};
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::follow::Attachment;
use crate::input::{Input, signals};
use crate::question::Questions;
use crate::render::attention::Attention;
use crate::render::live::Live;
use crate::render::markdown::width::hang_lines;
use crate::render::style::Style;
use crate::render::{Renderer, Settings, Thinking};
use crate::terminal::{Capabilities, Terminal, terminal_width};

/// Fails unless this is a terminal with a person at it.
pub(crate) fn needs_terminal(capabilities: &Capabilities, instead: &str) -> Result<(), Failure> {
    // Questions are shown on stderr, so it has to be a terminal too.
    if capabilities.stdout && capabilities.can_ask() {
        return Ok(());
    }
    Err(Failure::usage("an interactive session needs a terminal on stdin, stdout and stderr").hint(instead))
}

/// Attaches to a session and runs until the user leaves.
pub(crate) fn repl(client: Client, capabilities: &Capabilities, info: Info) -> Result<Exit, Failure> {
    let style = Style { color: capabilities.color, unicode: capabilities.unicode };
    let settings = Settings {
        style,
        width: capabilities.width,
        raw: false,
        markdown: capabilities.markdown,
        deltas: true,
        thinking: Thinking::Show,
        usage: true,
        permissions: false,
        prompts: true,
        me: client.name.clone(),
    };
    signals(client.sender(), true)?;
    // Usually the daemon has created it. Without it there is no history, and the session works all the same.
    let _ = private_directory(&client.places.state);
    let (state, capacity) = (client.places.state.clone(), client.capacity());
    let workspace = Workspace::new(info.cwd.clone());
    let setup = editor::Setup { state, workspace: workspace.clone(), style, capacity, sender: client.sender() };
    let (lines, keys, known) = editor::open(setup)?;
    let input = Input::start(client.sender(), Some(lines))?;
    let mut terminal = Terminal::new();
    let at = crate::environment::short_path(&info.cwd);
    let label = info.name.clone().unwrap_or_else(|| info.session.to_string());
    let enters = format!("session {label} in {at}, {} ({}); /help for help", info.model, info.mode);
    terminal.say(&hang_lines(&enters, terminal_width()))?;
    let cursor = Some(info.turn_cursor.clone()).filter(|cursor| *cursor != Cursor::default());
    let mut repl = Repl {
        attachment: Attachment::start_for(client, info.session.clone(), cursor, true, true)?,
        terminal,
        renderer: Renderer::new(settings.clone()),
        settings,
        live: Live::new(style, info.mode, info.context_window),
        outputs: Outputs::default(),
        attention: Attention::default(),
        escapes: capabilities.moves,
        input,
        keys,
        known,
        workspace,
        about: About::default(),
        turn: Turn::default(),
        prompts: Prompts::default(),
        returning: None,
        asking: Asking { questions: Questions::with_lines(), is_shown: false, request: 0, writing: None },
        open: false,
        picking: None,
        ran: Vec::new(),
        caught_up: false,
        has_background: false,
        rests: false,
    };
    repl.enter(info);
    repl.run()
}
