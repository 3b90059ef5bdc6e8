// One upload by tus 1.0 (https://tus.io/protocols/resumable-upload): retried until it arrives, and resumed after a
// reload if the same file is chosen again. No page here; `Upload` is the class of tus-js-client.
import { Backoff } from "#backoff";
import { gettext } from "#i18n";

const FIRST_PAUSE_MS = 1000;
const LONGEST_PAUSE_MS = 30_000;
const SMALL_BYTES = 2 ** 20; // sent within the request that begins it; a larger one could not be resumed then
const CONFLICT = 409;

// By what an upload is found again: the same file for the same place by the same user.
export function fingerprintOf({ user, folder }, { path, file }) {
  return ["gpuplatform", user, folder, path, file.size, file.lastModified].join(":");
}

// A failure that goes by itself: no connection, a lock of a request that is about to end, a server that restarts.
export function isPassing(status) {
  return status === 0 || status === 423 || status === 429 || (status >= 500 && status !== 507);
}

// Returns what to say about a refused upload.
export function problemOf(status, body) {
  try {
    const problem = JSON.parse(body);
    const first = problem.detail ?? Object.values(problem)[0];
    if (status === 401 || /credentials|CSRF/.test(first)) return gettext("You are signed out, or may not write here any more.");
    if (typeof first === "string") return first;
    if (Array.isArray(first)) return String(first[0]);
  } catch {
    // not ours: a proxy's page, or nothing
  }
  if (status === 401 || status === 403) return gettext("You are signed out, or may not write here any more.");
  if (status === 413) return gettext("A proxy in front of the platform refuses so large a file.");
  return gettext("The platform refused it (%(status)s).", { status });
}

export class Transfer {
  #file;
  #upload;
  #events;
  #backoff = new Backoff(FIRST_PAUSE_MS, LONGEST_PAUSE_MS);
  #timer = null;
  #isStopped = false;

  // `site` is { Upload, endpoint, csrf, user, folder }; the item and its events are those of UploadQueue.
  constructor(item, events, site) {
    this.#file = item.file;
    this.#events = events;
    this.#upload = new site.Upload(item.file, {
      endpoint: site.endpoint,
      headers: { "X-CSRFToken": site.csrf },
      metadata: { path: item.path, conflict: item.conflict },
      fingerprint: () => Promise.resolve(fingerprintOf(site, item)),
      removeFingerprintOnSuccess: true,
      uploadDataDuringCreation: item.size <= SMALL_BYTES,
      retryDelays: null, // it is tried again here, for ever
      onProgress: (sent) => {
        this.#backoff.reset();
        events.progress(sent);
      },
      onSuccess: () => events.done(),
      onError: (error) => this.#onError(error),
    });
    this.#begin();
  }

  pause() {
    this.#stop();
    this.#upload.abort();
  }

  resume() {
    this.#isStopped = false;
    this.#begin();
  }

  // Ends the upload for good; what has arrived is deleted.
  cancel() {
    this.#stop();
    this.#upload.abort(true).catch(() => {}); // what is left of it expires
  }

  // The connection is back: does not wait for the next attempt.
  retry() {
    if (this.#timer === null) return;
    clearTimeout(this.#timer);
    this.#begin();
  }

  #stop() {
    this.#isStopped = true;
    clearTimeout(this.#timer);
    this.#timer = null;
  }

  async #begin() {
    this.#timer = null;
    if (!this.#upload.url) {
      const [previous] = (await this.#upload.findPreviousUploads()).slice(-1);
      if (previous) this.#upload.resumeFromPreviousUpload(previous);
    }
    if (!this.#isStopped) this.#upload.start();
  }

  // A file that was changed or removed here fails like a lost connection, but never comes back.
  async #waitUnlessUnreadable() {
    try {
      await this.#file.slice(0, 1).arrayBuffer();
    } catch {
      this.#events.failed(gettext("The file was changed or removed on your computer."));
      return;
    }
    if (this.#isStopped) return;
    this.#events.offline();
    this.#timer = setTimeout(() => this.#begin(), this.#backoff.next());
  }

  #onError(error) {
    if (this.#isStopped) return;
    const response = error.originalResponse;
    const status = response?.getStatus() ?? 0;
    const isBegun = Boolean(this.#upload.url);
    if (status === CONFLICT && !isBegun) {
      this.#events.conflict();
    } else if (isPassing(status) || status === CONFLICT) {
      this.#waitUnlessUnreadable();
    } else {
      this.#events.failed(problemOf(status, response.getBody()));
    }
  }
}
