// Writes every <time> in the browser's zone: data-time="moment" as a date, "clock" as the time of a day that is named
// unless it is today, "span" as a running length of time, "left" as the time until it, which is a warning near its end.
import { SOON_SECONDS, exactTextOf, secondsLeft, textOf } from "#time-text";
import { setNotice } from "#tab-title";

function write(element) {
  const start = new Date(element.dateTime);
  if (Number.isNaN(start.getTime())) return;
  const runs = element.dataset.time === "span" && !element.dataset.end;
  if (runs && element.title && document.documentElement.classList.contains("is-out-of-date")) return; // nobody knows whether it still runs
  const end = element.dataset.end ? new Date(element.dataset.end) : null;
  const text = textOf(element.dataset.time, start, { end });
  if (element.textContent !== text) element.textContent = text;
  if (element.dataset.time === "left") element.classList.toggle("is-soon", secondsLeft(start) <= SOON_SECONDS);
  const title = exactTextOf(start);
  if (element.title !== title) element.title = title;
}

// The tab's title says how long the session that ends first still has, once that is short.
function writeTitle() {
  const ends = [...document.querySelectorAll("time[data-time=left]")].map((element) => secondsLeft(new Date(element.dateTime)));
  const first = Math.min(...ends.filter((seconds) => seconds > 0));
  setNotice(first <= SOON_SECONDS ? textOf("left", new Date(Date.now() + first * 1000)) : "");
}

function writeAll() {
  document.querySelectorAll("time[data-time]").forEach(write);
  writeTitle();
}

writeAll();
document.addEventListener("htmx:afterSwap", writeAll);
setInterval(writeAll, 1000);
