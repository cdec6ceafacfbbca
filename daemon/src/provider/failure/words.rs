//! The words by which it is known what a provider complains about, in lower case. Data.

/// How providers say that the context does not fit, in lower case.
pub(super) const TOO_LONG: [&str; 48] = [
    // Anthropic, and Bedrock with its models.
    "prompt is too long",
    "input is too long",
    "input length and `max_tokens` exceed",
    "model_context_window_exceeded",
    // OpenAI and those who took over its words: vLLM, DeepSeek, OpenRouter, Together.
    "maximum context length",
    "context_length_exceeded",
    "context length exceeded",
    "exceeds the context window",
    "string_above_max_length",
    // Gemini.
    "input token count exceeds",
    "exceeds the maximum number of tokens",
    // Ollama.
    "prompt too long",
    "exceeds the context length",
    "input length exceeds",
    // llama.cpp, LM Studio, vLLM and SGLang.
    "exceed_context_size",
    "exceeds the available context",
    "greater than the context length",
    "longer than the maximum model length",
    "longer than the model's context length",
    "tokens when context the overflows",
    // vLLM, where nothing of the window is left for an answer; Text Generation Inference.
    "max_tokens must be at least 1, got -",
    "`inputs` tokens + `max_new_tokens` must be",
    // Alibaba, xAI, Mistral, Groq, Moonshot, MiniMax, GitHub, Cohere and Volcengine.
    "range of input length",
    "maximum prompt length",
    "too large for model with",
    "reduce the length of the messages",
    "exceeded model token limit",
    "context window exceeds",
    "prompt token count of",
    "too many tokens: total",
    "exceed max message tokens",
    // Z.ai, SiliconFlow, watsonx, TensorRT-LLM, SGLang, Baidu, MLX, DeepInfra, and Bedrock with Amazon's own models.
    "prompt exceeds max length",
    "must be less than max_seq_len",
    "exceeds max_seq_len",
    "total tokens limit",
    "exceed max_num_tokens",
    "exceeds the maximum allowed length",
    "prompt_tokens_too_long",
    "max context window",
    "exceeds maximum input length",
    "input tokens exceeded",
    "exceeds maximum length",
    "too many input tokens",
    "more than max tokens allowed",
    "token_quantity_exceeded",
    "context length is too long",
    "context window is too small",
    // A rate limit that one request exceeds will not be met by waiting.
    "request too large for",
];

/// The subject of a refusal of a context that is too long, in words that no table has: one of these,
pub(super) const LENGTHS: [&str; 8] =
    ["token", "context", "prompt", "input length", "sequence length", "seq_len", "conversation", "length of input"];

/// one of these,
pub(super) const LIMITS: [&str; 15] = [
    "exceed",
    "too long",
    "too large",
    "too many",
    "too big",
    "maximum",
    "limit",
    "less than",
    "more than",
    "longer than",
    "larger than",
    "greater than",
    "at most",
    "overflow",
    "does not fit",
];

/// and none of these, which have limits of their own.
pub(super) const NOT_LENGTHS: [&str; 21] = [
    "per minute",
    "per day",
    "rate limit",
    "quota",
    "max_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "maxoutputtokens",
    "completion tokens",
    "output tokens",
    "budget",
    "temperature",
    "schema",
    "tools",
    "function",
    "image",
    "stop sequence",
    "logprob",
    "api key",
    "access token",
    "expired",
];

/// How providers say that quota or credit is used up: no wait of minutes helps.
pub(super) const QUOTA: [&str; 11] = [
    "insufficient_quota",
    "billing_error",
    "billing_not_active",
    "exceeded your current quota, please check your plan",
    "credit balance is too low",
    "insufficient balance",
    "insufficient_balance",
    "arrearage",
    "insufficient credits",
    "requires more credits",
    "payment required",
];

/// Phrases of errors that refuse images, all words of a row: vendors have a dozen ways to say so. The
/// word alone would be too little: a match makes a session do without its images for good.
pub(super) const IMAGES: [&[&str]; 23] = [
    &["image", "support"],
    &["image", "not enabled"],
    &["image", "process"],
    &["image", "valid"],
    &["image", "exceed"],
    &["image", "too many"],
    &["image", "too large"],
    &["image", "too small"],
    &["image", "may be provided"],
    &["image", "media type"],
    &["image", "format"],
    &["image", "decode"],
    &["image", "download"],
    // Of the type of a part, and of the header without which Copilot takes none.
    &["image", "unknown variant"],
    &["image", "expected"],
    &["vision", "support"],
    &["vision", "enabled"],
    &["vision", "header"],
    &["multimodal", "model"],
    &["multimodal", "support"],
    &["multi-modal", "model"],
    &["multi-modal", "support"],
    // Groq, where only a string is a message.
    &["content", "must be a string"],
];

/// Words that count only where they stand by themselves, as they are parts of names and of other words: `llama-90b-vision`, "revision".
pub(super) const NOUNS: [&str; 2] = ["image", "vision"];

/// How servers of one's own say so, with a status that means something else: llama.cpp, Ollama, vLLM.
pub(super) const NO_IMAGES: [&str; 3] = ["image input", "not support image", "images are not supported"];

/// How templates of models say that a user speaks twice in a row. Nothing that could be left out of the history changes that.
pub(super) const ALTERNATE: &str = "must alternate";

/// The advice for a user whose server insists on alternating roles.
pub(super) const ALTERNATE_HINT: &str = "with kind openai, `assistant_after_user = true` and `assistant_after_tool = true` in \
    [providers.NAME.compat] put a word of the model's between two of a user's";

/// Errors of DeepSeek's and Moonshot's servers about a call without its thinking: all words of a row.
pub(super) const REASONING: [&[&str]; 3] = [
    &["`reasoning_content`", "must be passed back"],
    &["missing `reasoning_content`"],
    &["reasoning_content is missing"],
];

/// Errors about provider items in the history, in lower case: all words of a row.
pub(super) const HISTORY: [&[&str]; 33] = [
    // Anthropic: thinking that it does not know, or that is not where it was; pairs; what is empty.
    &["signature", "thinking"],
    &["expected `thinking`"],
    &["thinking", "cannot be modified"],
    &["message cannot be `thinking`"],
    &["`tool_use` ids"],
    &["unexpected `tool_use_id`"],
    &["must have a single result"],
    &["content", "non-empty"],
    &["content", "non-whitespace"],
    // The same on Bedrock.
    &["toolresult blocks"],
    &["tooluse blocks"],
    &["contentblock object", "is blank"],
    &["content field in the message object is empty"],
    // Chat Completions: OpenAI, DeepSeek, Qwen, Mistral, MiniMax; Cerebras and Groq of thinking that they gave.
    &["must be a response to a prece"],
    &["must be followed by tool messages"],
    &["did not have response messages"],
    &["number of function calls and responses"],
    &["unexpected role", "after role"],
    &["does not follow tool call"],
    &["tool_call_id", "not found"],
    &["duplicate", "call"],
    &["messages", "reasoning", "is unsupported"],
    // Responses.
    &["invalid_encrypted_content"],
    &["encrypted content", "could not be"],
    &["without its required"],
    &["no tool output found"],
    &["no tool call found"],
    &["item", "not persisted"],
    &["duplicate item"],
    // Gemini, also by its compatible endpoint.
    &["thought", "signature"],
    &["function response parts"],
    &["function call turn"],
    &["at least one parts field"],
];
