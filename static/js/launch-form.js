// The form of the launch page, and what its other scripts ask it.
import { read } from "#amounts";

export const form = document.getElementById("launch");
export const facts = form && JSON.parse(document.getElementById("facts").textContent);
export const field = (name) => document.getElementById(`id_${name}`);
export const imageName = () => field("image_name")?.value.trim() ?? ""; // typed instead of an environment, where that is offered
export const versions = () => form.querySelector("[data-environment]:has(input:checked) select"); // of the chosen environment
export const image = () => (imageName() ? undefined : facts.images[versions()?.value]);
export const group = () => facts.groups[field("resource_group").value];
export const left = () => facts.left[field("project")?.value ?? ""] ?? facts.left[""]; // what the policies leave
export const kindOf = (name) => form.querySelector(`[data-amount="${name}"]`).dataset.kind;
export const amountOf = (name) => read[kindOf(name)](field(name).value);

// Tells the form that a script has changed a field, as if somebody had typed.
export function changed(element = form) {
  element.dispatchEvent(new Event("input", { bubbles: true }));
}
