// What a session used of its GPUs at one moment, as numbers and as text. No page here.
export const GIB = 2 ** 30;

// Returns a point's value in the unit of its plot, GiB or percent; null where the devices do not tell.
export const read = {
  memory: (point) => (point.gpu_memory === null ? null : point.gpu_memory / GIB),
  utilisation: (point) => point.gpu_utilisation,
};

export function clock(seconds) {
  return new Date(seconds * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
}

// Returns the line beside a plot; `share` is the session's GPU memory in bytes, or null.
export function textOf(series, point, share) {
  const number = read[series](point);
  if (number === null) return "not measured per session";
  const when = clock(Date.parse(point.at) / 1000);
  if (series === "utilisation") return `${Math.round(number)} % at ${when}`;
  return `${number.toFixed(2)}${share ? ` of ${(share / GIB).toFixed(2)}` : ""} GiB at ${when}`;
}
