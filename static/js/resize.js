// The sliders of the dialog that resizes a session; the server has written their ends.
import { fitSlider, takeSlider } from "#amount-sliders";

const largestOf = (box) => Number(box.dataset.most);

function fit() {
  for (const box of document.querySelectorAll("#resize [data-amount]")) fitSlider(box, largestOf(box));
}

document.addEventListener("input", (event) => {
  const box = event.target.closest("#resize [data-amount]");
  if (box && event.target.matches("[data-slider]")) takeSlider(box, largestOf(box));
  else if (box) fitSlider(box, largestOf(box));
});
document.addEventListener("htmx:afterSettle", fit);
fit();
