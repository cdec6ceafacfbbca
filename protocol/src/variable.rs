//! The environment variables that a client may give to the daemon, if a configuration says nothing else.

/// What the tools of a session get of the environment of the client that creates it: what programs need to find their things, and
/// no keys.
pub const TOOL_ENV: [&str; 22] = [
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "EDITOR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "JAVA_HOME",
    "VIRTUAL_ENV",
    "NVM_DIR",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "DBUS_SESSION_BUS_ADDRESS",
];

/// The variables with the keys of the providers that need no configuration.
pub const PROVIDER_KEYS: [&str; 15] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENROUTER_API_KEY",
    "DEEPSEEK_API_KEY",
    "MISTRAL_API_KEY",
    "DASHSCOPE_API_KEY",
    "GROQ_API_KEY",
    "XAI_API_KEY",
    "TOGETHER_API_KEY",
    "OLLAMA_API_KEY",
    "LM_API_TOKEN",
    "LLAMA_API_KEY",
    "VLLM_API_KEY",
    "LITELLM_API_KEY",
];
