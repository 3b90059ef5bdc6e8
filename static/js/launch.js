// The launch wizard. Each change is kept on the server, which says when the sessions would start and what is wrong; only
// the inputs are posted, and the server decides. Without this script the form is one page and still launches.
import { bindAmounts, choose, showAmounts, wordShares } from "#launch-amounts";
import { bindEnvironment, isWaiting, showEnvironment } from "#launch-environment";
import { bindFolders, mountsNothing } from "#launch-folders";
import { field, form } from "#launch-form";
import { bindPages } from "#launch-pages";
import { bindProblems, hasProblems, setProblems, showAll, touch } from "#launch-problems";
import { bindVariables } from "#launch-variables";
import { bindSearch } from "#row-search";

const CHECK_MS = 200; // after the last change
const QUIET = "gpuplatform.launch-without-folders"; // set: it was asked not to be asked again
const SENT_LAST = "gpuplatform.launch-draft"; // the version of the draft that was sent as the page was left
const WHEN_LEFT = new Set(["name", "image_name"]); // what is wrong with these is said once they are left

const isQuiet = () => Boolean(localStorage.getItem(QUIET));
const advice = document.getElementById("advice");
const button = document.getElementById("launch-button");
const question = document.getElementById("no-folders");
let timer = 0;
let changes = 0; // since the page was opened
let checked = -1; // what of them the server has answered
let asked = 0; // what of them it was sent last
let kept = 0; // what of them it was sent as the page was left
let isLaunching = false;

function show() {
  showEnvironment();
  showAmounts();
  const waits = isWaiting();
  button.disabled = waits || isLaunching;
  document.getElementById("launch-waits").hidden = !waits;
  advice.hidden = waits; // it would say the same, as it was a while ago
}

function check() {
  asked = changes;
  advice.dispatchEvent(new Event("launch:check"));
}

function noteChange(event) {
  if (event.target !== form && !WHEN_LEFT.has(event.target.name)) touch(event.target);
  changes += 1;
  form.elements.changes.value = changes;
  show();
  clearTimeout(timer);
  timer = setTimeout(check, CHECK_MS);
}

// Returns whether an input is no longer as the page came.
function isChanged(input) {
  if (input.type === "radio" || input.type === "checkbox") return input.checked !== input.defaultChecked;
  if (input.options) return [...input.options].some((option) => option.selected !== option.defaultSelected);
  return "defaultValue" in input && input.value !== input.defaultValue;
}

// Keeps what the server has not answered yet, when the page is left: that ends its requests.
function keep() {
  if (isLaunching || checked === changes || kept === changes) return;
  kept = changes;
  navigator.sendBeacon(advice.getAttribute("hx-post"), new FormData(form));
  sessionStorage.setItem(SENT_LAST, `${form.elements.form_key.value}:${changes}`);
}

// Returns whether the page was rendered before what was sent as the last one was left had arrived. Asked once.
function isOvertaken() {
  const sent = sessionStorage.getItem(SENT_LAST);
  sessionStorage.removeItem(SENT_LAST);
  return sent && sent !== form.dataset.draftVersion;
}

function launch(event) {
  if (event.submitter?.hasAttribute("formaction")) return; // goes elsewhere than to a launch
  const isKnown = checked === changes;
  if (isLaunching) {
    event.preventDefault();
  } else if (isKnown && hasProblems()) {
    event.preventDefault();
    showAll();
  } else if (form.dataset.step === "review" && mountsNothing() && !isQuiet() && !question.open) {
    event.preventDefault();
    question.showModal();
  } else {
    isLaunching = true;
    form.elements.unread.value = form.dataset.step === "review" ? "" : isQuiet() ? "queue" : "queue folders";
    clearTimeout(timer);
    button.classList.add("btn-loading");
    setTimeout(() => (button.disabled = true)); // after the post has been put together
  }
}

function bindQuestion() {
  const answer = (id, act) => document.getElementById(id).addEventListener("click", act);
  answer("no-folders-launch", () => {
    if (document.getElementById("no-folders-quiet").checked) localStorage.setItem(QUIET, "1");
    form.requestSubmit(button);
    question.close();
  });
  answer("no-folders-choose", () => {
    question.close();
    form.dispatchEvent(new CustomEvent("launch:go", { detail: { page: "folders" } }));
  });
}

// The earliest start is picked in the browser's zone; what is posted is the same moment in UTC.
function bindStart() {
  const posted = field("not_before");
  const shown = posted.cloneNode();
  const typed = new Date(posted.value.includes("Z") ? posted.value : `${posted.value.replace(" ", "T")}Z`);
  shown.type = "datetime-local";
  shown.removeAttribute("name");
  if (!Number.isNaN(typed.getTime())) {
    shown.value = new Date(typed - typed.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
  }
  posted.type = "hidden";
  posted.removeAttribute("id");
  posted.removeAttribute("aria-describedby");
  posted.after(shown);
  shown.addEventListener("input", () => (posted.value = shown.value && new Date(shown.value).toISOString()));
}

function bindOthers() {
  const rows = () => form.querySelectorAll(".dependency-list label");
  bindSearch(document.getElementById("other-search"), rows, (row) => row.querySelector("select").value);
}

function bindAnswers() {
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target !== advice) return;
    checked = asked;
    setProblems(JSON.parse(document.getElementById("launch-problems").textContent));
  });
  document.addEventListener("htmx:oobAfterSwap", (event) => wordShares(event.detail.target));
  advice.addEventListener("click", (event) => {
    const proposal = event.target.closest("[data-choose]");
    if (proposal) choose(proposal.dataset.choose, proposal.dataset.value);
  });
}

if (form && isOvertaken()) {
  advice.removeAttribute("hx-trigger"); // it would keep what this page shows
  location.reload();
} else if (form) {
  const changedBefore = [...form.elements].filter(isChanged); // while the scripts were being loaded
  bindStart();
  bindEnvironment();
  bindAmounts();
  bindVariables();
  bindFolders();
  bindOthers();
  bindPages();
  bindProblems();
  bindQuestion();
  bindAnswers();
  show();
  form.addEventListener("input", noteChange);
  form.addEventListener("focusout", (event) => {
    if (!WHEN_LEFT.has(event.target.name) || !event.target.value) return;
    touch(event.target);
    if (checked === changes) check();
  });
  form.addEventListener("submit", launch);
  document.addEventListener("click", (event) => {
    for (const help of document.querySelectorAll("details.help[open]")) if (!help.contains(event.target)) help.open = false;
  });
  for (const input of changedBefore) noteChange({ target: input });
  addEventListener("beforeunload", keep);
  addEventListener("pagehide", keep);
  addEventListener("pageshow", () => {
    isLaunching = false;
    button.classList.remove("btn-loading");
    show();
  });
}
