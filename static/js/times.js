// Writes every <time> in the browser's zone: data-time="moment" as a date, "clock" as the time of a day that is named
// unless it is today, "span" as a running length of time.
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const clockOfDay = new Intl.DateTimeFormat(undefined, { weekday: "short", day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });
const moment = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "long" });

function lengthOfTime(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  const days = Math.floor(total / 86400);
  const hours = Math.floor(total / 3600) % 24;
  const minutes = Math.floor(total / 60) % 60;
  if (days) return `${days} d ${hours} h`;
  if (hours) return `${hours} h ${minutes} min`;
  if (minutes) return `${minutes} min ${total % 60} s`;
  return `${total} s`;
}

function write(element) {
  const start = new Date(element.dateTime);
  if (Number.isNaN(start.getTime())) return;
  let text;
  if (element.dataset.time === "span") {
    const end = element.dataset.end ? new Date(element.dataset.end) : new Date();
    text = lengthOfTime((end - start) / 1000);
  } else if (element.dataset.time === "clock") {
    text = (start.toDateString() === new Date().toDateString() ? clock : clockOfDay).format(start);
  } else {
    text = moment.format(start);
  }
  if (element.textContent !== text) element.textContent = text;
  const title = exact.format(start);
  if (element.title !== title) element.title = title;
}

function writeAll() {
  document.querySelectorAll("time[data-time]").forEach(write);
}

writeAll();
document.addEventListener("htmx:afterSwap", writeAll);
setInterval(writeAll, 1000);
