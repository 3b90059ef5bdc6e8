// Sends a form that was refused again, once the time that the server named is over, as often as it is refused.
{
  const form = document.querySelector("[data-send-again]");
  // A field may be named "submit".
  setTimeout(() => HTMLFormElement.prototype.submit.call(form), Number(form.dataset.sendAgain) * 1000);
}
