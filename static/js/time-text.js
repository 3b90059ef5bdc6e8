// Times as text, in the browser's zone and language. No page here.
import { gettext, locale } from "#i18n";

const clock = new Intl.DateTimeFormat(locale, { timeStyle: "short" });
const clockOfDay = new Intl.DateTimeFormat(locale, { weekday: "short", day: "numeric", month: "short", hour: "numeric", minute: "2-digit" });
const moment = new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "short" });
const momentOfYear = new Intl.DateTimeFormat(locale, { month: "short", day: "numeric", hour: "numeric", minute: "2-digit" });
const exact = new Intl.DateTimeFormat(locale, { dateStyle: "full", timeStyle: "long" });

// Returns a length of time in its two largest units.
export function lengthOfTime(seconds) {
  const total = Math.max(0, Math.floor(seconds));
  const days = Math.floor(total / 86400);
  const hours = Math.floor(total / 3600) % 24;
  const minutes = Math.floor(total / 60) % 60;
  if (days) return gettext("%(days)s d %(hours)s h", { days, hours });
  if (hours) return gettext("%(hours)s h %(minutes)s min", { hours, minutes });
  if (minutes) return gettext("%(minutes)s min %(seconds)s s", { minutes, seconds: total % 60 });
  return gettext("%(seconds)s s", { seconds: total });
}

export const SOON_SECONDS = 600; // before an end, which is then shown as a warning

// Returns the time until `end` in seconds, at least 0.
export function secondsLeft(end, now = new Date()) {
  return Math.max(0, (end - now) / 1000);
}

// Returns a moment as text: kind "span" is the time from it to `end` (now where there is none), "ago" says that it is
// past, "left" the time until it, "clock" the time of the day, with the day unless it is today, and any other its date
// and time, without the year if that is the present one.
export function textOf(kind, start, { end = null, now = new Date() } = {}) {
  if (kind === "span") return lengthOfTime(((end ?? now) - start) / 1000);
  if (kind === "ago") return gettext("%(time)s ago", { time: lengthOfTime((now - start) / 1000) });
  if (kind === "left") {
    const seconds = secondsLeft(start, now);
    return seconds ? gettext("%(time)s left", { time: lengthOfTime(seconds) }) : gettext("ending now");
  }
  if (kind === "clock") return (start.toDateString() === now.toDateString() ? clock : clockOfDay).format(start);
  return (start.getFullYear() === now.getFullYear() ? momentOfYear : moment).format(start);
}

// Returns a moment to the second, with its zone.
export function exactTextOf(start) {
  return exact.format(start);
}
