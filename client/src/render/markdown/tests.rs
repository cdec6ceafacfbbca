//! Markdown by example, and its laws: how a text is cut does not matter, no row leaves the gutter, nothing grows.

use insta::assert_snapshot;
use proptest::prelude::*;

use super::*;

fn layout(width: usize) -> Layout {
    Layout { width, markdown: true, color: false, unicode: true, dim: false }
}

/// The rows of a text that comes at once.
fn shown(layout: Layout, text: &str) -> String {
    let mut prose = Prose::new(layout);
    prose.push(text) + &prose.end()
}

const ANSWER: &str = "\
# The parser, and what is wrong with it

I fixed the **off-by-one** in `parse_header()`; see *RFC 9110* §5.6 and [the page](https://example.org/rfc) for more.
- one
- two that is so long that it has to go on in the next row of this terminal
  - nested `code` and 日本語のテキスト that is wide
    and a second line

  1. first
  2. second
- [x] three

> A quote, **bold**, that is long enough for a second row.
> > And one within.

| File | Lines |
|------|------:|
| `src/main.rs` | 3 |
| 日本語 | 12 |

```rust
fn main() {

    println!(\"a long line of code that does not fit into a row\");
}
```
---
2 * 3 * 4 = 24, *.rs, snake_case_name and <T>.
";

#[test]
fn an_answer_has_structure() {
    assert_snapshot!(shown(layout(50), ANSWER), @r#"
    The parser, and what is wrong with it

    I fixed the off-by-one in parse_header(); see
    RFC 9110 §5.6 and the page
    (https://example.org/rfc) for more.
    - one
    - two that is so long that it has to go on in
      the next row of this terminal
      - nested code and 日本語のテキスト that is
        wide
        and a second line

      1. first
      2. second
    - [x] three

    │ A quote, bold, that is long enough for a
    │ second row.
    │ │ And one within.

    File        │ Lines
    ────────────┼──────
    src/main.rs │     3
    日本語      │    12

      fn main() {

          println!("a long line of code that does
            not fit into a row");
      }

    ────────────────────────────────────────
    2 * 3 * 4 = 24, *.rs, snake_case_name and <T>.
    "#);
}

#[test]
fn without_markdown_the_source_is_wrapped() {
    let text = "# A *title*\n\n\n- item one two three four five six\n    let x  =  1;\n";
    assert_snapshot!(shown(Layout { markdown: false, ..layout(24) }, text), @r"
    # A *title*


    - item one two three
    four five six
        let x  =  1;
    ");
}

#[test]
fn colours_end_in_the_word_where_they_begin() {
    let text = "**a b** `c`\n```rust\nfn x\n```";
    let rows = shown(Layout { color: true, ..layout(40) }, text);
    assert_eq!(rows, "  \u{1b}[1ma\u{1b}[0m \u{1b}[1mb\u{1b}[0m \u{1b}[36mc\u{1b}[0m\n\n    \u{1b}[35mfn\u{1b}[0m x\n");
    let thought = shown(Layout { color: true, markdown: false, dim: true, ..layout(40) }, "*hm*");
    assert_eq!(thought, "  \u{1b}[2m*hm*\u{1b}[0m\n");
}

#[test]
fn words_are_shown_as_they_are_complete() {
    let mut prose = Prose::new(layout(40));
    let mut push = |text: &str| prose.push(text);
    assert_eq!((push("Good d"), push("ay"), push(" to")), ("  Good".to_owned(), String::new(), " day".to_owned()));
    assert_eq!((push(" **yo"), push("u** "), push("漢字")), (" to".to_owned(), " you".to_owned(), " 漢字".to_owned()));
    assert_eq!(prose.end_row(), "\n");
    assert_eq!(prose.push("x y"), "  x");
    assert_eq!(prose.end(), " y\n");
}

#[test]
fn a_table_waits_until_it_ends_and_what_is_none_is_text() {
    let mut prose = Prose::new(layout(40));
    assert_eq!(prose.push("| a | b |\n|---|---|\n| 1 | 2 |\n"), "");
    assert_eq!(prose.push("so"), "  a │ b\n  ──┼──\n  1 │ 2\n");
    assert_eq!(shown(layout(40), "| no table |\n| at all |\nx"), "  | no table |\n  | at all |\n  x\n");
}

#[test]
fn marks_pile_up_on_nothing_that_is_not_theirs() {
    assert_eq!(shown(layout(40), "\u{301}a\u{301}\u{301}"), "  a\u{301}\u{301}\n");
    assert_eq!(shown(layout(40), &format!("a{}", "\u{338}".repeat(50))), format!("  a{}\n", "\u{338}".repeat(8)));
}

#[test]
fn nothing_grows_with_the_text() {
    // Marks that never close, a table and a line of code without end, lists within lists.
    for piece in [
        "*a [b `c ~~d ",
        "| a | b |\n",
        "```\nx",
        "- ",
        "> ",
        " ",
        "x",
        "\u{301}",
        "漢",
        "1. a\n  ",
        "|",
        "*",
        "<http://",
    ] {
        let mut prose = Prose::new(layout(80));
        prose.push("| a | b |\n|---|---|\n");
        for n in 0..20_000 {
            prose.push(piece);
            let held = format!("{prose:?}").len();
            assert!(n % 1000 != 0 || held < 2_000_000, "{piece:?} holds {held} after {n}");
        }
    }
}

/// Text with much that means something.
fn markdown() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\n".to_owned()),
        Just("\n\n".to_owned()),
        Just("```rust\n".to_owned()),
        Just("\n```\n".to_owned()),
        Just("\n| a | b |\n|---|:-:|\n| c".to_owned()),
        Just("\n- ".to_owned()),
        Just("\n  12. ".to_owned()),
        Just("\n> ".to_owned()),
        Just("\n## ".to_owned()),
        Just("[a](b)".to_owned()),
        "[ *_`~|#>\\-+\\[\\]()!<\\\\\t]{1,4}",
        "[a-z]{1,12}",
        "[ a-z0-9]{1,30}",
        "[漢字日本e\u{301}\u{200d}👩☀\u{fe0f}\u{3000}\u{a0}\u{3164}\u{200b}]{1,6}",
    ];
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn it_does_not_matter_how_a_text_is_cut(text in markdown(), cuts in prop::collection::vec(1usize..12, 1..40), width in 8usize..90, markdown: bool, color: bool) {
        let layout = Layout { markdown, color, ..layout(width) };
        let (mut prose, mut rows, mut chars) = (Prose::new(layout), String::new(), text.chars());
        for cut in cuts.iter().cycle() {
            let piece: String = chars.by_ref().take(*cut).collect();
            if piece.is_empty() {
                break;
            }
            rows += &prose.push(&piece);
        }
        rows += &prose.end();
        prop_assert_eq!(rows, shown(layout, &text));
    }

    #[test]
    fn no_row_leaves_the_gutter_or_is_too_wide(text in markdown(), width in 8usize..90, markdown: bool) {
        for row in shown(Layout { markdown, ..layout(width) }, &text).lines() {
            prop_assert!(row.is_empty() || row.starts_with("  "), "{row:?}");
            prop_assert!(width::of(row) < width, "{row:?} has {} columns", width::of(row));
        }
    }

    #[test]
    fn words_are_neither_lost_nor_added(words in prop::collection::vec("[a-z]{1,9}", 0..60), width in 12usize..60) {
        let text = words.join(" ");
        let rows = shown(layout(width), &text);
        prop_assert_eq!(rows.split_whitespace().collect::<String>(), words.concat());
    }
}
