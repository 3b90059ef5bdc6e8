// The launcher's preferred port: a number that is written ticks its box, and without the tick there is no number.
document.addEventListener("input", ({ target }) => {
  if (target.name === "preferred") target.form.elements.use_preferred.checked = target.value.trim() !== "";
});
document.addEventListener("change", ({ target }) => {
  if (target.name !== "use_preferred") return;
  const number = target.form.elements.preferred;
  if (target.checked) number.focus();
  else number.value = "";
});
