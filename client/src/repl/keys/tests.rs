//! Keys at an empty line, in a line, in a paste and in a list.

use std::sync::mpsc::{Receiver, channel};

use rustyline::InputMode;

use super::*;
use crate::terminal::{KeyRequest, Size};

fn keys(alone: bool) -> (Keys, Receiver<Event>) {
    let (sender, events) = channel();
    let above = Above::default();
    above.ask("? bash\n", KeyRequest { request: 7, keys: "yn", alone });
    above.draw(Size { columns: 80, rows: 24, reflows: true });
    let style = Style { color: false, unicode: true };
    (Keys::new(sender, above, style, false), events)
}

const PASTE_START: KeyEvent = KeyEvent(KeyCode::BracketedPasteStart, Modifiers::NONE);
const PASTE_END: KeyEvent = KeyEvent(KeyCode::BracketedPasteEnd, Modifiers::NONE);

const fn key(c: char) -> KeyEvent {
    KeyEvent(KeyCode::Char(c), Modifiers::NONE)
}

#[test]
fn a_key_alone_answers_and_a_key_with_another_is_a_letter() {
    let (keys, events) = keys(true);
    assert_eq!(keys.key(key('y'), ""), Some(Cmd::Noop));
    assert_eq!(keys.key(key('o'), ""), Some(Cmd::Insert(1, "yo".to_owned())));
    assert_eq!(keys.key(key('y'), "yo"), None);
    assert_eq!(keys.key(key('x'), ""), None);
    assert_eq!(keys.key(key('n'), ""), Some(Cmd::Noop));
    assert_eq!(keys.key(KeyEvent(KeyCode::Enter, Modifiers::NONE), ""), Some(Cmd::Noop));
    let answer = events.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Event::Hotkey(Hotkey::Answer { key: 'n', request: 7 })), "{answer:?}");
    assert!(events.try_recv().is_err());
}

#[test]
fn what_is_pasted_answers_and_ends_nothing() {
    let (keys, events) = keys(true);
    assert_eq!(keys.key(PASTE_START, ""), Some(Cmd::Noop));
    for typed in [key('y'), KeyEvent(KeyCode::Enter, Modifiers::NONE), KeyEvent(KeyCode::Char('C'), Modifiers::CTRL)] {
        assert_eq!(keys.key(typed, ""), Some(Cmd::Noop));
    }
    let end = keys.key(PASTE_END, "");
    assert_eq!(end, Some(Cmd::Insert(1, "y\n".to_owned())));
    assert_eq!(keys.whole("y\n"), ("y\n".to_owned(), true));
    assert!(events.try_recv().is_err());
}

#[test]
fn both_parts_of_a_line_end_of_windows_are_one_line_break() {
    let (keys, _events) = keys(true);
    let line_feed = KeyEvent(KeyCode::Char('J'), Modifiers::CTRL);
    let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
    for (ends, text) in [
        (vec![enter, line_feed], "a\nb"),
        (vec![enter], "a\nb"),
        (vec![line_feed], "a\nb"),
        (vec![enter, line_feed, enter, line_feed], "a\n\nb"),
        (vec![line_feed, enter], "a\n\nb"),
    ] {
        keys.key(PASTE_START, "");
        let typed = std::iter::once(key('a')).chain(ends).chain([key('b')]);
        typed.for_each(|typed| drop(keys.key(typed, "")));
        assert_eq!(keys.key(PASTE_END, ""), Some(Cmd::Insert(1, text.to_owned())));
    }
}

#[test]
fn a_paste_whose_end_does_not_come_ends_after_a_silence_and_keeps_what_came() {
    let (keys, _events) = keys(false);
    let interrupt = KeyEvent(KeyCode::Char('C'), Modifiers::CTRL);
    let backdate = |by: Duration| keys.lock().pastes.backdate(by);
    for (silence, next, text) in [
        (Duration::from_secs(2), key('c'), "abc"),
        (Duration::from_secs(2), KeyEvent(KeyCode::Enter, Modifiers::NONE), "ab"),
        (Duration::from_millis(200), interrupt, "ab"),
    ] {
        keys.key(PASTE_START, "");
        keys.key(key('a'), "");
        keys.key(key('b'), "");
        backdate(silence);
        assert_eq!(keys.key(next, ""), Some(Cmd::Insert(1, text.to_owned())));
        // The line takes keys again.
        assert_eq!(keys.key(key('x'), text), None);
    }
    // A pasted Ctrl-C is no pressed one.
    keys.key(PASTE_START, "");
    keys.key(key('a'), "");
    assert_eq!(keys.key(interrupt, ""), Some(Cmd::Noop));
    assert_eq!(keys.key(PASTE_END, ""), Some(Cmd::Insert(1, "a".to_owned())));
}

#[test]
fn ctrl_j_is_enter_if_it_was_typed_before_the_prompt_opened_and_else_a_line_break() {
    let (keys, _events) = keys(false);
    let line_feed = KeyEvent(KeyCode::Char('J'), Modifiers::CTRL);
    keys.lock().typed_before = Instant::now() + Duration::from_secs(3600);
    assert_eq!(keys.key(line_feed, "a"), None);
    keys.lock().typed_before = Instant::now();
    assert_eq!(keys.key(line_feed, "a"), Some(Cmd::Newline));
}

#[test]
fn a_line_that_was_typed_before_the_prompt_opened_may_be_long_and_has_no_pause() {
    let (keys, _events) = keys(false);
    keys.begin();
    let mut state = keys.lock();
    let opened = state.typed_before.checked_sub(TYPED_BEFORE).unwrap();
    // 840 keys, and a millisecond for each.
    for n in 0..840 {
        assert!(state.was_typed_before(opened + Duration::from_millis(n)), "{n}");
    }
    assert!(!state.was_typed_before(opened + Duration::from_millis(840) + SEQUENCE_PAUSE));
}

#[test]
fn an_answer_of_the_terminal_is_dropped_whole() {
    let alt = |c| KeyEvent(KeyCode::Char(c), Modifiers::ALT);
    let unknown = KeyEvent(KeyCode::UnknownEscSeq, Modifiers::NONE);
    let bell = KeyEvent(KeyCode::Char('G'), Modifiers::CTRL);
    let cases: [(KeyEvent, &str, Option<KeyEvent>); 8] = [
        (alt(']'), "11;rgb:1e1e/1e1e/1e1e", Some(alt('\\'))),
        (alt(']'), "11;rgb:yyyy/0/0", Some(bell)),
        (alt('P'), ">|tmux 3.3a", Some(alt('\\'))),
        (alt('_'), "Gi=1;OK", Some(alt('\\'))),
        (unknown, "62;22c", None),
        (unknown, "0;10;5M", None),
        (unknown, "2026;2$y", None),
        (key('\u{9b}'), "31m", None),
    ];
    for (begin, text, end) in cases {
        // At a question that `y` answers, and in a line.
        for line in ["", "text"] {
            let (keys, events) = keys(true);
            for typed in std::iter::once(begin).chain(text.chars().map(key)).chain(end) {
                assert_eq!(keys.key(typed, line), Some(Cmd::Noop), "{typed:?} of {text}");
            }
            assert_eq!(keys.key(key('q'), line), None, "after {text}");
            assert!(events.try_recv().is_err(), "{text}");
        }
    }
}

#[test]
fn what_is_typed_after_an_unknown_key_is_a_part_of_the_line() {
    let (keys, _events) = keys(true);
    for begin in [KeyEvent(KeyCode::UnknownEscSeq, Modifiers::NONE), KeyEvent(KeyCode::Char('P'), Modifiers::ALT)] {
        keys.key(begin, "a");
        let later = Instant::now().checked_sub(SEQUENCE_PAUSE * 2);
        let mut state = keys.lock();
        state.sequence = state.sequence.zip(later).map(|((rest, _), later)| (rest, later));
        drop(state);
        assert_eq!(keys.key(key('1'), "a"), None);
    }
}

#[test]
fn a_list_takes_the_keys_that_move_in_it() {
    let (keys, events) = keys(true);
    let choices = ["one", "two"].map(|text| super::menu::Choice::new(text, "")).to_vec();
    keys.pick(Picker::new("x", choices.clone(), None));
    assert_eq!(keys.key(KeyEvent(KeyCode::Down, Modifiers::NONE), ""), Some(Cmd::Noop));
    let enter = KeyEvent(KeyCode::Enter, Modifiers::NONE);
    assert_eq!((keys.key(enter, ""), keys.ending()), (Some(Cmd::AcceptLine), Ending::Pick));
    assert_eq!(keys.picked().as_deref(), Some("two"));
    keys.pick(Picker::new("x", choices, None));
    assert_eq!(keys.key(KeyEvent(KeyCode::Esc, Modifiers::NONE), ""), Some(Cmd::AcceptLine));
    assert_eq!((keys.picked(), keys.picks()), (None, None));
    assert!(events.try_recv().is_err());
}

#[test]
fn where_enter_has_to_follow_or_nothing_is_asked_a_key_is_a_letter() {
    let (keys, _events) = keys(false);
    assert_eq!(keys.key(key('y'), ""), None);
    let (keys, _events) = self::keys(true);
    keys.above.unask();
    assert_eq!(keys.key(key('y'), ""), None);
}

#[test]
fn in_vis_command_mode_a_key_answers_unless_it_begins_a_line() {
    let (keys, events) = keys(true);
    let is_of_vi = |c, line: &str| keys.is_of_vi(key(c), InputMode::Command, line);
    assert!(!is_of_vi('y', "") && is_of_vi('y', "text") && is_of_vi('k', ""));
    keys.above.ask("? bash\n", KeyRequest { request: 8, keys: "ysan", alone: true });
    keys.above.draw(Size { columns: 80, rows: 24, reflows: true });
    assert!(is_of_vi('a', "") && is_of_vi('s', ""));
    // `yw` is no answer.
    assert_eq!(keys.key(key('y'), ""), Some(Cmd::Noop));
    assert!(is_of_vi('w', ""));
    assert_eq!(keys.key(key('n'), ""), Some(Cmd::Noop));
    let answer = events.recv_timeout(Duration::from_secs(10)).unwrap();
    assert!(matches!(answer, Event::Hotkey(Hotkey::Answer { key: 'n', request: 8 })), "{answer:?}");
    assert!(events.try_recv().is_err());
}

#[test]
fn vis_insert_mode_is_followed_so_that_the_key_that_stops_can_be_told() {
    let (keys, events) = keys(true);
    keys.lock().vi = true;
    let check = |mode, typed, passed, expect: &str| {
        keys.follow_vi(typed, mode, passed);
        assert_eq!(keys.escape(), expect, "{typed:?}");
    };
    let escape = KeyEvent(KeyCode::Esc, Modifiers::NONE);
    check(InputMode::Insert, key('x'), true, "Esc Esc");
    assert!(events.try_recv().is_err());
    check(InputMode::Insert, escape, true, "Esc");
    assert!(matches!(events.try_recv(), Ok(Event::Hotkey(Hotkey::ViMode))));
    check(InputMode::Command, escape, false, "Esc");
    check(InputMode::Command, key('w'), true, "Esc");
    // It answers, and begins no line.
    check(InputMode::Command, key('R'), false, "Esc");
    for begins in "aAiIcCsSR".chars() {
        check(InputMode::Command, key(begins), true, "Esc Esc");
        check(InputMode::Replace, escape, true, "Esc");
    }
    check(InputMode::Command, KeyEvent(KeyCode::Char('R'), Modifiers::CTRL), true, "Esc Esc");
    keys.begin();
    assert_eq!(keys.escape(), "Esc Esc");
}

#[test]
fn the_keys_that_stop_leave_and_steer() {
    let (keys, events) = keys(true);
    let control = |c| KeyEvent(KeyCode::Char(c), Modifiers::CTRL);
    assert_eq!(keys.key(control('C'), "typed"), Some(Cmd::Kill(Movement::WholeBuffer)));
    assert!(matches!(events.try_recv(), Ok(Event::Hotkey(Hotkey::Interrupt { empty: false }))));
    assert_eq!(keys.key(KeyEvent(KeyCode::Esc, Modifiers::NONE), "typed"), Some(Cmd::Noop));
    assert!(matches!(events.try_recv(), Ok(Event::Hotkey(Hotkey::Escape))));
    assert_eq!(keys.key(control('D'), "typed"), None);
    assert_eq!((keys.key(control('D'), ""), keys.ending()), (Some(Cmd::AcceptLine), Ending::Leave));
    let steer = KeyEvent(KeyCode::Char('s'), Modifiers::ALT);
    assert_eq!((keys.key(steer, "x"), keys.ending()), (Some(Cmd::AcceptLine), Ending::Steer));
}
