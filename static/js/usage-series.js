// What a session uses, as series for plots and as text. No page here.
import { GIB, write } from "#amounts";
import { gettext, locale, ngettext } from "#i18n";

const GAP_STEPS = 2.5; // records that are further apart are not joined by a line
const DAY_SECONDS = 86_400;
const SHORT_SECONDS = 600; // marks are less than a minute apart
const MIN_AXIS_SECONDS = 60;
const LEAST_RATE = 10_000; // bytes per second that a plot of the network reaches at least

const clock = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit" });
const clockOfSeconds = new Intl.DateTimeFormat(locale, { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const clockOfDay = new Intl.DateTimeFormat(locale, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit" });
const decimals = [0, 1, 2].map((digits) => new Intl.NumberFormat(locale, { minimumFractionDigits: digits, maximumFractionDigits: digits }));

const number = (value, digits) => decimals[digits].format(value);
const scaled = (value, factor) => (value === null || value === undefined ? null : value / factor);

// Returns moments in seconds, and for each reader its values; a gap in the records is a point without values.
export function columns(stats, readers) {
  const columnsOf = [[], ...readers.map(() => [])];
  let before = null;
  for (const point of stats.points) {
    const at = Date.parse(point.at) / 1000;
    if (before !== null && at - before > GAP_STEPS * stats.step) {
      columnsOf.forEach((column, place) => column.push(place ? null : (before + at) / 2));
    }
    columnsOf[0].push(at);
    readers.forEach((read, place) => columnsOf[place + 1].push(read(point)));
    before = at;
  }
  if (before - columnsOf[0][0] < MIN_AXIS_SECONDS) { // uPlot has no time axis for one point alone
    columnsOf.forEach((column, place) => column.unshift(place ? null : before - MIN_AXIS_SECONDS));
  }
  return columnsOf;
}

const rateText = (bytes) => `${write.size(bytes)}/s`;

// Returns the text of a mark on the time axis, given the length in seconds of what is shown.
export function timeMark(seconds, span) {
  const format = span > DAY_SECONDS ? clockOfDay : span > SHORT_SECONDS ? clock : clockOfSeconds;
  return format.format(new Date(seconds * 1000));
}

const unknown = () => gettext("not measured");

// Each plot: how it reads a point, its limit and unit, and what is said of one point.
export const PLOTS = {
  gpu: {
    readers: [(point) => point.gpu_share_utilisation],
    limit: () => 100,
    mark: (value) => `${number(value, 0)} %`,
    text(point, stats) {
      if (point.gpu_utilisation === null) return unknown();
      const card = `${number(point.gpu_utilisation, 0)} %`;
      if (stats.gpu_memory_share === stats.gpu_memory_cards) return gettext("%(card)s of the GPU", { card });
      return gettext("%(share)s of your share, %(card)s of the GPU", { share: `${number(point.gpu_share_utilisation, 0)} %`, card });
    },
  },
  gpu_memory: {
    readers: [(point) => scaled(point.gpu_memory, GIB)],
    limit: (stats) => (stats.gpu_memory_share ?? 0) / GIB,
    mark: (value) => `${number(value, value % 1 ? 1 : 0)} GiB`,
    text(point, stats) {
      if (point.gpu_memory === null) return unknown();
      const values = { used: write.size(point.gpu_memory), share: write.size(stats.gpu_memory_share ?? 0), card: write.size(stats.gpu_memory_cards ?? 0) };
      if (stats.gpu_memory_share === stats.gpu_memory_cards) return gettext("%(used)s of %(limit)s", { ...values, limit: values.card });
      return gettext("%(used)s of your %(share)s; the GPU has %(card)s", values);
    },
  },
  cpu: {
    readers: [(point) => scaled(point.cpu_milli, 1000)],
    limit: (stats) => stats.cpu_milli / 1000,
    mark: (value) => number(value, value % 1 ? 1 : 0),
    text: (point, stats) =>
      point.cpu_milli === null
        ? unknown()
        : ngettext("%(used)s of %(count)s core", "%(used)s of %(count)s cores", stats.cpu_milli / 1000, { used: write.cores(point.cpu_milli) }),
  },
  memory: {
    readers: [(point) => scaled(point.memory, GIB)],
    limit: (stats) => stats.memory / GIB,
    mark: (value) => `${number(value, value % 1 ? 1 : 0)} GiB`,
    text: (point, stats) => (point.memory === null ? unknown() : gettext("%(used)s of %(limit)s", { used: write.size(point.memory), limit: write.size(stats.memory) })),
  },
  network: {
    readers: [(point) => point.received, (point) => point.sent],
    limit: () => 0,
    least: LEAST_RATE,
    steps: Array.from({ length: 40 }, (_, power) => 2 ** power), // between marks, so that they are whole units
    mark: rateText,
    text: (point) => (point.received === null ? unknown() : gettext("%(received)s received, %(sent)s sent", { received: rateText(point.received), sent: rateText(point.sent) })),
  },
};

// Returns the upper end of a plot's scale: its limit, or a little above the most that was seen, and `least` at least.
export function top(limit, most, least = 0) {
  return Math.max(limit, (most || 0) * 1.05, least) || 1;
}
