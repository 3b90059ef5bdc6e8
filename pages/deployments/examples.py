"""Requests to a deployment that its page shows, to be copied."""

from typing import Final

from deployments.models import Deployment

OPENAI: Final = frozenset({"vllm", "sglang", "llama.cpp", "tgi"})  # variants whose servers speak OpenAI's API
TOKEN: Final = "gpd_..."  # noqa: S105  # stands for a secret


def curl(deployment: Deployment, url: str) -> str:
    """Return a command."""
    lines = [f"curl {url}{_path(deployment)}"]
    if not deployment.is_public:
        lines.append(f'  -H "Authorization: Bearer {TOKEN}"')
    if is_openai(deployment):
        body = '{"model": "default", "messages": [{"role": "user", "content": "Hello"}]}'
        lines += ['  -H "Content-Type: application/json"', f"  -d '{body}'"]
    return " \\\n".join(lines)


def python(deployment: Deployment, url: str) -> str:
    """Return a program."""
    if is_openai(deployment):
        key = "unused" if deployment.is_public else TOKEN
        return (
            "from openai import OpenAI\n\n"
            f'client = OpenAI(base_url="{url}/v1", api_key="{key}")\n'
            "model = client.models.list().data[0].id\n"
            'messages = [{"role": "user", "content": "Hello"}]\n'
            "for chunk in client.chat.completions.create(model=model, messages=messages, stream=True):\n"
            '    print(chunk.choices[0].delta.content or "", end="")\n'
        )
    headers = "" if deployment.is_public else f', headers={{"Authorization": "Bearer {TOKEN}"}}'
    return f'import requests\n\nresponse = requests.get("{url}{_path(deployment)}"{headers})\nprint(response.text)\n'


def is_openai(deployment: Deployment) -> bool:
    """Return whether its server speaks OpenAI's API, as far as its runtime variant says so."""
    variant = deployment.revision.variant if deployment.revision else None
    return variant is not None and variant.name in OPENAI


def _path(deployment: Deployment) -> str:
    if is_openai(deployment):
        return "/v1/chat/completions"
    return (deployment.revision.health_path if deployment.revision else "") or "/"
