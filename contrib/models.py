#!/usr/bin/env python3
"""Makes daemon/src/provider/models.txt: window, longest answer and prices of the models of the presets.

    python3 -m venv /tmp/v && /tmp/v/bin/pip download --no-deps -d /tmp/v litellm
    npm pack --pack-destination /tmp/v @earendil-works/pi-ai@latest
    python3 contrib/models.py /tmp/v/litellm-*.whl /tmp/v/earendil-works-pi-ai-*.tgz > daemon/src/provider/models.txt

Both packages have the MIT licence; nothing of them is run, and only facts are taken: the first has the vendors' models,
the second those of OpenRouter. What they do not say, or say as 0 without meaning that it is free, is unknown: `-`.
"""

import json
import re
import sys
import tarfile
import zipfile
from decimal import Decimal

# The provider in litellm's table, the beginning of a name there that is left out, our preset.
# `dashscope` is the same service in China, whose prices are others.
PRESETS = [
    ("anthropic", "", "anthropic", True),
    ("dashscope", "dashscope/", "alibaba", True),
    ("dashscope", "dashscope/", "dashscope", False),
    ("deepseek", "deepseek/", "deepseek", True),
    ("gemini", "gemini/", "gemini", True),
    ("groq", "groq/", "groq", True),
    ("mistral", "mistral/", "mistral", True),
    ("openai", "", "openai", True),
    ("together_ai", "together_ai/", "together", True),
    ("vertex_ai-language-models", "vertex_ai/", "vertex", True),
    ("vertex_ai-language-models", "", "vertex", True),
    ("xai", "xai/", "xai", True),
]

# Input, output, read from the cache, written to it.
PRICES = [
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
]

# More thresholds than the daemon keeps.
MAX_TIERS = 3


def number(value, scale=1):
    """A positive number without an exponent, or `-`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
        return "-"
    return format((Decimal(str(value)) * scale).normalize(), "f")


def group(entry, suffix=""):
    """The four prices of an entry or a tier, in dollars per million tokens."""
    prices = [number(entry.get(name + suffix), 1_000_000) for name in PRICES]
    # Where thinking has a price of its own, it depends on a setting what an answer costs.
    thinking = entry.get("output_cost_per_reasoning_token" + suffix)
    if thinking and thinking != entry.get("output_cost_per_token" + suffix):
        prices[1] = "-"
    return prices


def groups(entry):
    """The prices up to the first threshold, and from each on."""
    if tiers := entry.get("tiered_pricing"):
        fields = group(tiers[0])
        tiers = tiers[1:]
        if len(tiers) > MAX_TIERS or any(len(tier.get("range", [])) != 2 for tier in tiers):
            return ["-"] * 4
        for tier in tiers:
            fields += [str(int(tier["range"][0])), *group(tier)]
        return fields
    fields = group(entry)
    above = {int(m[1]) for name in entry if (m := re.fullmatch(PRICES[0] + r"_above_(\d+)k_tokens", name))}
    for thousands in sorted(above):
        fields += [str(thousands * 1000), *group(entry, f"_above_{thousands}k_tokens")]
    return fields


def vendors(wheel):
    with zipfile.ZipFile(wheel) as archive:
        table = json.loads(archive.read("litellm/model_prices_and_context_window_backup.json"))
    for provider, start, preset, priced in PRESETS:
        for name, entry in table.items():
            model = name.removeprefix(start)
            if entry.get("litellm_provider") != provider or entry.get("mode") not in ("chat", "responses"):
                continue
            if start and model == name or model.startswith(("ft:", "vertex_ai/")):
                continue
            window, output = number(entry.get("max_input_tokens")), number(entry.get("max_output_tokens"))
            yield f"{preset}/{model}", [window, output, *(groups(entry) if priced else ["-"] * 4)]


def openrouter(package):
    with tarfile.open(package) as archive:
        table = json.load(archive.extractfile("package/dist/providers/data/openrouter.json"))
    names = ["input", "output", "cacheRead", "cacheWrite"]
    for api, entries in table.items():
        if api not in ("anthropic-messages", "openai-completions"):
            continue
        for entry in entries.values():
            free = entry["id"].endswith(":free")
            cost = entry.get("cost") or {}
            fields = ["0"] * 4 if free else [number(cost.get(name)) for name in names]
            tiers = sorted(cost.get("tiers", []), key=lambda tier: tier["inputTokensAbove"])
            if len(tiers) > MAX_TIERS:
                fields, tiers = ["-"] * 4, []
            for tier in tiers:
                fields += [number(tier["inputTokensAbove"]), *[number(tier.get(name)) for name in names]]
            yield f"openrouter/{entry['id']}", [number(entry.get("contextWindow")), number(entry.get("maxTokens")), *fields]


def main():
    lines = {}
    for name, fields in [*vendors(sys.argv[1]), *openrouter(sys.argv[2])]:
        # A name that two entries have is the first's; one that nothing is known of is not listed.
        if not re.search(r"\s", name) and any(field != "-" for field in fields):
            lines.setdefault(name, " ".join(fields))
    for name in sorted(lines, key=str.encode):
        print(name, lines[name])


if __name__ == "__main__":
    main()
