// A deployment that is tried from the page: requests to its own address, with a token that is kept here alone.
import { gettext, ngettext } from "#i18n";

const MAX_REFUSAL_BYTES = 16 * 1024;

// A request without an answer, in words.
export class TrialError extends Error {}

export class TrialTarget {
  #token = null; // promise of it
  #tokenUrl;
  #csrf;

  constructor({ url, token }, csrf) {
    this.url = url;
    this.#tokenUrl = token;
    this.#csrf = csrf;
  }

  // Returns the response. Throws TrialError, or the signal's AbortError.
  async send(path, { headers = {}, ...init }) {
    const response = await this.#sendOnce(path, headers, init);
    if (!response.headers.get("WWW-Authenticate")?.includes("invalid_token")) return response;
    this.#token = null; // it has expired, or another tab has got one
    init.signal?.throwIfAborted();
    return this.#sendOnce(path, headers, init);
  }

  async #sendOnce(path, headers, init) {
    this.#token ??= this.#make();
    const token = await this.#token;
    const all = new Headers(headers);
    if (all.has("Authorization")) all.set("X-Api-Key", token);
    else all.set("Authorization", `Bearer ${token}`);
    try {
      return await fetch(this.url + path, { ...init, headers: all, credentials: "omit", cache: "no-store" });
    } catch (error) {
      throw networkError(error, this.url);
    }
  }

  async #make() {
    try {
      const response = await fetch(this.#tokenUrl, { method: "POST", headers: { "X-CSRFToken": this.#csrf } });
      const { token } = await response.json();
      return token;
    } catch {
      this.#token = null;
      throw new TrialError(gettext("The platform gave no token. Reload this page; you may have to sign in again."));
    }
  }
}

// Returns what to throw for an error of fetch or of a stream that it reads.
export function networkError(error, url) {
  if (error.name === "AbortError" || error instanceof TrialError) return error;
  return new TrialError(gettext("%(url)s cannot be reached from this browser, or has hung up.", { url }));
}

// Returns why a response is a refusal, in words.
export async function refusalText(response) {
  const detail = detailOf(await textOf(response, MAX_REFUSAL_BYTES));
  const seconds = Number.parseInt(response.headers.get("Retry-After"), 10);
  const said = {
    401: gettext("It does not take the token."),
    429: gettext("It takes no more requests now."),
    503: gettext("It cannot serve now."),
  }[response.status] ?? gettext("It answered with status %(status)s.", { status: response.status });
  const again = ngettext("Send it again in %(count)s second.", "Send it again in %(count)s seconds.", seconds);
  return [said, detail, Number.isNaN(seconds) ? "" : again].filter(Boolean).join(" ");
}

// Returns the first bytes of a response as text, and whether that is all of them.
export async function firstBytes(response, limit) {
  const parts = [];
  let size = 0;
  const reader = response.body?.getReader();
  while (reader && size <= limit) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    size += value.length;
  }
  if (size > limit) await reader.cancel();
  const bytes = new Uint8Array(await new Blob(parts).arrayBuffer());
  return { bytes: bytes.subarray(0, limit), isAll: size <= limit };
}

async function textOf(response, limit) {
  return new TextDecoder().decode((await firstBytes(response, limit)).bytes);
}

// Returns what a body says of an error: that of OpenAI's API, of problem details, or its first line.
export function detailOf(text) {
  try {
    const { error, detail, title, message } = JSON.parse(text) ?? {};
    return String(error?.message ?? error ?? detail ?? message ?? title ?? "").slice(0, 300);
  } catch {
    return text.startsWith("<") ? "" : text.split("\n")[0].slice(0, 300);
  }
}
