//! Output as it comes: bounds, and what is kept.

use std::time::Duration;

use super::*;

fn output(dir: &tempfile::TempDir) -> (Output, mpsc::Receiver<OutputDelta>) {
    let (output, receiver) = mpsc::channel(1024);
    (Output::to(output, Blobs::of(&dir.path().join("linger.db"))), receiver)
}

#[tokio::test]
async fn memory_does_not_grow_with_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let (mut output, _receiver) = output(&dir);
    for _ in 0..1000 {
        output.push(&[b'x'; 32 * 1024]).await;
    }
    let memory = output.head.capacity() + output.tail.capacity() + output.decoder.finish().capacity();
    assert!(memory < 256 * 1024, "{memory}");
}

#[tokio::test(start_paused = true)]
async fn a_long_build_stays_visible_and_a_flood_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let (mut output, mut receiver) = output(&dir);
    let piece = [b'x'; 16 * 1024];
    let mut seen = Vec::new();
    for pause in [0, 0, 0, 0, 0, 0, 100, 500, 500] {
        tokio::time::advance(Duration::from_millis(pause)).await;
        output.push(&piece).await;
        seen.push(receiver.try_recv().map_or(0, |delta| delta.text.len()));
    }
    // The burst, nothing, a part of 100 ms too small to be worth a row, then what half a second allows.
    assert_eq!(seen, [16384, 16384, 16384, 16384, 0, 0, 0, 16384, 16384]);
}

#[tokio::test]
async fn the_file_is_capped_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::of(&dir.path().join("linger.db"));
    let mut spill = Spill::File(Box::new(Begun { written: FILE_MAX - 3, ..Begun::new(blobs).unwrap() }));
    spill.add(b"abcdef").await;
    spill.add(b"g").await;
    let (said, held) = spill.finish().await;
    let path = held.unwrap().path().unwrap();
    assert_eq!(said, format!("the first 1024 MiB of the output are in {}", path.display()));
    assert_eq!(std::fs::read_to_string(path).unwrap(), "abc");
}

#[tokio::test]
async fn the_file_ends_when_its_disk_runs_low_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let blobs = Blobs::of(&dir.path().join("linger.db"));
    let mut begun = Begun::new(blobs.clone()).unwrap();
    begun.add(b"first", |_| false).await.unwrap();
    begun.add(b"second", |_| true).await.unwrap();
    begun.look_at = 0;
    begun.add(b"third", |_| true).await.unwrap();
    let (said, held) = Spill::File(Box::new(begun)).finish().await;
    let path = held.unwrap().path().unwrap();
    let expect =
        format!("the first 11 bytes of the output are in {}; less than 256 MiB are free on that disk", path.display());
    assert_eq!((said, std::fs::read_to_string(&path).unwrap().as_str()), (expect, "firstsecond"));
    let mut begun = Begun::new(blobs).unwrap();
    begun.add(b"first", |_| true).await.unwrap();
    let (said, held) = Spill::File(Box::new(begun)).finish().await;
    assert_eq!(said, "they could not be stored: less than 256 MiB are free on the disk");
    assert!(held.is_none());
}

#[tokio::test]
async fn an_output_that_is_given_up_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let (mut output, _receiver) = output(&dir);
    output.push(&[b'x'; 2 * WHOLE]).await;
    let begun = || walk(dir.path());
    assert_eq!(begun(), 1);
    drop(output);
    assert_eq!(begun(), 0);
}

/// How many files there are below `dir`.
fn walk(dir: &std::path::Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { walk(&path) } else { 1 }).sum()
}

#[tokio::test]
async fn progress_reaches_the_model_as_its_last_frame_and_the_file_has_all_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let frames: String = (0..3000).map(|n| format!("\rprogress {n} of 3000")).collect();
    for (output, expect) in [
        (format!("begin\r\n{frames}\r\nend\n"), "begin\r\nprogress 2999 of 3000\r\nend\n"),
        (format!("{frames}\x1b[2K\r\x1b[32mdone\x1b[0m"), "done"),
    ] {
        let (stream, mut receiver) = mpsc::channel(1024);
        let mut of_command = Output::of_command(stream, Blobs::of(&dir.path().join("linger.db")));
        for piece in output.as_bytes().chunks(1000) {
            of_command.push(piece).await;
        }
        let kept = of_command.finish().await;
        let texts: Vec<&str> = kept.content.iter().filter_map(ContentBlock::as_text).collect();
        assert_eq!((texts[0], kept.segments.len()), (expect, 1));
        assert!(
            texts[1].contains(" bytes that were written over are left out; the whole output is in "),
            "{}",
            texts[1]
        );
        assert_eq!(std::fs::read_to_string(kept.whole.unwrap().path().unwrap()).unwrap(), output);
        let mut streamed = String::new();
        while let Some(delta) = receiver.recv().await {
            assert_eq!(delta.offset, streamed.len() as u64);
            streamed.push_str(&delta.text);
        }
        assert_eq!(streamed, expect);
    }
}

#[tokio::test]
async fn frames_without_end_do_not_fill_the_memory_and_a_few_need_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let of_command = || Output::of_command(mpsc::channel(1).0, Blobs::of(&dir.path().join("linger.db")));
    let mut output = of_command();
    for n in 0..2000 {
        output.push(format!("\r{n}{}", "x".repeat(1000)).as_bytes()).await;
        assert!(output.spill.in_memory() <= WHOLE + 2000);
    }
    let kept = output.finish().await;
    assert_eq!(kept.content[0].as_text().map(str::len), Some(1004));
    let mut output = of_command();
    output.push(b"remote: 1%\rremote: 100%\nSure? ").await;
    output.let_out().await;
    output.push(b"yes\n").await;
    let kept = output.finish().await;
    assert_eq!((kept.content, kept.whole), (vec![ContentBlock::text("remote: 100%\nSure? yes\n")], None));
}
