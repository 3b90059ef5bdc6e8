// The pages of the launch wizard: one is shown at a time, each has an address, and Back goes back through them.
import { form } from "#launch-form";

const links = [...document.querySelectorAll(".launch-steps [data-step-link]")];
const slugs = links.map((link) => link.dataset.stepLink);
const title = document.title;

function show(slug, { isMoved = true } = {}) {
  form.dataset.step = slug;
  const at = slugs.indexOf(slug);
  for (const link of links) {
    if (link.dataset.stepLink === slug) link.setAttribute("aria-current", "step");
    else link.removeAttribute("aria-current");
  }
  for (const arrow of form.querySelectorAll("[data-step-by]")) {
    const target = links[at + Number(arrow.dataset.stepBy)];
    arrow.hidden = !target;
    if (!target) continue;
    arrow.href = target.href;
    arrow.querySelector("[data-step-title]").textContent = target.querySelector(".launch-step-name").textContent;
  }
  const heading = form.querySelector(`[data-page="${slug}"] .launch-title`);
  document.title = `${heading.textContent} · ${title}`;
  if (!isMoved) return;
  window.scrollTo({ top: 0 });
  heading.focus({ preventScroll: true });
}

function go(slug) {
  if (form.dataset.step === slug) return;
  history.pushState(null, "", links[slugs.indexOf(slug)].href);
  show(slug);
}

export function bindPages() {
  const here = links[slugs.indexOf(form.dataset.step)].href;
  // The address of a form that was refused becomes that of its page: a reload then asks for the page, not to post again.
  history.replaceState(null, "", here);
  show(form.dataset.step, { isMoved: false });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-step-link], [data-step-by]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    go(link.dataset.stepLink ?? slugs[slugs.indexOf(form.dataset.step) + Number(link.dataset.stepBy)]);
  });
  form.addEventListener("launch:go", (event) => go(event.detail.page));
  window.addEventListener("popstate", () => {
    const slug = location.pathname.split("/").filter(Boolean).at(-1);
    show(slugs.includes(slug) ? slug : slugs[0]);
  });
}
