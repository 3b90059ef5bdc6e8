// A runtime that is chosen fills command, port, health path and variables, where nobody has typed anything else.
const variants = JSON.parse(document.getElementById("variants").textContent);
const form = document.getElementById("deployment-form");
const chooser = form.elements.variant;
let filled = variants[chooser.value] ?? {};

function fill() {
  const next = variants[chooser.value] ?? {};
  for (const [name, value] of Object.entries(next)) {
    const field = form.elements[name];
    const untouched = field.value.trim() === "" || field.value === (filled[name] ?? field.defaultValue);
    if (untouched) field.value = value;
  }
  filled = next;
}

chooser.addEventListener("change", fill);
if (chooser.value && form.elements.command.value === "") fill();
