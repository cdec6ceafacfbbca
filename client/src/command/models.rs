//! `linger models`: the models that can be used, and what is missing for those that cannot.

use linger_protocol::daemon::{Empty, Model};
use linger_protocol::method::ModelList;

use crate::cli::Json;
use crate::connect::Client;
use crate::error::{Exit, Failure};
use crate::render::table::columns;
use crate::terminal::Terminal;

pub(super) fn run(args: &Json) -> Result<Exit, Failure> {
    let mut client = Client::open()?;
    let list = ModelList(Empty {});
    if args.json {
        super::print_rows(&mut client, &list)?;
        return Ok(Exit::GOOD);
    }
    let row = |model: &Model| {
        let state = match (&model.missing, model.ready, model.default) {
            (_, true, true) => "ready, default".to_owned(),
            (_, true, false) => "ready".to_owned(),
            (Some(missing), false, _) => missing.clone(),
            (None, false, _) => "not ready".to_owned(),
        };
        vec![model.model.clone(), model.kind.clone(), state]
    };
    let mut models = client.call(&list)?;
    models.sort_by_key(|model| (!model.default, !model.ready));
    let rows: Vec<_> = models.iter().map(row).collect();
    let mut terminal = Terminal::new();
    for line in columns(&rows) {
        terminal.line(&line)?;
    }
    Ok(Exit::GOOD)
}
