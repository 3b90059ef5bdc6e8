// What a deployment serves over time, and what a resource group lends, as series for plots and as text, in the shape of `usage-series`. No page here.
import { gettext, locale } from "#i18n";

const MAX_DIGITS = 3;
const shown = Array.from({ length: MAX_DIGITS + 1 }, (_, digits) => new Intl.NumberFormat(locale, { maximumFractionDigits: digits }));
const number = (value, digits = 1) => shown[digits].format(value);
const small = (value) => new Intl.NumberFormat(locale, { maximumSignificantDigits: MAX_DIGITS }).format(value);
const seconds = (value) => gettext("%(number)s s", { number: small(value) });
const none = () => gettext("no requests");

// Returns a plot of these values of a point, that says so of one; `text` gets the point.
const plot = (names, mark, text, limit = 0) => ({ readers: names.map((name) => (point) => point[name]), limit: () => limit, mark, text });

// Periods without requests have no value: what stands alone between them is a dot.
const dotted = (each) => ({ ...each, hasDots: true });

// What is held of all that there is.
const held = (name) => ({ ...plot([name], small, (point, stats) => gettext("%(held)s of %(all)s on average", { held: number(point[name]), all: number(stats[name]) })), limit: (stats) => stats[name] });

export const FIGURES = {
  held_gpus: held("gpus"),
  held_cores: held("cores"),
  group_waiting: plot(["waiting"], small, (point) => gettext("%(waiting)s on average", { waiting: number(point.waiting) })),
  requests: plot(["requests_per_second"], small, (point) => gettext("%(rate)s requests a second", { rate: small(point.requests_per_second) })),
  durations: dotted(plot(["p50_seconds", "p95_seconds"], seconds, (point) =>
    point.p50_seconds === null ? none() : gettext("half within %(half)s, 95 %% within %(most)s", { half: seconds(point.p50_seconds), most: seconds(point.p95_seconds) }),
  )),
  errors: plot(["errors", "rejected"], number, (point) => gettext("%(errors)s errors, %(rejected)s turned away", { errors: number(point.errors), rejected: number(point.rejected) })),
  queue: plot(["outstanding", "waiting"], small, (point) => gettext("%(outstanding)s under way, %(waiting)s waiting", { outstanding: number(point.outstanding), waiting: number(point.waiting) })),
  replicas: plot(["replicas"], number, (point) => gettext("%(replicas)s on average", { replicas: number(point.replicas) })),
  gpu_use: plot(["gpu_percent"], (value) => `${number(value, 0)} %`, (point) => (point.gpu_percent === null ? gettext("not measured") : gettext("%(percent)s of what they hold", { percent: `${number(point.gpu_percent, 0)} %` })), 100),
  fgpu_hours: plot(["fgpu_hours"], small, (point) => gettext("%(hours)s fGPU hours", { hours: small(point.fgpu_hours) })),
  cost: dotted(plot(["fgpu_hours_per_1000_requests"], small, (point) =>
    point.fgpu_hours_per_1000_requests === null ? none() : gettext("%(hours)s fGPU hours for 1,000 requests", { hours: small(point.fgpu_hours_per_1000_requests) }),
  )),
};
