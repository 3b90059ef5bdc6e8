// The sliders beside the fields of amounts (launch/_amount_field.html): each follows its field, and the field its slider.
import { read, scaleOf, write } from "#amounts";

const fieldOf = (box) => box.querySelector(".form-control");

// Gives the slider its ends, and the amount of the field.
export function fitSlider(box, largest) {
  const slider = box.querySelector("[data-slider]");
  const scale = scaleOf(box.dataset.amount, largest);
  slider.min = scale.from;
  slider.max = scale.to;
  slider.disabled = scale.from === scale.to;
  const amount = read[box.dataset.kind](fieldOf(box).value);
  if (amount >= 0) slider.value = scale.fromAmount(amount);
}

// Writes the amount of the slider into the field.
export function takeSlider(box, largest) {
  const { toAmount } = scaleOf(box.dataset.amount, largest);
  fieldOf(box).value = write[box.dataset.kind](toAmount(Number(box.querySelector("[data-slider]").value)));
}
