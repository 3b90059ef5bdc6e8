// What is sent to a server of OpenAI's API for a conversation, what is read of its answers, and both as examples.
const TOKEN = "gpd_..."; // stands for a secret

// Returns the body of a request: `messages` are the conversation so far, `parameters` those of the page.
export function chatBody(model, messages, { system, temperature, max_tokens }) {
  const body = { model, messages: system ? [{ role: "system", content: system }, ...messages] : messages };
  if (temperature !== null) body.temperature = temperature;
  if (max_tokens !== null) body.max_tokens = max_tokens;
  return body;
}

// Returns { text, usage, error } of one event of a stream, or of a whole answer; what is missing is "" or null.
export function readAnswer(json) {
  const found = parsed(json);
  const choice = found.choices?.[0] ?? {};
  return { text: textOf(choice), usage: found.usage ?? null, error: errorOf(found) };
}

function parsed(json) {
  try {
    return JSON.parse(json) ?? {};
  } catch {
    return {};
  }
}

function textOf({ delta, message, text }) {
  const found = delta?.content ?? message?.content ?? text;
  return typeof found === "string" ? found : "";
}

function errorOf({ error }) {
  return String(error?.message ?? error ?? "");
}

// Returns a word of the shell.
export function shellWord(text) {
  return `'${text.replaceAll("'", `'\\''`)}'`;
}

// Returns the request as a command.
export function asCurl(url, body) {
  return [
    `curl -N ${url}/v1/chat/completions`,
    `  -H "Authorization: Bearer ${TOKEN}"`,
    '  -H "Content-Type: application/json"',
    `  -d ${shellWord(JSON.stringify({ ...body, stream: true }))}`,
  ].join(" \\\n");
}

// Returns the request as a program for the client "openai".
export function asPython(url, { model, messages, ...parameters }) {
  const turn = ({ role, content }) => `        {"role": ${JSON.stringify(role)}, "content": ${JSON.stringify(content)}},`;
  return [
    "from openai import OpenAI",
    "",
    `client = OpenAI(base_url="${url}/v1", api_key="${TOKEN}")`,
    "stream = client.chat.completions.create(",
    `    model=${JSON.stringify(model)},`,
    "    messages=[",
    ...messages.map(turn),
    "    ],",
    ...Object.entries(parameters).map(([name, value]) => `    ${name}=${value},`),
    "    stream=True,",
    ")",
    "for chunk in stream:",
    "    if chunk.choices:",
    '        print(chunk.choices[0].delta.content or "", end="", flush=True)',
    "",
  ].join("\n");
}

// Returns any request as a command; `headers` are pairs.
export function requestAsCurl(url, { method, path, headers, body }) {
  const lines = [`curl -X ${method} ${shellWord(url + path)}`, `  -H "Authorization: Bearer ${TOKEN}"`];
  for (const [name, value] of headers) lines.push(`  -H ${shellWord(`${name}: ${value}`)}`);
  if (body) lines.push(`  --data-binary ${shellWord(body)}`);
  return lines.join(" \\\n");
}

// Returns any request as a program.
export function requestAsPython(url, { method, path, headers, body }) {
  const pairs = [["Authorization", `Bearer ${TOKEN}`], ...headers];
  const written = pairs.map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  const data = body ? `, data=${JSON.stringify(body)}.encode()` : "";
  return [
    "import requests",
    "",
    "headers = {",
    ...written,
    "}",
    `response = requests.request("${method}", ${JSON.stringify(url + path)}, headers=headers${data})`,
    "print(response.status_code, response.text)",
    "",
  ].join("\n");
}
