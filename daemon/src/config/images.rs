//! Which provider makes images, and asking it.

use std::sync::Arc;
use std::time::Duration;

use linger_protocol::message::Usage;
use reqwest::Url;

use super::providers::Providers;
use crate::provider::catalogue::{KeySource, Resolved};
use crate::provider::image::{ImageRequest, MadeImage, decode};
use crate::provider::key_source::Lack;
use crate::provider::models::{Price, Prices};
use crate::provider::{Provider, driver};
use crate::sys::task;
use crate::tool::BoxFuture;
use crate::tool::image::{ImageModel, ImageModels};

/// The models that are asked unless the configuration names one, if their provider's key is there: those of presets, at their own
/// addresses.
const MODELS: [(&str, &str); 2] =
    [("openai/gpt-image-1", "api.openai.com"), ("gemini/gemini-2.5-flash-image", "generativelanguage.googleapis.com")];

/// Their prices in US dollars per million tokens, of requests and of images; the table of models has those that answer in text.
const PRICES: [[f64; 2]; 2] = [[5.0, 40.0], [0.3, 30.0]];

/// How long one request may take; the call has the same limit, which also counts what comes before.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The largest answer, in bytes: an image of 4096 by 4096 pixels in base64.
const MAX_ANSWER: usize = 64 << 20;

impl Providers {
    /// The model that makes images.
    fn image_model(&self) -> Option<(Resolved, ImageModel)> {
        let catalogue = self.catalogue().ok()?;
        let host = |resolved: &Resolved| {
            let url = Url::parse(&format!("http://{}", resolved.address()?)).ok()?;
            url.host_str().map(str::to_owned)
        };
        let found = |origin: &str| {
            let resolved = catalogue.resolve(origin).ok().filter(Resolved::makes_images)?;
            let host = host(&resolved)?;
            Some((resolved, ImageModel { origin: origin.to_owned(), host }))
        };
        if let Some(origin) = self.config.current().ok()?.image_model.clone() {
            return found(&origin);
        }
        let usual = MODELS.iter().filter_map(|(origin, host)| found(origin).filter(|(_, model)| model.host == *host));
        let mut usual = usual.filter(|(resolved, _)| resolved.key != KeySource::None);
        usual.next()
    }

    async fn make_image(self: Arc<Self>, model: ImageModel, request: ImageRequest) -> Result<MadeImage, String> {
        // It is the host that was permitted, whatever the configuration says by now.
        let found = self.image_model().filter(|(_, chosen)| *chosen == model);
        let (resolved, _) = found.ok_or("the configuration has changed; make the call again")?;
        let secrets = self.key_sources.obtain_all(&resolved).await.map_err(|lack| match lack {
            Lack::Failed(why) | Lack::Waits(why) => format!("its key: {why}"),
            Lack::Gone => "its key is gone".to_owned(),
        })?;
        let Provider::Http(endpoint) = resolved.open(secrets) else {
            return Err("it has no address".to_owned());
        };
        let has_pictures = !request.pictures.is_empty();
        let images = endpoint.codec.images().ok_or("its provider makes no images")?;
        let asked = images.encode(&resolved.model, &request);
        let answer = driver::get(&endpoint, asked, TIMEOUT, MAX_ANSWER).await.map_err(|failure| failure.message)?;
        let codec = endpoint.codec.clone();
        let decoded = task::spawn_blocking(move || decode(codec.as_ref(), &answer)).await;
        let made = decoded.unwrap_or_else(|error| Err(format!("its answer cannot be read: {error}")))?;
        let usage = priced(made.usage, &resolved.facts.prices, &model, has_pictures);
        Ok(MadeImage { usage, ..made })
    }
}

/// The usage with what it cost; at least that where a price, or what the provider counted, is not known.
fn priced(usage: Usage, known: &Prices, model: &ImageModel, has_pictures: bool) -> Usage {
    let of_preset =
        MODELS.iter().zip(PRICES).find(|((origin, host), _)| *origin == model.origin && *host == model.host);
    let flat = |[input, output]: [f64; 2]| Prices {
        usual: Price { input: Some(input), output: Some(output), ..Price::default() },
        ..Prices::default()
    };
    let own = known.cost(&usage).filter(|_| !usage.is_uncounted());
    let of_preset = of_preset.and_then(|(_, price)| flat(price).cost(&usage)).filter(|_| !usage.is_uncounted());
    // OpenAI takes more for a token of a picture than for one of text.
    let takes_more = has_pictures && model.origin.starts_with("openai/");
    let cost_at_least = own.is_none() && (of_preset.is_none() || takes_more);
    Usage { cost_micros: own.or(of_preset), cost_at_least, ..usage }
}

/// The providers, as the tool asks them.
pub struct Images(pub Arc<Providers>);

impl ImageModels for Images {
    fn chosen(&self) -> Option<ImageModel> {
        self.0.image_model().map(|(_, model)| model)
    }

    fn make(&self, model: ImageModel, request: ImageRequest) -> BoxFuture<'static, Result<MadeImage, String>> {
        Box::pin(self.0.clone().make_image(model, request))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD as BASE64;
    use linger_protocol::place::Places;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::config::{ConfigStore, Record};
    use crate::diagnostics::secret::Redactor;
    use crate::process::server::Children;
    use crate::provider::key_source::KeySources;
    use crate::provider::keychain::Keychain;
    use crate::provider::keys::Keys;
    use crate::tool::set::Tools;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    /// The providers of this configuration; each variable is `secret`.
    fn providers(dir: &tempfile::TempDir, text: &str, keys_are_there: bool) -> Arc<Providers> {
        let places = Places::below(dir.path()).unwrap();
        std::fs::create_dir_all(&places.config).unwrap();
        std::fs::write(places.config_file(), text).unwrap();
        let config = Arc::new(ConfigStore::open(places.clone(), None, Tools::default()));
        config.begin(None, Record(Box::new(|_| Ok(()))));
        let keychain = Keychain::new(places.kept_keys(), Children::of(&places.database()));
        let keys = Arc::new(Keys::new(Redactor::default(), keychain.accounts()));
        let sources = KeySources::new(Arc::new(keychain), keys.clone());
        let environment =
            Arc::new(move |name: &str| (keys_are_there && name.ends_with("_KEY")).then(|| "secret".to_owned()));
        Arc::new(Providers::new(config, keys, sources, environment))
    }

    /// Answers one request with this status and body, and gives the request.
    async fn serve(listener: TcpListener, status: u16, body: String) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        let mut piece = [0; 4096];
        let whole = |asked: &[u8]| {
            let text = String::from_utf8_lossy(asked).to_lowercase();
            let (head, rest) = text.split_once("\r\n\r\n")?;
            let length = head.split("content-length: ").nth(1)?.split("\r\n").next()?.parse::<usize>().ok()?;
            (rest.len() >= length).then_some(())
        };
        while whole(&asked).is_none() {
            let read = stream.read(&mut piece).await.unwrap();
            assert_ne!(read, 0, "{}", String::from_utf8_lossy(&asked));
            asked.extend(&piece[..read]);
        }
        let head =
            format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all((head + &body).as_bytes()).await.unwrap();
        String::from_utf8_lossy(&asked).into_owned()
    }

    fn request() -> ImageRequest {
        ImageRequest { prompt: "a cat".to_owned(), pictures: Vec::new(), format: "png", size: None }
    }

    #[tokio::test]
    async fn an_image_is_asked_for_at_the_configured_provider_with_its_key() {
        for (status, body, expect) in [
            (200, json!({ "data": [{ "b64_json": BASE64.encode(PNG) }] }), Ok(())),
            (400, json!({ "error": { "message": "no cats, secret" } }), Err("no cats")),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let dir = tempfile::tempdir().unwrap();
            let text = format!(
                "[tools]\nimage = \"paint/gpt-image-1\"\n[providers.paint]\nkind = \"openai\"\nbase_url = \"http://{address}/v1\"\napi_key_env = \"PAINT_KEY\"\n"
            );
            let images = Images(providers(&dir, &text, true));
            let model = images.chosen().unwrap();
            assert_eq!((model.origin.as_str(), model.host.as_str()), ("paint/gpt-image-1", "127.0.0.1"));
            let (made, asked) =
                tokio::join!(images.make(model.clone(), request()), serve(listener, status, body.to_string()));
            assert!(asked.starts_with("POST /v1/images/generations HTTP/1.1\r\n"), "{asked}");
            assert!(asked.to_lowercase().contains("authorization: bearer secret\r\n"), "{asked}");
            match expect {
                Ok(()) => {
                    let usage = Usage { cost_at_least: true, ..Usage::default() };
                    assert_eq!(made, Ok(MadeImage { media_type: "image/png", bytes: PNG.to_vec(), usage }));
                }
                Err(why) => {
                    let said = made.unwrap_err();
                    assert!(said.contains(why) && !said.contains("secret"), "{said}");
                }
            }
            let other = ImageModel { host: "elsewhere.example".to_owned(), ..model };
            assert!(images.make(other, request()).await.unwrap_err().contains("the configuration has changed"));
        }
    }

    #[tokio::test]
    async fn pictures_are_changed_by_openais_form_and_by_geminis_parts() {
        let gemini = json!({ "candidates": [{ "content": { "parts": [{ "text": "here" }, { "inlineData": { "data": BASE64.encode(PNG) } }] } }] });
        for (kind, version, path, key, has, body) in [
            (
                "openai",
                "/v1",
                "/v1/images/edits",
                "authorization: bearer secret",
                ["content-type: multipart/form-data; boundary=", "filename=\"0.png\"", "\r\na cat\r\n"],
                json!({ "data": [{ "b64_json": BASE64.encode(PNG) }] }),
            ),
            (
                "gemini",
                "",
                "/v1beta/models/painter:generateContent",
                "x-goog-api-key: secret",
                ["content-type: application/json", "\"inlinedata\"", "\"text\":\"a cat\""],
                gemini,
            ),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let dir = tempfile::tempdir().unwrap();
            let text = format!(
                "[tools]\nimage = \"paint/painter\"\n[providers.paint]\nkind = \"{kind}\"\nbase_url = \"http://{address}{version}\"\napi_key_env = \"PAINT_KEY\"\n"
            );
            let images = Images(providers(&dir, &text, true));
            let request = ImageRequest { pictures: vec![("image/png", PNG.to_vec())], ..request() };
            let (made, asked) =
                tokio::join!(images.make(images.chosen().unwrap(), request), serve(listener, 200, body.to_string()));
            let made = made.unwrap();
            assert_eq!((made.media_type, made.bytes.as_slice()), ("image/png", PNG), "{kind}");
            assert!(asked.starts_with(&format!("POST {path} HTTP/1.1\r\n")), "{asked}");
            let asked = asked.to_lowercase();
            for part in has.iter().chain([&key]) {
                assert!(asked.contains(part), "{part}: {asked}");
            }
        }
    }

    #[tokio::test]
    async fn without_a_word_a_preset_is_asked_whose_key_is_there() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(Images(providers(&dir, "", false)).chosen(), None);
        let model = Images(providers(&dir, "", true)).chosen().unwrap();
        assert_eq!((model.origin.as_str(), model.host.as_str()), ("openai/gpt-image-1", "api.openai.com"));
        let own = "[providers.openai]\nbase_url = \"http://127.0.0.1:1/v1\"\napi_key_env = \"OWN_KEY\"\n";
        let model = Images(providers(&dir, own, true)).chosen().unwrap();
        assert_eq!(model.origin, "gemini/gemini-2.5-flash-image", "a server of one's own is asked only by name");
        assert_eq!(Images(providers(&dir, "[tools]\nimage = \"anthropic/x\"\n", true)).chosen(), None);
    }

    #[test]
    fn an_image_costs_what_is_known_of_it_or_at_least_that() {
        let model = |origin: &str, host: &str| ImageModel { origin: origin.to_owned(), host: host.to_owned() };
        let openai = model("openai/gpt-image-1", "api.openai.com");
        let usage = Usage { input_tokens: 100, output_tokens: 1000, ..Usage::default() };
        let check = |usage, known: Option<f64>, model: &ImageModel, has_pictures, expect| {
            let usual = Price { input: known, output: known, ..Price::default() };
            let priced = priced(usage, &Prices { usual, ..Prices::default() }, model, has_pictures);
            assert_eq!((priced.cost_micros, priced.costs_more()), expect, "{model:?}");
        };
        check(usage, None, &openai, false, (Some(40_500), false));
        check(usage, None, &openai, true, (Some(40_500), true));
        // What the user says goes before it.
        check(usage, Some(1.0), &openai, true, (Some(1100), false));
        let gemini = model("gemini/gemini-2.5-flash-image", "generativelanguage.googleapis.com");
        check(usage, None, &gemini, true, (Some(30_030), false));
        let elsewhere = model("openai/gpt-image-1", "127.0.0.1");
        check(usage, None, &elsewhere, false, (None, true));
        check(Usage::default(), None, &openai, false, (None, true));
        check(Usage::default(), Some(1.0), &elsewhere, false, (None, true));
    }
}
