// Events of a text/event-stream that is read with fetch, since EventSource sends no token. Only their data is kept:
// https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation
const MAX_EVENT_CHARACTERS = 1_000_000;

export class EventStreamParser {
  #rest = ""; // of a line that has not come completely
  #data = []; // of the event that has not
  #size = 0;

  // Takes more of the stream and returns the data of the events that are complete now.
  feed(text) {
    const found = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === "" && this.#data.length > 0) {
        found.push(this.#data.join("\n"));
        this.#data = [];
        this.#size = 0;
      } else if (line.startsWith("data:")) {
        this.#data.push(line.slice(5).replace(/^ /, ""));
        this.#size += line.length;
      }
    }
    if (this.#rest.length + this.#size > MAX_EVENT_CHARACTERS) throw new RangeError("too large an event");
    return found;
  }
}

// Yields the data of the events of a response, as they come.
export async function* eventsOf(response) {
  const parser = new EventStreamParser();
  const decoder = new TextDecoder();
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) return;
    yield* parser.feed(decoder.decode(value, { stream: true }));
  }
}
