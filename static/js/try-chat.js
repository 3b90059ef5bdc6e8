// The chat of a deployment, or of several side by side: one message goes to all, and each has a conversation of its own,
// which stays in this tab.
import { asCurl, asPython, chatBody, readAnswer } from "#chat-request";
import { eventsOf } from "#event-stream";
import { gettext, locale } from "#i18n";
import { firstBytes, networkError, refusalText, TrialError, TrialTarget } from "#trial-target";

const STORED = "gpuplatform.try."; // and the id of the deployment: its conversation
const MAX_ANSWER_CHARACTERS = 1_000_000;
const MAX_ANSWER_BYTES = 4_000_000; // that does not come as a stream
const AT_END_PIXELS = 40;

const form = document.getElementById("chat");
const message = document.getElementById("message");
const stop = document.getElementById("stop");
const send = document.getElementById("send");
let underWay = null; // AbortController

class Pane {
  constructor(element, known) {
    this.id = known.id;
    this.target = new TrialTarget(known, form.elements.csrfmiddlewaretoken.value);
    this.list = element.querySelector("[data-messages]");
    this.empty = element.querySelector("[data-empty]");
    this.error = element.querySelector("[data-error]");
    this.figures = element.querySelector("[data-figures]");
    this.model = element.querySelector("[data-model]");
    this.examples = element.querySelectorAll("[data-example]");
    this.messages = stored(this.id);
    for (const each of this.messages) this.show(each);
    this.model.addEventListener("change", () => this.showExamples());
    this.showExamples();
    this.readModels();
  }

  async readModels() {
    let names = [];
    try {
      const response = await this.target.send("/v1/models", { headers: { Accept: "application/json" } });
      if (!response.ok) throw new TrialError(await refusalText(response));
      const { bytes } = await firstBytes(response, MAX_ANSWER_BYTES);
      names = JSON.parse(new TextDecoder().decode(bytes)).data.map(({ id }) => String(id));
    } catch (error) {
      this.say(error instanceof TrialError ? error.message : gettext("It names no models at /v1/models."));
    }
    this.model.replaceChildren(...(names.length > 0 ? names : ["default"]).map((name) => new Option(name, name)));
    this.showExamples();
  }

  // Sends the message with the conversation before it; returns whether an answer came.
  async ask(content, signal) {
    const before = this.messages;
    const asked = { role: "user", content };
    const shown = this.show(asked);
    const answer = { role: "assistant", content: "" };
    const line = this.show(answer);
    this.say("");
    this.list.setAttribute("aria-busy", "true");
    this.figures.textContent = "";
    try {
      await this.receive(chatBody(this.model.value, [...this.messages, asked], parameters()), answer, line, signal);
    } catch (error) {
      if (error.name !== "AbortError") this.say(error instanceof TrialError ? error.message : gettext("Its answer cannot be read."));
    }
    this.list.removeAttribute("aria-busy");
    line.classList.remove("is-coming");
    if (this.messages !== before) return true; // a new conversation was begun meanwhile
    const hasAnswer = answer.content !== "";
    if (hasAnswer) {
      if (signal.aborted) line.dataset.note = gettext("stopped");
      this.messages.push(asked, answer);
      store(this.id, this.messages);
    } else {
      shown.remove();
      line.remove();
      this.empty.hidden = this.messages.length > 0;
    }
    this.showExamples();
    return hasAnswer;
  }

  async receive(body, answer, line, signal) {
    line.classList.add("is-coming");
    const startedAt = performance.now();
    const response = await this.target.send("/v1/chat/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json", Accept: "text/event-stream, application/json" },
      body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
      signal,
    });
    if (!response.ok) throw new TrialError(await refusalText(response));
    let firstAt = 0;
    let used = null;
    try {
      for await (const data of answersOf(response)) {
        if (data === "[DONE]") break;
        const { text, usage, error } = readAnswer(data);
        if (error) throw new TrialError(error);
        used = usage ?? used;
        if (!text) continue;
        firstAt ||= performance.now();
        answer.content += text;
        this.grow(line, text);
        if (answer.content.length > MAX_ANSWER_CHARACTERS) throw new TrialError(gettext("Its answer is too long to show."));
      }
    } catch (error) {
      throw networkError(error, this.target.url);
    }
    if (!answer.content) this.say(gettext("Its answer was empty."));
    this.figures.textContent = figuresText(used, firstAt - startedAt, performance.now() - startedAt);
  }

  show({ role, content }) {
    const line = document.createElement("div");
    line.className = `try-message is-${role}`;
    const who = document.createElement("span");
    who.className = "try-who";
    who.textContent = role === "user" ? gettext("You") : gettext("Answer");
    const text = document.createElement("div");
    text.className = "try-text";
    text.append(content);
    line.append(who, text);
    this.empty.hidden = true;
    this.list.append(line);
    this.list.scrollTop = this.list.scrollHeight;
    return line;
  }

  grow(line, text) {
    const isAtEnd = this.list.scrollHeight - this.list.scrollTop - this.list.clientHeight < AT_END_PIXELS;
    line.lastChild.append(text);
    if (isAtEnd) this.list.scrollTop = this.list.scrollHeight;
  }

  say(text) {
    this.error.textContent = text;
    this.error.hidden = !text;
  }

  showExamples() {
    const messages = [...this.messages];
    if (message.value.trim() || messages.length === 0) messages.push({ role: "user", content: message.value.trim() || "hello" });
    const body = chatBody(this.model.value || "default", messages, parameters());
    for (const button of this.examples) {
      button.dataset.copy = button.dataset.example === "curl" ? asCurl(this.target.url, body) : asPython(this.target.url, body);
    }
  }

  clear() {
    this.messages = [];
    store(this.id, []);
    for (const line of this.list.querySelectorAll(".try-message")) line.remove();
    this.empty.hidden = false;
    this.figures.textContent = "";
    this.say("");
    this.showExamples();
  }
}

function stored(id) {
  try {
    return JSON.parse(sessionStorage.getItem(STORED + id)) ?? [];
  } catch {
    return [];
  }
}

function store(id, messages) {
  try {
    sessionStorage.setItem(STORED + id, JSON.stringify(messages));
  } catch {
    // it is larger than a tab may keep, and is there until the page is left
  }
}

// Yields the events of a stream, or the one answer of a server that does not stream.
async function* answersOf(response) {
  if (response.headers.get("Content-Type")?.startsWith("text/event-stream")) {
    yield* eventsOf(response);
    return;
  }
  const { bytes, isAll } = await firstBytes(response, MAX_ANSWER_BYTES);
  if (!isAll) throw new TrialError(gettext("Its answer is too long to show."));
  yield new TextDecoder().decode(bytes);
}

function parameters() {
  const number = (name) => (Number.isNaN(form.elements[name].valueAsNumber) ? null : form.elements[name].valueAsNumber);
  return { system: form.elements.system.value.trim(), temperature: number("temperature"), max_tokens: number("max_tokens") };
}

function figuresText(usage, firstMs, allMs) {
  const seconds = (ms) => (ms / 1000).toLocaleString(locale, { maximumFractionDigits: 1, minimumFractionDigits: 1 });
  const times = { first: seconds(Math.max(0, firstMs)), all: seconds(allMs) };
  if (!usage) return gettext("First text after %(first)s s, all after %(all)s s", times);
  const tokens = { asked: usage.prompt_tokens, answered: usage.completion_tokens };
  return gettext("%(asked)s + %(answered)s tokens, first text after %(first)s s, all after %(all)s s", { ...tokens, ...times });
}

async function sendToAll(event) {
  event.preventDefault();
  const content = message.value.trim();
  if (underWay || !content) return;
  underWay = new AbortController();
  const { signal } = underWay;
  stop.hidden = false;
  send.disabled = true;
  message.value = "";
  const answered = await Promise.all(panes.map((pane) => pane.ask(content, signal)));
  underWay = null;
  stop.hidden = true;
  send.disabled = false;
  if (!answered.includes(true) && !message.value) message.value = content;
  for (const pane of panes) pane.showExamples();
  message.focus();
}

const known = JSON.parse(document.getElementById("targets").textContent);
const panes = known.map((each) => new Pane(document.querySelector(`[data-pane="${each.id}"]`), each));
form.addEventListener("submit", sendToAll);
form.addEventListener("input", () => panes.forEach((pane) => pane.showExamples()));
stop.addEventListener("click", () => underWay?.abort());
document.getElementById("clear").addEventListener("click", () => {
  underWay?.abort();
  for (const pane of panes) pane.clear();
  message.focus();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && underWay) underWay.abort();
  if (event.key === "Enter" && event.ctrlKey && form.contains(event.target)) {
    event.preventDefault();
    form.requestSubmit(send.disabled ? undefined : send);
  }
});
send.disabled = false;
