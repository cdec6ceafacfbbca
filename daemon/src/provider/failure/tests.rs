use serde_json::json;

use super::*;

#[test]
fn failures_have_the_class_that_decides_about_them() {
    fn check(status: u16, body: &str, class: FailureClass, message: &str) {
        let failure = Failure::of_response(status, body.as_bytes());
        assert_eq!((failure.class, failure.message.as_str()), (class, message));
    }
    use FailureClass::*;
    check(
        529,
        r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
        Overloaded,
        "529 overloaded_error: Overloaded",
    );
    check(
        400,
        r#"{"error":{"type":"invalid_request_error","message":"prompt is too long: 9 tokens > 8 maximum"}}"#,
        TooLong,
        "400 invalid_request_error: prompt is too long: 9 tokens > 8 maximum",
    );
    check(
        400,
        r#"{"error":{"code":"context_length_exceeded","message":"x"}}"#,
        TooLong,
        "400 context_length_exceeded: x",
    );
    check(429, r#"{"error":{"code":"insufficient_quota","message":"pay"}}"#, Quota, "429 insufficient_quota: pay");
    check(401, r#"{"error":"no"}"#, Auth, "401: no");
    check(
        400,
        r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT"}}"#,
        Auth,
        "400 INVALID_ARGUMENT: API key not valid. Please pass a valid API key.",
    );
    check(
        400,
        r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}"#,
        TooLong,
        "400 INVALID_ARGUMENT: The input token count (9) exceeds the maximum number of tokens allowed (8).",
    );
    check(404, r#"[{"error":{"message":"gone"}}]"#, NotFound, "404: gone");
    check(502, "<html>bad gateway</html>", Overloaded, "the provider answered 502 without a reason");
    let page = "<!doctype html><head><title>\n502 Bad Gateway</title></head>";
    check(502, page, Overloaded, "502: a web page, \"502 Bad Gateway\"");
    check(403, r#"{"error":{"message":"Country not supported"}}"#, Forbidden, "403: Country not supported");
    check(402, r#"{"error":{"message":"pay"}}"#, Quota, "402: pay");
    let credit = r#"{"error":{"type":"invalid_request_error","message":"Your credit balance is too low"}}"#;
    check(400, credit, Quota, "400 invalid_request_error: Your credit balance is too low");
    check(422, r#"{"detail":"extra\nfields"}"#, Rejected, "422: extra fields");
    check(500, "boom\u{7}\x1b[31m", Overloaded, "500: boom [31m");
    check(302, "", Rejected, "the provider answered 302 without a reason");
}

#[test]
fn a_refused_region_and_an_empty_account_have_hints_of_their_own() {
    fn check(status: u16, message: &str, expect: &str) {
        let body = serde_json::json!({ "error": { "message": message } }).to_string();
        let hint = Failure::of_response(status, body.as_bytes()).class.hint();
        assert!(hint.starts_with(expect), "{status} {message}: {hint}");
    }
    let forbidden = "the key may lack a permission, the API may be off in its project, or your region or network";
    check(403, "Country, region, or territory not supported", forbidden);
    check(403, "Generative Language API has not been used in project 1 before or it is disabled", forbidden);
    let quota = "top up or raise the limit in the provider's console";
    check(402, "Insufficient credits", quota);
    check(400, "Your credit balance is too low to access the Anthropic API.", quota);
    check(401, "no such key", "check the key: ");
}

#[test]
fn a_context_that_does_not_fit_is_known_by_the_words_of_each_provider() {
    fn check(status: u16, said: &str, class: FailureClass) {
        let body = json!({"error": {"message": said}}).to_string();
        assert_eq!(Failure::of_response(status, body.as_bytes()).class, class, "{said}");
        if class == FailureClass::TooLong && status == 400 {
            assert_eq!(Failure::in_stream(&json!({"message": said})).class, class, "{said}, in a stream");
        }
    }
    for said in [
        "prompt is too long: 213462 tokens > 200000 maximum",
        "max_tokens must be at least 1, got -7584. (parameter=max_tokens, value=-7584)",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000 `inputs` tokens",
        "Total tokens of image and text exceed max message tokens",
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
        "Input is too long for requested model.",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.",
        "This endpoint's maximum context length is 128000 tokens. However, you requested about 140000 tokens",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
        "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
        "prompt too long; exceeded max context length by 4 tokens",
        "the input length exceeds the context length",
        "the request exceeds the available context size, try increasing it",
        "The number of tokens to keep from the initial prompt is greater than the context length",
        "The decoder prompt (length 9) is longer than the maximum model length of 8.",
        "The input (9 tokens) is longer than the model's context length (8 tokens).",
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
        "Prompt contains 140000 tokens, too large for model with 131072 maximum context length",
        "Please reduce the length of the messages or completion.",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 300000)",
        "invalid params, context window exceeds limit",
        "prompt token count of 70000 exceeds the limit of 64000",
        "too many tokens: total number of tokens in the prompt cannot exceed 128000",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
        "Trying to keep the first 15857 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens",
    ] {
        check(400, said, FailureClass::TooLong);
    }
    check(413, "", FailureClass::TooLong);
    check(
        429,
        "Request too large for gpt-5 on tokens per min (TPM): Limit 10000, Requested 15000.",
        FailureClass::TooLong,
    );
    check(429, "Rate limit reached: too many tokens in the last minute", FailureClass::RateLimited);
    check(400, "max_tokens is larger than this model can write", FailureClass::Rejected);
    for said in [
        "Invalid content type. image_url is only supported by certain models.",
        "messages[1]: unknown variant `image_url`, expected `text`",
        "Image input modality is not enabled for models/x",
        "messages.0.content.1.image.source.base64: Could not process image",
        "'messages.0' : for 'role:user' the following must be satisfied[('messages.0.content' : value must be a string)]",
        "x is not a multimodal model",
        "'claude-3-5-haiku-20241022' does not support image input.",
        "messages.1.content.0.image.source.base64: image exceeds 5 MB maximum: 6000000 bytes > 5242880 bytes",
        "Invalid value: 'input_image'. Supported values are: 'input_text'.",
        "You uploaded an unsupported image. Please make sure your image is valid.",
        "Unsupported MIME type: image/tiff",
        "At most 0 image(s) may be provided in one prompt.",
        "too many images and documents: 101 + 0 > 100",
        "The model `llama-vision` has no vision support",
    ] {
        check(400, said, FailureClass::Images);
    }
    for said in [
        "The model `llama-3.2-90b-vision-preview` has been decommissioned and is no longer supported.",
        "The model `openai/gpt-image-1` is not supported in the v1/chat/completions endpoint.",
        "imagen-4.0 is not supported here",
        "This API revision is not supported",
        "Invalid provisioning of the division",
        "Invalid schema for function 'resize_image': schema must be of type object",
        "Invalid 'metadata.user': must be a string",
        "there is no such image",
    ] {
        check(400, said, FailureClass::Rejected);
    }
    check(500, "image input is not supported - hint: you may need to provide the mmproj", FailureClass::Images);
    check(500, "the image registry is down", FailureClass::Overloaded);
    check(401, "no key for image models", FailureClass::Auth);
    let of_kind = |kind: &str, said: &str| {
        let body = json!({"error": {"code": kind, "message": said}}).to_string();
        Failure::of_response(400, body.as_bytes()).class
    };
    assert_eq!(of_kind("image_parse_error", "x"), FailureClass::Images);
    assert_eq!(of_kind("model_decommissioned", "no support for vision since June"), FailureClass::Rejected);
    check(429, "images per minute exceeded", FailureClass::RateLimited);
}

#[test]
fn a_history_that_is_refused_is_known_by_the_words_of_each_provider() {
    fn check(status: u16, said: &str, class: FailureClass) {
        let body = json!({"error": {"type": "invalid_request_error", "message": said}}).to_string();
        assert_eq!(Failure::of_response(status, body.as_bytes()).class, class, "{status} {said}");
    }
    for said in [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation.",
        "messages.1.content.0.thinking.signature: Field required",
        "messages.5.content.0.type: Expected `thinking` or `redacted_thinking`, but found `tool_use`.",
        "messages.1.content.0: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
        "messages.3: The final block in an assistant message cannot be `thinking`.",
        "messages.130: `tool_use` ids were found without `tool_result` blocks immediately after: toolu_1.",
        "messages.1.content.3: `tool_use` ids must be unique",
        "messages.2.content.0: unexpected `tool_use_id` found in `tool_result` blocks: toolu_1.",
        "messages.2.content.1: each tool_use must have a single result. Found multiple `tool_result` blocks with id: x",
        "messages: text content blocks must be non-empty",
        "messages.4: all messages must have non-empty content except for the optional final assistant message",
        "messages: text content blocks must contain non-whitespace text",
        "Expected toolResult blocks at messages.2.content for the following Ids: tooluse_1",
        "The text field in the ContentBlock object at messages.1.content.0 is blank.",
        "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
        "Messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'.",
        "Not the same number of function calls and responses",
        "Unexpected role 'user' after role 'tool'",
        "Duplicate tool call id in assistant message.",
        "invalid params, tool call result does not follow tool call (2013)",
        "messages.2.assistant.reasoning_content: property 'messages.2.assistant.reasoning_content' is unsupported",
        "The encrypted content for item rs_1 could not be verified.",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "Item 'fc_1' of type 'function_call' was provided without its required 'reasoning' item: 'rs_1'.",
        "No tool output found for function call call_1.",
        "No tool call found for function call output with call_id call_1.",
        "Duplicate item found with id fc_1. Remove duplicate items from your input and try again.",
        "Unable to submit request because Thought signature is not valid.",
        "Function call is missing a thought_signature in functionCall parts.",
        "Unable to submit request because function call `x` in the 2. content block is missing a `thought_signature`.",
        "Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.",
        "Please ensure that function call turn comes immediately after a user turn or after a function response turn.",
        "Unable to submit request because it must include at least one parts field, which describes the prompt input.",
    ] {
        check(400, said, FailureClass::History);
        check(422, said, FailureClass::History);
        check(401, said, FailureClass::Auth);
        check(500, said, FailureClass::Overloaded);
    }
    let kind = json!({"error": {"code": "invalid_encrypted_content", "message": "no"}});
    assert_eq!(Failure::of_response(400, kind.to_string().as_bytes()).class, FailureClass::History);
    assert_eq!(Failure::in_stream(&kind["error"]).class, FailureClass::History);
    // OpenRouter passes on what somebody else said.
    let raw = r#"{"error":{"message":"messages.1: `tool_use` ids must be unique"}}"#;
    let passed_on = json!({"error": {"code": 400, "message": "Provider returned error", "metadata": {"raw": raw}}});
    let failure = Failure::of_response(400, passed_on.to_string().as_bytes());
    assert_eq!((failure.class, failure.message.contains("must be unique")), (FailureClass::History, true));
}

#[test]
fn other_refusals_are_not_the_historys() {
    fn check(said: &str, class: FailureClass) {
        let body = json!({"error": {"type": "invalid_request_error", "message": said}}).to_string();
        assert_eq!(Failure::of_response(400, body.as_bytes()).class, class, "{said}");
    }
    check("prompt is too long: the thinking and its signature make 9 tokens > 8 maximum", FailureClass::TooLong);
    check("messages.2.content.0.tool_result.content.0.image: Could not process image", FailureClass::Images);
    for said in [
        "tools: Tool names must be unique.",
        "tools.0.custom.input_schema: JSON schema is invalid",
        "Duplicate function declaration found: ls",
        "`temperature` may only be set to 1 when thinking is enabled.",
        "max_tokens must be greater than thinking.budget_tokens",
        "Thinking may not be enabled when tool_choice forces tool use.",
        "Unsupported value: 'reasoning.effort' does not support 'minimal' with this model.",
        "User location is not supported for the API use.",
        "Invalid JSON payload received. Unknown name \"x\": Cannot find field.",
    ] {
        check(said, FailureClass::Rejected);
    }
    check(
        "Unsupported parameter: 'reasoning_effort' is unsupported with this model.",
        FailureClass::Parameter(Parameter::Effort),
    );
    check(
        "Encrypted content is not supported with this model.",
        FailureClass::Parameter(Parameter::EncryptedReasoning),
    );
    check("Your credit balance is too low to access the Anthropic API.", FailureClass::Quota);
    // What is left out cannot be passed back.
    for said in [
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
        "Missing `reasoning_content` field in the assistant message at message index 2.",
        "thinking is enabled but reasoning_content is missing in assistant tool call message at index 2",
    ] {
        check(said, FailureClass::Reasoning);
    }
}

#[test]
fn a_user_who_speaks_twice_for_a_template_is_told_of_the_flag_and_loses_nothing() {
    let said =
        "Jinja Exception: After the optional system message, conversation roles must alternate user/assistant/...";
    let body = json!({"error": {"type": "invalid_request_error", "message": said}});
    for status in [400, 422, 500] {
        let failure = Failure::of_response(status, body.to_string().as_bytes());
        assert_eq!(failure.class, FailureClass::Rejected, "{status}");
        assert!(failure.message.contains("`assistant_after_user = true`"), "{}", failure.message);
    }
    assert_eq!(Failure::of_response(401, body.to_string().as_bytes()).class, FailureClass::Auth);
    let failure = Failure::in_stream(&body["error"]);
    assert_eq!((failure.class, failure.message.contains("assistant_after_tool")), (FailureClass::Rejected, true));
}

#[test]
fn a_wait_may_be_asked_for_in_the_body() {
    fn check(delay: &str, expect: Option<u64>) {
        let info = json!({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay});
        let body =
            json!({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "x", "details": [{}, info]}});
        let failure = Failure::of_response(429, body.to_string().as_bytes());
        assert_eq!(
            (failure.class, failure.retry_after),
            (FailureClass::RateLimited, expect.map(Duration::from_millis))
        );
    }
    check("34.5s", Some(34_500));
    check("0s", Some(0));
    check("-1s", None);
    check("soon", None);
}

#[test]
fn a_wait_may_be_asked_for_in_words() {
    fn check(said: &str, expect: Option<u64>) {
        let body = json!({"error": {"code": "rate_limit_exceeded", "message": said}});
        let failure = Failure::of_response(429, body.to_string().as_bytes());
        assert_eq!(
            (failure.class, failure.retry_after),
            (FailureClass::RateLimited, expect.map(Duration::from_millis))
        );
        assert_eq!(Failure::in_stream(&body["error"]).retry_after, failure.retry_after);
    }
    check("Rate limit reached. Limit 3, used 3. Please try again in 20s. Visit the docs.", Some(20_000));
    check("Please try again in 1.5s", Some(1500));
    check("Please try again in 20ms.", Some(20));
    check("Please try again in 1h6m0.25s, or pay.", Some(3_960_250));
    for vague in
        ["try again in a while", "try again in 5", "try again in ", "try again in -1s", "try again in 1e999s", "no"]
    {
        check(vague, None);
    }
}

#[test]
fn errors_in_a_stream_are_tried_again_unless_they_say_what_is_wrong() {
    fn check(error: Value, class: FailureClass) {
        assert_eq!(Failure::in_stream(&error).class, class, "{error}");
    }
    check(json!({"type": "overloaded_error", "message": "Overloaded"}), FailureClass::Overloaded);
    check(json!({"code": 502, "message": "upstream"}), FailureClass::Overloaded);
    check(json!({"code": 401, "message": "key"}), FailureClass::Auth);
    check(json!({"message": "the request exceeds the available context size"}), FailureClass::TooLong);
    check(json!("something"), FailureClass::Stream);
    // LiteLLM has a status in a string.
    let of_litellm = |code: &str, kind: &str, said: &str| json!({"message": said, "type": kind, "code": code});
    check(of_litellm("400", "invalid_request_error", "no such setting"), FailureClass::Rejected);
    check(of_litellm("400", "None", "the `tool_use` ids must be unique"), FailureClass::History);
    check(of_litellm("400", "None", "this model does not support image input"), FailureClass::Images);
    check(of_litellm("401", "None", "no"), FailureClass::Auth);
    check(of_litellm("404", "None", "no"), FailureClass::NotFound);
    check(of_litellm("429", "throttling_error", "no"), FailureClass::RateLimited);
    check(of_litellm("500", "None", "no"), FailureClass::Overloaded);
    // A name that says nothing hides no other.
    check(of_litellm("invalid_parameter_error", "invalid_request_error", "no"), FailureClass::Rejected);
    check(of_litellm("invalid_value", "invalid_request_error", "`tool_use` ids must be unique"), FailureClass::History);
    check(of_litellm("invalid_value", "invalid_request_error", "image is not valid"), FailureClass::Images);
    check(of_litellm("1214", "new_error", "no"), FailureClass::Stream);
    check(json!({"code": 1214, "message": "no"}), FailureClass::Stream);
    assert_eq!(
        Failure::in_stream(&of_litellm("400", "invalid_request_error", "no")).message,
        "invalid_request_error: no"
    );
    let nothing = Failure::in_stream(&json!({"message": "\u{7f}"})).message;
    assert_eq!(nothing, "the provider reported an error without a reason");
}

#[test]
fn what_was_sent_and_is_given_back_is_not_taken_for_a_reason() {
    let sent = "prompt is too long; the image is not valid; `tool_use` ids";
    let detail = json!({"type": "extra_forbidden", "loc": ["body", "messages", 0, "x"], "msg": "Extra inputs are not permitted", "input": sent});
    let list = json!({"detail": [detail]});
    // FastAPI's, that of Mistral, and one of which the end was not read.
    for (body, said) in [
        (list.to_string(), "422: body.messages.0.x: Extra inputs are not permitted"),
        (
            json!({"object": "error", "type": "invalid_request_error", "message": list}).to_string(),
            "422 invalid_request_error: body.messages.0.x: Extra inputs are not permitted",
        ),
    ] {
        let failure = Failure::of_response(422, body.as_bytes());
        assert_eq!((failure.class, failure.message.as_str()), (FailureClass::Rejected, said));
    }
    let cut = format!(r#"{{"detail": [{{"msg": "Extra inputs are not permitted", "input": "{sent}"#);
    assert_eq!(Failure::of_response(422, cut.as_bytes()).class, FailureClass::Rejected);
    assert_eq!(Failure::of_response(400, br#"{"errors": ["prompt is too long"]}"#).class, FailureClass::TooLong);
}

#[test]
fn a_length_that_is_refused_in_other_words_may_be_the_contexts() {
    fn check(status: u16, said: &str, class: FailureClass) {
        let body = json!({"error": {"message": said}}).to_string();
        assert_eq!(Failure::of_response(status, body.as_bytes()).class, class, "{status} {said}");
    }
    for said in [
        "Prompt exceeds max length",
        "length of prompt_tokens (41000) must be less than max_seq_len (40960).",
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again.",
        "the number of input tokens 9100 cannot exceed the total tokens limit 8192 for this model",
        "The sum of prompt length (9000) and query length (0) should not exceed max_num_tokens (4096)",
        "Input length (33100 tokens) exceeds the maximum allowed length (32768 tokens).",
        "requested input length 70000 exceeds maximum input length 65536",
        "Too many input tokens. Max input tokens: 24000, request input token count: 25117",
        "tokens in request more than max tokens allowed",
        "Prompt is 9000 tokens and exceeds the max context window of 8192",
    ] {
        check(400, said, FailureClass::TooLong);
    }
    for said in [
        "the conversation is larger than the model can take: limit 9000",
        "sequence length 40000 is greater than 32768",
        "your prompt does not fit: 9000 of at most 8000 tokens",
        "Context overflow",
    ] {
        check(400, said, FailureClass::PerhapsTooLong);
        check(422, said, FailureClass::PerhapsTooLong);
        check(429, said, FailureClass::RateLimited);
        check(403, said, FailureClass::Forbidden);
    }
    for said in [
        "max_tokens is too large: 100000. This model supports at most 16384 completion tokens",
        "the number of tools exceeds the limit of 128",
        "temperature must be at most 2",
        "Invalid schema for function 'x': too many tokens",
        "you exceeded the tokens per minute",
    ] {
        check(400, said, FailureClass::Rejected);
    }
}
