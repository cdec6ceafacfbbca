//! Files that a tool makes: artifacts with the session's name, and words for the model where one cannot be kept.

use linger_protocol::artifact::MAX_ARTIFACT;
use linger_protocol::event::ToolFinished;

use super::*;
use crate::tool::set::ToolSet;
use crate::tool::{Access, BoxFuture, Call, Context, Effects, Invalid, Made, Tool, ToolOutput, Workspace};

/// A tool that makes one file, and one that is too large and has neither a name nor a type.
#[derive(Clone)]
struct Makes;

impl Tool for Makes {
    fn name(&self) -> &str {
        "make"
    }

    fn description(&self) -> &str {
        "Makes."
    }

    fn schema(&self) -> Value {
        json!({ "type": "object" })
    }

    fn prepare(&self, _: &Value, _: &Workspace) -> Result<Box<dyn Call>, Invalid> {
        Ok(Box::new(Self))
    }
}

impl Call for Makes {
    fn action(&self) -> String {
        "make".to_owned()
    }

    fn effects(&self) -> Effects {
        let access = Access::Other { server: "test".to_owned(), tool: "make".to_owned(), version: String::new() };
        Effects::change(access)
    }

    fn run(self: Box<Self>, _: Context) -> BoxFuture<'static, ToolOutput> {
        let made = |name: &str, content_type: &str, bytes| Made {
            name: name.to_owned(),
            content_type: content_type.to_owned(),
            bytes,
        };
        let large = made(&"n".repeat(10_000), "\u{1b}[2J", vec![0; MAX_ARTIFACT as usize + 1]);
        let made = vec![made("a.txt", "text/plain", b"a".to_vec()), large];
        Box::pin(async move { ToolOutput { made, ..ToolOutput::text("made") } })
    }
}

#[tokio::test]
async fn what_a_tool_makes_is_kept_once_with_its_session_and_what_is_not_kept_is_said_in_a_few_words() {
    let tools = Tools::new(ToolSet::new([Arc::new(Makes) as Arc<dyn Tool>]));
    let call = || Answer::call("make", json!({}));
    let mut scene = Scene::with_tools(tools, "", "mock/m", Mode::Auto, [call(), call(), Answer::text("done")]).await;
    scene.turn("make it").await;
    let results = scene.events().await.into_iter().filter_map(|event| match event.body {
        EventBody::ToolFinished(ToolFinished { content, .. }) => Some(content),
        _ => None,
    });
    let results: Vec<_> = results.collect();
    assert_eq!(results[0], results[1], "the second has the same artifact");
    let [_, ContentBlock::ResourceLink { uri, .. }, ContentBlock::Text { text }] = &results[0][..] else {
        panic!("{results:?}")
    };
    let expect = "[artifact, application/octet-stream of 67108865 bytes was not kept as an artifact: an artifact may have 67108864 bytes]";
    assert_eq!(text, expect);
    let kept = scene.env.store.artifacts(10, None, None).await.unwrap();
    assert_eq!((kept.len(), &format!("artifact:{}", kept[0].id), &*kept[0].by), (1, uri, "make of scene"));
    scene.asked(|asked| Command::Remove(true, asked)).await.unwrap();
    assert!(scene.env.store.artifacts(10, None, None).await.unwrap().is_empty());
}
