//! A caller's options as fields of a body: the parts that the wire formats have in common. Pure.

use serde_json::{Map, Value};

use super::types::{AnswerOptions, EncodedOptions};

/// A sampling option, and its field in a body; a dot leads into an object.
pub(super) struct SamplingField(pub(super) &'static str, pub(super) &'static str);

/// Sets the sampling options that `fields` names, and says which are ignored.
pub(super) fn sampling(options: &AnswerOptions<'_>, fields: &[SamplingField], encoded: &mut EncodedOptions) {
    for option in options.sampling {
        match fields.iter().find(|SamplingField(name, _)| *name == option.name) {
            Some(SamplingField(_, path)) => set(&mut encoded.fields, path, option.value.clone().into()),
            None => encoded.ignored.push(option.name),
        }
    }
}

/// The first `most` of the stop texts that a format takes, for the field at `path`. The caller of the codec ends the answer at
/// those that are left out.
pub(super) fn stop(
    options: &AnswerOptions<'_>,
    path: &str,
    most: usize,
    takes: fn(&str) -> bool,
    encoded: &mut EncodedOptions,
) {
    let texts: Vec<&String> = options.stop.iter().filter(|text| takes(text)).take(most).collect();
    if !texts.is_empty() {
        set(&mut encoded.fields, path, texts.into_iter().map(String::as_str).collect());
    }
}

/// Sets the field at `path`, with the objects around it.
pub(super) fn set(fields: &mut Map<String, Value>, path: &str, value: Value) {
    match path.split_once('.') {
        None => drop(fields.insert(path.to_owned(), value)),
        Some((first, rest)) => {
            if let Value::Object(inner) = fields.entry(first).or_insert_with(|| Map::new().into()) {
                set(inner, rest, value);
            }
        }
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
