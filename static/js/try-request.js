// A request to a deployment, as the form says it, and the response with its headers and up to a megabyte of its body.
import { requestAsCurl, requestAsPython } from "#chat-request";
import { gettext, locale } from "#i18n";
import { firstBytes, networkError, TrialError, TrialTarget } from "#trial-target";

const MAX_BODY_BYTES = 1024 * 1024;
const WITHOUT_BODY = new Set(["GET", "HEAD"]);
const SHOWN_LINE = 60; // characters of a wrong line

const form = document.getElementById("request");
const error = document.getElementById("error");
const stop = document.getElementById("stop");
const send = document.getElementById("send");
const part = (name) => document.getElementById(`response${name}`);
const [known] = JSON.parse(document.getElementById("targets").textContent);
const target = new TrialTarget(known, form.elements.csrfmiddlewaretoken.value);
let underWay = null; // AbortController

// Returns the request of the form. Throws TrialError where it cannot be sent.
function asked() {
  const { method, path, headers, body } = form.elements;
  if (!path.value.startsWith("/")) throw new TrialError(gettext("A path begins with /."));
  if (WITHOUT_BODY.has(method.value) && body.value) {
    throw new TrialError(gettext("A request of the method %(method)s has no body.", { method: method.value }));
  }
  return { method: method.value, path: path.value, headers: withType(pairs(headers.value), body.value), body: body.value };
}

// Returns the headers with the type of a body in JSON, unless they name one: servers refuse it as text/plain.
function withType(headers, body) {
  if (headers.some(([name]) => name.toLowerCase() === "content-type")) return headers;
  try {
    JSON.parse(body);
  } catch {
    return headers;
  }
  return [...headers, ["Content-Type", "application/json"]];
}

function pairs(text) {
  return text.split("\n").filter((line) => line.trim()).map((line) => {
    const [name, ...rest] = line.split(":");
    const pair = [name.trim(), rest.join(":").trim()];
    try {
      if (rest.length === 0) throw new TypeError("no colon");
      new Headers([pair]);
    } catch {
      throw new TrialError(gettext("Write Name: value: %(line)s", { line: line.slice(0, SHOWN_LINE) }));
    }
    return pair;
  });
}

function say(text) {
  error.textContent = text;
  error.hidden = !text;
}

function showExamples() {
  let request;
  try {
    request = asked();
  } catch {
    return; // it is said once it is to be sent
  }
  for (const button of form.querySelectorAll("[data-example]")) {
    button.dataset.copy = (button.dataset.example === "curl" ? requestAsCurl : requestAsPython)(known.url, request);
  }
}

async function show(response, startedAt) {
  const { bytes, isAll } = await firstBytes(response, MAX_BODY_BYTES);
  const milliseconds = Math.round(performance.now() - startedAt).toLocaleString(locale);
  const status = `${response.status} ${response.statusText}`.trim();
  part("-facts").textContent = gettext("%(status)s, after %(milliseconds)s ms", { status, milliseconds });
  part("-headers").textContent = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
  part("-body").textContent = bodyText(bytes, isAll);
  part("").hidden = false;
}

function bodyText(bytes, isAll) {
  const size = bytes.length.toLocaleString(locale);
  if (bytes.length === 0) return gettext("No body");
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true }).decode(bytes, { stream: !isAll });
  } catch {
    return gettext("%(size)s bytes that are no text", { size });
  }
  return isAll ? text : `${text}\n\n${gettext("Only the first %(size)s bytes are shown.", { size })}`;
}

async function sendRequest(event) {
  event.preventDefault();
  if (underWay) return;
  underWay = new AbortController();
  say("");
  stop.hidden = false;
  send.disabled = true;
  part("").hidden = true;
  try {
    const { method, path, headers, body } = asked();
    const startedAt = performance.now();
    const init = { method, headers, body: body || undefined, signal: underWay.signal };
    await show(await target.send(path, init), startedAt);
  } catch (reason) {
    const found = networkError(reason, known.url);
    say(found.name === "AbortError" ? gettext("Stopped.") : found.message);
  }
  underWay = null;
  stop.hidden = true;
  send.disabled = false;
}

form.addEventListener("submit", sendRequest);
form.addEventListener("input", showExamples);
stop.addEventListener("click", () => underWay?.abort());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") underWay?.abort();
  if (event.key === "Enter" && event.ctrlKey && form.contains(event.target)) form.requestSubmit(send);
});
showExamples();
send.disabled = false;
