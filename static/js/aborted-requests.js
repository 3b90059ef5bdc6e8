// A page that is left aborts its requests, and a newer request an older one: nothing that htmx should log as an error.
// It reports an abort as two events, the first of which every request without an answer has, beside an event of its own.
const SILENT = ["htmx:afterRequest", "htmx:sendAbort"];

globalThis.htmx.logger = (_element, name, detail) => {
  if (SILENT.includes(name)) detail.error = null;
};
