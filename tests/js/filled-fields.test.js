import assert from "node:assert/strict";
import test from "node:test";
import { fillFields } from "#filled-fields";

// A form in which fields have texts, as a browser keeps them.
function formOf(fields) {
  const elements = {};
  for (const [name, initial] of Object.entries(fields)) {
    const isBox = typeof initial === "boolean";
    elements[name] = isBox
      ? { type: "checkbox", tagName: "INPUT", checked: initial, defaultChecked: initial }
      : { type: "text", tagName: "INPUT", text: initial, defaultValue: initial, get value() { return this.text; }, set value(value) { this.text = `${value}`; } };
  }
  return { elements };
}

test("numbers that were filled in are not what somebody typed", () => {
  const form = formOf({ port: "8000", is_tcp: false });
  fillFields(form, { port: 8080, is_tcp: true }, {}, false);
  fillFields(form, { port: 9090, is_tcp: false }, { port: 8080, is_tcp: true }, false);
  assert.deepEqual([form.elements.port.value, form.elements.is_tcp.checked], ["9090", false]);
});

test("what somebody typed stays unless it is replaced", () => {
  const form = formOf({ port: "8000", command: "" });
  form.elements.port.value = "7777";
  fillFields(form, { port: 8080, command: null, name: "chat" }, {}, false);
  assert.deepEqual([form.elements.port.value, form.elements.command.value], ["7777", ""]);
  fillFields(form, { port: 8080 }, {}, true);
  assert.equal(form.elements.port.value, "8080");
});
