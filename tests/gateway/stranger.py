"""The gateway through programs that strangers wrote, each in its default mode: LIBRARY, URL and TOKEN are the arguments.

Prints `all is well` at the end; a wrong answer is an exception.
"""

import sys

import pydantic

library, url, token = sys.argv[1:]
url += "/v1"


class City(pydantic.BaseModel):
    """A city and its weather."""

    name: str
    sunny: bool


def instructor():
    import instructor
    import openai

    client = instructor.from_openai(openai.OpenAI(base_url=url, api_key=token, max_retries=0))
    city = client.chat.completions.create(
        model="work/m", response_model=City, messages=[{"role": "user", "content": "the weather in Rome"}]
    )
    assert (city.name, city.sunny) == ("Rome", True), city


def pydantic_ai():
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    model = OpenAIChatModel("work/m", provider=OpenAIProvider(base_url=url, api_key=token))
    agent = Agent(model, output_type=City)
    asked = []

    @agent.tool_plain
    def weather(city: str) -> str:
        asked.append(city)
        return "sunny"

    city = agent.run_sync("the weather in Rome").output
    assert city == City(name="Rome", sunny=True) and asked == ["Rome"], (city, asked)


def langchain():
    from langchain_core.tools import tool
    from langchain_openai import ChatOpenAI

    @tool
    def weather(city: str) -> str:
        """The weather in a city."""
        return "sunny"

    model = ChatOpenAI(model="work/m", base_url=url, api_key=token, temperature=0, max_retries=0)
    for choice in ("any", "weather", "required"):
        call = model.bind_tools([weather], tool_choice=choice).invoke("the weather in Rome").tool_calls[0]
        assert (call["name"], call["args"]) == ("weather", {"city": "Rome"}), call
    assert model.with_structured_output(City, method="function_calling").invoke("Rome") == City(name="Rome", sunny=True)
    assert model.with_structured_output(City).invoke("as json: Rome") == City(name="Rome", sunny=True)
    # What agents of the kind ReAct do.
    said = model.bind(stop=["\nObservation:"]).invoke("think aloud").content
    assert said == "Action: look", said
    streamed = "".join(piece.content for piece in model.bind(stop=["\nObservation:"]).stream("think aloud"))
    assert streamed == said, streamed
    # A greeting before the user's first words, and an answer that is begun.
    greeted = [("assistant", "Hello!"), ("user", "say hello")]
    assert model.invoke(greeted).content == "hello there"
    assert model.invoke([("user", "say hello"), ("assistant", "hel")]).content == "hello there"


{"instructor": instructor, "pydantic-ai": pydantic_ai, "langchain": langchain}[library]()
print("all is well")
